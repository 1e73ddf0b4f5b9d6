"""How long one step takes: its operators one after another, and the host that starts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import NamedTuple

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.drafting import Drafting, draft_operators
from tokenroom.performance.efficiency import (
    Beyond,
    Duration,
    Efficiency,
    Tables,
    beyond_fit,
    efficiency_of,
    operator_duration,
    tables_of_operator,
)
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.host import HostCost, host_cost
from tokenroom.performance.llama_cpp import (
    BUILDS,
    llama_cpp_efficiency,
    llama_cpp_operators,
)
from tokenroom.performance.operators import ModelPlan, model_plan, step_operators
from tokenroom.performance.work import (
    AFTER_BLOCKS,
    BEFORE_BLOCKS,
    Kind,
    Layout,
    Operator,
    StepWork,
)


class Share(NamedTuple):
    """What operators of one name take of a step.

    Attributes:
        seconds: Their time together.
        limiter: What holds the most of it: ``"compute"``, ``"bandwidth"``, ``"communication"`` or
            ``"launch"``.
    """

    seconds: float
    limiter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Time of one step.

    Attributes:
        seconds: The estimate: what the accelerators take, or the host where it is slower.
        low_seconds: Lower end of the range that tables held out of the fits support.
        high_seconds: Upper end.
        device_seconds: The operators alone.
        host_seconds: The host's part alone.
        stages: The operators of each stage of a pipeline; all of them together without one.
        operators: Time by operator, longest first.
        limiter: What holds the most time: ``"compute"``, ``"bandwidth"``, ``"communication"``,
            ``"launch"`` or ``"host"``.
        tables_of: Catalogue key of the accelerator whose measured tables the shares of peak come
            from.
        borrowed: That is another accelerator, most like the one asked for; ranges are wider.
        work: Requests of the step.
    """

    seconds: float
    low_seconds: float
    high_seconds: float
    device_seconds: float
    host_seconds: float
    stages: tuple[float, ...]
    operators: Mapping[str, Share]
    limiter: str
    tables_of: str
    borrowed: bool
    work: StepWork

    @property
    def stage_seconds(self) -> float:
        """The operators of the slowest stage of a pipeline; all of them without one."""
        return max(self.stages)


class TimedOperator(NamedTuple):
    """One operator of a step and what it takes.

    Attributes:
        operator: Its work; FLOPs and bytes are those of one of its ``times`` runs.
        duration: Time of all its runs, with the range and what limits it.
        tables: The measured tables behind it.
        beyond: Its extents outside of those tables, for which the range is wider.
    """

    operator: Operator
    duration: Duration
    tables: Tables
    beyond: tuple[Beyond, ...]


def operator_times(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    work: StepWork,
    *,
    engine: str = "any",
    kv_dtype: str | None = None,
    cuda_graphs: bool = True,
    drafting: Drafting | None = None,
    factors: Factors = UNCALIBRATED,
) -> tuple[TimedOperator, ...]:
    """Every operator of a step with its time; they add up to ``StepTime.device_seconds``.

    Arguments are those of :func:`step_time`.

    Raises:
        DeploymentError: The layout does not divide the model, or it has parts whose speed is not
            modelled.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    efficiency = _efficiency(accelerator, engine)
    overlap = host_cost(engine).overlap_seconds if cuda_graphs and not work.prefill else 0.0
    found = []
    for operator in _operators(spec, layout, accelerator, work, kv_dtype, drafting, engine):
        tables = tables_of_operator(efficiency, operator, accelerator)
        found.append(
            TimedOperator(
                operator,
                operator_duration(
                    efficiency, operator, accelerator, layout.per_node, overlap, factors
                ),
                tables,
                tuple(beyond_fit(efficiency, operator, tables, layout.per_node)),
            )
        )
    return tuple(found)


def _operators(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    work: StepWork,
    kv_dtype: str | None,
    drafting: Drafting | None,
    engine: str,
) -> tuple[Operator, ...]:
    """What the model runs, then what drafts for the next step, as the engine's kernels run them."""
    found = step_operators(spec, layout, work, kv_dtype=kv_dtype)
    if drafting is not None:
        mixes = host_cost(engine).mixes
        found += draft_operators(drafting, work, drafts_after_prompts=mixes)
    return llama_cpp_operators(found, engine, accelerator) if engine in BUILDS else found


def _efficiency(accelerator: Accelerator, engine: str) -> Efficiency:
    if engine in BUILDS:
        return llama_cpp_efficiency(accelerator)
    return efficiency_of(accelerator, engine)


