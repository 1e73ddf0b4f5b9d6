"""Every vLLM setting with its value, as ``defaults.resolve`` gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenroom.engines.policy import Setting
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.model_length import ModelLength
from tokenroom.engines.vllm.model_traits import ModelTraits
from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSettings:
    """Every setting filled in; sizes in bytes, lengths in tokens.

    ``settings`` says for each name of this class the value, whose it is and why; ``asked`` holds
    what the user set, for settings that need no filling in. ``None`` stays
    only where the engine itself keeps "none": kv_cache_memory_bytes, num_gpu_blocks_override,
    mamba_block_size (the state covers the whole sequence) and the like.
    """

    version: str
    engine: EngineGeneration
    usage: str
    traits: ModelTraits
    length: ModelLength
    dtype: str
    quantization: str | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    decode_context_parallel_size: int
    prefill_context_parallel_size: int
    enable_expert_parallel: bool
    max_model_len: int
    fits_max_model_len: bool  # auto: the largest length that fits, max_model_len at most
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    kv_cache_dtype: str
    kv_cache_memory_bytes: int | None
    num_gpu_blocks_override: int | None
    block_size: int
    attention_backend: str
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    hybrid_manager: bool
    mamba_cache_dtype: str
    mamba_ssm_cache_dtype: str
    mamba_cache_mode: str
    mamba_block_size: int | None
    enforce_eager: bool
    cudagraph_mode: str
    cudagraph_capture_sizes: tuple[int, ...]
    async_scheduling: bool
    second_runner: bool
    max_in_flight_tokens: int
    speculative: SpeculativeSettings | None
    enable_lora: bool
    max_loras: int
    max_lora_rank: int
    fully_sharded_loras: bool
    lora_dtype: str
    limit_mm_per_prompt: Mapping[str, int]
    language_model_only: bool
    skip_mm_profiling: bool
    disable_custom_all_reduce: bool
    cpu_offload_bytes: int
    max_logprobs: int
    environment: Mapping[str, str]
    asked: VLLMSettings
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Accelerators of one data-parallel copy."""
        return (
            self.tensor_parallel_size
            * self.pipeline_parallel_size
            * self.prefill_context_parallel_size
        )

    @property
    def num_speculative_tokens(self) -> int:
        """Tokens drafted a step, 0 without speculative decoding."""
        return self.speculative.num_speculative_tokens if self.speculative else 0
