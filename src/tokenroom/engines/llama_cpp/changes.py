"""What would make a llama.cpp deployment fit: settings to change, cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tokenroom.engines.change_search import Step, changes_from, doubles, halves
from tokenroom.engines.policy import Change, Deployment
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.quantization import what_if
from tokenroom.models.spec import MoEFFN

if TYPE_CHECKING:
    from tokenroom.engines.llama_cpp.outcome import Outcome
    from tokenroom.engines.llama_cpp.policy import LlamaCppPolicy

_LAYOUTS: Final = ("q6_k", "q4_k_m", "q3_k_m")
_SHORTEST: Final = 1024
_SMALLEST_BATCH: Final = 64
_MOST_SLOTS: Final = 128

_Ladder: TypeAlias = Callable[["LlamaCppPolicy", Deployment], list[Step]]


def changes_that_suffice(
    policy: LlamaCppPolicy, deployment: Deployment, suffices: Callable[[Deployment], bool]
) -> Iterator[Change]:
    """The least changes that suffice, cheapest first."""
    return changes_from(
        policy,
        deployment,
        suffices,
        soft=[partial(ladder, policy) for ladder in _SOFT],
        hard=[partial(ladder, policy) for ladder in _HARD],
    )


def _contexts(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    if deployment.asked.program == "bench":  # the lengths are what it is to measure
        return []
    plan = policy.plan(deployment)
    resolved = plan.outcome.resolved
    streams = 1 if resolved.kv_unified else resolved.n_seq_max
    longest = plan.max_model_len_that_fits() if plan.refusal is not None else 0
    lengths = [longest] if 0 < longest < plan.max_model_len else []
    shortest = plan.max_model_len // 4 if plan.refusal is None else _SHORTEST
    lengths += halves(longest or plan.max_model_len, shortest)
    return [Step(key="n_ctx", settings={"n_ctx": value * streams}) for value in lengths]


def _slots(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    """More slots, each with as long a context as now."""
    if deployment.asked.program == "bench":
        return []
    plan = policy.plan(deployment)
    steps = []
    slots = plan.max_num_seqs * 2
    while slots <= _MOST_SLOTS and plan.refusal is None:
        n_ctx = plan.max_model_len * slots
        steps.append(
            Step(
                key="slots",
                settings={"n_parallel": slots, "n_ctx": n_ctx, "kv_unified": False},
            )
        )
        slots *= 2
    return steps


def _quantised_cache(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    outcome: Outcome = deployment.resolved
    if outcome.resolved.type_k not in ("f16", "bf16", "f32"):
        return []
    return [
        Step(
            key="kv_quantised",
            settings={"type_k": kind, "type_v": kind, "flash_attn": "on"},
        )
        for kind in ("q8_0", "q4_0")
    ]


def _flash(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    outcome: Outcome = deployment.resolved
    if outcome.resolved.flash_attn:
        return []
    return [Step(key="flash_attn", settings={"flash_attn": "on"})]


def _batches(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    outcome: Outcome = deployment.resolved
    return [
        Step(key="n_ubatch", settings={"n_ubatch": value})
        for value in halves(outcome.resolved.n_ubatch, _SMALLEST_BATCH)
    ]


def _experts(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    """Experts of more and more layers on the host, from the first on."""
    outcome: Outcome = deployment.resolved
    moe = any(isinstance(layer.ffn, MoEFFN) for layer, _ in deployment.spec.layer_kinds)
    if not outcome.resolved.gpus or not moe:
        return []
    layers = len(outcome.memory.placement.layer_devices)
    step = max(1, layers // 8)
    return [
        Step(key="n_cpu_moe", settings={"n_cpu_moe": count})
        for count in (*range(step, layers, step), layers)
    ]


def _layers(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    outcome: Outcome = deployment.resolved
    if not outcome.resolved.gpus or outcome.resolved.layers_are_free:
        return []
    return [Step(key="n_gpu_layers", settings={"n_gpu_layers": -1})]


def _weights(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    now = checkpoint_weights(deployment.spec).total_bytes
    return [
        Step(key="weights", flags=f"(weights in {layout})", layout=layout)
        for layout in _LAYOUTS
        if checkpoint_weights(what_if(deployment.spec, layout)).total_bytes < now
    ]


def _more_gpus(policy: LlamaCppPolicy, deployment: Deployment) -> list[Step]:
    outcome: Outcome = deployment.resolved
    if not outcome.resolved.gpus:
        return []
    return [
        Step(key="more_gpus", settings={"gpus": count})
        for count in doubles(outcome.resolved.gpus)
        if count <= 16
    ]


_SOFT: Final[tuple[_Ladder, ...]] = (
    _contexts,
    _slots,
    _flash,
    _quantised_cache,
    _batches,
    _experts,
    _layers,
    _weights,
)
_HARD: Final[tuple[_Ladder, ...]] = (_more_gpus,)
