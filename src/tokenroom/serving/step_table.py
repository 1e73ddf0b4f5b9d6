"""Times of steps looked up instead of computed: decode steps recur by the hundred thousand."""

from __future__ import annotations

from typing import Final

from tokenroom.performance.work import StepWork
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.step_cost import StepCost

_LEAST_SPACING: Final = 16
_PARTS: Final = 16
"""Nodes lie at most a 16th of the context apart."""


class StepTable:
    """What :class:`~.step_cost.StepCost` gives, at less work a step.

    A step in which every request computes one token is interpolated linearly between two mean
    contexts, computed once for each number of requests; its attention grows with the context
    linearly or nearly so. A step with prompts is computed as it is.

    Args:
        cost: How long steps take.
    """

    __slots__ = ("_cost", "_nodes")

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._nodes: dict[tuple[int, int], float] = {}

    def __call__(self, plan: StepPlan) -> float:
        """Seconds of a step.

        Raises:
            DeploymentError: The model has parts whose speed is not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        count = len(plan.tokens)
        if sum(plan.tokens) != count:
            return self._cost(plan)
        context = sum(plan.contexts) / count
        spacing = _LEAST_SPACING
        while spacing * 2 * _PARTS <= context:
            spacing *= 2
        low = int(context // spacing) * spacing
        below = self._node(count, low)
        return below + (self._node(count, low + spacing) - below) * (context - low) / spacing

    def _node(self, count: int, context: int) -> float:
        found = self._nodes.get((count, context))
        if found is None:
            others = self._cost.terms.layout.data_parallel_size - 1
            found = self._nodes[count, context] = self._cost.seconds(
                StepWork(
                    decode_sequences=count,
                    decode_context_tokens=context,
                    other_tokens=others * count,
                )
            )
        return found
