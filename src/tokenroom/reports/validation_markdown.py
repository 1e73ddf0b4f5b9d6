"""What ``validate`` found as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenroom.errors import TokenroomError
from tokenroom.reports.messages import Language, message
from tokenroom.reports.validation_speed import TextTable, figure_table, speed_tables
from tokenroom.reports.validation_text import (
    error_text,
    figure_text,
    kind_text,
    observed_text,
    odd_lines,
    reason_lines,
    remark_text,
    summary,
)
from tokenroom.validation.comparison import Comparison
from tokenroom.validation.statistics import Group, by_class
from tokenroom.validation.validate import Validation


def write_markdown(found: Validation, file: Path, language: Language) -> None:
    """Write the whole report to ``file``.

    Raises:
        TokenroomError: The file cannot be written.
    """
    lines = markdown_lines(found, language)
    try:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise TokenroomError(f"--markdown {file} cannot be written: {error.strerror}") from error


def markdown_lines(found: Validation, language: Language) -> Iterator[str]:
    """The report's lines."""
    yield f"# {message('validate.markdown.title', language)}"
    yield ""
    yield summary(found, language)
    if found.interrupted:
        yield ""
        yield message("validate.interrupted", language)
    counted = by_class(item for item in found.comparisons if item.counts)
    apart = [group for group in found.groups if group.grade == "C"]
    parts: tuple[tuple[str, Sequence[Group], str | None], ...] = (
        ("quantities", found.quantities, None),
        ("classes", counted, "kind"),
        ("versions", found.versions, "version"),
        ("apart", apart, "kind"),
    )
    for key, groups, column in parts:
        if groups:
            yield from _section(message(f"validate.{key}", language))
            yield from group_table(groups, column, language)
    if found.comparisons:
        yield from _section(message("validate.rows", language))
        yield from row_table(found.comparisons, language)
    if found.speeds:
        for table in speed_tables(found, language):
            yield from _section(table.title)
            yield from text_table(table)
        every = [item for item in found.speeds if not item.repeats]
        table = figure_table(every, message("validate.speed_rows", language), language)
        yield from _section(table.title)
        yield from text_table(table)
    if found.outcomes:
        agree = sum(item.agrees for item in found.outcomes)
        total = len(found.outcomes)
        yield from _section(message("validate.outcomes", language, agree=agree, count=total))
        for item in found.outcomes:
            if not item.agrees:
                text = message(
                    "validate.outcome",
                    language,
                    id=item.id,
                    observed=item.observed,
                    verdict=item.verdict,
                )
                cause = f"; {_safe(item.explained_by)}" if item.explained_by else ""
                yield f"- {_safe(text)}{cause}"
    if found.remarks:
        yield from _section(message("validate.remarks", language))
        for remark in found.remarks:
            text = remark_text(remark, language)
            yield f"- {_safe(message('validate.reason', language, id=remark.id, reason=text))}"
    for key, items in (
        ("unpredicted", found.unpredicted),
        ("partly", found.partly),
        ("left_out", found.left_out),
    ):
        if items:
            yield from _section(message(f"validate.{key}", language))
            yield from (f"- {_safe(line)}" for line in reason_lines(items, language))
    if found.odd:
        yield from _section(message("validate.odd", language))
        yield from (f"- {_safe(line)}" for line in odd_lines(found, language))


def group_table(groups: Iterable[Group], column: str | None, language: Language) -> Iterator[str]:
    """A table of groups; ``column`` is ``"kind"``, ``"version"`` or None."""
    names = ["engine", *([column] if column else []), "quantity"]
    figures = ["n", "median", "p90", "worst", "bias"]
    yield from _header(names, figures, language)
    for group in groups:
        cells = [group.engine]
        if column == "kind":
            cells.append(f"{kind_text(group.architecture_class, language)}, {group.grade}")
        elif column == "version":
            cells.append(group.engine_version or "")
        cells += [
            group.quantity,
            str(group.n),
            f"{group.median_abs_pct:.2f}",
            f"{group.p90_abs_pct:.2f}",
            f"{group.worst_abs_pct:.2f}",
            f"{group.bias_pct:+.2f}",
        ]
        yield _line(cells)


def row_table(items: Iterable[Comparison], language: Language) -> Iterator[str]:
    """A table of figures, each with its cause where one is recorded."""
    yield from _header(
        ["row", "version", "quantity"], ["predicted", "observed", "error"], language, ["cause"]
    )
    for item in items:
        yield _line(
            [
                item.id,
                f"{item.engine} {item.engine_version}",
                item.quantity,
                figure_text(item.predicted),
                observed_text(item),
                error_text(item),
                item.explained_by or "",
            ]
        )


def text_table(table: TextTable) -> Iterator[str]:
    """A table whose cells are written already."""
    yield _line([name for name, _ in table.columns])
    yield "|" + "".join("---:|" if of_figures else "---|" for _, of_figures in table.columns)
    for cells in table.rows:
        yield _line(cells)


def _section(title: str) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""


def _header(
    texts: Sequence[str], numbers: Sequence[str], language: Language, last: Sequence[str] = ()
) -> Iterator[str]:
    names = (*texts, *numbers, *last)
    yield _line([message(f"validate.column.{name}", language) for name in names])
    yield "|" + "---|" * len(texts) + "---:|" * len(numbers) + "---|" * len(last)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_safe(cell) for cell in cells) + " |"


def _safe(text: str) -> str:
    """Text that cannot end a cell or begin an HTML element."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
