"""What would make a deployment fit: settings to change, cheapest first.

Each candidate is one setting of vLLM moved as little as suffices. Cheap means: nothing is lost
first (a length nobody asked for, slack), then waiting time, then quality, then hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import floor
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tokenroom.engines.policy import Change, Deployment
from tokenroom.engines.vllm.defaults import ResolvedSettings
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.errors import TokenroomError
from tokenroom.models.quantization import what_if
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB

if TYPE_CHECKING:
    from tokenroom.engines.vllm.policy import VLLMPolicy

_UTILIZATIONS: Final = (0.92, 0.95, 0.97)
_MOST_PAIRS: Final = 4
_SHORTEST: Final = 1024
_SMALLEST_BUDGET: Final = 512
_LAYOUTS: Final = ("fp8", "awq")
_WIDEST: Final = 64


_Ladder: TypeAlias = Callable[["VLLMPolicy", Deployment], "list[_Step]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One setting moved to one value.

    Attributes:
        key: Which setting.
        flags: The engine's words for it.
        settings: Fields of :class:`VLLMSettings` to replace.
        layout: What-if layout of the weights, None to keep them.
    """

    key: str
    flags: str
    settings: tuple[tuple[str, Any], ...] = ()
    layout: str | None = None


def changes_that_suffice(
    policy: VLLMPolicy, deployment: Deployment, suffices: Callable[[Deployment], bool]
) -> Iterator[Change]:
    """The least changes that suffice, cheapest first.

    First of settings and weights alone, in pairs if need be; then those that take more GPUs or the
    host's memory, each by itself; both together only as a last resort.
    """

    def attempt(steps: Sequence[_Step]) -> Change | None:
        try:
            changed = _apply(policy, deployment, steps)
            if not suffices(changed):
                return None
        except TokenroomError:  # the engine refuses this combination
            return None
        return Change(
            key=steps[0].key,
            flags=" ".join(step.flags for step in steps),
            prices=tuple(step.key for step in steps),
            deployment=changed,
        )

    def single(ladder: _Ladder) -> Iterator[Change]:
        for step in ladder(policy, deployment):
            if change := attempt((step,)):
                yield change
                return

    def pair(first: _Ladder, second: _Ladder) -> Iterator[Change]:
        """The least of ``second`` that ``first``, seen from there, completes."""
        for two in second(policy, deployment):
            try:
                base = _apply(policy, deployment, (two,))
            except TokenroomError:
                continue
            steps = first(policy, base)
            # The far end frees the most: what fails there fails before it.
            if not steps or attempt((steps[-1], two)) is None:
                continue
            for one in steps:
                if change := attempt((one, two)):
                    yield change
                    return

    found = [change for ladder in _SOFT for change in single(ladder)]
    yield from found
    if not found:
        pairs = (change for pair_ in combinations(_SOFT, 2) for change in pair(*pair_))
        found = list(islice(pairs, _MOST_PAIRS))
        yield from found
    harder = [change for ladder in _HARD for change in single(ladder)]
    yield from harder
    if not found and not harder:
        both = (change for hard in _HARD for soft in _SOFT for change in pair(soft, hard))
        yield from islice(both, _MOST_PAIRS)


def _apply(policy: VLLMPolicy, deployment: Deployment, steps: Sequence[_Step]) -> Deployment:
    asked: VLLMSettings = deployment.asked
    fields = {name: value for step in steps for name, value in step.settings}
    spec: ModelSpec = deployment.spec
    for step in steps:
        if step.layout is not None:
            spec = what_if(spec, step.layout)
            fields["quantization"] = None
    asked = replace(asked, **fields)
    node = policy.place(deployment.node.accelerator, None, asked, deployment.node.used_bytes)
    return policy.deploy(spec, node, asked, deployment.draft)


def _lengths(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    resolved: ResolvedSettings = deployment.resolved
    plan = policy.plan(deployment)
    longest = plan.max_model_len_that_fits()
    lengths = [longest] if 0 < longest < resolved.max_model_len else []
    # An engine that starts is asked for more requests: a quarter of the length is a change, less
    # than that another question.
    shortest = resolved.max_model_len // 4 if plan.refusal is None else _SHORTEST
    lengths += _halves(longest or resolved.max_model_len, shortest)
    return [_flag("max_model_len", value, str(value)) for value in lengths]


def _utilizations(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    resolved: ResolvedSettings = deployment.resolved
    if resolved.kv_cache_memory_bytes is not None:
        return []
    values = [value for value in _UTILIZATIONS if value > resolved.gpu_memory_utilization]
    if deployment.node.used_bytes:  # the engine takes its share of the card, whoever else is on it
        stages = policy.plan(deployment).stages
        free = min(1 - stage.context_bytes / stage.total_bytes for stage in stages)
        share = floor(free * 100) / 100
        values = [share] if 0 < share < resolved.gpu_memory_utilization else []
    return [_flag("gpu_memory_utilization", value, f"{value:g}") for value in values]


def _sequences(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    resolved: ResolvedSettings = deployment.resolved
    return [_flag("max_num_seqs", value, str(value)) for value in _halves(resolved.max_num_seqs, 1)]


def _budgets(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    resolved: ResolvedSettings = deployment.resolved
    return [
        _flag("max_num_batched_tokens", value, str(value))
        for value in _halves(resolved.max_num_batched_tokens, _SMALLEST_BUDGET)
    ]


def _text_only(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    if not deployment.spec.towers or deployment.resolved.language_model_only:
        return []
    return [_switch("language_model_only")]


def _eager(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    resolved: ResolvedSettings = deployment.resolved
    if resolved.enforce_eager or not resolved.cudagraph_capture_sizes:
        return []
    return [_switch("enforce_eager")]


def _narrow_cache(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    if deployment.resolved.kv_cache_dtype not in ("auto", "float16", "bfloat16"):
        return []
    return [_flag("kv_cache_dtype", "fp8", "fp8")]


def _narrow_weights(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    if deployment.spec.quantization is not None:
        return []
    return [
        _Step(key="weights", flags=f"(weights in {layout})", layout=layout) for layout in _LAYOUTS
    ]


def _wider(name: str) -> _Ladder:
    def ladder(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
        size = getattr(deployment.resolved, name)
        return [_flag(name, value, str(value)) for value in _doubles(size)]

    return ladder


def _offloads(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    """GiB of weights to keep on the host: doubling from 4 to twice the card."""
    if deployment.resolved.cpu_offload_bytes:
        return []
    steps, gib = [], 4
    while gib * GIB <= 2 * deployment.node.accelerator.memory_bytes:
        settings = (("cpu_offload_bytes", gib * GIB),)
        steps.append(_Step(key="cpu_offload", flags=f"--cpu-offload-gb {gib}", settings=settings))
        gib *= 2
    return steps


_SOFT: Final[tuple[_Ladder, ...]] = (
    _lengths,
    _utilizations,
    _sequences,
    _budgets,
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


def _switch(name: str) -> _Step:
    return _Step(key=name, flags=f"--{name.replace('_', '-')}", settings=((name, True),))


def _flag(name: str, value: Any, text: str) -> _Step:
    return _Step(key=name, flags=f"--{name.replace('_', '-')} {text}", settings=((name, value),))


def _halves(value: int, least: int) -> list[int]:
    """``value`` halved down to ``least``, itself left out, in round steps."""
    found = []
    half = 1 << max(0, value - 1).bit_length() - 1
    while half >= least and half > 0:
        if half < value:
            found.append(half)
        half //= 2
    return found


def _doubles(size: int) -> list[int]:
    found = []
    while (size := size * 2) <= _WIDEST:
        found.append(size)
    return found
