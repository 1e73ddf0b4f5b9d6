"""Measured speeds as tables of text cells, which the console and Markdown lay out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from tokenroom.reports.messages import Language, message
from tokenroom.validation.speed_comparison import SpeedComparison
from tokenroom.validation.speed_statistics import SpeedGroup, speed_groups, speed_order
from tokenroom.validation.validate import Validation

_COLUMNS: Final = {"architecture_class": "kind", "engine_version": "version"}
_TEXTS: Final = frozenset(
    {"quantity", "engine", "version", "gpu", "kind", "row", "what", "load", "range"}
)
"""Columns of words; the others are of figures."""

FARTHEST: Final = 20
"""Figures that the console shows of more than :data:`ALL_SHOWN`: those with the largest errors."""

ALL_SHOWN: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table in the reader's language.

    Attributes:
        title: What it shows.
        columns: Headings, each with whether it stands over figures.
        rows: Cells.
    """

    title: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[str, ...], ...]


def speed_tables(found: Validation, language: Language) -> Iterator[TextTable]:
    """Errors by quantity, by engine, by GPU and by kind of model, and the order of deployments."""
    counted = found.counted_speeds
    for key, by in (
        ("speed_quantities", ()),
        ("speed_engines", ("engine",)),
        ("speed_gpus", ("gpu",)),
        ("speed_kinds", ("architecture_class",)),
    ):
        if groups := speed_groups(counted, *by):
            yield group_table(message(f"validate.{key}", language), groups, by, language)
    if orders := speed_order(counted):
        every = message("validate.speed_all", language)
        yield _table(
            message("validate.speed_order", language),
            ("gpu", "pairs", "tau"),
            [(item.gpu or every, f"{item.pairs:,}", f"{item.tau:.2f}") for item in orders],
            language,
        )
    fitted = [item for item in found.speeds if item.fitted and not item.repeats]
    if groups := speed_groups(fitted, "engine"):
        title = message("validate.speed_fitted", language)
        yield group_table(title, groups, ("engine",), language)


def group_table(
    title: str, groups: Sequence[SpeedGroup], by: Sequence[str], language: Language
) -> TextTable:
    """Groups with their errors; ``by`` is what they are of beside their quantity."""
    names = [_COLUMNS.get(name, name) for name in by]
    cells = []
    for group in groups:
        kind = group.architecture_class
        parts = {
            "engine": group.engine or "",
            "version": group.engine_version or "",
            "gpu": group.gpu or "",
            "kind": message(f"validate.kind.{kind}", language) if kind else "",
        }
        cells.append(
            (
                *(parts[name] for name in names),
                group.quantity,
                f"{group.n:,}",
                f"{group.median_abs_pct:.1f}",
                f"{group.p90_abs_pct:.1f}",
                f"{group.bias:.2f}",
                f"{group.inside_share:.0%}",
            )
        )
    columns = (*names, "quantity", "n", "median", "p90", "ratio", "inside")
    return _table(title, columns, cells, language)


def figure_table(items: Sequence[SpeedComparison], title: str, language: Language) -> TextTable:
    """Speeds one by one: what was run, predicted, its range, observed and the error."""
    cells = [
        (
            item.id,
            f"{item.engine} {item.engine_version or ''}".strip(),
            _what(item),
            _load(item, language),
            item.quantity,
            speed_text(item.predicted),
            f"{speed_text(item.low)} … {speed_text(item.high)}",
            speed_text(item.observed),
            f"{item.error_pct:+.1f}",
        )
        for item in items
    ]
    columns = ("row", "engine", "what", "load", "quantity", "predicted", "range", "observed")
    return _table(title, (*columns, "error_pct"), cells, language)


def shown_figures(found: Validation, language: Language) -> TextTable | None:
    """Every speed where there are few, the farthest of many; None of none."""
    items = [item for item in found.speeds if not item.repeats]
    if not items:
        return None
    if len(items) <= ALL_SHOWN:
        return figure_table(items, message("validate.speed_rows", language), language)
    farthest = sorted(items, key=lambda item: -abs(log(item.ratio)))[:FARTHEST]
    title = message("validate.speed_farthest", language, count=FARTHEST, total=len(items))
    return figure_table(farthest, title, language)


def speed_text(value: float) -> str:
    """A speed with three or four digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _what(item: SpeedComparison) -> str:
    precision = f" {item.precision}" if item.precision else ""
    return f"{item.model.rsplit('/', 1)[-1]}{precision}, {item.gpus} x {item.gpu}"


def _load(item: SpeedComparison, language: Language) -> str:
    clients = (
        message("validate.speed_max", language)
        if item.concurrency is None
        else f"c{item.concurrency}"
    )
    return f"{item.input_tokens or 0}/{item.output_tokens or 0} {clients}"


def _table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], language: Language
) -> TextTable:
    headings = tuple(
        (message(f"validate.column.{name}", language), name not in _TEXTS) for name in columns
    )
    return TextTable(title=title, columns=headings, rows=tuple(rows))
