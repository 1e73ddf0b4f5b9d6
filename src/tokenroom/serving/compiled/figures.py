"""Figures of a served workload out of arrays.

They are those of a :class:`~tokenroom.serving.metrics.MetricsCollector` that saw the same.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tokenroom.serving.compiled.state import SERVED, Core
from tokenroom.serving.distribution import (
    BUCKET_SHIFT,
    MOST_EXACT,
    PERCENTILES,
    Distribution,
    of_buckets,
)
from tokenroom.serving.metrics import LatencyLimits, ServingMetrics, Tally, points_of

_HELD: Final = 2 * MOST_EXACT

_HIGH_BITS: Final = 30
_LOW_BITS: Final = 42
_LEAST_SUMMED: Final = 2.0**-19
_MOST_SUMMED: Final = 2.0**12
_MOST_EXACTLY_SUMMED: Final = 1 << 20
"""So that neither the high nor the low parts of a sum exceed 62 bits."""


class ArraySample:
    """A :class:`~tokenroom.serving.distribution.Sample` that takes in arrays."""

    __slots__ = ("_buckets", "_count", "_held", "_longest", "_pieces", "_total")

    def __init__(self) -> None:
        self._pieces: list[tuple[Any, Any]] = []
        self._held = self._count = 0
        self._buckets: tuple[Any, Any] | None = None
        self._total = self._longest = 0.0

    def add(self, seconds: Any, times: Any) -> None:
        """Take in times, and how often each occurred."""
        if not len(seconds):
            return
        self._count += int(times.sum())
        self._pieces.append((seconds, times))
        self._held += len(seconds)
        if self._held > (_HELD if self._buckets is None else MOST_EXACT):
            self._merge()

    def _merge(self) -> None:
        seconds, times = _joined(self._pieces)
        if self._buckets is None:
            seconds, times = _different(seconds, times)
            if len(seconds) <= MOST_EXACT:
                self._pieces, self._held = [(seconds, times)], len(seconds)
                return
            self._buckets = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pieces, self._held = [], 0
        if len(seconds):
            self._total += float((seconds * times).sum())
            self._longest = max(self._longest, float(seconds.max()))
        found = np.concatenate((self._buckets[0], seconds.view(np.int64) >> BUCKET_SHIFT))
        self._buckets = _different(found, np.concatenate((self._buckets[1], times)))

    def distribution(self) -> Distribution:
        """The distribution of all so far."""
        if not self._count:
            return Distribution(count=0)
        self._merge()
        if self._buckets is not None:
            buckets, times = (column.tolist() for column in self._buckets)
            pairs = zip(buckets, times, strict=True)
            return of_buckets(pairs, self._count, self._total, self._longest)
        return _exact(*self._pieces[0], self._count)


def _joined(pieces: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    seconds = [piece for piece, _ in pieces]
    times = [piece for _, piece in pieces]
    return (
        np.concatenate(seconds) if seconds else np.zeros(0),
        np.concatenate(times) if times else np.zeros(0, np.int64),
    )


def _different(values: Any, times: Any) -> tuple[Any, Any]:
    """Each different value once, in order, and how often it occurred."""
    order = np.argsort(values)
    values, times = values[order], times[order]
    first = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    return values[first], np.add.reduceat(times, first)


def _exact(seconds: Any, times: Any, count: int) -> Distribution:
    """What :func:`tokenroom.serving.distribution.distribution` gives of ordered times."""
    ends = np.cumsum(times)

    def at(rank: int) -> float:
        return float(seconds[np.searchsorted(ends, rank, side="right")])

    found = []
    for share in PERCENTILES:
        rank = (count - 1) * share
        low, high = at(math.floor(rank)), at(math.ceil(rank))
        found.append(low + (high - low) * (rank - math.floor(rank)))
    p50, p90, p95, p99 = found
    return Distribution(
        count=count,
        mean_seconds=exact_sum(seconds * times) / count,
        p50_seconds=p50,
        p90_seconds=p90,
        p95_seconds=p95,
        p99_seconds=p99,
        max_seconds=float(seconds[-1]),
    )


def exact_sum(values: Any) -> float:
    """:func:`math.fsum` of positive numbers or 0: the sum of their integer multiples of 2**-72."""
    least, most = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    if not _LEAST_SUMMED <= least <= most <= _MOST_SUMMED or len(values) > _MOST_EXACTLY_SUMMED:
        return math.fsum(values.tolist())
    scaled = values * float(1 << _HIGH_BITS)
    high = np.floor(scaled)
    low = (scaled - high) * float(1 << _LOW_BITS)  # whole: a float has 53 bits from its first one
    total = (int(high.astype(np.int64).sum()) << _LOW_BITS) + int(low.astype(np.int64).sum())
    return total / (1 << (_HIGH_BITS + _LOW_BITS))  # of whole numbers, rounded once


class ArrayCollector:
    """Takes in arrays of requests and of times between tokens.

    Args:
        limits: What requests are promised, None for nothing.
    """

    __slots__ = ("_e2e", "_itl", "_limits", "_queue", "_tally", "_tpot", "_ttft")

    def __init__(self, limits: LatencyLimits | None = None) -> None:
        self._limits = limits
        self._ttft, self._tpot, self._itl = ArraySample(), ArraySample(), ArraySample()
        self._e2e, self._queue = ArraySample(), ArraySample()
        self._tally = Tally(within_limits=None if limits is None else 0)

    def gaps(self, gaps: Any) -> None:
        """Take in :data:`~.state.GAP`; they may change afterwards."""
        self._itl.add(gaps["seconds"].copy(), gaps["times"].copy())

    def requests(self, done: Any) -> None:
        """Take in :data:`~.state.ENDED`."""
        tally = self._tally
        first = float(done["arrival"].min())
        tally.first_arrival_seconds = min(tally.first_arrival_seconds, first)
        served = done[done["refused"] == SERVED]
        tally.refused += len(done) - len(served)
        if not len(served):
            return
        tally.requests += len(served)
        tally.last_token_seconds = max(tally.last_token_seconds, float(served["finish"].max()))
        tally.prompt_tokens += int(served["prompt"].sum())
        tally.output_tokens += int(served["output"].sum())
        tally.cached_tokens += int(served["cached"].sum())
        once = np.ones(len(served), np.int64)
        ttft = served["first_token"] - served["arrival"]
        e2e = served["finish"] - served["arrival"]
        several = served["output"] > 1
        tpot = (served["finish"] - served["first_token"])[several] / (served["output"][several] - 1)
        self._ttft.add(ttft, once)
        self._e2e.add(e2e, once)
        self._queue.add(served["scheduled"] - served["arrival"], once)
        self._tpot.add(tpot, once[: len(tpot)])
        limits = self._limits
        if limits is not None and tally.within_limits is not None:
            kept = np.ones(len(served), bool)
            if limits.ttft_seconds is not None:
                kept &= ttft <= limits.ttft_seconds
            if limits.e2e_seconds is not None:
                kept &= e2e <= limits.e2e_seconds
            if limits.tpot_seconds is not None:
                kept[several] &= tpot <= limits.tpot_seconds
            tally.within_limits += int(kept.sum())

    def result(self, core: Core) -> ServingMetrics:
        """Everything taken in so far and the engine's own counts, in figures."""
        tally, engine = self._tally, core.engine[0]
        tally.steps = int(engine["steps"])
        tally.computed_tokens = int(engine["computed_tokens"])
        tally.preemptions = int(engine["preemptions"])
        tally.max_running = int(engine["max_running"])
        tally.max_waiting = int(engine["max_waiting"])
        tally.max_used_blocks = int(engine["max_used"])
        return tally.metrics(
            points_of(core.points[: engine["points"]].tolist()),
            ttft=self._ttft.distribution(),
            tpot=self._tpot.distribution(),
            itl=self._itl.distribution(),
            e2e=self._e2e.distribution(),
            queue=self._queue.distribution(),
        )
