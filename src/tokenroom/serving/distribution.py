"""How times of many are spread: exact figures of a million, close ones of any number."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MOST_EXACT: Final = 1 << 18
"""Different times that are kept as they are."""
BUCKET_SHIFT: Final = 40
"""Bits of a float64 that a bucket leaves out: 12 of the 52 after the leading one stay, so that a
bucket is a 4096th of its times wide, and its middle within an 8192th (0.012%) of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Times of many; percentiles are interpolated between neighbours, as numpy does by default.

    Attributes:
        count: How many.
        mean_seconds: Their mean; None of none, as all that follow.
        p50_seconds: Half are at or below it.
        p90_seconds: 90% are.
        p95_seconds: 95% are.
        p99_seconds: 99% are.
        max_seconds: The longest.
    """

    count: int
    mean_seconds: float | None = None
    p50_seconds: float | None = None
    p90_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    max_seconds: float | None = None


PERCENTILES: Final = (0.5, 0.9, 0.95, 0.99)


def distribution(values: Iterable[tuple[float, int]]) -> Distribution:
    """The distribution of seconds, each with how often it occurred."""
    ordered = sorted(values)
    count = sum(times for _, times in ordered)
    if not count:
        return Distribution(count=0)
    ranks = [(count - 1) * share for share in PERCENTILES]
    wanted = sorted({bound for rank in ranks for bound in (math.floor(rank), math.ceil(rank))})
    at: dict[int, float] = {}
    seen = 0
    positions = iter(wanted)
    position = next(positions, None)
    for seconds, times in ordered:
        seen += times
        while position is not None and position < seen:
            at[position] = seconds
            position = next(positions, None)
    p50, p90, p95, p99 = (
        at[math.floor(rank)]
        + (at[math.ceil(rank)] - at[math.floor(rank)]) * (rank - math.floor(rank))
        for rank in ranks
    )
    return Distribution(
        count=count,
        mean_seconds=math.fsum(seconds * times for seconds, times in ordered) / count,
        p50_seconds=p50,
        p90_seconds=p90,
        p95_seconds=p95,
        p99_seconds=p99,
        max_seconds=ordered[-1][0],
    )


class Sample:
    """Times of many as they come, in bounded memory.

    They are kept as they are until more than :data:`MOST_EXACT` different ones have come, and in
    buckets from then on; the mean stays exact to rounding, and so does the longest.
    """

    __slots__ = ("_buckets", "_longest", "_seconds", "_times", "_total", "count")

    def __init__(self) -> None:
        self.count = 0
        self._seconds, self._times = array("d"), array("q")
        self._buckets: dict[int, int] | None = None
        self._total = self._longest = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Take in one time, and how often it occurred."""
        self.count += times
        if self._buckets is not None:
            self._into_buckets(self._buckets, seconds, times)
            return
        self._seconds.append(seconds)
        self._times.append(times)
        if len(self._seconds) > 2 * MOST_EXACT:
            self._merge()

    def _merge(self) -> None:
        """Keep each different time once, or buckets where they are too many."""
        merged: dict[float, int] = {}
        for seconds, times in zip(self._seconds, self._times, strict=True):
            merged[seconds] = merged.get(seconds, 0) + times
        self._seconds, self._times = array("d"), array("q")
        if len(merged) > MOST_EXACT:
            self._buckets = {}
            for seconds, times in merged.items():
                self._into_buckets(self._buckets, seconds, times)
        else:
            self._seconds.extend(merged.keys())
            self._times.extend(merged.values())

    def _into_buckets(self, buckets: dict[int, int], seconds: float, times: int) -> None:
        bucket = struct.unpack("<q", struct.pack("<d", seconds))[0] >> BUCKET_SHIFT
        buckets[bucket] = buckets.get(bucket, 0) + times
        self._total += seconds * times
        self._longest = max(self._longest, seconds)

    def distribution(self) -> Distribution:
        """The distribution of all so far."""
        if self._buckets is None:
            self._merge()
        if self._buckets is None:
            return distribution(zip(self._seconds, self._times, strict=True))
        return of_buckets(self._buckets.items(), self.count, self._total, self._longest)


def of_buckets(
    buckets: Iterable[tuple[int, int]], count: int, total: float, longest: float
) -> Distribution:
    """The distribution of times that are counted in buckets, with their exact sum and longest."""
    near = distribution((middle(bucket), times) for bucket, times in buckets)
    return Distribution(
        count=count,
        mean_seconds=total / count,
        p50_seconds=near.p50_seconds,
        p90_seconds=near.p90_seconds,
        p95_seconds=near.p95_seconds,
        p99_seconds=near.p99_seconds,
        max_seconds=longest,
    )


def middle(bucket: int) -> float:
    """The middle of a bucket, in seconds."""
    bits = (bucket << BUCKET_SHIFT) + (1 << (BUCKET_SHIFT - 1))
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
