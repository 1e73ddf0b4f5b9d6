"""Look-up tables and recipes for a person: on a terminal, as Markdown, CSV, JSON or a heat map."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenroom.engines.registry import engine_title
from tokenroom.lookup.recipe import STALL, Recipe
from tokenroom.lookup.table import Cell, Column, LookupTable, Remark
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.fit_text import fit_title
from tokenroom.reports.messages import Language, message
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.units import GIB, format_figure, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def table_title(table: LookupTable, language: Language) -> str:
    """What the table shows."""
    about = dict(table.about)
    if "engine" in about:
        name, _, version = str(about["engine"]).strip().lower().partition("@")
        about["engine"] = f"{engine_title(name)} {version}".rstrip()
    if table.name == "gpus-for-users":
        promises = (
            f"{name.upper()} {format_seconds(seconds)}"
            for name in ("ttft", "tpot")
            if isinstance(seconds := about.pop(f"{name}_seconds"), float)
        )
        about["promises"] = message("speed.parts_join", language).join(promises)
        think = about.pop("think_seconds")
        assert isinstance(think, float)
        about["think"] = ""
        if think:
            about["think"] = message("table.think", language, time=format_seconds(think))
    return message(f"table.title.{table.name}", language, **about)


def heading_of(column: Column, language: Language) -> str:
    """The heading of a column."""
    return column.name if column.is_value else message(f"table.column.{column.name}", language)


def remark_text(remark: Remark, language: Language) -> str:
    """Why a cell is empty."""
    if remark.refusal:
        return f"{remark.model} {remark.subject}: {refusal_in(language, remark.refusal)}"
    return message(
        "table.remark",
        language,
        model=remark.model,
        gpu=remark.subject,
        count=remark.most_gpus,
    )


def cell_text(cell: Cell, column: Column) -> str:
    """A figure in the column's unit."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell.rsplit("/", 1)[-1] if column.name == "model" else cell
    match column.unit:
        case "bytes":
            return f"{cell / GIB:,.2f}"
        case "gigabytes":
            return f"{cell / 1e9:,.1f}"
        case "count" if cell >= 10**7:
            return f"{cell / 1e9:,.2f}B"
        case _:
            return f"{cell:,}"


def print_table(out: Console, table: LookupTable, language: Language) -> None:
    """Write a table to ``out``; rows whose last cell is a command have it below them."""
    from rich.table import Table

    out.print(Paragraph(table_title(table, language), style="bold"))
    out.print()
    commands = table.columns[-1].name == "command"
    columns = table.columns[:-1] if commands else table.columns
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        drawn.add_column(
            heading_of(column, language), justify="left" if column.unit == "text" else "right"
        )
    for row in table.rows:
        drawn.add_row(
            *(cell_text(cell, column) for cell, column in zip(row, columns, strict=False))
        )
    print_trimmed(out, drawn, whole_rows=True)
    for row in table.rows if commands else ():
        if row[-1] is not None:
            out.print()
            out.print(Paragraph(f"{row[0]}, {row[1]}:", style="dim"))
            out.print(f"  {row[-1]}", soft_wrap=True)
    for remark in table.remarks:
        out.print(Paragraph(remark_text(remark, language), style="dim"))


