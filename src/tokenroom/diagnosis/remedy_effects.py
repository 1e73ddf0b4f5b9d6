"""What a change of settings does to a deployment, by its ledger before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tokenroom.engines.launch import written_settings
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.models.quantization import what_if
from tokenroom.serving_speed import usual_speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a remedy changes, by the ledger before and after it.

    Attributes:
        starts: Whether the engine would start with it.
        pool_tokens: Tokens of the KV pool, before and after.
        activation_bytes: Activation peak on the governing GPU, before and after.
        weights_bytes: Weights there, before and after.
        ttft_ratio: Mean TTFT after over before, at a usual load; None where it is not known.
        tpot_ratio: Mean TPOT, likewise.
    """

    starts: bool
    pool_tokens: tuple[int, int]
    activation_bytes: tuple[int, int]
    weights_bytes: tuple[int, int]
    ttft_ratio: float | None
    tpot_ratio: float | None

    @property
    def changes(self) -> bool:
        """Whether it does anything to memory."""
        pairs = (self.pool_tokens, self.activation_bytes, self.weights_bytes)
        return any(before != after for before, after in pairs)


def changed_by(result: FitResult, settings: Mapping[str, Any]) -> FitResult | None:
    """The deployment with some settings changed, on more GPUs where they ask for them.

    Args:
        result: The deployment.
        settings: Settings by the names that all engines share; ``weights`` is a layout.

    Returns:
        None where the engine refuses them.
    """
    asked = dict(settings)
    layout = asked.pop("weights", None)
    old = result.deployment
    own = old.settings.get("tensor_parallel_size")
    times = 1 if own is None else asked.get("tensor_parallel_size", 0) // (own.value or 1)
    node = replace(old.node, count=old.node.count * max(1, times))
    try:
        spec = old.spec if layout is None else what_if(old.spec, layout)
        moved = replace(result, deployment=replace(old, node=node, spec=spec))
        return moved.with_settings(**asked)
    except TokenroomError:
        return None


def flag_of(before: FitResult, after: FitResult) -> str:
    """What was changed, as this version of the engine has it written; empty if it has no word."""
    one, two = before.deployment.asked, after.deployment.asked
    names = [
        item.name for item in fields(two) if getattr(one, item.name) != getattr(two, item.name)
    ]
    return written_settings(after.deployment, names)


def effect_of(before: FitResult, after: FitResult) -> Effect:
    """What the change does."""
    one, two = before.governing_stage, after.governing_stage
    ttft = tpot = None
    if before.plan.refusal is None and after.plan.refusal is None:
        early, late = usual_speed(before).speed, usual_speed(after).speed
        if early is not None and late is not None:
            ttft = late.ttft_seconds.value / early.ttft_seconds.value
            tpot = late.tpot_seconds.value / early.tpot_seconds.value
    return Effect(
        starts=after.plan.refusal is None,
        pool_tokens=(before.plan.kv_pool_tokens, after.plan.kv_pool_tokens),
        activation_bytes=(one.activation.num_bytes, two.activation.num_bytes),
        weights_bytes=(one.weights_bytes, two.weights_bytes),
        ttft_ratio=ttft,
        tpot_ratio=tpot,
    )
