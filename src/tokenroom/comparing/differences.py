"""How far a mean, or the difference of two that saw the same draws, is known from a few runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokenroom.comparing.student_t import quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean over runs that differ by their seed.

    Attributes:
        value: The mean.
        half_width: From it to either end of its confidence interval; None of one run, which says
            nothing of others.
        runs: How many.
    """

    value: float
    half_width: float | None
    runs: int

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval lies on one side of zero; None where there is no interval."""
        return None if self.half_width is None else abs(self.value) > self.half_width


def mean_of(values: Sequence[float], confidence: float) -> Mean:
    """The mean of independent values, with Student's interval: ``t s / sqrt(n)`` to either side.

    Args:
        values: One of each run; at least one.
        confidence: Share of such intervals that hold the true mean, of values about it as a normal
            distribution has them.
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Mean(value=mean, half_width=None, runs=count)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = quantile(confidence, count - 1) * math.sqrt(variance / count)
    return Mean(value=mean, half_width=half, runs=count)


def paired_difference(values: Sequence[float], others: Sequence[float], confidence: float) -> Mean:
    """The mean of ``other - value``, pair by pair.

    Both of a pair saw the same arrivals and lengths, so that what the draw made of both falls out
    of their difference: its interval is narrower than those of the two means would let expect (the
    method of common random numbers; Law, Simulation Modeling and Analysis, 11.2).

    Args:
        values: One of each seed.
        others: Those of the other deployment, of the same seeds in the same order.
        confidence: As :func:`mean_of` takes it.
    """
    pairs = zip(values, others, strict=True)
    return mean_of([other - value for value, other in pairs], confidence)
