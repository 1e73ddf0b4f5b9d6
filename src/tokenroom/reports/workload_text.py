"""What a workload is like, for a person: lengths, rate over time, burstiness, sharing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message, printable
from tokenroom.serving.workloads.presets import Preset
from tokenroom.serving.workloads.summary import Arrivals, Lengths, WorkloadSummary
from tokenroom.units import format_figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS: Final = 60
_STEPS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_STEPS: Final = "_.-:=+*#"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A workload, its figures, and what stood in the way of reading it.

    Attributes:
        name: The file's name, or the description.
        title: The file's format; None for a description.
        summary: The figures.
        sources: Where a preset's figures come from.
        moved: Rows put in order.
        left_out: Rows left out, by reason.
        first_lines: The first line of each reason.
        trace_block_tokens: Tokens in a block that the trace's ids name.
        trace_hit_ratio: Share of those ids that come again.
    """

    name: str
    title: str | None
    summary: WorkloadSummary
    sources: tuple[str, ...] = ()
    moved: int = 0
    left_out: Mapping[str, int] | None = None
    first_lines: Mapping[str, int] | None = None
    trace_block_tokens: int | None = None
    trace_hit_ratio: float | None = None


def print_workload(out: Console, found: Described, language: Language) -> None:
    """Write what a workload is like."""
    summary = found.summary
    head = (
        message("workload.drawn", language, text=found.name)
        if found.title is None
        else message("workload.trace", language, name=found.name, title=found.title)
    )
    out.print(Paragraph(printable(head), style="bold"))
    for line in _counts(summary, language):
        out.print(Paragraph(line))
    out.print()
    print_trimmed(out, _lengths(summary, language, out.width))
    out.print(
        Paragraph(
            message(
                "workload.longest",
                language,
                number=summary.longest_id,
                tokens=summary.longest_tokens,
            )
        )
    )
    if summary.arrivals is not None and summary.arrivals.request_rate is not None:
        out.print()
        _print_arrivals(out, summary.arrivals, language)
    if summary.sharing is not None:
        out.print()
        for line in _sharing(found, language):
            out.print(Paragraph(line))
    if found.sources:
        out.print()
        for source in found.sources:
            line = message("workload.source", language, source=source)
            out.print(Paragraph(printable(line), style="dim"))
    notes = list(workload_warnings(found, language))
    if notes or summary.max_model_len is not None:
        out.print()
    if summary.max_model_len is not None and not summary.long_prompts + summary.long_answers:
        out.print(Paragraph(message("workload.all_fit", language, length=summary.max_model_len)))
    print_warnings(out, notes, language)


def sources_of(preset: Preset, language: Language) -> tuple[str, ...]:
    """Where a preset's figures come from, in a language."""
    return preset.sources_chinese if language is Language.CHINESE else preset.sources


def print_presets(out: Console, presets: Sequence[Preset], language: Language) -> None:
    """Write every preset with its description and its sources."""
    for preset in presets:
        out.print(Paragraph(preset.name, style="bold"))
        out.print(Paragraph(preset.workload, first="    ", rest="    "))
        for source in sources_of(preset, language):
            out.print(Paragraph(source, first="    ", rest="    ", style="dim"))
        out.print()
    out.print(Paragraph(message("workload.presets", language, example="chat:rate=2,seed=1")))


def workload_warnings(found: Described, language: Language) -> Iterator[str]:
    """What to know about a workload before it is used, as sentences."""
    summary = found.summary
    for key, count in (
        ("workload.long_prompts", summary.long_prompts),
        ("workload.long_answers", summary.long_answers),
    ):
        if count:
            yield message(key, language, count=count, length=summary.max_model_len)
    if found.moved:
        yield message("workload.moved", language, count=found.moved)
    if found.left_out:
        reasons = [
            message(
                "workload.reason",
                language,
                reason=message(f"workload.reason.{reason}", language),
                count=count,
                line=(found.first_lines or {})[reason],
            )
            for reason, count in found.left_out.items()
        ]
        yield message(
            "workload.left_out",
            language,
            count=sum(found.left_out.values()),
            reasons=message("speed.parts_join", language).join(reasons),
        )
    arrivals = summary.arrivals
    if arrivals is not None and arrivals.span_seconds and arrivals.same_time_share > 0.05:
        yield message("workload.same_time", language, share=f"{arrivals.same_time_share:.0%}")


