"""How TensorRT-LLM cuts the memory it has for the cache into pools of blocks.

One pool for all attention layers; with ``max_attention_window`` of several values a pool for each
(VSWA), which by default share the memory evenly; slots of recurrent state for every request of a
batch, and a snapshot every so many tokens when blocks are reused. Sources:
``tensorrt_llm/_torch/pyexecutor/resource_manager.py`` (``calculate_max_num_blocks``,
``calculate_max_num_blocks_for_vswa``, ``_calculate_max_num_blocks_for_linear_attention``) and
``_util.py`` (``KvCacheCreator``), NVIDIA/TensorRT-LLM at 00043967.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tokenroom.engines.tensorrt_llm.resolve import Resolved
from tokenroom.memory.kv_cache import (
    attention_cell_bytes,
    element_bytes,
    indexer_bytes_per_token,
    recurrent_state,
)
from tokenroom.memory.rank_weights import split_layers
from tokenroom.models.spec import Attention, LatentAttention, Layer, ModelSpec, Recurrent


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCache:
    """What a token and a request take on one stage.

    Attributes:
        window_bytes: Bytes a token of each window's layers, as allocated.
        window_layers: Layers of each window.
        estimated_bytes: Bytes a token by the estimate that sizes the pool: it divides heads by
            ranks even below one.
        state_bytes: Recurrent state of one sequence over all layers.
    """

    window_bytes: dict[int, int]
    window_layers: dict[int, int]
    estimated_bytes: int
    state_bytes: int

    @property
    def token_bytes(self) -> int:
        """Bytes a token in all pools."""
        return sum(self.window_bytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Blocks that every rank has.

    Attributes:
        blocks: Blocks of each window's pool.
        slots: Slots of recurrent state, 0 without recurrent layers.
    """

    blocks: dict[int, int]
    slots: int

    def bytes_on(self, cache: StageCache, tokens_per_block: int) -> int:
        """What the pools take on a stage."""
        paged = sum(
            count * tokens_per_block * cache.window_bytes.get(window, 0)
            for window, count in self.blocks.items()
        )
        return paged + self.slots * cache.state_bytes


def stage_cache(
    spec: ModelSpec, resolved: Resolved, stage: int, draft: Sequence[Layer] = ()
) -> StageCache:
    """Bytes a token and a sequence take on a stage.

    Args:
        spec: The model.
        resolved: Settings.
        stage: Which pipeline stage.
        draft: Layers of a drafter, kept on the last stage.
    """
    window_bytes = dict.fromkeys(sorted(set(resolved.windows)), 0)
    window_layers = dict.fromkeys(window_bytes, 0)
    estimated = state = number = 0
    local = split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage)
    full = max(window_bytes, default=resolved.max_seq_len)
    for index, layer in enumerate(spec.layers):
        cached = any(isinstance(mixer, (Attention, LatentAttention)) for mixer in layer.mixers)
        window = resolved.windows[number] if cached else 0
        number += cached
        if index not in local:
            continue
        each, guessed, kept = _layer(layer, resolved)
        if cached:
            window_bytes[window] += each
            window_layers[window] += 1
        estimated += guessed
        state += kept
    if local.stop == spec.num_layers:
        for layer in draft:
            each, guessed, kept = _layer(layer, resolved)
            window_bytes[full] = window_bytes.get(full, 0) + each
            window_layers[full] = window_layers.get(full, 0) + 1
            estimated += guessed
            state += kept
    return StageCache(
        window_bytes=window_bytes,
        window_layers=window_layers,
        estimated_bytes=estimated,
        state_bytes=state,
    )


