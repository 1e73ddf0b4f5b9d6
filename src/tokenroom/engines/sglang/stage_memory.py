"""Where the memory of one pipeline stage goes, pools and what is left beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.engines.policy import Deployment, Estimate, StageMemory
from tokenroom.engines.sglang.cells import cells_of
from tokenroom.engines.sglang.plan import StagePools
from tokenroom.engines.sglang.pools import TokenPools
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.runtime_memory import graph_memory, prefill_peak, step_terms
from tokenroom.engines.sglang.stage_weights import draft_layers, stage_layers_of
from tokenroom.engines.sglang.taken import context_bytes, context_range, runtime_memory
from tokenroom.memory.activations import terms_bytes

_POSITION_BYTES: Final = 4
_ROW_EXTRA: Final = 4


def stage_memory(
    deployment: Deployment,
    resolved: ResolvedSettings,
    rank: int,
    weights: Mapping[str, int],
    part: StagePools,
    pools: TokenPools,
    running: int,
) -> StageMemory:
    """What each kind of use takes of a stage's card.

    Args:
        deployment: What is planned.
        resolved: Its settings, with the graphs that are captured.
        rank: The pipeline stage.
        weights: Its weights by component.
        part: What it has for pools.
        pools: The pools of every stage.
        running: Requests that run at once in one copy of attention.
    """
    spec, node = deployment.spec, deployment.node
    accelerator = node.accelerator
    context = context_bytes(accelerator, resolved.tp_size, resolved.pp_size)
    low, high = context_range(resolved.tp_size, resolved.pp_size)
    driver = runtime_memory(resolved.attention_backend, resolved.tp_size)
    pool_bytes = round(pools.max_total_num_tokens * part.pools.bytes_per_token)
    pool_bytes += part.pools.fixed_bytes
    if part.states is not None:
        pool_bytes += part.states.num_bytes
    if not resolved.rules.draft_cells_charged:
        drafts = cells_of(
            draft_layers(deployment),
            resolved.kv_cache_dtype,
            resolved.attention_tp_size,
            resolved.rules,
            raw_latents=resolved.raw_latents,
            dtype=resolved.dtype,
        )
        pool_bytes += pools.max_total_num_tokens * sum(cell.num_bytes for cell in drafts)
    length = resolved.context_length + _ROW_EXTRA + (resolved.draft_tokens or 0)
    decode = max(resolved.decode_bs, default=1) * (resolved.draft_tokens or 1)
    graphs = graph_memory(spec, resolved, len(stage_layers_of(deployment, rank)))
    static = round(part.free_before_bytes * resolved.mem_fraction_static)
    return StageMemory(
        pipeline_parallel_rank=rank,
        total_bytes=accelerator.memory_bytes,
        budget_bytes=static,
        context_bytes=context + node.used_bytes,
        weights=weights,
        activation=prefill_peak(spec, resolved),
        activation_decode_bytes=terms_bytes(step_terms(spec, resolved, decode, decode)),
        cuda_graphs=graphs,
        cuda_graph_actual_bytes=graphs.num_bytes,
        non_torch=_with_context_range(driver, low, high),
        buffers_bytes=(running + 1) * length * _POSITION_BYTES,
        available_bytes=part.token_bytes,
        kv_pool_bytes=pool_bytes if part.token_bytes > 0 else 0,
        kv_bytes_per_token=float(part.pools.bytes_per_token),
    )


def _with_context_range(driver: Estimate, low: int, high: int) -> Estimate:
    """The range of what is outside PyTorch, that of the communicators before it included."""
    return replace(
        driver,
        low_bytes=max(0, driver.low_bytes + low),
        high_bytes=driver.high_bytes + high,
    )
