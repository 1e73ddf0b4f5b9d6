"""Errors of speeds summed up, and how often two deployments are ordered as they were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.validation.speed_comparison import SpeedComparison
from tokenroom.validation.speed_quantities import PER_GPU
from tokenroom.validation.statistics import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedGroup:
    """Speeds of one kind.

    Attributes:
        quantity: Their name.
        engine: Their engine; None when the group is not of one.
        engine_version: Its version; None when the group is not of one, or the rows state none.
        gpu: Their accelerator; None when the group is not of one.
        architecture_class: Kind of their models; None when the group is not of one.
        n: How many.
        median_abs_pct: Median of the absolute errors in percent.
        p90_abs_pct: 90th percentile, between the two nearest where it falls between.
        bias: Median of predicted over observed.
        inside_share: Share of the observed that lie in the predicted range.
    """

    quantity: str
    engine: str | None = None
    engine_version: str | None = None
    gpu: str | None = None
    architecture_class: str | None = None
    n: int
    median_abs_pct: float
    p90_abs_pct: float
    bias: float
    inside_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How often pairs of measurements are ordered alike by output tokens a second and GPU.

    Attributes:
        gpu: The accelerator; None for all.
        pairs: Pairs compared: of one model on one kind of GPU, with prompts and answers of the same
            lengths, under any engine, precision, division and number of clients.
        tau: Kendall's: 1 when every pair is ordered as it was measured, -1 when none is.
    """

    gpu: str | None
    pairs: int
    tau: float


_Key = tuple[str | None, ...]
_PARTS: Final = ("engine", "engine_version", "gpu", "architecture_class")


def speed_groups(items: Iterable[SpeedComparison], *by: str) -> tuple[SpeedGroup, ...]:
    """Groups by quantity and any of engine, engine_version, gpu and architecture_class."""

    def key(item: SpeedComparison) -> _Key:
        return tuple(getattr(item, part) if part in by else None for part in _PARTS)

    return _grouped(items, key)


def speed_order(items: Iterable[SpeedComparison]) -> tuple[Order, ...]:
    """Kendall's tau over all, then on each kind of GPU; of those with pairs."""
    groups: dict[tuple[object, ...], list[SpeedComparison]] = {}
    for item in items:
        if item.quantity == PER_GPU:
            key = (item.model, item.gpu, item.input_tokens, item.output_tokens)
            groups.setdefault(key, []).append(item)
    counts: dict[str | None, tuple[int, int]] = {None: (0, 0)}
    for group in groups.values():
        agreeing, pairs = _agreeing(group)
        for gpu in (None, group[0].gpu):
            before = counts.get(gpu, (0, 0))
            counts[gpu] = (before[0] + agreeing, before[1] + pairs)
    return tuple(
        Order(gpu=gpu, pairs=pairs, tau=2 * agreeing / pairs - 1)
        for gpu, (agreeing, pairs) in sorted(counts.items(), key=lambda entry: entry[0] or "")
        if pairs
    )


def _agreeing(group: Sequence[SpeedComparison]) -> tuple[int, int]:
    """Pairs ordered alike, and all pairs."""
    agreeing = 0
    for number, first in enumerate(group):
        for second in group[:number]:
            measured = first.observed - second.observed
            agreeing += (first.predicted - second.predicted) * measured > 0
    return agreeing, len(group) * (len(group) - 1) // 2


def _grouped(
    items: Iterable[SpeedComparison], key: Callable[[SpeedComparison], _Key]
) -> tuple[SpeedGroup, ...]:
    found: dict[tuple[str, _Key], list[SpeedComparison]] = {}
    for item in items:
        found.setdefault((item.quantity, key(item)), []).append(item)
    ordered = sorted(
        found.items(), key=lambda entry: (*(part or "" for part in entry[0][1]), entry[0][0])
    )
    return tuple(_group(quantity, parts, members) for (quantity, parts), members in ordered)


def _group(quantity: str, parts: _Key, members: Sequence[SpeedComparison]) -> SpeedGroup:
    errors = sorted(abs(item.error_pct) for item in members)
    engine, version, gpu, kind = parts
    return SpeedGroup(
        quantity=quantity,
        engine=engine,
        engine_version=version,
        gpu=gpu,
        architecture_class=kind,
        n=len(members),
        median_abs_pct=percentile(errors, 0.5),
        p90_abs_pct=percentile(errors, 0.9),
        bias=percentile(sorted(item.ratio for item in members), 0.5),
        inside_share=sum(item.inside for item in members) / len(members),
    )
