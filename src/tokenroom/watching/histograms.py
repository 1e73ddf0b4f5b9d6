"""Latencies between two scrapes, from cumulative buckets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tokenroom.watching.exposition import Exposition, Labels
from tokenroom.watching.observation import Latency

_P50, _P90, _P99 = 0.5, 0.9, 0.99
_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A histogram as Prometheus keeps it.

    Attributes:
        bounds: Upper bounds, the last of them infinite.
        counts: How many were at most each bound.
        total_seconds: Their sum.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total_seconds: float

    @property
    def count(self) -> float:
        """How many there were."""
        return self.counts[-1]

    def since(self, before: Histogram | None) -> Histogram:
        """What came after ``before``; everything where the server began anew between them."""
        if (
            before is None
            or before.bounds != self.bounds
            or any(new < old for new, old in zip(self.counts, before.counts, strict=True))
            or self.total_seconds < before.total_seconds - _SLACK
        ):
            return self
        return Histogram(
            bounds=self.bounds,
            counts=tuple(new - old for new, old in zip(self.counts, before.counts, strict=True)),
            total_seconds=max(0.0, self.total_seconds - before.total_seconds),
        )

    def quantile(self, share: float) -> tuple[float, bool]:
        """Value below which ``share`` of them are, and whether it lies beyond the last bound.

        Interpolated within its bucket as Prometheus's ``histogram_quantile`` does
        (promql/quantile.go), the first bucket beginning at 0.
        """
        rank = share * self.count
        low, below = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank and count > below:
                if math.isinf(bound):
                    return low, True
                return low + (bound - low) * max(0.0, rank - below) / (count - below), False
            below = count
            if not math.isinf(bound):
                low = max(0.0, bound)
        return low, False


def read_histogram(page: Exposition, names: Iterable[str], where: Labels) -> Histogram | None:
    """The first of some histograms that a page has, summed over what ``where`` leaves open."""
    for name in names:
        buckets: dict[float, float] = {}
        for labels, value in page.of(f"{name}_bucket"):
            if all(labels.get(key) == wanted for key, wanted in where.items()):
                try:
                    bound = float(labels["le"])
                except (KeyError, ValueError):
                    continue
                buckets[bound] = buckets.get(bound, 0.0) + value
        if not buckets:
            continue
        count = page.value(f"{name}_count", where=where)
        buckets.setdefault(math.inf, count if count is not None else max(buckets.values()))
        bounds = tuple(sorted(buckets))
        counts = tuple(buckets[bound] for bound in bounds)
        if not all(map(math.isfinite, counts)) or any(
            after < before for before, after in pairwise(counts)
        ):
            return None
        return Histogram(
            bounds=bounds,
            counts=counts,
            total_seconds=page.value(f"{name}_sum", where=where) or 0.0,
        )
    return None


def added(parts: Iterable[Histogram]) -> Histogram | None:
    """Histograms of the same bounds as one; those of the last bounds where they changed."""
    kept = list(parts)
    if not kept:
        return None
    same = [part for part in kept if part.bounds == kept[-1].bounds]
    return Histogram(
        bounds=kept[-1].bounds,
        counts=tuple(map(sum, zip(*(part.counts for part in same), strict=True))),
        total_seconds=sum(part.total_seconds for part in same),
    )


def latency(histogram: Histogram | None) -> Latency | None:
    """Its figures; None where nothing was measured."""
    if histogram is None or histogram.count < 1:
        return None
    p99, beyond = histogram.quantile(_P99)
    return Latency(
        count=round(histogram.count),
        mean_seconds=histogram.total_seconds / histogram.count,
        p50_seconds=histogram.quantile(_P50)[0],
        p90_seconds=histogram.quantile(_P90)[0],
        p99_seconds=p99,
        beyond=beyond,
    )
