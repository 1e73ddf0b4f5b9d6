"""Whether short and long prompts are better served apart: for a person, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenroom.comparing.differences import Mean
from tokenroom.comparing.splitting import Split, Splitting
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.fit_text import fit_title
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def print_splitting(out: Console, found: Splitting, language: Language) -> None:
    """Write the whole report to ``out``."""
    from rich.table import Table

    out.print(Paragraph(fit_title(found.server.fit, language), style="bold"))
    name = printable(found.workload.name)
    about = message("pools.about", language, servers=found.servers, workload=name)
    out.print(Paragraph(about, style="dim"))
    if found.interrupted:
        out.print(Paragraph(message("pools.interrupted", language), style="bold yellow"))
    out.print()
    for line in verdict_lines(found, language):
        out.print(Paragraph(line))
    if not found.tried:
        return
    out.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("threshold", "short", "long", "kept", "ttft", "tpot"):
        table.add_column(message(f"pools.column.{column}", language), justify="right")
    for tried in found.tried:
        threshold = tried.split.threshold_tokens
        table.add_row(
            message("pools.one", language) if threshold is None else f"{threshold:,}",
            "-" if threshold is None else str(tried.split.short),
            str(tried.split.long),
            f"{tried.goodput_share:.1%}",
            _time(tried.ttft_p95_seconds),
            _time(tried.tpot_p95_seconds),
        )
    print_trimmed(out, table)
    out.print(Paragraph(message("pools.searched", language), style="dim"))


def split_text(split: Split, language: Language) -> str:
    """A split in a few words."""
    if split.is_mixed:
        return message("pools.mixed", language, servers=split.long)
    return message(
        "pools.split",
        language,
        short=split.short,
        threshold=split.threshold_tokens,
        long=split.long,
    )


def verdict_lines(found: Splitting, language: Language) -> list[str]:
    """Whether it pays, with the figures."""
    promises = message("speed.parts_join", language).join(
        f"{name} {format_seconds(seconds)}"
        for name, seconds in (
            ("TTFT", found.limits.ttft_seconds),
            ("TPOT", found.limits.tpot_seconds),
        )
        if seconds is not None
    )
    if found.best is None:
        return [message("pools.nothing", language)]
    if found.gain is None or found.mixed_share is None or found.best_share is None:
        return []
    figures = message(
        "pools.figures",
        language,
        promises=promises,
        mixed=f"{found.mixed_share.value:.1%}",
        best=f"{found.best_share.value:.1%}",
        split=split_text(found.best, language),
        gain=_points(found.gain),
        draws=found.gain.runs,
        confidence=f"{found.confidence:.0%}",
    )
    if found.pays:
        verdict = message("pools.pays", language)
    elif found.gain.excludes_zero:
        verdict = message("pools.harms", language)
    else:
        verdict = message("pools.unsure", language)
    return [verdict, figures]


def splitting_json(found: Splitting, language: Language) -> dict[str, Any]:
    """The same as one object; times are seconds, shares 0 to 1."""

    def mean(of: Mean | None) -> dict[str, Any] | None:
        if of is None:
            return None
        return {"value": of.value, "half_width": of.half_width, "runs": of.runs}

    def split(of: Split) -> dict[str, Any]:
        return {"threshold_tokens": of.threshold_tokens, "short": of.short, "long": of.long}

    return {
        "schema_version": "1.0",
        "model": found.server.fit.deployment.spec.name,
        "servers": found.servers,
        "workload": found.workload.name,
        "ttft_seconds": found.limits.ttft_seconds,
        "tpot_seconds": found.limits.tpot_seconds,
        "interrupted": found.interrupted,
        "pays": found.pays,
        "best": None if found.best is None else split(found.best),
        "mixed_goodput_share": mean(found.mixed_share),
        "best_goodput_share": mean(found.best_share),
        "gain": mean(found.gain),
        "confidence": found.confidence,
        "tried": [
            {
                **split(tried.split),
                "goodput_share": tried.goodput_share,
                "ttft_p95_seconds": tried.ttft_p95_seconds,
                "tpot_p95_seconds": tried.tpot_p95_seconds,
            }
            for tried in found.tried
        ],
        "verdict": verdict_lines(found, language),
    }


def _points(mean: Mean) -> str:
    """A difference of shares in percentage points."""
    half = "" if mean.half_width is None else f" ±{mean.half_width * 100:.1f}"
    return f"{mean.value * 100:+.1f}{half}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)
