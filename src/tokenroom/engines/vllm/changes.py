"""What would make a deployment fit: settings to change, cheapest first.

Each candidate is one setting of vLLM moved as little as suffices. Cheap means: nothing is lost
first (a length nobody asked for, slack), then waiting time, then quality, then hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import floor
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tokenroom.engines.change_search import Step, changes_from, doubles, halves, takes_fewer_bits
from tokenroom.engines.policy import Change, Deployment
from tokenroom.engines.vllm.defaults import ResolvedSettings
from tokenroom.units import GIB

if TYPE_CHECKING:
    from tokenroom.engines.vllm.policy import VLLMPolicy

_UTILIZATIONS: Final = (0.92, 0.95, 0.97)
_SHORTEST: Final = 1024
_LEAST_USEFUL: Final = 4096
"""Nobody takes more GPUs, or other weights, to serve requests shorter than this."""
_SMALLEST_BUDGET: Final = 512
_MOST_SEQS: Final = 8192


_Ladder: TypeAlias = Callable[["VLLMPolicy", Deployment], list[Step]]


def changes_that_suffice(
    policy: VLLMPolicy, deployment: Deployment, suffices: Callable[[Deployment], bool]
) -> Iterator[Change]:
    """The least changes that suffice, cheapest first."""

    def useful_lengths(changed: Deployment) -> list[Step]:
        return [
            step
            for step in _lengths(policy, changed)
            if step.settings["max_model_len"] >= _LEAST_USEFUL
        ]

    return changes_from(
        policy,
        deployment,
        suffices,
        soft=[partial(ladder, policy) for ladder in _SOFT],
        hard=[partial(ladder, policy) for ladder in _HARD],
        narrowing=[partial(ladder, policy) for ladder in (_narrow_cache, _narrow_weights)],
        lengths=None if deployment.asked.max_model_len else useful_lengths,
    )


def _lengths(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    resolved: ResolvedSettings = deployment.resolved
    plan = policy.plan(deployment)
    longest = plan.max_model_len_that_fits()
    lengths = [longest] if 0 < longest < resolved.max_model_len else []
    # An engine that starts is asked for more requests: a quarter of the length is a change, less
    # than that another question.
    shortest = resolved.max_model_len // 4 if plan.refusal is None else _SHORTEST
    lengths += halves(longest or resolved.max_model_len, shortest)
    least = min(_SHORTEST, resolved.max_model_len // 2)
    return [_set("max_model_len", value) for value in lengths if value >= least]


def _utilizations(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    resolved: ResolvedSettings = deployment.resolved
    if resolved.kv_cache_memory_bytes is not None:
        return []
    stages = policy.plan(deployment).stages
    # The engine takes its share of the whole card, whoever else is on it.
    free = min(1 - stage.context_bytes / stage.total_bytes for stage in stages)
    share = floor(free * 100) / 100
    values = [value for value in _UTILIZATIONS if resolved.gpu_memory_utilization < value <= share]
    if 0 < share < resolved.gpu_memory_utilization:
        values = [share]
    return [_set("gpu_memory_utilization", value) for value in values]


def _sequences(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    resolved: ResolvedSettings = deployment.resolved
    values = halves(resolved.max_num_seqs, 1)
    if policy.plan(deployment).refusal is None:  # it starts: more may run at once
        values = doubles(resolved.max_num_seqs, _MOST_SEQS)
    return [_set("max_num_seqs", value) for value in values]


def _budgets(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    resolved: ResolvedSettings = deployment.resolved
    return [
        _set("max_num_batched_tokens", value)
        for value in halves(resolved.max_num_batched_tokens, _SMALLEST_BUDGET)
    ]


def _fewer_items(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    """No videos, then one image a prompt, where the encoder sets the peak of the profile run."""
    resolved: ResolvedSettings = deployment.resolved
    towers = deployment.spec.towers
    if not towers or resolved.language_model_only:
        return []
    if all(stage.activation.phase != "encoder" for stage in policy.plan(deployment).stages):
        return []
    name = "limit_mm_per_prompt"
    limits = dict(resolved.limit_mm_per_prompt)
    steps = []
    if any(tower.clip is not None for tower in towers) and limits.get("video", 1) > 0:
        limits = {**limits, "video": 0}
        steps.append(_set(name, limits))
    if any(tower.name == "vision" for tower in towers) and limits.get("image", 2) > 1:
        steps.append(_set(name, {**limits, "image": 1}))
    return steps


def _text_only(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    if not deployment.spec.towers or deployment.resolved.language_model_only:
        return []
    return [_set("language_model_only", True)]


def _eager(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    resolved: ResolvedSettings = deployment.resolved
    if resolved.enforce_eager or not resolved.cudagraph_capture_sizes:
        return []
    return [_set("enforce_eager", True)]


def _narrow_cache(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    if deployment.resolved.kv_cache_dtype not in ("auto", "float16", "bfloat16"):
        return []
    return [_set("kv_cache_dtype", "fp8")]


def _narrow_weights(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    if not takes_fewer_bits(deployment.spec):
        return []
    rounded = _set("quantization", "fp8")  # while loading, from the same checkpoint
    checkpoint = Step(
        key="weights",
        flags="(a 4-bit AWQ checkpoint)",
        settings={"quantization": None},
        layout="awq",
    )
    plain = deployment.spec.quantization is None and deployment.resolved.quantization is None
    return [rounded, checkpoint] if plain else [checkpoint]


def _wider(name: str) -> _Ladder:
    def ladder(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
        size = getattr(deployment.resolved, name)
        return [_set(name, value) for value in doubles(size)]

    return ladder


def _offloads(policy: VLLMPolicy, deployment: Deployment) -> list[Step]:
    """GiB of weights to keep on the host: by eighths more, from 4 to twice the card."""
    if deployment.resolved.cpu_offload_bytes:
        return []
    steps, gib = [], 4
    while gib * GIB <= 2 * deployment.node.accelerator.memory_bytes:
        steps.append(Step(key="cpu_offload", settings={"cpu_offload_bytes": gib * GIB}))
        gib += max(2, gib // 8)
    return steps


_SOFT: Final[tuple[_Ladder, ...]] = (
    _lengths,
    _utilizations,
    _sequences,
    _budgets,
    _fewer_items,
    _text_only,
    _eager,
    _narrow_cache,
    _narrow_weights,
)
"""Values of each setting from the least change to the greatest, cheapest setting first."""

_HARD: Final[tuple[_Ladder, ...]] = (
    _wider("tensor_parallel_size"),
    _wider("pipeline_parallel_size"),
    _wider("data_parallel_size"),
    _offloads,
)


def _set(name: str, value: Any) -> Step:
    return Step(key=name, settings={name: value})
