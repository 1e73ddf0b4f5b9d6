"""Why SGLang would not start, by the phase in which it finds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tokenroom.engines.policy import Deployment, Refusal, StageMemory, capture_refusal
from tokenroom.engines.sglang.plan import StagePools
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.stage_pools import pools_of_free
from tokenroom.units import MIB, TIB

_LARGEST_BYTES: Final = 1024 * TIB


def refusal_of(
    deployment: Deployment,
    stages: Sequence[StageMemory],
    parts: Sequence[StagePools],
    tokens: int,
) -> Refusal | None:
    """Why it would not start, by the phase in which it would find out."""
    resolved: ResolvedSettings = deployment.resolved
    fraction = resolved.mem_fraction_static
    for stage, part in zip(stages, parts, strict=True):
        if stage.weights_bytes > part.free_before_bytes:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=stage.weights_bytes + stage.context_bytes,
                available_bytes=stage.total_bytes,
            )
    for rank, part in enumerate(parts):
        if not _serves(part, resolved.page_size):
            static = part.free_before_bytes - part.slack_bytes
            needed = max(static + 1, _least_static_bytes(deployment, rank, part))
            return Refusal(
                cause="static_share_too_small",
                phase="kv_init",
                needed_bytes=needed,
                available_bytes=static,
                values={
                    "fraction": f"{fraction:g}",
                    "least": f"{needed / part.free_before_bytes:.3f}",
                },
            )
    if tokens < resolved.page_size or tokens < 2:
        part = min(parts, key=lambda part: part.token_bytes)
        static = part.free_before_bytes - part.slack_bytes
        return Refusal(
            cause="static_share_too_small",
            phase="kv_init",
            needed_bytes=static + 1,
            available_bytes=static,
            values={
                "fraction": f"{fraction:g}",
                "least": f"{static / part.free_before_bytes + 0.001:.3f}",
            },
        )
    return capture_refusal(stages)


def _serves(part: StagePools, page_size: int) -> bool:
    """Whether a stage's own pools hold a request at all."""
    if part.states is not None and part.states.max_requests < 1:
        return False
    return part.token_bytes > 0 and part.pools.max_total_num_tokens >= max(2, page_size)


def _least_static_bytes(deployment: Deployment, rank: int, part: StagePools) -> int:
    """The least static share with which a stage serves, whatever share it has now.

    Found by halving, since states and tokens divide what the share leaves by the engine's rules.
    """
    resolved: ResolvedSettings = deployment.resolved
    before, after = part.free_before_bytes, part.free_after_bytes

    def serves(static: int) -> bool:
        share = replace(resolved, mem_fraction_static=static / before)
        tried = replace(deployment, resolved=share)
        return _serves(pools_of_free(tried, rank, before, after), resolved.page_size)

    low, high = before - after, before
    while not serves(high) and high < _LARGEST_BYTES:
        low, high = high, 2 * high
    while high - low > MIB:
        middle = (low + high) // 2
        low, high = (low, middle) if serves(middle) else (middle, high)
    return high
