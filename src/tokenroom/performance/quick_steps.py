"""Times of a deployment's steps without their ranges, for searches that ask for very many.

The same operators and formulas as :func:`tokenroom.performance.step_time.step_time`, put together
from what depends on a step's tokens, on its rows of logits, on its decoding requests and on its
prompts; each is kept once it was worked out. Matrix products and what only moves memory are linear
in a step's tokens, so that their coefficients are taken once. Sums are of the same terms in another
order: times agree to the last digits of a float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from tokenroom.performance.drafting import draft_operators
from tokenroom.performance.efficiency import (
    bandwidth_of,
    efficiency_of,
    kernel_shares,
    operator_seconds,
    peak_flops,
    supported_arithmetic,
)
from tokenroom.performance.operators import (
    experts_operator,
    mixing_operators,
    model_plan,
    output_operators,
    token_operators,
)
from tokenroom.performance.replica import Replica, TimedStep
from tokenroom.performance.step_parts import has_parts
from tokenroom.performance.step_time import host_times, stage_seconds, starting_seconds
from tokenroom.performance.work import Kind, Operator, StepWork

_MANY: Final = 1024
"""Rows of the second sample that coefficients are taken from."""
_STARTED: Final = 0
_REPLAYED: Final = 1

_ByBlock: TypeAlias = Mapping[int, float]
"""Seconds by kind of block, as :class:`~tokenroom.performance.work.Operator` names it."""


class QuickStep(NamedTuple):
    """Time of a step.

    Attributes:
        seconds: The estimate.
        stage_seconds: The slowest stage's part, or all of the accelerators'.
    """

    seconds: float
    stage_seconds: float

    @property
    def low_seconds(self) -> float:
        """The estimate: no range is worked out."""
        return self.seconds

    @property
    def high_seconds(self) -> float:
        """The estimate: no range is worked out."""
        return self.seconds


class _Part(NamedTuple):
    """Operators that depend on one thing.

    Attributes:
        device: Their time where the host starts each, and where they are replayed from a graph.
        ways: The same by kind of block.
        starting: What the host takes to start each.
    """

    device: tuple[float, float]
    ways: tuple[_ByBlock, _ByBlock]
    starting: float

    @classmethod
    def of(cls, started: _ByBlock, replayed: _ByBlock, starting: float) -> _Part:
        """A part by its blocks."""
        device = sum(started.values()), sum(replayed.values())
        return cls(device, (started, replayed), starting)


class _Timer:
    """Times single operators of a replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.host = replica.host
        self._efficiency = efficiency_of(replica.accelerator, replica.engine)

    def ways(self, operator: Operator) -> tuple[float, float]:
        """Seconds of an operator, started by the host and replayed from a graph."""
        replica = self.replica
        latency, busy = operator_seconds(
            self._efficiency,
            operator,
            replica.accelerator,
            replica.layout.per_node,
            replica.factors,
        )
        hidden = operator.times * self.host.overlap_seconds
        return latency + busy, max(0.0, latency - hidden) + busy

    def part(self, operators: Iterable[Operator]) -> _Part:
        """Operators together."""
        every = tuple(operators)
        started: dict[int, float] = {}
        replayed: dict[int, float] = {}
        for operator in every:
            block, (first, second) = operator.block, self.ways(operator)
            started[block] = started.get(block, 0.0) + first
            replayed[block] = replayed.get(block, 0.0) + second
        return _Part.of(started, replayed, starting_seconds(every, self.host))

    def product(self, one: Operator, many: Operator) -> _Product:
        """A matrix product as a function of its rows, of which it has 1 and :data:`_MANY`."""
        accelerator, factors = self.replica.accelerator, self.replica.factors
        arithmetic = supported_arithmetic(one.arithmetic, accelerator)
        shares, _, _ = kernel_shares(self._efficiency, one.kind, arithmetic)
        _, columns, depth, pieces = one.shape
        latency = shares.launch_seconds + shares.depth_seconds * depth
        hidden = max(0.0, latency - self.host.overlap_seconds)
        peak = peak_flops(arithmetic, accelerator) * shares.compute
        by_byte = (1 + shares.pieces / pieces) / (bandwidth_of(accelerator) * shares.memory)
        each_bytes = (many.num_bytes - one.num_bytes) / (_MANY - 1)
        return _Product(
            one.block,
            one.times,
            (latency, hidden),
            factors.compute * one.flops / peak * (1 + shares.columns / columns),
            shares.rows,
            factors.bandwidth * by_byte * (one.num_bytes - each_bytes),
            factors.bandwidth * by_byte * each_bytes,
            shares.sharpness,
        )


