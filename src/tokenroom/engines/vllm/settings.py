"""What a user may set on vLLM, as far as memory and speed depend on it.

``None`` everywhere means "not set": the engine's own default applies, which
:mod:`tokenroom.engines.vllm.defaults` fills in per version, GPU and usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeSettings:
    """``--speculative-config``: how tokens are drafted.

    Attributes:
        method: ``"mtp"``, ``"eagle"``, ``"eagle3"``, ``"draft_model"``, ``"ngram"``...
        num_speculative_tokens: Tokens drafted a step.
        model: Draft model, None when the method needs none or uses the target's MTP blocks.
        draft_tensor_parallel_size: None for the target's.
        quantization: Of the draft model, None for what its files say.
        max_model_len: Of the draft model, None for the target's.
        kv_cache_dtype: Of the draft model's cache, None for the target's.
    """

    method: str
    num_speculative_tokens: int
    model: str | None = None
    draft_tensor_parallel_size: int | None = None
    quantization: str | None = None
    max_model_len: int | None = None
    kv_cache_dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMSettings:
    """Engine arguments of vLLM under their own names; sizes in bytes, lengths in tokens.

    ``usage`` is ``"server"`` for ``vllm serve``, ``"llm"`` for the offline ``LLM`` class and
    ``"other"`` for batch runs and the demo server: some defaults differ. ``environment`` holds the
    VLLM_* variables that were given. ``unknown_flags`` are flags this version does not have,
    ``ignored_flags`` known ones without influence on memory; both are reported, never dropped in
    silence.
    """

    version: str | None = None
    usage: str = "server"
    dtype: str | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    enable_expert_parallel: bool | None = None
    decode_context_parallel_size: int | None = None
    prefill_context_parallel_size: int | None = None
    max_model_len: int | None = None  # -1: the largest that fits
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    block_size: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    mamba_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    mamba_block_size: int | None = None
    mamba_cache_mode: str | None = None
    enforce_eager: bool | None = None
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    cudagraph_mode: str | None = None
    cpu_offload_bytes: int | None = None
    async_scheduling: bool | None = None
    attention_backend: str | None = None
    speculative: SpeculativeSettings | None = None
    enable_lora: bool | None = None
    max_loras: int | None = None
    max_lora_rank: int | None = None
    fully_sharded_loras: bool | None = None
    limit_mm_per_prompt: Mapping[str, int] | None = None
    language_model_only: bool | None = None
    mm_processor_max_pixels: int | None = None
    max_logprobs: int | None = None
    kv_offload_bytes: int | None = None
    runner: str | None = None  # "generate", "pooling", "draft"; None or "auto" for the model's own
    convert: str | None = None  # "embed", "classify", ...: of a generating model a pooling one
    task: str | None = None  # the flag of versions before 0.13, such as "embed"
    disable_sliding_window: bool | None = None
    performance_mode: str | None = None  # "throughput" doubles the batch defaults
    optimization_level: int | None = None  # -O0 captures no graphs
    compilation_mode: int | None = None  # compilation_config.mode, formerly .level
    data_parallel_size_local: int | None = None
    data_parallel_external_lb: bool | None = None
    nnodes: int | None = None
    enable_eplb: bool | None = None
    num_redundant_experts: int | None = None
    all2all_backend: str | None = None
    enable_dbo: bool | None = None
    disable_custom_all_reduce: bool | None = None
    max_num_scheduled_tokens: int | None = None
    max_num_active_seqs: int | None = None
    scheduling_policy: str | None = None
    long_prefill_token_threshold: int | None = None
    long_prefill_token_threshold_adaptive: bool | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: float | None = None
    prefix_cache_retention_interval: int | None = None
    kv_cache_dtype_skip_layers: tuple[str, ...] | None = None
    kv_sharing_fast_prefill: bool | None = None
    lora_dtype: str | None = None
    max_cpu_loras: int | None = None
    lora_extra_vocab_size: int | None = None
    enable_prompt_embeds: bool | None = None
    enable_sleep_mode: bool | None = None
    skip_mm_profiling: bool | None = None
    mm_encoder_only: bool | None = None
    mm_encoder_tp_mode: str | None = None
    mm_ipc_gpu_memory_bytes: int | None = None
    model_impl: str | None = None
    load_format: str | None = None
    moe_backend: str | None = None
    linear_backend: str | None = None
    kv_connector: str | None = None
    attention_config: Mapping[str, object] = field(default_factory=dict)
    hf_overrides: Mapping[str, object] = field(default_factory=dict)
    mm_processor_kwargs: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown_flags: tuple[str, ...] = ()
    ignored_flags: tuple[str, ...] = ()