def _layer(layer: Layer, resolved: Resolved) -> tuple[int, int, int]:
    """Bytes a token as allocated, by the estimate, and recurrent state of one sequence.

    Allocated: ceil(KV heads / ranks) heads (``KVCacheManager.__init__``); estimated: head size x
    heads // ranks (``get_cache_size_per_token``). Latent attention keeps one vector a token on
    every rank; a sparse indexer its own keys.
    """
    ranks, dtype = resolved.attention_ranks, resolved.kv_cache_dtype
    each = guessed = state = 0
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            if mixer.shares_kv_of is not None or mixer.encoder_only or mixer.cross:
                continue
            cell = attention_cell_bytes(mixer.head_dim, mixer.value_head_dim, dtype)
            each += -(-mixer.num_kv_heads // ranks) * cell
            guessed += mixer.num_kv_heads * cell // ranks
        elif isinstance(mixer, LatentAttention):
            width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            cell = (
                ceil(width / 2) + ceil(width / 16)
                if dtype == "nvfp4"
                else width * element_bytes(dtype)
            )
            if mixer.indexer is not None:
                cell += indexer_bytes_per_token(mixer.indexer)
            each += cell
            guessed += cell
        elif isinstance(mixer, Recurrent):
            kept = recurrent_state(
                mixer,
                convolution_dtype=resolved.dtype,
                recurrent_dtype=resolved.mamba_ssm_cache_dtype,
                tensor_parallel_size=ranks,
            )
            state += kept.num_bytes
    return each, guessed, state


def stage_tokens(
    cache: StageCache, resolved: Resolved, available_bytes: int, free_bytes: int
) -> int:
    """Tokens one stage has room for, in a pool that is not cut by windows.

    The estimate divides what is available; the manager then takes at most its fraction of what is
    free when it allocates, by the true bytes of a token.

    Args:
        cache: Bytes a token.
        resolved: Settings.
        available_bytes: What profiling left for the pool.
        free_bytes: What is free when the pool is allocated.
    """
    if available_bytes <= 0 or not (cache.estimated_bytes or cache.state_bytes):
        return 0
    if cache.state_bytes:
        interval = resolved.mamba_state_cache_interval
        slope = cache.token_bytes + (cache.state_bytes // interval if interval else 0)
        fixed = resolved.max_batch_size * resolved.pipeline_parallel_size * cache.state_bytes
        tokens = max(0, available_bytes - fixed) // max(1, slope)
    else:
        tokens = available_bytes // cache.estimated_bytes
        share = resolved.free_gpu_memory_fraction * free_bytes
        tokens = min(tokens, int(share // cache.token_bytes))
    return tokens if resolved.max_tokens is None else min(tokens, resolved.max_tokens)


def cut_pools(
    caches: Sequence[StageCache],
    resolved: Resolved,
    available: Sequence[int],
    free: Sequence[int],
) -> Pools:
    """The blocks of every pool: the least that any rank has room for."""
    size = resolved.tokens_per_block
    if len(resolved.window_shares) > 1:
        windows = sorted(caches[0].window_bytes)
        blocks = {
            window: min(
                int(max(0, room) * share / cache.window_bytes[window] // size)
                for cache, room in zip(caches, available, strict=True)
                if cache.window_bytes[window]
            )
            for window, share in zip(windows, resolved.window_shares, strict=True)
        }
        return Pools(blocks=blocks, slots=0)
    tokens = min(
        stage_tokens(cache, resolved, room, left)
        for cache, room, left in zip(caches, available, free, strict=True)
    )
    window = next(iter(caches[0].window_bytes), resolved.max_seq_len)
    return Pools(
        blocks={window: whole_blocks(tokens, resolved)}, slots=_slots(caches, resolved, tokens)
    )


def whole_blocks(tokens: int, resolved: Resolved) -> int:
    """Blocks for so many tokens: a last partial one is kept by built engines and dropped else."""
    size = resolved.tokens_per_block
    return tokens // size if resolved.build is None else -(-tokens // size)


def _slots(caches: Sequence[StageCache], resolved: Resolved, tokens: int) -> int:
    """Slots of recurrent state: the batch, one for padding graphs, and snapshots."""
    if not any(cache.state_bytes for cache in caches):
        return 0
    slots = resolved.max_batch_size * resolved.pipeline_parallel_size + 1
    slots += resolved.speculative_tokens
    interval = resolved.mamba_state_cache_interval
    if resolved.enable_block_reuse and interval:
        slots += tokens // interval
    return slots


def blocks_of_request(tokens: int, window: int, resolved: Resolved) -> int:
    """Blocks one request of that length holds in a window's pool.

    Beyond its window a request keeps one block more, as the first is not yet out of reach
    (``cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp``). Drafted tokens count.
    """
    needed = tokens + resolved.speculative_tokens
    blocks = -(-min(needed, window) // resolved.tokens_per_block) + (needed > window)
    return blocks * resolved.max_beam_width