def table_markdown(table: LookupTable, language: Language) -> str:
    """A table in Markdown, with its title before it."""

    def line(cells: Iterator[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    lines = [table_title(table, language), ""]
    lines.append(line(heading_of(column, language) for column in table.columns))
    lines.append(line("---" if column.unit == "text" else "---:" for column in table.columns))
    for row in table.rows:
        cells = zip(row, table.columns, strict=True)
        lines.append(line(cell_text(cell, column) for cell, column in cells))
    if table.remarks:
        lines.append("")
        lines.extend(remark_text(remark, language) for remark in table.remarks)
    return "\n".join([*lines, ""])


def table_csv(table: LookupTable) -> str:
    """A table as CSV: plain numbers, bytes as bytes, columns by their keys."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(column.name for column in table.columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return stream.getvalue()


def table_json(table: LookupTable, language: Language) -> dict[str, Any]:
    """A table as one object; bytes as bytes."""
    return {
        "schema_version": "1.0",
        "name": table.name,
        "title": table_title(table, language),
        "about": dict(table.about),
        "columns": [
            {
                "name": column.name,
                "heading": heading_of(column, language),
                "unit": "bytes" if column.unit == "gigabytes" else column.unit,
            }
            for column in table.columns
        ],
        "rows": [list(row) for row in table.rows],
        "remarks": [remark_text(remark, language) for remark in table.remarks],
    }


def schema_text(name: str) -> str:
    """The JSON schema of ``"table"``, ``"recipe"`` or ``"pools"``, as text."""
    return files("tokenroom.reports").joinpath(f"data/{name}.schema.json").read_text("utf-8")


def plot_table(table: LookupTable, file: Path, language: Language) -> Language:
    """Draw the figures of a table as a heat map, each written in its cell.

    Colours tell the order of magnitude; columns of other units have scales of their own.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    from tokenroom.reports.plots import (
        INK,
        dress,
        new_figure,
        plot_style,
        save_figure,
        usable_language,
    )

    language = usable_language(language)
    columns = [(at, column) for at, column in enumerate(table.columns) if column.unit != "text"]
    front = table.columns[: table.names]
    names = [
        " ".join(cell_text(cell, column) for cell, column in zip(row, front, strict=False))
        for row in table.rows
    ]
    with plot_style(file):
        figure = new_figure(width=4.5 + 1.1 * len(columns), height=1.6 + 0.34 * len(table.rows))
        axes = figure.add_subplot()
        for place, (at, column) in enumerate(columns):
            together = [other for number, other in columns if other.unit == column.unit]
            shades = _shades(table, [i for i, other in columns if other in together])
            for line, row in enumerate(table.rows):
                cell = row[at]
                shade = shades(cell)
                axes.add_patch(_square(place, line, shade))
                axes.text(
                    place + 0.5,
                    line + 0.5,
                    cell_text(cell, column),
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="white" if shade > 0.6 else INK,
                )
        dress(axes, title=table_title(table, language), y_label="")
        axes.grid(visible=False)
        axes.set_xlim(0, len(columns))
        axes.set_ylim(len(table.rows), 0)
        axes.set_xticks(
            [place + 0.5 for place in range(len(columns))],
            [heading_of(column, language) for _, column in columns],
        )
        axes.set_yticks([line + 0.5 for line in range(len(names))], names)
        axes.tick_params(length=0)
        save_figure(figure, file)
    return language


def _shades(table: LookupTable, places: list[int]) -> Any:
    """How dark a figure is, 0 to 1, by its logarithm among those of its unit."""
    import math

    found = [
        math.log(cell)
        for row in table.rows
        for at in places
        if isinstance(cell := row[at], int | float) and cell > 0
    ]
    low, high = min(found, default=0.0), max(found, default=1.0)

    def shade(cell: Cell) -> float:
        if not isinstance(cell, int | float) or cell <= 0:
            return 0.0
        return 0.1 + 0.9 * (math.log(cell) - low) / ((high - low) or 1.0)

    return shade


def _square(column: int, line: int, shade: float) -> Any:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    from tokenroom.reports.plots import ACCENT

    colours = LinearSegmentedColormap.from_list("accent", ["#ffffff", ACCENT])
    return Rectangle((column, line), 1, 1, facecolor=colours(shade), edgecolor="white")


def print_recipe(
    out: Console,
    found: Recipe,
    lengths: str,
    wanted: float | None,
    language: Language,
    rate: float | None = None,
) -> None:
    """Write a recipe to ``out``, a numbered line a step.

    Args:
        out: Where to.
        found: The recipe.
        lengths: What the lengths are of.
        wanted: The promise of the time per token; None for none.
        language: The reader's.
        rate: Requests that come a second, where that is known.
    """
    out.print(Paragraph(fit_title(found.final, language), style="bold"))
    out.print(Paragraph(message("recipe.title", language, lengths=lengths), style="dim"))
    out.print()
    for number, line in enumerate(recipe_lines(found, wanted, language), start=1):
        out.print(Paragraph(f"{number}. {line}", rest="   "))
    served = found.speed.requests_per_second.value
    if rate is not None and rate > served:
        told = message(
            "recipe.rate", language, rate=format_figure(rate), served=format_figure(served)
        )
        out.print()
        out.print(Paragraph(told, style="bold yellow"))
    launch = found.final.launch
    if launch is not None:
        out.print()
        out.print(Paragraph(message("recipe.start", language)))
        for line in launch.shell_text.splitlines():
            out.print(f"  {line}", soft_wrap=True)


def recipe_lines(found: Recipe, wanted: float | None, language: Language) -> Iterator[str]:
    """The steps in sentences."""
    yield message("recipe.p95", language, tokens=found.p95_tokens)
    cut = found.max_model_len < found.p95_tokens * 1.2
    yield message(
        "recipe.length_cut" if cut else "recipe.length", language, tokens=found.max_model_len
    )
    yield message("recipe.request", language, request_bytes=found.request_bytes)
    yield message(
        "recipe.ceiling",
        language,
        tokens=found.fit.plan.kv_pool_tokens,
        pool_bytes=found.fit.governing_stage.kv_pool_bytes,
        requests=found.ceiling,
    )
    yield message("recipe.waterline", language, requests=found.waterline)
    if wanted is not None:
        most = min(found.ceiling, found.fit.plan.max_num_seqs)
        key = "batch_all" if found.largest_batch == most else "batch"
        yield message(
            f"recipe.{key}" if found.largest_batch else "recipe.batch_none",
            language,
            tpot=format_seconds(wanted),
            requests=found.largest_batch,
        )
    yield message("recipe.seqs", language, requests=found.max_num_seqs)
    pause = message(
        "recipe.budget",
        language,
        tokens=found.token_budget,
        requests=found.max_num_seqs,
        time=format_seconds(found.step_seconds),
    )
    if wanted is not None and found.step_seconds > STALL * wanted:
        blank = "" if language is Language.CHINESE else " "
        pause += blank + message("recipe.budget_long", language, count=STALL)
    yield pause
    point = found.speed
    yield message(
        "recipe.speed",
        language,
        clients=point.concurrency,
        input=point.load.input_tokens,
        output=point.load.output_tokens,
        ttft=format_seconds(point.ttft_seconds.value),
        tpot=format_seconds(point.tpot_seconds.value),
        requests=format_figure(point.requests_per_second.value),
        tokens=format_figure(point.output_tokens_per_second.value),
    )


def recipe_json(found: Recipe, wanted: float | None, language: Language) -> dict[str, Any]:
    """A recipe as one object."""
    launch, point = found.final.launch, found.speed
    return {
        "schema_version": "1.0",
        "model": found.final.deployment.spec.name,
        "engine": {
            "name": found.final.deployment.engine,
            "version": found.final.deployment.version,
        },
        "hardware": {
            "accelerator": found.final.deployment.node.accelerator.key,
            "count": found.final.deployment.node.count,
        },
        "p95_tokens": found.p95_tokens,
        "max_model_len": found.max_model_len,
        "kv_bytes_per_request": found.request_bytes,
        "kv_pool_tokens": found.fit.plan.kv_pool_tokens,
        "ceiling": found.ceiling,
        "waterline": found.waterline,
        "largest_batch": found.largest_batch,
        "max_num_seqs": found.max_num_seqs,
        "token_budget": found.token_budget,
        "step_seconds": found.step_seconds,
        "tpot_promised_seconds": wanted,
        "ttft_seconds": point.ttft_seconds.value,
        "tpot_seconds": point.tpot_seconds.value,
        "output_tokens_per_second": point.output_tokens_per_second.value,
        "steps": list(recipe_lines(found, wanted, language)),
        "command": None if launch is None else launch.shell_text,
    }
