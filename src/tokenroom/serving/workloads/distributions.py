"""How long prompts, answers, conversations and pauses are, drawn from a distribution."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Protocol

from tokenroom.errors import WorkloadError
from tokenroom.serving.workloads import draws


class Distribution(Protocol):
    """Anything that numbers are drawn from."""

    def draw(self, random: Random) -> float:
        """One number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """The same number each time."""

    value: float

    def draw(self, random: Random) -> float:
        """The number; the generator is left as it is."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Each number from ``low`` to ``high`` alike."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise WorkloadError(
                f"uniform({self.low:g},{self.high:g}) ends before it begins; write the smaller "
                "number first"
            )

    def draw(self, random: Random) -> float:
        """One number."""
        return self.low + (self.high - self.low) * random.random()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """Numbers whose logarithm is normal.

    Attributes:
        median: Half of them are below it.
        sigma: Standard deviation of their natural logarithm.
        largest: What longer draws are cut to, as services cut what is too long; None for no limit.
    """

    median: float
    sigma: float
    largest: float | None = None

    def draw(self, random: Random) -> float:
        """One number."""
        found = self.median * math.exp(min(self.sigma * draws.normal(random), 50.0))
        return found if self.largest is None else min(found, self.largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Pauses of independent events: the exponential distribution."""

    mean: float

    def draw(self, random: Random) -> float:
        """One number."""
        return draws.exponential(random, self.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric:
    """Counts from 1 on, each going on with the same chance."""

    mean: float

    def draw(self, random: Random) -> float:
        """One count."""
        return draws.geometric(random, self.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """Numbers that were observed, each as often as it was."""

    values: Sequence[float]

    def draw(self, random: Random) -> float:
        """One of them."""
        return self.values[int(random.random() * len(self.values))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Numbers of which shares are known; between two of them the logarithm is uniform.

    Attributes:
        percents: Shares in percent, from 0 to 100, rising.
        values: The number that each share does not exceed, not falling.
    """

    percents: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in pairwise(self.percents))
        falling = any(a > b for a, b in pairwise(self.values))
        whole = self.percents[:1] == (0,) and self.percents[-1:] == (100,)
        if not whole or not rising or falling or self.values[0] <= 0:
            raise WorkloadError(
                "quantiles need rising shares from 0 to 100 and values above 0 that do not fall, "
                "as in quantiles(0:10,50:200,100:4000)"
            )

    def draw(self, random: Random) -> float:
        """One number."""
        share = random.random() * 100.0
        above = bisect_right(self.percents, share)
        low, high = self.values[above - 1], self.values[above]
        part = (share - self.percents[above - 1]) / (
            self.percents[above] - self.percents[above - 1]
        )
        return float(low * (high / low) ** part)


class Pairs(Protocol):
    """Lengths of a prompt and its answer, drawn together."""

    def draw_pair(self, random: Random) -> tuple[int, int]:
        """Prompt and answer, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A prompt and an answer that know nothing of each other."""

    prompt: Distribution
    output: Distribution

    def draw_pair(self, random: Random) -> tuple[int, int]:
        """Prompt and answer, in tokens."""
        return draw_tokens(self.prompt, random), draw_tokens(self.output, random)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Pairs that were observed, each as often as it was."""

    pairs: Sequence[tuple[int, int]]

    def draw_pair(self, random: Random) -> tuple[int, int]:
        """Prompt and answer, in tokens."""
        return self.pairs[int(random.random() * len(self.pairs))]


def draw_tokens(distribution: Distribution, random: Random) -> int:
    """A length in whole tokens, at least 1."""
    return max(1, round(distribution.draw(random)))
