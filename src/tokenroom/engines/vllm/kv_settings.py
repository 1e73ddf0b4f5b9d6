"""The settings that vLLM's KV cache depends on, resolved, and what follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenroom.models.spec import ModelSpec

KERNEL_BLOCK_SIZE: Final = 16
"""Smallest block of FlashAttention, FlashInfer and Triton attention."""

_HALF_PRECISION: Final = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSettings:
    """vLLM's settings as far as the cache of a layer depends on them, all resolved.

    Attributes:
        tensor_parallel_size: Ranks that heads are divided over.
        pipeline_parallel_size: Stages that layers are divided over.
        decode_context_parallel_size: Ranks that a sequence is divided over.
        layer_partition: Layers of each stage (VLLM_PP_LAYER_PARTITION), None for vLLM's own.
        block_size: Tokens a block, as set or as the attention backend prefers.
        kv_cache_dtype: ``"auto"`` or a type of ``--kv-cache-dtype``.
        model_dtype: Type the model runs in, None for the checkpoint's.
        mamba_cache_dtype: Type of convolution states, ``"auto"`` for the model's.
        mamba_ssm_cache_dtype: Type of recurrent states, ``"auto"`` for the checkpoint's wish.
        mamba_cache_mode: ``"none"``, ``"align"`` (prefix caching) or ``"all"`` (before 0.32).
        mamba_block_size: Block size of states where set, None for vLLM's own.
        mamba_chunk_size: Chunk of the Mamba-2 kernel, for mode ``"all"``.
        num_speculative_tokens: Tokens drafted a step.
        extra_retained_tokens: Tokens that windows keep for several draft modules.
        kernel_block_size: Smallest block of the attention kernels.
        hybrid_manager: False with disable_hybrid_kv_cache_manager.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    layer_partition: tuple[int, ...] | None = None
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    model_dtype: str | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: str = "none"
    mamba_block_size: int | None = None
    mamba_chunk_size: int = 256
    num_speculative_tokens: int = 0
    extra_retained_tokens: int = 0
    kernel_block_size: int = KERNEL_BLOCK_SIZE
    hybrid_manager: bool = True


def resolved_kv_dtype(spec: ModelSpec, settings: KVCacheSettings) -> str:
    """The type the cache is stored in: as set, else as the checkpoint asks, else the model's.

    DeepSeek-V4 packs whatever FP8 or automatic type in its own layout (models/deepseek_v4).
    """
    dtype = settings.kv_cache_dtype
    if spec.model_type.startswith("deepseek_v4") and (dtype == "auto" or dtype.startswith("fp8")):
        return "fp8_ds_mla"
    if dtype == "auto":
        return spec.kv_cache_dtype or running_dtype(spec, settings)
    return dtype


def running_dtype(spec: ModelSpec, settings: KVCacheSettings) -> str:
    """The type the model runs in; float32 checkpoints run in bfloat16 by default.

    Source: config/model.py ``_resolve_auto_dtype``.
    """
    if settings.model_dtype is not None and settings.model_dtype != "auto":
        return settings.model_dtype
    return spec.dtype if spec.dtype in _HALF_PRECISION else "bfloat16"
