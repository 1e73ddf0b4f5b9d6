"""Stages that steps pass one after another, several steps at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tokenroom.performance.step_time import StepTime
from tokenroom.serving.engine import checked
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.sequence import Sequence
from tokenroom.serving.step_cost import StepCost
from tokenroom.serving.step_table import COUNTS


class StageTimes(NamedTuple):
    """What a step takes of each stage.

    Attributes:
        stages: Seconds that each is at work.
        between_seconds: From the end of one to the beginning of the next: sending hidden states.
        after_seconds: From the end of the last until the scheduler knows the tokens.
    """

    stages: tuple[float, ...]
    between_seconds: float
    after_seconds: float


class PipelineCost:
    """How long steps take of each stage: :func:`tokenroom.performance.step_time.step_time`.

    Of steps that only decode, it is interpolated between two mean contexts, as in
    :class:`~tokenroom.serving.step_table.StepTable`; others are computed.

    Args:
        cost: How long steps take.
    """

    __slots__ = ("_cost", "_nodes")

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._nodes: dict[tuple[int, int], StageTimes] = {}

    def __call__(self, plan: StepPlan) -> StageTimes:
        """What a step takes.

        Raises:
            DeploymentError: The model has parts whose speed is not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        count = len(plan.tokens)
        if sum(plan.tokens) != count:
            return _times(self._cost.time(self._cost.work(plan)))
        context = sum(plan.contexts) / count
        row = bisect_right(COUNTS, context) - 1
        low, high = COUNTS[row], COUNTS[row + 1]
        share = (context - low) / (high - low)
        below, above = self._node(count, low), self._node(count, high)
        return StageTimes(
            tuple(
                one + (other - one) * share
                for one, other in zip(below.stages, above.stages, strict=True)
            ),
            below.between_seconds,
            below.after_seconds + (above.after_seconds - below.after_seconds) * share,
        )

    def _node(self, count: int, context: int) -> StageTimes:
        found = self._nodes.get((count, context))
        if found is None:
            work = self._cost.decoding(count, context, tokens=count)
            found = self._nodes[count, context] = _times(self._cost.time(work))
        return found


def _times(step: StepTime) -> StageTimes:
    sends = len(step.stages) - 1
    return StageTimes(
        step.stages,
        max(0.0, step.device_seconds - sum(step.stages)) / sends,
        step.seconds - step.device_seconds,
    )


class Pipeline:
    """Accelerators in stages; each works on one step at a time, in the order of decisions.

    A step with the next token of a request enters when the one with the token before has left the
    last stage, which may be before the scheduler hears of it.

    Attributes:
        batches: Steps that may be decided and not done.
        keeps_empty: Decisions to run nothing take a place among them.

    Args:
        stage_times: What steps take of each stage.
        batches: Steps that may be decided and not done.
        keeps_empty: Decisions to run nothing take a place among them.
    """

    __slots__ = ("_ended", "_free", "_leaving", "_stage_times", "batches", "keeps_empty")

    def __init__(
        self, stage_times: Callable[[StepPlan], StageTimes], *, batches: int, keeps_empty: bool
    ) -> None:
        self.batches = batches
        self.keeps_empty = keeps_empty
        self._stage_times = stage_times
        self._free: list[float] = []
        self._ended = 0.0
        self._leaving: deque[tuple[float, frozenset[Sequence]]] = deque(maxlen=batches)

    def run(self, plan: StepPlan, now: float) -> tuple[float, float]:
        """When a step enters the first stage that is decided now, and when its tokens are known."""
        times = self._stage_times(plan)
        checked(sum(times.stages) + times.between_seconds + times.after_seconds, plan)
        if not self._free:
            self._free = [0.0] * len(times.stages)
        at = max(now, self._before(plan))
        start = max(at, self._free[0])
        for stage, seconds in enumerate(times.stages):
            self._free[stage] = max(at, self._free[stage]) + seconds
            at = self._free[stage] + times.between_seconds
        leaves = self._free[-1]
        self._leaving.append((leaves, frozenset(plan.sequences)))
        self._ended = max(self._ended, leaves + times.after_seconds)
        return start, self._ended

    def _before(self, plan: StepPlan) -> float:
        """When the steps have left the last stage that have the tokens before this one's."""
        return max(
            (
                leaves
                for leaves, others in self._leaving
                if not others.isdisjoint(
                    sequence
                    for sequence, tokens in zip(plan.sequences, plan.tokens, strict=True)
                    if tokens == 1
                )
            ),
            default=0.0,
        )