class _Product(NamedTuple):
    """A matrix product as a function of its rows: ``times (latency + (c^p + m^p)^(1/p))``.

    Attributes:
        block: Its kind of block.
        times: How often it runs.
        latency: Seconds of its start, by the host and replayed.
        flops: Seconds of arithmetic of a row: ``c = flops (rows + half)``.
        half: Rows at which half of the peak is lost.
        fixed: Seconds that its weights take to move: ``m = fixed + each rows``.
        each: Seconds that a row's inputs and outputs take to move.
        sharpness: The power p.
    """

    block: int
    times: int
    latency: tuple[float, float]
    flops: float
    half: float
    fixed: float
    each: float
    sharpness: float


class _Counted:
    """Operators that depend on a count of rows, which most of them are linear in.

    Args:
        timer: Times single operators.
        operators: Those of so many rows.
        left_out: Kinds that the caller times itself.
    """

    def __init__(
        self,
        timer: _Timer,
        operators: Callable[[int], Iterable[Operator]],
        left_out: tuple[Kind, ...] = (),
    ) -> None:
        self._timer = timer
        self._products: list[_Product] = []
        self._moved: dict[int, tuple[float, float, float]] = {}
        self._others: list[Operator] = []
        first = tuple(operators(1))
        self._starting = starting_seconds(first, timer.host)
        for one, many in zip(first, operators(_MANY), strict=True):
            if one.kind is Kind.GEMM:
                self._products.append(timer.product(one, many))
            elif one.kind is Kind.MEMORY:
                (started, replayed), (later, _) = timer.ways(one), timer.ways(many)
                each = (later - started) / (_MANY - 1)
                held = self._moved.get(one.block, (0.0, 0.0, 0.0))
                added = (started - each, replayed - each, each)
                self._moved[one.block] = tuple(map(sum, zip(held, added, strict=True)))  # type: ignore[assignment]
            elif one.kind not in left_out:
                self._others.append(one)

    def part(self, rows: int, further: Iterable[Operator] = ()) -> _Part:
        """All of them for so many rows, and what the caller adds."""
        started: dict[int, float] = {}
        replayed: dict[int, float] = {}
        for block, (first, second, each) in self._moved.items():
            started[block], replayed[block] = first + each * rows, second + each * rows
        for block, times, latency, flops, half, fixed, each, power in self._products:
            busy = ((flops * (rows + half)) ** power + (fixed + each * rows) ** power) ** (
                1 / power
            )
            started[block] = started.get(block, 0.0) + times * (latency[_STARTED] + busy)
            replayed[block] = replayed.get(block, 0.0) + times * (latency[_REPLAYED] + busy)
        for one in self._others:
            operator = one._replace(message_bytes=one.message_bytes * rows)
            self._add(operator, started, replayed)
        for operator in further:
            self._add(operator, started, replayed)
        return _Part.of(started, replayed, self._starting)

    def _add(
        self, operator: Operator, started: dict[int, float], replayed: dict[int, float]
    ) -> None:
        block, (first, second) = operator.block, self._timer.ways(operator)
        started[block] = started.get(block, 0.0) + first
        replayed[block] = replayed.get(block, 0.0) + second


