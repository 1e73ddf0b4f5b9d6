"""Deployments side by side for a person: means, and the differences with how sure they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tokenroom.comparing.comparison import Comparison, Subject
from tokenroom.comparing.differences import Mean
from tokenroom.comparing.figures import FIGURES, Figure, Unit
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.fit_text import fit_title
from tokenroom.reports.messages import Language, message, notice_text, printable, refusal_text
from tokenroom.reports.simulation_text import limits_text
from tokenroom.reports.workload_text import print_warnings
from tokenroom.serving.served_deployment import ServedDeployment
from tokenroom.units import format_figure, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

_NAME_CELLS: Final = 14  # names that are longer stand above the tables, under a letter
_SAME: Final = 1e-9  # of a figure: what is less is the rounding of sums
_TOLD_DIFFERENCES: Final = (
    *("ttft_mean_seconds", "ttft_p50_seconds", "ttft_p99_seconds"),
    *("tpot_mean_seconds", "tpot_p99_seconds", "itl_p99_seconds"),
    *("e2e_mean_seconds", "e2e_p99_seconds", "output_tokens_per_second", "goodput_share"),
    *("refused", "preemptions", "prefix_hit_rate", "kv_pool_usage_mean", "running_mean"),
    *("waiting_mean", "usd_per_million_output_tokens"),
)


def print_comparison(out: Console, found: Comparison, language: Language) -> None:
    """Write what the deployments do with the same requests."""
    count = len(found.subjects)
    out.print(Paragraph(message("compare.title", language, count=count), style="bold"))
    name = printable(message("simulate.workload", language, name=found.workload.name))
    out.print(Paragraph(name, style="dim"))
    if (draws := draws_text(found, language)) is not None:
        out.print(Paragraph(draws, style="dim"))
    heads = headings(found)
    for line in _legend(found, heads, language):
        out.print(Paragraph(line, rest="  ", style="dim"))
    for line in _troubles(found, language):
        out.print()
        out.print(Paragraph(line, style="bold red"))
    if found.complete_draws and len(found.compared) > 1:
        out.print()
        _print_means(out, found, heads, language)
        out.print()
        _print_differences(out, found, heads, language)
    if warnings := _warnings(found, heads, language):
        out.print()
        print_warnings(out, warnings, language)


def draws_text(found: Comparison, language: Language) -> str | None:
    """How the workload was drawn or cut; None where it was neither."""
    if found.drawn_by is None:
        return None
    count = len(found.draws)
    key = "compare.seeds" if count > 1 else "compare.one_seed"
    if found.drawn_by == "stretch":
        key = "compare.stretches"
    return message(key, language, count=count, first=found.draws[0], last=found.draws[-1])


def headings(found: Comparison) -> dict[str, str]:
    """What stands above the column of each deployment: its name, or a letter for long names."""
    names = [printable(subject.name) for subject in found.subjects]
    if all(len(name) <= _NAME_CELLS for name in names):
        return dict(zip((subject.name for subject in found.subjects), names, strict=True))
    return {subject.name: _letters(number) for number, subject in enumerate(found.subjects)}


def _letters(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _legend(found: Comparison, heads: dict[str, str], language: Language) -> Iterator[str]:
    """What each deployment is; what they all are stands above."""
    titles = ["; ".join(servers_titles(subject, language)) for subject in found.subjects]
    alike = len(set(titles)) == 1
    if alike:
        yield titles[0]
    for subject, title in zip(found.subjects, titles, strict=True):
        name, head = printable(subject.name), heads[subject.name]
        called = name if head == name else f"{head}  {name}"
        if not alike:
            yield f"{called}: {title}" if title else called
        elif head != name:
            yield called


def servers_titles(subject: Subject, language: Language) -> Iterator[str]:
    """What serves: a line for each pool of a fleet, one for a single deployment."""
    if isinstance(subject.servers, ServedDeployment):
        yield fit_title(subject.servers.fit, language)
    elif subject.servers is not None:
        pools = subject.servers.description.pools
        for pool, fit in zip(pools, subject.servers.fits, strict=True):
            title = fit_title(fit, language)
            line = message("fleet.servers", language, servers=pool.replicas, title=title)
            if len(pools) > 1:
                name = printable(pool.name)
                line = message(f"fleet.{pool.role}", language, name=name, line=line)
            yield line


def refused_because(subject: Subject, language: Language) -> str | None:
    """Why it does not start; None when it does."""
    if subject.servers is None:
        return subject.problem
    refused = subject.servers.refused
    if refused is None or refused.plan.refusal is None:
        return None
    return refusal_text(refused.plan.refusal, language)


def _troubles(found: Comparison, language: Language) -> Iterator[str]:
    for subject in found.subjects:
        if (reason := refused_because(subject, language)) is not None:
            name = printable(subject.name)
            yield message("compare.does_not_start", language, name=name, reason=reason)
    if len(found.compared) < 2:
        yield message("compare.none_starts", language)
        return
    done, count = len(found.complete_draws), len(found.draws)
    if found.interrupted:
        key = "compare.interrupted" if done else "compare.nothing_done"
        yield message(key, language, done=done, count=count)
    for subject in found.compared if done else ():
        if runs := found.falls_behind(subject):
            name = printable(subject.name)
            yield message("compare.falls_behind", language, name=name, runs=runs, count=done)


def _warnings(found: Comparison, heads: dict[str, str], language: Language) -> list[str]:
    """What the fits have to say, each sentence once, with whom it is of."""
    of: dict[str, list[str]] = {}
    for subject in found.subjects:
        for text in notices_of(subject, language):
            of.setdefault(text, []).append(heads[subject.name])
    everyone = len(found.subjects)
    return [
        text if len(names) == everyone else f"{', '.join(names)}: {text}"
        for text, names in of.items()
    ]


def notices_of(subject: Subject, language: Language) -> list[str]:
    """What the fits have to say, as sentences."""
    fits = () if subject.servers is None else subject.servers.fits
    told = (notice_text(notice, language) for fit in fits for notice in fit.notices)
    return list(dict.fromkeys(told))


def _print_means(
    out: Console, found: Comparison, heads: dict[str, str], language: Language
) -> None:
    rows = []
    for figure in FIGURES:
        means = [found.mean(subject, figure.key) for subject in found.compared]
        if any(mean is not None and mean.value for mean in means):
            cells = ["-" if mean is None else value_text(figure, mean.value) for mean in means]
            rows.append((message(f"compare.{figure.key}", language), cells))
    alone = len(found.complete_draws) < 2
    key = "compare.one_run" if alone else f"compare.means.{found.drawn_by}"
    heading = message(key, language, count=len(found.complete_draws))
    if found.limits is not None:
        limits = limits_text(found.limits)
        heading = message("compare.promised", language, heading=heading, limits=limits)
    out.print(Paragraph(heading))
    _print_tables(out, [heads[subject.name] for subject in found.compared], rows, language)


def _print_differences(
    out: Console, found: Comparison, heads: dict[str, str], language: Language
) -> None:
    base, *others = found.compared
    rows = []
    for figure in FIGURES:
        if figure.key not in _TOLD_DIFFERENCES:
            continue
        of_base = found.mean(base, figure.key)
        found_differences = [found.difference(subject, figure.key) for subject in others]
        if of_base is None or all(
            difference is None or (not difference.value and not of_base.value)
            for difference in found_differences
        ):
            continue
        cells = [
            "-"
            if difference is None
            else difference_text(figure, of_base.value, difference, language)
            for difference in found_differences
        ]
        rows.append((message(f"compare.{figure.key}", language), cells))
    count = len(found.complete_draws)
    key = f"compare.differences.{found.drawn_by}" if count > 1 else "compare.one_difference"
    told = {"base": heads[base.name], "confidence": confidence_text(found.confidence)}
    out.print(Paragraph(message(key, language, count=count, **told)))
    _print_tables(out, [heads[subject.name] for subject in others], rows, language)
    if any(cell.startswith("~") for _, cells in rows for cell in cells):
        out.print(Paragraph(message("compare.not_significant", language), style="dim"))
    if any(" pp" in cell for _, cells in rows for cell in cells):
        out.print(Paragraph(message("compare.points", language), style="dim"))


def _print_tables(
    out: Console,
    heads: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    language: Language,
) -> None:
    """One table, or several below each other where the columns are too many for the width."""
    from rich.cells import cell_len
    from rich.table import Table

    label_cells = max(cell_len(label) for label, _ in rows)
    widths = [
        max(cell_len(head), *(cell_len(cells[at]) for _, cells in rows))
        for at, head in enumerate(heads)
    ]
    start = 0
    while start < len(heads):
        end, used = start, label_cells
        while end < len(heads) and (end == start or used + 2 + widths[end] <= out.width):
            used += 2 + widths[end]
            end += 1
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column(message("compare.figure", language), no_wrap=True)
        for head in heads[start:end]:
            table.add_column(head, justify="right", no_wrap=True)
        for label, cells in rows:
            table.add_row(label, *cells[start:end])
        if start:
            out.print()
        print_trimmed(out, table)
        start = end


def confidence_text(confidence: float) -> str:
    """A confidence as ``95%`` or ``99.9%``."""
    return f"{confidence * 100:.6g}%"


_WRITTEN: Final[dict[Unit, Callable[[float], str]]] = {
    Unit.SECONDS: format_seconds,
    Unit.RATE: format_figure,
    Unit.SHARE: lambda value: f"{value:.1%}",
    Unit.COUNT: lambda value: format_figure(value) if value % 1 else f"{value:,.0f}",
    Unit.USD: format_figure,
}


def value_text(figure: Figure, value: float) -> str:
    """A figure with its unit."""
    return _WRITTEN[figure.unit](value)


def difference_text(
    figure: Figure, base: float, difference: Mean | None, language: Language
) -> str:
    """A difference: in percent of the base, in points of a share, else as it is.

    Args:
        figure: Of what.
        base: Its mean under the first deployment.
        difference: What is to be told; None where it is unknown.
        language: Of the words.
    """
    if difference is None:
        return "-"
    value, half = difference.value, difference.half_width
    size = max(abs(value), half or 0.0)
    if size <= _SAME * abs(base) or not size:
        return message("compare.same", language)
    if figure.unit is Unit.SHARE:
        text = _signed(value * 100, half and half * 100, " pp")
    elif base:
        text = _signed(value / base * 100, half and half / abs(base) * 100, "%")
    else:
        text = _signed(value, half, "")
    return text if difference.excludes_zero in (True, None) else f"~ {text}"


def _signed(value: float, half: float | None, unit: str) -> str:
    large = max(abs(value), half or 0.0)
    form = ",.0f" if large >= 100 else ".1f" if large >= 0.1 else ".1g"
    text = f"{value:+{form}}{unit}"
    return text if half is None else f"{text} ±{half:{form}}"
