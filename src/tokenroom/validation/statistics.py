"""Errors summed up: median, 90th percentile, worst and bias of every group of figures.

Sizes observed below 0.1 GiB are left out: percentages of them say little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import floor

from tokenroom.validation.comparison import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Figures of one kind.

    Attributes:
        engine: Their engine.
        quantity: Their name.
        engine_version: Their version; None when the group is not of one.
        architecture_class: Kind of their models; None when the group is not of one.
        grade: Grade of their rows; None when the group is not of one.
        n: How many.
        median_abs_pct: Median of the absolute errors in percent.
        p90_abs_pct: 90th percentile, between the two nearest where it falls between.
        worst_abs_pct: The largest.
        bias_pct: Mean of the signed errors.
    """

    engine: str
    quantity: str
    engine_version: str | None = None
    architecture_class: str | None = None
    grade: str | None = None
    n: int
    median_abs_pct: float
    p90_abs_pct: float
    worst_abs_pct: float
    bias_pct: float


def by_class(comparisons: Iterable[Comparison]) -> tuple[Group, ...]:
    """Groups by engine, quantity, kind of model and grade."""
    return _grouped(comparisons, lambda item: (None, item.architecture_class, item.grade))


def by_version(comparisons: Iterable[Comparison]) -> tuple[Group, ...]:
    """Groups by engine, quantity and version, over grades A and B."""
    counted = [item for item in comparisons if item.counts]
    return _grouped(counted, lambda item: (item.engine_version, None, None))


def by_quantity(comparisons: Iterable[Comparison]) -> tuple[Group, ...]:
    """Groups by engine and quantity, over grades A and B."""
    counted = [item for item in comparisons if item.counts]
    return _grouped(counted, lambda item: (None, None, None))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the sorted values lies, by linear interpolation."""
    place = share * (len(values) - 1)
    low = floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def _grouped(
    comparisons: Iterable[Comparison],
    parts: Callable[[Comparison], tuple[str | None, str | None, str | None]],
) -> tuple[Group, ...]:
    found: dict[tuple[str, str, str | None, str | None, str | None], list[float]] = {}
    for item in comparisons:
        if item.error_pct is not None and not item.repeats and not item.is_small:
            key = (item.engine, item.quantity, *parts(item))
            found.setdefault(key, []).append(item.error_pct)
    return tuple(
        _group(key, errors)
        for key, errors in sorted(
            found.items(), key=lambda entry: tuple(part or "" for part in entry[0])
        )
    )


def _group(
    key: tuple[str, str, str | None, str | None, str | None], errors: Sequence[float]
) -> Group:
    engine, quantity, version, kind, grade = key
    sizes = sorted(abs(error) for error in errors)
    return Group(
        engine=engine,
        quantity=quantity,
        engine_version=version,
        architecture_class=kind,
        grade=grade,
        n=len(sizes),
        median_abs_pct=percentile(sizes, 0.5),
        p90_abs_pct=percentile(sizes, 0.9),
        worst_abs_pct=sizes[-1],
        bias_pct=sum(errors) / len(errors),
    )