class QuickSteps:
    """How long the steps of a replica take, estimates alone.

    What has no parts (the processor computes some of a step, or weights lie in the host's memory)
    is timed as :meth:`~tokenroom.performance.replica.Replica.step` does, and kept likewise.

    Args:
        replica: What runs them. Its budget and requests do not matter.

    Raises:
        DeploymentError: The layout does not divide the model, or it has parts whose speed is not
            modelled.
        HardwareError: A peak or bandwidth that it needs is not known.
    """

    def __init__(self, replica: Replica) -> None:
        layout = replica.layout
        self._replica = replica
        self._whole: dict[StepWork, TimedStep] = {}
        self._tokens: dict[int, _Part] = {}
        self._outputs: dict[int, _Part] = {}
        self._mixing: dict[tuple[object, ...], _Part] = {}
        self._copies = layout.data_parallel_size
        self._has_parts = has_parts(replica.engine, layout) and not layout.host_weight_bytes
        if not self._has_parts:
            return
        spec, self._host = replica.spec, replica.host
        self._timer = _Timer(replica)
        self._plan = model_plan(spec, layout)
        self._of_tokens = _Counted(
            self._timer,
            lambda rows: token_operators(spec, layout, self._of_rows(rows)),
            left_out=(Kind.GROUPED_GEMM,),
        )
        self._of_outputs = _Counted(self._timer, lambda rows: output_operators(spec, layout, rows))

    def __call__(self, work: StepWork) -> TimedStep:
        """Time of a step; raises as the class does."""
        if not self._has_parts or work.other_tokens != (self._copies - 1) * work.tokens:
            found = self._whole.get(work)
            if found is None:
                found = self._whole[work] = self._replica.step(work)
            return found
        replica, drafting = self._replica, self._replica.drafting
        parts = [self._tokens_part(work.tokens), self._outputs_part(work.outputs)]
        if work.decode_sequences:
            parts.append(self._decoding_part(work))
        if work.prefill:
            parts.append(self._prompts_part(work))
        if drafting is not None and drafting.drafter is not None:
            parts.append(self._drafting_part(work))
        replayed = replica.cuda_graphs and not work.prefill
        starting = 0.0 if replayed else sum(part.starting for part in parts)
        _, prepare, wait = host_times(self._host, work, starting, replica.asynchronous, drafting)
        device = stage = sum(part.device[replayed] for part in parts)
        if replica.layout.pipeline_parallel_size > 1:
            by_block: dict[int, float] = {}
            for part in parts:
                for block, seconds in part.ways[replayed].items():
                    by_block[block] = by_block.get(block, 0.0) + seconds
            stage = max(stage_seconds(self._plan, by_block))
        return QuickStep(max(device, prepare) + wait, stage)

    def _of_rows(self, rows: int) -> StepWork:
        return StepWork(decode_sequences=rows, other_tokens=(self._copies - 1) * rows)

    def _tokens_part(self, tokens: int) -> _Part:
        found = self._tokens.get(tokens)
        if found is None:
            routed = [
                experts_operator(layer.experts, tokens * self._copies, layer.times)._replace(
                    block=kind
                )
                for kind, layer in enumerate(self._plan.layers)
                if layer.experts is not None
            ]
            found = self._tokens[tokens] = self._of_tokens.part(tokens, routed)
        return found

    def _outputs_part(self, rows: int) -> _Part:
        found = self._outputs.get(rows)
        if found is None:
            found = self._outputs[rows] = self._of_outputs.part(rows)
        return found

    def _decoding_part(self, work: StepWork) -> _Part:
        key = work.decode_sequences, work.decode_context_tokens, work.decode_tokens
        found = self._mixing.get(key)
        if found is None:
            alone = StepWork(
                decode_sequences=work.decode_sequences,
                decode_context_tokens=work.decode_context_tokens,
                decode_tokens=work.decode_tokens,
            )
            found = self._mixing[key] = self._mixed(alone)
        return found

    def _prompts_part(self, work: StepWork) -> _Part:
        key = (work.prefill,)
        found = self._mixing.get(key)
        if found is None:
            found = self._mixing[key] = self._mixed(StepWork(prefill=work.prefill))
        return found

    def _mixed(self, work: StepWork) -> _Part:
        replica = self._replica
        return self._timer.part(
            mixing_operators(replica.spec, replica.layout, work, kv_dtype=replica.kv_dtype)
        )

    def _drafting_part(self, work: StepWork) -> _Part:
        drafting = self._replica.drafting
        assert drafting is not None
        key = ("draft", work)
        found = self._mixing.get(key)
        if found is None:
            found = self._mixing[key] = self._timer.part(
                draft_operators(drafting, work, drafts_after_prompts=self._host.mixes)
            )
        return found
