"""How many servers a pool is to have, as Kubernetes' Horizontal Pod Autoscaler decides it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from tokenroom.serving.fleet_description import Measure, Scaling
from tokenroom.serving.replica import Replica

_MORE_AT_LEAST: Final = 4
_TIMES_AT_MOST: Final = 2


class Scaler:
    """Decides from time to time how many servers there are to be.

    ``ceil(measure / target)``, unless that is within ``tolerance`` of what there is. At a look no
    more than 4 servers or as many as there are come in addition, whichever is more; fewer are had
    when for ``cool_down_seconds`` no more were wanted. Source: "Horizontal Pod Autoscaling,
    algorithm details" and "default behavior" of the documentation of Kubernetes 1.34, for a metric
    with an ``AverageValue``.

    Attributes:
        starting: Servers that are held and do not serve yet.
        every_seconds: Between two looks.
        start_up_seconds: From the decision to start a server until it serves.

    Args:
        scaling: What is wanted.
    """

    __slots__ = ("_scaling", "_wishes", "every_seconds", "start_up_seconds", "starting")

    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling
        self._wishes: deque[tuple[float, int]] = deque()
        self.starting: list[Replica] = []
        self.every_seconds = scaling.every_seconds
        self.start_up_seconds = scaling.start_up_seconds

    def wanted(self, serving: Sequence[Replica], now: float) -> int:
        """Servers that there are to be, those that start included."""
        scaling = self._scaling
        have = len(serving) + len(self.starting)
        measure = sum(
            one.num_waiting if scaling.measure is Measure.WAITING else one.num_running
            for one in serving
        )
        wish = have
        if abs(measure / (scaling.target * have) - 1) > scaling.tolerance:
            wish = math.ceil(measure / scaling.target)
        wish = max(scaling.least, min(wish, scaling.most))
        while self._wishes and self._wishes[0][0] < now - scaling.cool_down_seconds:
            self._wishes.popleft()
        self._wishes.append((now, wish))
        if wish >= have:
            return min(wish, max(_TIMES_AT_MOST * have, have + _MORE_AT_LEAST))
        return min(have, max(most for _, most in self._wishes))
