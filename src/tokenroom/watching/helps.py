"""What helps against an alert: the remedies of the causes that ``explain`` knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.diagnosis.finding import CauseName, Finding, Phase
from tokenroom.diagnosis.remedies import Remedy, remedies
from tokenroom.fitting import FitResult
from tokenroom.watching.observation import Alert, Help

_CAUSES: Final[Mapping[str, CauseName]] = {
    "kv_high": CauseName.KV_POOL_TOO_SMALL,
    "preempting": CauseName.KV_POOL_TOO_SMALL,
    "queue_growing": CauseName.KV_POOL_TOO_SMALL,
    "kv_above_weights": CauseName.KV_POOL_TOO_SMALL,
    "torch_gap": CauseName.FRAGMENTATION,
    "host_leak": CauseName.LEAK,
    "gpu_leak": CauseName.LEAK,
    "gpu_growing": CauseName.LEAK,
    "pool_smaller": CauseName.OTHER_PROCESS,
    "above_plan": CauseName.OTHER_PROCESS,
}
_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    # alerts that some remedies of the cause are about
    "kv_above_weights": ("kv_type",),
    "kv_high": ("share", "kv_type", "gpus"),  # the pool is full, not the request too long
    "preempting": ("share", "kv_type", "gpus"),
    "queue_growing": ("share", "kv_type", "gpus"),
    "pool_smaller": ("stop_others",),
    "above_plan": ("stop_others",),
}


def helps(
    alert: Alert, engine: str | None, result: FitResult | None, *, waterline: float
) -> tuple[Help, ...]:
    """What helps, the cheapest first; nothing against what has no remedy of its own.

    Args:
        alert: The alert.
        engine: The engine whose flags are named.
        result: The prediction, for the effect; None where there is none.
        waterline: Share of the KV pool from which on it holds a queue up.
    """
    cause = _CAUSES.get(alert.key)
    if cause is None:
        return ()
    if alert.key == "queue_growing":
        share = alert.values.get("kv_share")
        if not isinstance(share, int | float) or share < waterline:
            return ()  # requests come faster than they are computed; the pool has room
    finding = Finding(cause=cause, phase=Phase.RUNTIME, weight=1.0, evidence=(), reason="watch")
    wanted = _ONLY.get(alert.key)
    found = remedies(finding, None if engine == "torch" else engine, result)
    return tuple(_help(one) for one in found if wanted is None or one.key in wanted)


def _help(remedy: Remedy) -> Help:
    effect = remedy.effect
    before, after = (None, None) if effect is None else effect.pool_tokens
    return Help(
        key=remedy.key,
        flag=remedy.flag,
        cost=int(remedy.cost),
        values={
            name: value if isinstance(value, int | float | str) else str(value)
            for name, value in remedy.values.items()
        },
        starts=None if effect is None else effect.starts,
        pool_tokens_before=before,
        pool_tokens_after=after,
    )
