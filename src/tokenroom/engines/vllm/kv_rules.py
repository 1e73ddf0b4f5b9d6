"""How vLLM's sizing of the KV cache changed from version to version, as data.

Each field names one decision of the engine; :func:`kv_cache_rules` gives the values of a version.
Read in the source distributions of 0.8.0 to 0.11.0, 0.12.0, 0.14.0 and 0.16.0 to 0.33.0
(v1/kv_cache_interface.py, v1/core/kv_cache_utils.py, from 0.33 v1/core/kv_cache_planning.py,
platforms/interface.py, model_executor/models/config.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tokenroom.engines.vllm.rules import version_number


class NeededBytes(StrEnum):
    """How the memory one request of full length needs is added up for the start-up check."""

    LAYERS = "layers"  # every layer by itself, before grouping
    FIRST_GROUP = "first_group"  # the first group's blocks, as if there were no other
    GROUPS = "groups"  # the blocks of every group


class WindowBlock(StrEnum):
    """Which block size a sliding-window layer starts from."""

    CACHE = "cache"  # the cache's own
    SMALLEST = "smallest"  # the smallest that the attention kernels take
    ALIGNED = "aligned"  # the largest multiple of that within the cache's own


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheRules:
    """The decisions that differ between versions; defaults are those of 0.33.

    Attributes:
        tokens_from_concurrency: The logged "KV cache size" is max_concurrency x max_model_len;
            before 0.20.1 it was num_blocks // groups x the smallest block size.
        holds_null_block: One block of the pool is never handed out (V1's block_pool.py).
        reserves_null_block: The start-up check leaves out the block the pool never hands out.
        needed: How the check adds up what a request needs.
        override_counts_in_check: The check sees the memory of num_gpu_blocks_override.
        counts_in_flight_batches: Windows hold every batch in flight, not one.
        balance_ratio: A bucket up to this many times the smallest sets the group size; 0 never.
        grows_blocks: Smaller pages are grown to the largest by whole factors.
        pads_attention_pages: Attention pages that do not divide the largest are padded to it.
        pads_state_pages: State pages below the largest are padded to it.
        merges_buckets: Specs that can be merged share a bucket, not only equal ones.
        packs_groups: Block-outermost layouts pack pages of different sizes side by side; before
            0.29 for DeepSeek-V4 only, before 0.27 in padded tuples, which are not modelled.
        window_block: The block size of sliding-window layers.
        hybrid_mla_alignment: Smallest block of latent attention beside recurrent layers.
        aligns_to_cache_block: Beside recurrent layers the block grows in steps of the set one.
        checkpoint_blocks: State blocks that Mamba-2 keeps besides with prefix caching.
        state_blocks_for_drafts: Recurrent layers hold a block for each speculative token.
    """

    tokens_from_concurrency: bool = True
    holds_null_block: bool = True
    reserves_null_block: bool = True
    needed: NeededBytes = NeededBytes.GROUPS
    override_counts_in_check: bool = True
    counts_in_flight_batches: bool = True
    balance_ratio: float = 1.5
    grows_blocks: bool = True
    pads_attention_pages: bool = True
    pads_state_pages: bool = True
    merges_buckets: bool = True
    packs_groups: bool = True
    window_block: WindowBlock = WindowBlock.ALIGNED
    hybrid_mla_alignment: int = 128
    aligns_to_cache_block: bool = True
    checkpoint_blocks: int = 1
    state_blocks_for_drafts: bool = True


NEWEST: Final = KVCacheRules()

# Each entry turns the rules of the versions after it into those of the versions before the named
# one: what the named version introduced is taken back.
_INTRODUCED: Final[tuple[tuple[tuple[int, int, int], dict[str, object]], ...]] = (
    ((0, 32, 0), {"checkpoint_blocks": 0}),
    ((0, 30, 0), {"window_block": WindowBlock.SMALLEST}),
    ((0, 29, 0), {"reserves_null_block": False}),
    (
        (0, 27, 0),
        {"packs_groups": False, "merges_buckets": False, "hybrid_mla_alignment": 1},
    ),
    ((0, 26, 0), {"counts_in_flight_batches": False, "pads_state_pages": False}),
    ((0, 25, 0), {"window_block": WindowBlock.CACHE}),
    ((0, 24, 0), {"pads_attention_pages": False}),
    ((0, 20, 1), {"tokens_from_concurrency": False, "override_counts_in_check": False}),
    ((0, 20, 0), {"aligns_to_cache_block": False, "hybrid_mla_alignment": 64}),
    ((0, 19, 0), {"needed": NeededBytes.FIRST_GROUP}),
    ((0, 18, 0), {"balance_ratio": 1.25}),
    ((0, 14, 0), {"needed": NeededBytes.LAYERS}),
    (
        (0, 12, 0),
        {"balance_ratio": 0.0, "grows_blocks": False, "state_blocks_for_drafts": False},
    ),
)


@lru_cache(maxsize=64)
def kv_cache_rules(version: str | None = None) -> KVCacheRules:
    """The rules of a vLLM version such as ``"0.19.0"``; None for the newest known.

    Raises:
        DeploymentError: The text is no version, or one before 0.4.
    """
    if version is None:
        return NEWEST
    number = version_number(version)
    rules = NEWEST
    for introduced, before in _INTRODUCED:
        if number < introduced:
            rules = replace(rules, **before)  # type: ignore[arg-type]
    return rules
