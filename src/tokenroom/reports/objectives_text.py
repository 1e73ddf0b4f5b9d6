"""What latency objectives allow, for a person: the largest load, what binds, or why none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tokenroom.objectives import Largest, LoadLimits, Objective, Objectives, Unmet
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message
from tokenroom.units import format_figure, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def print_limits(out: Console, limits: LoadLimits, language: Language) -> None:
    """Write what the objectives allow to ``out``: the answer, what bounds it, and bursts."""
    from rich.text import Text

    wanted = objectives_text(limits.objectives, language)
    if not limits.met:
        blank = "" if language is Language.CHINESE else " "
        for unmet in limits.unmet:
            label = Text(message("speed.slo.out_of_reach", language), style="bold red")
            out.print(Paragraph(label + Text(blank.join(_unmet_sentences(unmet, language)))))
        return
    load = limits.load
    label = Text(message("speed.slo.kept", language), style="bold green")
    answer = message(
        "speed.slo.largest",
        language,
        clients=load.concurrency,
        range=_range(load),
        wanted=wanted,
    )
    out.print(Paragraph(label + Text(answer)))
    out.print(Paragraph(_bound_text(limits, load, language)))
    if limits.batch is not None:
        batch = message(
            "speed.slo.batch",
            language,
            requests=limits.batch.concurrency,
            range=_range(limits.batch),
            room=limits.asked.fit.requests_running,
        )
        out.print(Paragraph(batch))
        if limits.batch.binds:
            advice = message("speed.slo.advice", language, requests=limits.batch.concurrency)
            out.print(Paragraph(advice))
    if limits.bursts:
        out.print()
        _print_bursts(out, limits, language)


def objectives_text(objectives: Objectives, language: Language) -> str:
    """The objectives as a phrase."""
    return message("speed.parts_join", language).join(
        message(f"speed.slo.at_most.{name}", language, time=format_seconds(seconds))
        for name, seconds in (
            ("tpot", objectives.tpot_seconds),
            ("ttft", objectives.ttft_seconds),
        )
        if seconds is not None
    )


def missed_text(missed: Sequence[Objective], language: Language) -> str:
    """Which objectives a load misses, in a cell of a table."""
    if len(missed) > 1:
        return message("speed.slo.both", language)
    return missed[0].upper() if missed else "-"


def _range(largest: Largest) -> str:
    return f"{largest.cautious:,} … {largest.hopeful:,}"


def _bound_text(limits: LoadLimits, load: Largest, language: Language) -> str:
    bound = message(f"speed.limiter.{load.bound_by}", language)
    if load.bound_by == "max_num_seqs":
        allowed = limits.asked.fit.plan.max_num_seqs
        bound = message("speed.slo.max_num_seqs", language, max_num_seqs=allowed)
    if not load.binds:
        return message("speed.slo.room", language, bound=bound)
    names = message("speed.slo.and", language).join(name.upper() for name in load.binds)
    text = message("speed.slo.binds", language, objectives=names, bound=bound)
    if load.binds[0] == "tpot" and load.point is not None:
        share = f"{load.point.predicted.prefill_share:.0%}"
        text += message("speed.slo.prompts_share", language, share=share)
    return text


def _unmet_sentences(unmet: Unmet, language: Language) -> Iterator[str]:
    value, low, high = unmet.alone_seconds
    yield message(
        f"speed.slo.unmet.{unmet.objective}",
        language,
        wanted=format_seconds(unmet.wanted_seconds),
        alone=format_seconds(value),
        low=format_seconds(low),
        high=format_seconds(high),
    )
    yield message(
        f"speed.slo.floor.{unmet.floor.limiter}",
        language,
        floor=format_seconds(unmet.floor.seconds),
        num_bytes=round(unmet.floor.num_bytes),
        tflop=format_figure(unmet.floor.flops / 1e12),
    )
    if unmet.beyond_physics:
        kind = ""
        if unmet.objective == "tpot":
            kind = "_step" if unmet.drafts is not None else "_drafts"
        yield message(f"speed.slo.beyond_physics{kind}", language)
    elif low <= unmet.wanted_seconds:
        yield message("speed.slo.within_range", language)
    yield message(f"speed.slo.help.{unmet.floor.limiter}", language)
    if unmet.drafts is not None:
        tokens, drafted, rate = unmet.drafts
        yield message(
            "speed.slo.drafting_short" if rate is None else "speed.slo.drafting",
            language,
            tokens=f"{tokens:.1f}",
            drafted=drafted,
            **({} if rate is None else {"rate": f"{rate:.0%}"}),
        )


def _print_bursts(out: Console, limits: LoadLimits, language: Language) -> None:
    from rich.table import Table

    wanted = limits.objectives.ttft_seconds
    assert wanted is not None
    out.print(Paragraph(message("speed.slo.bursts", language), style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("prompts", "ttft", "range", "kept"):
        table.add_column(
            message(f"speed.slo.column.{name}", language), justify="right", no_wrap=True
        )
    for burst in limits.bursts:
        times = burst.ttft_seconds
        table.add_row(
            f"{burst.prompts:,}",
            format_seconds(times.value),
            f"{format_seconds(times.low)} … {format_seconds(times.high)}",
            message("sweep.yes" if times.value <= wanted else "sweep.no", language),
        )
    print_trimmed(out, table)
