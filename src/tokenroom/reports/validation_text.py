"""What ``validate`` found, for a person: each row's figures, then the errors summed up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tokenroom.reports.console import print_trimmed
from tokenroom.reports.messages import Language, message
from tokenroom.reports.validation_speed import shown_figures, speed_tables
from tokenroom.validation.comparison import Comparison, OutcomeCheck
from tokenroom.validation.statistics import Group, by_class
from tokenroom.validation.validate import Remark, Unpredicted, Validation

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_SENTENCES = 50
"""Of rows and values that cannot be read so many are shown; --json has them all."""

_LARGE_PCT = 15.0
"""Errors above this are marked; docs/accuracy.md explains every one of the published rows."""
_FEW = 3
"""Rows that are named of those which share a reason."""


def print_validation(
    out: Console,
    found: Validation,
    language: Language,
    *,
    bad: Sequence[str] = (),
) -> None:
    """Write the whole report to ``out``.

    Args:
        out: Where to.
        found: What the run came to.
        language: Of the report.
        bad: Why each row that could not be read could not.
    """
    from rich.text import Text

    if found.comparisons or not found.speeds:
        _print_rows(out, found.comparisons, language)
    if found.num_rows > 1:
        _print_groups(out, found, language)
    _print_speeds(out, found, language)
    _print_outcomes(out, found.outcomes, language)
    if found.remarks:
        out.print()
        out.print(Text(message("validate.remarks", language), style="bold"))
        for remark in found.remarks:
            line = message(
                "validate.reason", language, id=remark.id, reason=remark_text(remark, language)
            )
            out.print(Text("  " + line), soft_wrap=True)
    for key, items in (
        ("unpredicted", found.unpredicted),
        ("partly", found.partly),
        ("left_out", found.left_out),
    ):
        if items:
            out.print()
            out.print(Text(message(f"validate.{key}", language), style="bold"))
            for text in reason_lines(items, language):
                out.print(Text("  " + text), soft_wrap=True)
    for key, sentences in (("odd", odd_lines(found, language)), ("bad", bad)):
        if sentences:
            out.print()
            out.print(Text(message(f"validate.{key}", language), style="bold"))
            for sentence in sentences[:_MOST_SENTENCES]:
                out.print(Text("  " + sentence, style="yellow"), soft_wrap=True)
            if (more := len(sentences) - _MOST_SENTENCES) > 0:
                out.print(Text("  " + message("validate.more", language, count=more)))
    out.print()
    if found.interrupted:
        out.print(Text(message("validate.interrupted", language), style="yellow"))
    line = summary(found, language, num_bad=len(bad))
    out.print(Text(line, style="bold"), soft_wrap=True)


def summary(found: Validation, language: Language, *, num_bad: int = 0) -> str:
    """One line: how many rows and figures, and how many rows and values could not be read."""
    line = message(
        "validate.summary",
        language,
        rows=found.num_rows,
        figures=len(found.comparisons),
        unpredicted=len(found.unpredicted),
        left_out=len(found.left_out),
    )
    if found.speeds:
        line += message("validate.speed_count", language, speeds=len(found.speeds))
    for key, count in (("odd_count", len(found.odd)), ("bad_count", num_bad)):
        if count:
            line += message(f"validate.{key}", language, count=count)
    return line


def reason_lines(items: Sequence[Unpredicted], language: Language) -> Iterator[str]:
    """Rows with the reason they have no prediction, together where many share one."""
    return _by_reason([(item.id, item.reason) for item in items], language)


def _by_reason(items: Iterable[tuple[str, str]], language: Language) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in items:
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        if len(names) <= _FEW:
            for name in names:
                yield message("validate.reason", language, id=name, reason=reason)
            continue
        first, rest = ", ".join(names[:_FEW]), len(names) - _FEW
        named = message("validate.and_more", language, ids=first, count=rest)
        yield message("validate.reasons", language, reason=reason, count=len(names), ids=named)


def odd_lines(found: Validation, language: Language) -> list[str]:
    """Where each value that means nothing stands, and what it is; alike ones together."""
    items = [
        (f"{item.id} ({item.place})" if item.place else item.id, item.reason) for item in found.odd
    ]
    return list(_by_reason(items, language))


def remark_text(remark: Remark, language: Language) -> str:
    """A remark as a sentence."""
    return message(f"validate.remark.{remark.key}", language, **remark.values)


def kind_text(kind: str | None, language: Language) -> str:
    """The kind of a model in words."""
    return message(f"validate.kind.{kind}", language) if kind else ""


def figure_text(value: float) -> str:
    """A figure as it is read best: whole numbers with separators, others with two decimals."""
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 10_000 else f"{value:.2f}"


def observed_text(item: Comparison) -> str:
    """An observed figure, marked where its writer rounded it."""
    return ("~" if item.half_digit else "") + figure_text(item.observed)


def error_text(item: Comparison) -> str:
    """A signed error, ``-`` when there is none; of sizes below 0.1 GiB the difference in GiB."""
    if item.is_small:
        return f"{item.predicted - item.observed:+.2f} GiB"
    return "-" if item.error_pct is None else f"{item.error_pct:+.2f}%"


def _print_rows(out: Console, items: Sequence[Comparison], language: Language) -> None:
    from rich.text import Text

    if not items:
        out.print(Text(message("validate.no_figures", language)))
        return
    out.print(Text(message("validate.rows", language), style="bold"))
    widths = [
        max(len(item.quantity) for item in items),
        max(len(figure_text(item.predicted)) for item in items),
        max(len(observed_text(item)) for item in items),
    ]
    for _, group in groupby(items, key=lambda item: item.id):
        figures = list(group)
        first = figures[0]
        title = message(
            "validate.row",
            language,
            id=first.id,
            engine=first.engine,
            version=first.engine_version,
            kind=kind_text(first.architecture_class, language),
            grade=first.grade,
        )
        out.print(Text(title), soft_wrap=True)
        for item in figures:
            line = Text(
                f"  {item.quantity:<{widths[0]}}  {figure_text(item.predicted):>{widths[1]}}"
                f"  {observed_text(item):>{widths[2]}}  {error_text(item):>10}",
                no_wrap=True,
            )
            if item.error_pct is not None and abs(item.error_pct) > _LARGE_PCT:
                line.stylize("yellow")
            out.print(line)
        for cause in dict.fromkeys(item.explained_by for item in figures if item.explained_by):
            out.print(
                Text("  " + message("validate.explained", language, cause=cause)), soft_wrap=True
            )


def _print_speeds(out: Console, found: Validation, language: Language) -> None:
    from rich.table import Table
    from rich.text import Text

    rows = shown_figures(found, language)
    if rows is None:
        return
    tables = [rows, *speed_tables(found, language)]
    for number, table in enumerate(tables):
        if number or found.comparisons:
            out.print()
        out.print(Text(table.title, style="bold"))
        shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name, of_figures in table.columns:
            shown.add_column(
                name, justify="right" if of_figures else "left", overflow="fold", no_wrap=of_figures
            )
        for cells in table.rows:
            shown.add_row(*map(Text, cells))
        print_trimmed(out, shown, whole_rows=True)


def _print_groups(out: Console, found: Validation, language: Language) -> None:
    from rich.text import Text

    counted = by_class(item for item in found.comparisons if item.counts)
    apart = [group for group in found.groups if group.grade == "C"]
    parts: tuple[tuple[str, Sequence[Group], Sequence[str]], ...] = (
        ("quantities", found.quantities, ()),
        ("classes", counted, ("kind",)),
        ("versions", found.versions, ("version",)),
        ("apart", apart, ("kind",)),
    )
    for key, groups, columns in parts:
        if groups:
            out.print()
            out.print(Text(message(f"validate.{key}", language), style="bold"))
            out.print(_table(groups, columns, language))


def _table(groups: Iterable[Group], columns: Sequence[str], language: Language) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names = ("engine", *columns, "quantity")
    for name in names:
        heading = message(f"validate.column.{name}", language)
        table.add_column(heading, overflow="fold", no_wrap=name == "quantity")
    for name in ("n", "median", "p90", "worst", "bias"):
        heading = message(f"validate.column.{name}", language)
        table.add_column(heading, justify="right", no_wrap=True)
    for group in groups:
        kind = kind_text(group.architecture_class, language)
        if group.grade and len(columns) and columns[0] == "kind":
            kind = f"{kind}, {group.grade}"
        cells = {
            "engine": group.engine,
            "kind": kind,
            "version": group.engine_version or "",
            "quantity": group.quantity,
        }
        table.add_row(
            *(cells[name] for name in names),
            str(group.n),
            f"{group.median_abs_pct:.2f}",
            f"{group.p90_abs_pct:.2f}",
            f"{group.worst_abs_pct:.2f}",
            f"{group.bias_pct:+.2f}",
        )
    return table


def _print_outcomes(out: Console, items: Sequence[OutcomeCheck], language: Language) -> None:
    from rich.text import Text

    if not items:
        return
    agree = sum(item.agrees for item in items)
    out.print()
    text = message("validate.outcomes", language, agree=agree, count=len(items))
    out.print(Text(text, style="bold"))
    for item in items:
        if item.agrees:
            continue
        line = "  " + message(
            "validate.outcome",
            language,
            id=item.id,
            observed=item.observed,
            verdict=item.verdict,
        )
        if item.cause is not None:
            line += " " + message("validate.outcome_cause", language, cause=item.cause)
        if item.explained_by is not None:
            line += "; " + message("validate.explained", language, cause=item.explained_by)
        out.print(Text(line), soft_wrap=True)
