"""Student's t distribution of whole degrees of freedom, which intervals of few runs rest on."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

_HALVINGS: Final = 200


def central_share(t: float, freedom: int) -> float:
    """Probability that a value of Student's distribution lies between ``-t`` and ``t``.

    A finite sum for whole degrees of freedom: Abramowitz and Stegun, Handbook of Mathematical
    Functions (1964), 26.7.3 (odd) and 26.7.4 (even).

    Args:
        t: Not negative.
        freedom: Degrees of freedom, at least 1.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= power / (power + 1) * cosine * cosine
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@cache
def quantile(confidence: float, freedom: int) -> float:
    """The ``t`` for which a share ``confidence`` of values lies between ``-t`` and ``t``."""
    low, high = 0.0, 1.0
    while central_share(high, freedom) < confidence:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if central_share(middle, freedom) < confidence else (low, middle)
    return high
