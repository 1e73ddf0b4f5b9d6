"""Random draws that are the same on every Python: only ``random()`` of a seeded generator is used.

Python promises that ``random.Random(seed).random()`` gives the same numbers from version to version
and promises it of no other method (``random`` module, "Notes on Reproducibility").
"""

from __future__ import annotations

import math
from random import Random


def stream(seed: int, name: str) -> Random:
    """A generator of its own for one purpose, so that changing one leaves the others alone."""
    return Random(f"{seed}/{name}")


def exponential(random: Random, mean: float) -> float:
    """A draw of the exponential distribution."""
    return -math.log(1.0 - random.random()) * mean


def normal(random: Random) -> float:
    """A draw of the standard normal distribution (Box and Muller 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - random.random()))
    return radius * math.cos(2.0 * math.pi * random.random())


def gamma(random: Random, shape: float, scale: float) -> float:
    """A draw of the gamma distribution (Marsaglia and Tsang 2000, boosted below a shape of 1)."""
    if shape < 1.0:
        boost: float = (1.0 - random.random()) ** (1.0 / shape)
        return gamma(random, shape + 1.0, scale) * boost
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(random)
        v = (1.0 + c * x) ** 3
        if v <= 0.0:
            continue
        u = 1.0 - random.random()
        if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * scale


def geometric(random: Random, mean: float) -> int:
    """A count from 1 on whose chance to go on is the same each time."""
    if mean <= 1.0:
        return 1
    return 1 + int(math.log(1.0 - random.random()) / math.log(1.0 - 1.0 / mean))
