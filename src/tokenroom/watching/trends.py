"""Whether a figure grows for good: a criterion that noise, steps and warming up do not meet.

Five things must hold over a window, all of them:

1. it has at least :data:`LEAST_POINTS` readings that span most of it;
2. the growth by the Theil-Sen slope (the median of the slopes between all pairs, which single
   outliers do not move) is at least what the caller calls felt;
3. the medians of its four quarters rise each time, the last time by at least half of the average
   rise: what has come to rest does not count;
4. the lowest reading of the last quarter is above the highest of the first: what only swings
   does not count;
5. the last quarter itself rises: the median of its second half is above that of its first.

Theil (1950), "A rank-invariant method of linear and polynomial regression analysis"; Sen (1968),
"Estimates of the regression coefficient based on Kendall's tau".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median
from typing import Final

LEAST_POINTS: Final = 16
_KEPT_POINTS: Final = 96
_SPANNED: Final = 0.75
_STILL: Final = 0.5

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How a figure grows.

    Attributes:
        seconds: Time between the first and the last reading.
        growth: By how much it grew in that time, by the slope.
        per_second: The slope.
    """

    seconds: float
    growth: float
    per_second: float


class Series:
    """The readings of one figure over a window, thinned where they come fast.

    Args:
        window_seconds: How long they are kept.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._points: deque[Point] = deque()

    def add(self, time: float, value: float) -> None:
        """Take up a reading; one that comes too soon after the last is left out."""
        spacing = self._window_seconds / _KEPT_POINTS
        if self._points and time - self._points[-1][0] < spacing * 0.999:
            return
        self._points.append((time, value))
        while self._points[0][0] < time - self._window_seconds:
            self._points.popleft()

    def growing(self, felt: float) -> Trend | None:
        """How it grows, None where it does not."""
        return growing(tuple(self._points), felt=felt, window_seconds=self._window_seconds)


def growing(points: Sequence[Point], *, felt: float, window_seconds: float) -> Trend | None:
    """How a figure grows, None where the criterion is not met.

    Args:
        points: Times in seconds with its readings, in order.
        felt: Least growth over them that counts.
        window_seconds: How long they are meant to span.
    """
    if len(points) < LEAST_POINTS:
        return None
    seconds = points[-1][0] - points[0][0]
    if seconds < _SPANNED * window_seconds:
        return None
    quarters = _quarters(points)
    if min(quarters[-1]) <= max(quarters[0]):
        return None
    rises = [after - before for before, after in pairwise(map(median, quarters))]
    if min(rises) <= 0 or rises[-1] < _STILL * sum(rises) / len(rises):
        return None
    half = len(quarters[-1]) // 2
    if median(quarters[-1][half:]) <= median(quarters[-1][:half] or [float("inf")]):
        return None
    slope = median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in combinations(points, 2)
        if later[0] > earlier[0]
    )
    growth = slope * seconds
    return Trend(seconds=seconds, growth=growth, per_second=slope) if growth >= felt else None


def _quarters(points: Sequence[Point]) -> list[list[float]]:
    """Readings by quarter of the time."""
    first, last = points[0][0], points[-1][0]
    quarters: list[list[float]] = [[], [], [], []]
    for time, value in points:
        quarters[min(3, int(4 * (time - first) / (last - first)))].append(value)
    return quarters if all(quarters) else [[0.0]] * 4
