"""What one pipeline stage has for its pools, and the pools it could hold alone.

``rest = avail_after_load - free_before_load x (1 - mem_fraction_static)`` becomes the pools
(``kv_cache_configurator.py`` ``_profile_available_bytes``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tokenroom.engines.policy import Deployment
from tokenroom.engines.sglang.backends import has_states
from tokenroom.engines.sglang.cells import Cell, cells_of
from tokenroom.engines.sglang.compressed import compressed_costs, compressed_pools, is_compressed
from tokenroom.engines.sglang.plan import StagePools
from tokenroom.engines.sglang.pools import TokenPools, has_window_pool, token_pools, window_cap
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.stage_weights import draft_layers, stage_layers_of
from tokenroom.engines.sglang.states import (
    StateInputs,
    StatePool,
    state_bytes_per_request,
    state_pool,
)
from tokenroom.engines.sglang.taken import LOADING_BYTES, context_bytes
from tokenroom.models.spec import Attention, Layer
from tokenroom.units import MIB

_MULTIMODAL_CACHE_BYTES: Final = 100 * MIB


def stage_pools(deployment: Deployment, rank: int, weights: Mapping[str, int]) -> StagePools:
    """What a stage has for its pools once its weights are loaded, and what it could hold alone."""
    resolved: ResolvedSettings = deployment.resolved
    node = deployment.node
    before = (
        node.accelerator.memory_bytes
        - context_bytes(node.accelerator, resolved.tp_size, resolved.pp_size)
        - node.used_bytes
    )
    loaded = sum(weights.values())
    if not resolved.rules.drafts_loaded_first:
        loaded -= weights.get("draft", 0)
    return pools_of_free(deployment, rank, before, before - loaded - LOADING_BYTES)


def pools_of_free(deployment: Deployment, rank: int, before: int, after: int) -> StagePools:
    """The pools that a stage could hold alone.

    Args:
        deployment: What is planned.
        rank: The pipeline stage.
        before: Bytes free before the weights: ``avail mem`` of "Load weight begin".
        after: Bytes free after them: ``avail mem`` of "Load weight end".
    """
    resolved: ResolvedSettings = deployment.resolved
    spec, layers = deployment.spec, stage_layers_of(deployment, rank)
    slack = round(before * (1 - resolved.mem_fraction_static))
    reserved = 0
    if spec.towers and resolved.towers and resolved.rules.since(0, 5, 18):
        reserved = _MULTIMODAL_CACHE_BYTES
    rest = after - slack - reserved
    states = _states(deployment, rest) if has_states(spec) else None
    token_bytes = rest - (states.num_bytes if states is not None else 0)
    cells = cells_of(
        layers,
        resolved.kv_cache_dtype,
        resolved.attention_tp_size,
        resolved.rules,
        raw_latents=resolved.raw_latents,
        dtype=resolved.dtype,
        unused_keys=_has_unused_keys(resolved),
    )
    draft_bytes = 0
    if is_compressed(spec.layers):
        pools = _compressed(deployment, layers, token_bytes)
    else:
        draft_bytes = _draft_cell(deployment, cells)
        windowed = has_window_pool(
            spec.architecture, cells, resolved.rules, disabled=not resolved.hybrid_swa
        )
        pools = token_pools(
            token_bytes,
            cells,
            page_size=resolved.page_size,
            window_ratio=resolved.swa_full_tokens_ratio if windowed else None,
            window_tokens=_window_tokens(resolved, layers) if windowed else None,
            draft_bytes_per_token=draft_bytes,
        )
    return StagePools(
        cells=cells,
        free_before_bytes=before,
        free_after_bytes=after,
        slack_bytes=slack,
        reserved_bytes=reserved,
        states=states,
        token_bytes=token_bytes,
        pools=pools,
        draft_bytes_per_token=draft_bytes,
    )


def _compressed(deployment: Deployment, layers: Sequence[Layer], token_bytes: int) -> TokenPools:
    """Pools of compressed caches (DeepSeek V4)."""
    resolved: ResolvedSettings = deployment.resolved
    spec, rules = deployment.spec, resolved.rules
    running = resolved.max_running_requests or 0
    whole = not rules.since(0, 5, 13)  # every stage was charged all blocks and the MTP block
    costs = compressed_costs(
        spec.layers if whole else layers,
        rules,
        page_size=resolved.page_size,
        window_ratio=resolved.swa_full_tokens_ratio,
        max_running_requests=max(1, running // resolved.attention_dp_size),
        draft_tokens=resolved.draft_tokens,
        extra_layers=len(spec.mtp_layers) if whole else 0,
    )
    return compressed_pools(
        token_bytes,
        costs,
        page_size=resolved.page_size,
        window_ratio=resolved.swa_full_tokens_ratio,
    )


def _has_unused_keys(resolved: ResolvedSettings) -> bool:
    """Whether layers that reuse a selection of keys have a selector's keys all the same.

    ``DSATokenToKVPool`` has them for every layer before 0.5.18, and later where rows are moved
    (``kv_cache_configurator.py`` ``_should_elide_dsa_index_k``).
    """
    moved = resolved.hicache_ratio > 0 or resolved.disaggregation_mode != "null"
    return moved or not resolved.rules.since(0, 5, 18)


def _draft_cell(deployment: Deployment, cells: Sequence[Cell]) -> int:
    """Bytes that a token is charged for the draft's own pool."""
    resolved: ResolvedSettings = deployment.resolved
    drafts = len(draft_layers(deployment))
    num_layers = sum(item.num_layers for item in cells)
    if not (drafts and resolved.rules.draft_cells_charged and num_layers):
        return 0
    return int(sum(item.num_bytes for item in cells) * drafts / num_layers)


def _window_tokens(resolved: ResolvedSettings, layers: Sequence[Layer]) -> int | None:
    """Slots of a window pool sized by what may run, None where the ratio sizes it."""
    asked = resolved.max_running_requests
    drafting = resolved.speculative_algorithm is not None
    chunk = resolved.chunked_prefill_size
    if asked is None or chunk <= 0 or resolved.radix_cache or drafting:
        return None
    if not resolved.rules.since(0, 5, 14):
        return None
    return window_cap(
        page_size=resolved.page_size,
        window=max(
            mixer.window
            for layer in layers
            for mixer in layer.mixers
            if isinstance(mixer, Attention) and mixer.window is not None
        ),
        max_running_requests=asked // resolved.attention_dp_size,
        chunked_prefill_size=chunk,
        overlap=resolved.overlap,
    )


def _states(deployment: Deployment, rest: int) -> StatePool:
    resolved: ResolvedSettings = deployment.resolved
    largest = max(
        state_bytes_per_request(
            stage_layers_of(deployment, rank),
            resolved.attention_tp_size,
            state_dtype=resolved.mamba_ssm_dtype,
        )
        for rank in range(resolved.pp_size)
    )
    return state_pool(
        rest,
        StateInputs(
            bytes_per_request=largest,
            ratio=resolved.mamba_full_memory_ratio,
            max_mamba_cache_size=resolved.max_mamba_cache_size,
            max_running_requests=resolved.max_running_requests,
            attention_dp_size=resolved.attention_dp_size,
            radix_cache=resolved.radix_cache,
            extra_buffer=resolved.extra_buffer,
            overlap=resolved.overlap,
            draft_tokens=resolved.draft_tokens,
        ),
        resolved.rules,
    )
