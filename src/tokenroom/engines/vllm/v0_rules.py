"""What the V0 engine did differently from version to version, as data.

Read in the source distributions of 0.4.1 to 0.10.2: worker/worker.py, worker/model_runner.py,
worker/cache_engine.py, engine/arg_utils.py, config.py, model_executor/layers/sampler.py,
attention/backends/flash_attn.py, model_executor/models/llama.py,
distributed/device_communicators/pynccl.py, csrc/quantization/gptq_marlin/gptq_marlin.cu.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tokenroom.engines.vllm.rules import Accounting

PADDED_HEAD: Final = 256
"""Elements of a latent head in the cache before 0.7.1 (config.py ``get_head_size``)."""


class LatentCache(StrEnum):
    """What V0 kept of latent attention (DeepSeek-V2 and later)."""

    PADDED_HEADS = "padded_heads"  # every head's keys and values, padded to 256 elements
    LATENT = "latent"  # the latent and the rotary key
    ALIGNED_LATENT = "aligned_latent"  # the same, rounded up to 256 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class V0Rules:
    """The decisions that differ between versions; defaults are those of 0.10.

    Attributes:
        accounting: From which moment on memory outside PyTorch is charged.
        communicates_alone: A first all-reduce opens PyTorch's communicator even on one GPU.
        float32_logits: Logits are turned into float32 before they are masked.
        copies_attention: FlashAttention's output is copied into a second tensor.
        llama_drops_gate_up: Llama's feed-forward block lets go of the first product's output
            before the second product.
        copies_all_reduce: All-reduces through NCCL have an output of their own.
        marlin_copies_input: Marlin kernels allocate room for reordered inputs in any case.
        marlin_float_sums: They allocate float32 partial sums.
        gptq_marlin: GPTQ weights are multiplied by Marlin kernels.
        awq_marlin: So are AWQ weights.
        shares_expert_buffers: The first and the last expert product share a buffer.
        chunks_long_contexts: Prompts are chunked by default beyond 32768 tokens.
        prefix_caching_forbids_chunks: But not with prefix caching.
        chunked_tokens: Token budget of a step with chunked prefill.
        multimodal_tokens: Least token budget of a model with an encoder, None for no least.
        pooling_tokens: Least token budget of a pooling model, None for no least.
        interleaves_windows: Models with windows on some layers run past the window's length.
        latent_forbids_chunks: Latent attention is never chunked by default; from 0.7.1 to 0.7.3 it
            kept the budget that chunking had set.
        latent_cache: What is kept of latent attention.
        largest_graph: Most requests a captured step serves.
    """

    accounting: Accounting = Accounting.BEFORE_GROUPS
    communicates_alone: bool = False
    float32_logits: bool = True
    copies_attention: bool = False
    llama_drops_gate_up: bool = True
    copies_all_reduce: bool = True
    marlin_copies_input: bool = False
    marlin_float_sums: bool = True
    gptq_marlin: bool = True
    awq_marlin: bool = True
    shares_expert_buffers: bool = True
    chunks_long_contexts: bool = True
    prefix_caching_forbids_chunks: bool = False
    chunked_tokens: int = 2048
    multimodal_tokens: int | None = 5120
    pooling_tokens: int | None = 32768
    interleaves_windows: bool = True
    latent_forbids_chunks: bool = True
    latent_cache: LatentCache = LatentCache.LATENT
    largest_graph: int = 8192


NEWEST: Final = V0Rules()

# Each entry turns the rules of the versions after it into those of the versions before the named
# one: what the named version introduced is taken back.
_INTRODUCED: Final[tuple[tuple[tuple[int, int, int], dict[str, object]], ...]] = (
    (
        (0, 8, 0),
        {
            "latent_forbids_chunks": False,
            "latent_cache": LatentCache.ALIGNED_LATENT,
            "shares_expert_buffers": False,
            "marlin_copies_input": True,
        },
    ),
    ((0, 7, 2), {"latent_cache": LatentCache.LATENT}),
    ((0, 7, 1), {"latent_cache": LatentCache.PADDED_HEADS}),
    (
        (0, 6, 5),
        {
            "accounting": Accounting.TOTAL,
            "copies_all_reduce": False,
            "chunked_tokens": 512,
        },
    ),
    (
        (0, 6, 4),
        {
            "accounting": Accounting.RESERVED,
            "llama_drops_gate_up": False,
            "interleaves_windows": False,
        },
    ),
    ((0, 6, 2), {"prefix_caching_forbids_chunks": True}),
    ((0, 6, 1), {"copies_attention": True, "largest_graph": 256, "multimodal_tokens": 4096}),
    ((0, 6, 0), {"multimodal_tokens": None}),
    ((0, 5, 5), {"float32_logits": False}),
    ((0, 5, 4), {"awq_marlin": False, "marlin_float_sums": False}),
    ((0, 5, 3), {"chunks_long_contexts": False}),
    (
        (0, 5, 0),
        {"communicates_alone": True, "chunked_tokens": 768, "pooling_tokens": None},
    ),
    ((0, 4, 2), {"gptq_marlin": False}),
)


@lru_cache(maxsize=64)
def v0_rules(version: tuple[int, int, int]) -> V0Rules:
    """The V0 engine's rules in a version given as (major, minor, patch)."""
    rules = NEWEST
    for introduced, before in _INTRODUCED:
        if version < introduced:
            rules = replace(rules, **before)  # type: ignore[arg-type]
    return rules