def step_time(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    work: StepWork,
    *,
    engine: str = "any",
    kv_dtype: str | None = None,
    cuda_graphs: bool = True,
    asynchronous: bool = True,
    drafting: Drafting | None = None,
    factors: Factors = UNCALIBRATED,
) -> StepTime:
    """Time of one step of an engine.

    Ranges of operators are joined as if they erred together, which overstates the range of the
    sum a little and never understates it. What the host spares or adds has nothing to do with
    that, so the two ranges are joined as independent errors are: by the root of their squares.

    Args:
        spec: The model, as it is loaded.
        layout: How it is divided.
        accelerator: The kind of GPU.
        work: Requests of the step on one data-parallel rank.
        engine: Whose kernels and host: ``"vllm"``, ``"sglang"``, ``"tensorrt_llm"``, a name of
            :data:`tokenroom.performance.llama_cpp.BUILDS` or any other.
        kv_dtype: Type of the cache, None for the checkpoint's.
        cuda_graphs: Decode steps are replayed from graphs.
        asynchronous: The host prepares a step while the accelerators run the one before.
        drafting: How tokens are drafted; ``work`` then has the rows that are verified.
        factors: Those of the machine, where it was calibrated.

    Raises:
        DeploymentError: The layout does not divide the model, or it has parts whose speed is not
            modelled.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    operators = _operators(spec, layout, accelerator, work, kv_dtype, drafting, engine)
    efficiency = _efficiency(accelerator, engine)
    return _timed(
        operators,
        efficiency,
        accelerator,
        layout,
        host_cost(engine).scaled(factors),
        work,
        cuda_graphs and not work.prefill,
        asynchronous,
        drafting,
        model_plan(spec, layout) if layout.pipeline_parallel_size > 1 else None,
        factors,
    )


def _timed(
    operators: tuple[Operator, ...],
    efficiency: Efficiency,
    accelerator: Accelerator,
    layout: Layout,
    host: HostCost,
    work: StepWork,
    replayed: bool,
    asynchronous: bool,
    drafting: Drafting | None,
    plan: ModelPlan | None,
    factors: Factors,
) -> StepTime:
    per_node = layout.per_node
    device = low = high = 0.0
    limits: dict[str, dict[str, float]] = {}
    totals: dict[str, float] = {}
    by_block: dict[int, float] = {}
    overlap = host.overlap_seconds if replayed else 0.0
    for operator in operators:
        took = operator_duration(efficiency, operator, accelerator, per_node, overlap, factors)
        seconds, limiter, name = took.seconds, took.limiter, operator.name
        device += seconds
        low += took.low_seconds
        high += took.high_seconds
        if plan is not None:
            by_block[operator.block] = by_block.get(operator.block, 0.0) + seconds
        totals[limiter] = totals.get(limiter, 0.0) + seconds
        by_limiter = limits.setdefault(name, {})
        by_limiter[limiter] = by_limiter.get(limiter, 0.0) + seconds
    starting = 0.0 if replayed else starting_seconds(operators, host)
    drafted, prepare, wait = host_times(host, work, starting, asynchronous, drafting)
    busy = max(device, prepare)
    shortest, longest = (end + drafted + starting for end in host.prepare_range_seconds)
    less, more = host.spare_seconds
    below = hypot(busy - max(low, min(shortest, prepare)), min(less, wait))
    above = hypot(max(high, longest) - busy, more)
    hosted = wait + max(0.0, prepare - device)
    totals["host"] = hosted
    shares_of = {
        name: Share(sum(by_limiter.values()), max(by_limiter, key=by_limiter.__getitem__))
        for name, by_limiter in limits.items()
    }
    return StepTime(
        seconds=busy + wait,
        low_seconds=busy + wait - below,
        high_seconds=busy + wait + above,
        device_seconds=device,
        host_seconds=hosted,
        stages=(device,) if plan is None else stage_seconds(plan, by_block),
        operators=dict(sorted(shares_of.items(), key=lambda item: -item[1].seconds)),
        limiter=max(totals, key=totals.__getitem__),
        tables_of=efficiency.key,
        borrowed=efficiency.key != accelerator.key,
        work=work,
    )


class HostTimes(NamedTuple):
    """What the host takes of one step.

    Attributes:
        drafted: For drafting and verifying, of ``prepare``.
        prepare: Before the accelerators can run it.
        wait: While they have nothing to do.
    """

    drafted: float
    prepare: float
    wait: float


def host_times(
    host: HostCost,
    work: StepWork,
    starting: float,
    asynchronous: bool,
    drafting: Drafting | None,
) -> HostTimes:
    """The host's part of a step whose kernels take ``starting`` seconds to start."""
    drafted = 0.0
    if drafting is not None and work.decode_sequences:
        drafted = host.verify_seconds + host.pass_seconds * drafting.passes
    scheduling = host.prepare_seconds + drafted
    wait = host.step_seconds + host.sequence_seconds * work.sequences
    if not asynchronous:
        wait += scheduling
    return HostTimes(drafted, scheduling + starting, wait)


def starting_seconds(operators: Sequence[Operator], host: HostCost) -> float:
    """What the host takes to start these kernels of a step one by one."""
    launches = sum(item.times for item in operators)
    latents = sum(item.times for item in operators if item.kind is Kind.LATENT_PREFILL)
    scans = sum(item.times for item in operators if item.kind is Kind.SCAN_PREFILL)
    return (
        launches * host.kernel_seconds + latents * host.latent_seconds + scans * host.scan_seconds
    )


def stage_seconds(plan: ModelPlan, by_block: Mapping[int, float]) -> tuple[float, ...]:
    """Seconds of each stage from those of each kind of block: its own, and what the ends have."""
    last = len(plan.stages) - 1
    found = []
    for stage, counts in enumerate(plan.stages):
        seconds = sum(
            by_block.get(kind, 0.0) * count / plan.layers[kind].times
            for kind, count in enumerate(counts)
        )
        if stage == 0:
            seconds += by_block.get(BEFORE_BLOCKS, 0.0)
        if stage == last:
            seconds += by_block.get(AFTER_BLOCKS, 0.0)
        found.append(seconds)
    return tuple(found)
