"""What a rank's profile run and graph capture depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tokenroom.hardware.accelerator import Accelerator

Terms: TypeAlias = tuple[tuple[str, int], ...]
"""Named parts of an estimate in bytes, in the order in which they are allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileInputs:
    """One rank's settings, with every default of the engine already filled in.

    Attributes:
        dtype: Type of activations, such as ``"bfloat16"``.
        tensor_parallel_size: Ranks that share each layer.
        pipeline_parallel_size: Stages that the layers are spread over.
        pipeline_rank: Which stage this rank belongs to, from 0.
        data_parallel_size: Copies that experts may be spread over.
        enable_expert_parallel: Whole experts are given to ranks instead of slices of each.
        max_num_batched_tokens: Token budget of a step.
        max_num_seqs: Requests of a step.
        max_model_len: Longest sequence in tokens.
        block_size: Tokens of a KV block.
        accelerator: The GPU.
        attention_backend: Name as the engine logs it, such as ``"FLASH_ATTN"``.
        kv_cache_dtype: Type of the KV cache, ``"auto"`` for the model's own.
        capture_sizes: Token counts that graphs are captured for, empty for none.
        piecewise_graphs: Graphs of the pieces between attention layers are captured.
        full_graphs: Graphs of whole decode steps are captured.
        enforce_eager: Neither compilation nor graphs.
        pooling: The model returns embeddings or scores, and never samples.
        speculative_tokens: Tokens drafted a step, 0 without speculative decoding.
        max_loras: Adapters a batch may mix, 0 without LoRA.
        mm_limits: Items a prompt may hold by modality (``"image"``); an absent one is unlimited.
        language_model_only: The encoder is neither loaded nor profiled.
        skip_mm_profiling: The encoder is loaded but left out of the profile run.
        encoder_shares_items: Every rank runs the whole encoder on its share of the items.
        disable_custom_all_reduce: Collectives go through NCCL alone.
        second_runner: The second model runner runs the model, None for as the version chooses.
        flashinfer_sampler: VLLM_USE_FLASHINFER_SAMPLER, None when not set.
        quantization: ``--quantization``, which V0 took for a wish for that very kernel; None when
            not set.
        others_bytes: What other processes hold on the GPU.
    """

    dtype: str = "bfloat16"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    pipeline_rank: int = 0
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    block_size: int = 16
    accelerator: Accelerator
    attention_backend: str = "FLASH_ATTN"
    kv_cache_dtype: str = "auto"
    capture_sizes: tuple[int, ...] = ()
    piecewise_graphs: bool = True
    full_graphs: bool = True
    enforce_eager: bool = False
    pooling: bool = False
    speculative_tokens: int = 0
    max_loras: int = 0
    mm_limits: Mapping[str, int] = field(default_factory=dict)
    language_model_only: bool = False
    skip_mm_profiling: bool = False
    encoder_shares_items: bool = False
    disable_custom_all_reduce: bool = False
    second_runner: bool | None = None
    flashinfer_sampler: bool | None = None
    quantization: str | None = None
    others_bytes: int = 0

    @property
    def is_first_stage(self) -> bool:
        """This rank holds the token embedding."""
        return self.pipeline_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """This rank holds the output projection and samples."""
        return self.pipeline_rank == self.pipeline_parallel_size - 1
