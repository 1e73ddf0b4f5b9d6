"""Speeds measured in one run: rows of one load beside each other, each with a figure or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tokenroom.validation.figures import numeric
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_quantities import SPEED_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One figure.

    Attributes:
        row: The row that states it.
        load: The load it states.
        name: Its name there.
        value: In the unit that the name ends with.
    """

    row: Row
    load: MeasuredLoad
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one run under one load measured.

    Attributes:
        row: The row that comes first, which stands for all.
        load: Its load.
        observed: Every speed, in the order of the rows.
    """

    row: Row
    load: MeasuredLoad
    observed: tuple[Observed, ...]


def batches(rows: Sequence[Row]) -> Iterator[tuple[Row, ...]]:
    """Rows of one run together, all others alone.

    Rows beside each other are of one run when they state the same engine, model, accelerators,
    settings and load, and each another figure.
    """
    pending: list[Row] = []
    for row in rows:
        if pending and not _continues(pending, row):
            yield tuple(pending)
            pending = []
        pending.append(row)
    if pending:
        yield tuple(pending)


def measurement(rows: Sequence[Row]) -> Measurement | None:
    """The speeds that rows of one run state, None when they state none."""
    observed = tuple(
        Observed(row=row, load=row.load, name=name, value=value)
        for row in rows
        if row.load is not None
        for name in row.reported
        if name in SPEED_NAMES and (value := numeric(row.reported[name])) is not None
    )
    if not observed:
        return None
    return Measurement(row=observed[0].row, load=observed[0].load, observed=observed)


def without_speeds(row: Row) -> Row | None:
    """What a row states beside its speeds; None when that is nothing."""
    if row.load is None:
        return row
    others = {name: value for name, value in row.reported.items() if name not in SPEED_NAMES}
    if not others and row.outcome is None and row.error is None:
        return None
    return replace(row, reported=others)


def _continues(pending: Sequence[Row], row: Row) -> bool:
    first = pending[0]
    if first.load is None or row.load is None or _configuration(first) != _configuration(row):
        return False
    return all(row.reported.keys().isdisjoint(before.reported) for before in pending)


def _configuration(row: Row) -> tuple[object, ...]:
    load = None if row.load is None else replace(row.load, stat=None)
    return (
        *(row.engine, row.engine_version, row.model, row.gpu, row.gpus, row.command),
        *(dict(row.flags), load),
    )