def _counts(summary: WorkloadSummary, language: Language) -> Iterator[str]:
    arrivals = summary.arrivals
    if arrivals is None:
        yield message("workload.requests_closed", language, count=summary.requests)
    elif not arrivals.span_seconds:
        yield message("workload.requests_once", language, count=summary.requests)
    else:
        span = duration(arrivals.span_seconds)
        yield message("workload.requests", language, count=summary.requests, span=span)
    if summary.sessions is not None:
        turns = format_figure(summary.requests / summary.sessions)
        yield message("workload.sessions", language, sessions=summary.sessions, turns=turns)


def duration(seconds: float) -> str:
    """A long time in the unit that suits it: ``58.4 min``, ``3.2 h``, ``12.0 d``."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{format_figure(seconds / size)} {unit}"
    return f"{format_figure(seconds)} s"


def _lengths(summary: WorkloadSummary, language: Language, width: int) -> Table:
    """The lengths: a line for inputs and one for outputs, or the other way round where narrow."""
    from rich.text import Text

    shares = [message(f"workload.column.{name}", language) for name in ("mean", "smallest")]
    shares += ["50%", "90%", "95%", "99%", message("workload.column.largest", language)]
    cells = [
        [message("workload.lengths", language), *shares],
        [message("workload.input", language), *_row(summary.prompt)],
        [message("workload.output", language), *_row(summary.output)],
    ]
    columns = list(zip(*cells, strict=True))
    if sum(max(Text(cell).cell_len for cell in column) + 2 for column in columns) - 2 > width:
        columns = [tuple(row) for row in cells]
    return _table(columns)


def _table(columns: Sequence[Sequence[str]]) -> Table:
    """Columns under their first cell, all but the first to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column[0], justify="right" if number else "left", no_wrap=True)
    for row in zip(*(column[1:] for column in columns), strict=True):
        table.add_row(*row)
    return table


def _row(lengths: Lengths) -> Iterator[str]:
    yield f"{lengths.mean:,.1f}"
    for name in ("smallest", "p50", "p90", "p95", "p99", "largest"):
        yield f"{getattr(lengths, name):,}"


def _print_arrivals(out: Console, arrivals: Arrivals, language: Language) -> None:
    rate = arrivals.request_rate
    assert rate is not None
    cv = "" if arrivals.gap_cv is None else format_figure(arrivals.gap_cv)
    if arrivals.fano_minute is None or arrivals.peak_minute_rate is None:
        out.print(Paragraph(message("workload.rate_alone", language, rate=format_figure(rate))))
        if cv:
            out.print(Paragraph(message("workload.gaps", language, cv=cv)))
    else:
        told = {
            "rate": format_figure(rate),
            "peak": format_figure(arrivals.peak_minute_rate),
            "factor": format_figure(arrivals.peak_minute_rate / rate),
        }
        out.print(Paragraph(message("workload.rate", language, **told)))
        told = {"cv": cv, "fano": format_figure(arrivals.fano_minute)}
        out.print(Paragraph(message("workload.burstiness", language, **told)))
    width = -(-len(arrivals.counts) // _COLUMNS)
    counts = arrivals.counts
    columns = [sum(counts[at : at + width]) for at in range(0, len(counts), width)]
    if len(columns) > 1:
        seconds = duration(width * arrivals.bin_seconds)
        out.print(Paragraph(message("workload.over_time", language, width=seconds)))
        out.print(bars(out, columns, highest=max(columns)), style="cyan")


def bars(out: Console, columns: Sequence[float], *, highest: float) -> str:
    """Columns as one line of characters, the full one at ``highest``; nothing is a blank."""
    steps = _STEPS if _shows(out, _STEPS) else _PLAIN_STEPS
    return "".join(
        steps[ceil(min(1.0, value / highest) * len(steps)) - 1] if value else " "
        for value in columns
    ).rstrip()


def _shows(out: Console, characters: str) -> bool:
    try:
        characters.encode(out.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _sharing(found: Described, language: Language) -> Iterator[str]:
    sharing = found.summary.sharing
    assert sharing is not None
    ratio = f"{sharing.hit_ratio:.1%}"
    yield message("workload.sharing", language, ratio=ratio, block=sharing.block_tokens)
    if found.trace_hit_ratio is not None and found.trace_block_tokens is not None:
        ratio = f"{found.trace_hit_ratio:.1%}"
        yield message("workload.ids", language, ratio=ratio, block=found.trace_block_tokens)


def print_warnings(out: Console, sentences: Sequence[str], language: Language) -> None:
    """Write each sentence as a warning."""
    from rich.text import Text

    for sentence in sentences:
        label = Text(message("fit.warning", language), style="yellow")
        out.print(Paragraph(label + Text(sentence), rest=" " * label.cell_len))
