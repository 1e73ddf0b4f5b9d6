"""What would make a deployment fit: settings to change, cheapest first.

Each candidate is one setting of vLLM moved as little as suffices. Cheap means: nothing is lost
first (a length nobody asked for, slack), then waiting time, then quality, then hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import floor
from typing import TYPE_CHECKING, Any, Final

from tokenroom.engines.policy import Change, Deployment
from tokenroom.engines.vllm.defaults import ResolvedSettings
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.errors import TokenroomError
from tokenroom.hardware.accelerator import Node
from tokenroom.models.quantization import what_if
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB

if TYPE_CHECKING:
    from tokenroom.engines.vllm.policy import VLLMPolicy

_UTILIZATIONS: Final = (0.92, 0.95, 0.97)
_MOST_CHANGES: Final = 8
_SMALLEST_BUDGET: Final = 512
_LAYOUTS: Final = ("fp8", "awq")
_WIDEST: Final = 64


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
    """Single changes that suffice, or pairs of them when no single one does; at most eight."""
    ladders = list(_ladders(policy, deployment))

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

    found = 0
    for ladder in ladders:
        change = next((change for step in ladder if (change := attempt((step,)))), None)
        if change is not None:
            yield change
            found += 1
    if found:
        return
    for first, second in combinations(ladders, 2):
        # The far end of each ladder frees the most: what fails there fails everywhere.
        if not first or not second or attempt((first[-1], second[-1])) is None:
            continue
        for one in first:
            change = next((change for two in second if (change := attempt((one, two)))), None)
            if change is not None:
                yield change
                found += 1
                break
        if found >= _MOST_CHANGES:
            return


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


def _ladders(policy: VLLMPolicy, deployment: Deployment) -> Iterator[list[_Step]]:
    """Values of each setting from the least change to the greatest, cheapest setting first."""
    resolved: ResolvedSettings = deployment.resolved
    node = deployment.node
    yield _lengths(policy, deployment)
    if node.used_bytes:  # the engine takes its share of the whole card, whoever else is on it
        free = min(
            stage.total_bytes - stage.context_bytes for stage in policy.plan(deployment).stages
        )
        share = floor(free / node.accelerator.memory_bytes * 100) / 100
        if 0 < share < resolved.gpu_memory_utilization:
            yield [_flag("gpu_memory_utilization", share, f"{share:g}")]
    yield [
        _flag("gpu_memory_utilization", value, f"{value:g}")
        for value in _UTILIZATIONS
        if value > resolved.gpu_memory_utilization and resolved.kv_cache_memory_bytes is None
    ]
    yield [_flag("max_num_seqs", value, str(value)) for value in _halves(resolved.max_num_seqs, 1)]
    yield [
        _flag("max_num_batched_tokens", value, str(value))
        for value in _halves(resolved.max_num_batched_tokens, _SMALLEST_BUDGET)
    ]
    if deployment.spec.towers and not resolved.language_model_only:
        yield [
            _Step(
                key="language_model_only",
                flags="--language-model-only",
                settings=(("language_model_only", True),),
            )
        ]
    if not resolved.enforce_eager and resolved.cudagraph_capture_sizes:
        yield [
            _Step(key="enforce_eager", flags="--enforce-eager", settings=(("enforce_eager", True),))
        ]
    if resolved.kv_cache_dtype in ("auto", "float16", "bfloat16"):
        yield [_flag("kv_cache_dtype", "fp8", "fp8")]
    if deployment.spec.quantization is None:
        yield [
            _Step(key="weights", flags=f"(weights in {layout})", layout=layout)
            for layout in _LAYOUTS
        ]
    yield [
        _flag("tensor_parallel_size", size, str(size))
        for size in _doubles(resolved.tensor_parallel_size)
    ]
    yield [
        _flag("pipeline_parallel_size", size, str(size))
        for size in _doubles(resolved.pipeline_parallel_size)
    ]
    yield [
        _flag("data_parallel_size", size, str(size))
        for size in _doubles(resolved.data_parallel_size)
    ]
    if resolved.cpu_offload_bytes == 0:
        yield [
            _Step(
                key="cpu_offload",
                flags=f"--cpu-offload-gb {gib}",
                settings=(("cpu_offload_bytes", gib * GIB),),
            )
            for gib in _offloads(node)
        ]


def _lengths(policy: VLLMPolicy, deployment: Deployment) -> list[_Step]:
    resolved: ResolvedSettings = deployment.resolved
    longest = policy.plan(deployment).max_model_len_that_fits()
    lengths = [longest] if 0 < longest < resolved.max_model_len else []
    lengths += _halves(longest or resolved.max_model_len, 1024)
    return [_flag("max_model_len", value, str(value)) for value in lengths]


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


def _offloads(node: Node) -> list[int]:
    """GiB to keep on the host: doubling from 4 to twice the card."""
    found, gib = [], 4
    while gib * GIB <= 2 * node.accelerator.memory_bytes:
        found.append(gib)
        gib *= 2
    return found
