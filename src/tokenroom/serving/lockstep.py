"""Data-parallel ranks that share experts: they step together, and the slowest says how long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from tokenroom.serving.engine import Engine, checked
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.step_cost import StepCost
from tokenroom.serving.step_table import StepTable

TogetherSeconds = Callable[[Sequence[StepPlan]], float]
"""How long a step takes in which some of the ranks run these plans, and the others nothing."""


class Lockstep:
    """Engines that begin and end their steps together.

    One that has nothing to run computes a dummy batch (vLLM: ``execute_dummy_batch`` in
    ``run_busy_loop`` of ``DPEngineCoreProc``, ``vllm/v1/engine/core.py``) or an idle one (SGLang:
    ``prepare_mlp_sync_batch``), and waits for the others in every layer with experts; what comes
    to it meanwhile waits for the end of the step.

    Args:
        engines: The ranks.
        seconds: How long their steps take together.
    """

    __slots__ = ("_ends", "_engines", "_plans", "_seconds", "_starts")

    def __init__(self, engines: Sequence[Engine], seconds: TogetherSeconds) -> None:
        self._engines = tuple(engines)
        self._plans: tuple[deque[StepPlan], ...] = tuple(deque() for _ in engines)
        self._seconds = seconds
        self._starts = self._ends = 0.0

    def take_in(self) -> list[RequestRecord]:
        """Hand each rank's scheduler what has come in; gives the records of what they refuse."""
        return [record for engine in self._engines for record in engine.take_in()]

    def begin(self, now: float) -> float | None:
        """Let each rank decide; when their common step ends, None with nothing to run."""
        for engine, plans in zip(self._engines, self._plans, strict=True):
            while len(plans) < engine.batches and (plan := engine.decide()) is not None:
                plans.append(plan)
        together = [plans[0] for plans in self._plans if plans]
        if not together:
            return None
        self._starts = now
        self._ends = now + checked(self._seconds(together), together[0])
        return self._ends

    def end(self) -> list[RequestRecord]:
        """End the common step; gives the records of requests that ended with it."""
        ended = []
        for engine, plans in zip(self._engines, self._plans, strict=True):
            if plans:
                ended += engine.complete(plans.popleft(), self._starts, self._ends)
        return ended


class TogetherCost:
    """How long ranks take for a common step: the longest of what each takes with the others.

    Experts compute the tokens of all ranks. Where all replay graphs, each rank's tokens are padded
    to those of the rank with the most (``_post_process_dp_padding`` of
    ``vllm/v1/worker/dp_utils.py``); otherwise they are as many as there are.

    Args:
        cost: How long a rank's steps take.
    """

    __slots__ = ("_cost", "_table")

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._table = StepTable(cost)

    def __call__(self, plans: Sequence[StepPlan]) -> float:
        """Seconds of a common step.

        Raises:
            DeploymentError: The model has parts whose speed is not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        tokens = [sum(plan.tokens) for plan in plans]
        if all(count == len(plan.tokens) for count, plan in zip(tokens, plans, strict=True)):
            return max(map(self._table, plans))
        total = sum(tokens)
        return max(
            self._cost.seconds(replace(self._cost.work(plan), other_tokens=total - own))
            for plan, own in zip(plans, tokens, strict=True)
        )
