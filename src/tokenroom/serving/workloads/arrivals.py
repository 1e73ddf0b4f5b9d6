"""When requests come by themselves: processes in time, as endless rising times in seconds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Protocol

from tokenroom.errors import WorkloadError
from tokenroom.serving.workloads import draws


class ArrivalProcess(Protocol):
    """Anything that says when requests come."""

    def times(self, random: Random) -> Iterator[float]:
        """Times from 0 on, in seconds, without an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """All requests come at the start, as a batch job sends them."""

    def times(self, random: Random) -> Iterator[float]:
        """0, again and again."""
        while True:
            yield 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evenly:
    """Requests in a beat: the same gap each time."""

    rate: float

    def times(self, random: Random) -> Iterator[float]:
        """Multiples of the gap."""
        count = 0
        while True:
            yield count / self.rate
            count += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Gaps that know nothing of each other, gamma-distributed.

    Attributes:
        rate: Requests a second.
        cv: Coefficient of variation of the gaps: 1 is a Poisson process, more comes in bursts,
            less in a beat (``shape = 1 / cv**2``, as ``--burstiness`` of ``vllm bench serve`` is
            that shape).
    """

    rate: float
    cv: float = 1.0

    def times(self, random: Random) -> Iterator[float]:
        """Sums of the gaps."""
        now = 0.0
        shape = 1.0 / self.cv**2
        scale = 1.0 / (self.rate * shape)
        while True:
            if self.cv == 1.0:
                now += draws.exponential(random, 1.0 / self.rate)
            else:
                now += draws.gamma(random, shape, scale)
            yield now


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinusoid:
    """A rate that swings over the day: ``rate * (1 + amplitude * sin(2 pi t / period))``."""

    rate: float
    amplitude: float
    period_seconds: float

    def times(self, random: Random) -> Iterator[float]:
        """A Poisson process of that rate."""

        def rate(seconds: float) -> float:
            turn = 2.0 * math.pi * seconds / self.period_seconds
            return self.rate * (1.0 + self.amplitude * math.sin(turn))

        return _thinned(random, rate, self.rate * (1.0 + self.amplitude))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable:
    """A rate that holds until the next entry, over and over.

    Attributes:
        starts_seconds: When each rate begins, the first at 0, rising.
        rates: Requests a second.
        period_seconds: When the table begins again.
    """

    starts_seconds: tuple[float, ...]
    rates: tuple[float, ...]
    period_seconds: float

    def __post_init__(self) -> None:
        times = (*self.starts_seconds, self.period_seconds)
        if times[0] != 0 or any(a >= b for a, b in pairwise(times)):
            raise WorkloadError(
                "a table of rates begins at 0 and its times rise up to the period, as in "
                "table(0h:2,8h:9,20h:4) over 24h"
            )
        if max(self.rates) <= 0 or min(self.rates) < 0:
            raise WorkloadError("a table of rates needs rates from 0 on, one of them above 0")

    @property
    def mean_rate(self) -> float:
        """Requests a second over a whole period."""
        ends = (*self.starts_seconds[1:], self.period_seconds)
        weights = (end - start for start, end in zip(self.starts_seconds, ends, strict=True))
        total = sum(rate * weight for rate, weight in zip(self.rates, weights, strict=True))
        return total / self.period_seconds

    def scaled_to(self, rate: float) -> RateTable:
        """The same shape with another mean rate."""
        factor = rate / self.mean_rate
        return RateTable(
            starts_seconds=self.starts_seconds,
            rates=tuple(value * factor for value in self.rates),
            period_seconds=self.period_seconds,
        )

    def times(self, random: Random) -> Iterator[float]:
        """A Poisson process of that rate."""

        def rate(seconds: float) -> float:
            at = bisect_right(self.starts_seconds, seconds % self.period_seconds)
            return self.rates[at - 1]

        return _thinned(random, rate, max(self.rates))


def bursts(
    *, rate: float, factor: float, every_seconds: float, lasting_seconds: float
) -> RateTable:
    """Peaks of ``factor`` times the mean rate, with what the mean leaves between them.

    Raises:
        WorkloadError: The peaks alone exceed the mean rate.
    """
    if not 0 < lasting_seconds < every_seconds:
        raise WorkloadError(
            f"bursts that last {lasting_seconds:g} s every {every_seconds:g} s leave nothing "
            "between them; lasting must be shorter than every"
        )
    share = lasting_seconds / every_seconds
    if factor < 1 or factor * share > 1:
        raise WorkloadError(
            f"bursts of {factor:g} times the mean rate for {share:.0%} of the time cannot have "
            f"that mean; factor may be 1 to {1 / share:g}"
        )
    quiet = rate * (1 - factor * share) / (1 - share)
    return RateTable(
        starts_seconds=(0.0, every_seconds - lasting_seconds),
        rates=(quiet, rate * factor),
        period_seconds=every_seconds,
    )


def _thinned(random: Random, rate: Callable[[float], float], highest: float) -> Iterator[float]:
    """A Poisson process whose rate changes, by thinning the highest (Lewis and Shedler 1979)."""
    now = 0.0
    while True:
        now += draws.exponential(random, 1.0 / highest)
        if random.random() * highest < rate(now):
            yield now
