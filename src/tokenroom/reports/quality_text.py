"""What a quantised KV cache costs, for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenroom.measuring.quality import Quality, SchemeResult, Verdict
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"keeps": "bold green", "none_keeps": "bold red"}


def print_quality(
    out: Console, found: Quality, verdict: Verdict, tolerance: float, language: Language
) -> None:
    """Write the whole report to ``out``."""
    out.print(Paragraph(title_text(found, language), style="bold"))
    for line in remarks(found, language):
        out.print(Paragraph(line))
    out.print()
    text = verdict_text(found, verdict, tolerance, language)
    out.print(Paragraph(text, style=_STYLES.get(verdict.key, "bold yellow")))
    lengths = dict.fromkeys(result.context_tokens for result in found.results)
    for length in lengths:
        results = [result for result in found.results if result.context_tokens == length]
        out.print()
        out.print(Paragraph(length_text(results, language), style="bold"))
        _print_table(out, results, language)
    out.print()
    out.print(Paragraph(message("quality.bars", language, share=f"{found.confidence:.0%}")))
    out.print(Paragraph(message("quality.scope", language), style="dim"))


def title_text(found: Quality, language: Language) -> str:
    """Model, text and where it ran."""
    versions = ", ".join(f"{name} {value}" for name, value in found.versions.items())
    return message(
        "quality.title",
        language,
        model=printable(found.model),
        dtype=found.dtype,
        device=found.device,
        text=printable(found.text),
        tokens=found.text_tokens,
        seed=found.seed,
        versions=versions,
    )


def remarks(found: Quality, language: Language) -> Iterator[str]:
    """What to know of the run."""
    lengths = {window.context_tokens for window in found.windows}
    windows = len(found.windows) or 1
    scored = sum(window.scored_tokens for window in found.windows)
    yield message("quality.windows", language, count=windows, lengths=len(lengths), scored=scored)
    if found.interrupted:
        yield message(
            "quality.interrupted", language, done=len(found.windows), asked=found.windows_asked
        )
    key = "quality.identical" if found.identical else "quality.not_identical"
    yield message(key, language)
    if found.unquantised:
        yield message("quality.states", language)


def length_text(results: list[SchemeResult], language: Language) -> str:
    """The full cache at one length."""
    first = results[0]
    return message(
        "quality.length",
        language,
        context=first.context_tokens,
        perplexity=f"{first.full_perplexity:.4g}",
        size=format_bytes(first.full_bytes_per_token),
        windows=first.loss_change.runs,
    )


def _print_table(out: Console, results: list[SchemeResult], language: Language) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(message("quality.column.scheme", language), overflow="fold")
    for name in ("perplexity", "change", "kl", "agreement", "bytes", "saved"):
        table.add_column(message(f"quality.column.{name}", language), justify="right")
    for result in results:
        kl = f"{result.divergence.value:.2e}"
        if result.divergence.half_width is not None:
            kl += f" ± {result.divergence.half_width:.0e}"
        table.add_row(
            result.scheme,
            f"{result.perplexity:.4g}",
            change_text(result),
            kl,
            f"{result.agreement:.1%}",
            format_bytes(result.bytes_per_token),
            f"{result.saved_share:.1%}",
        )
    print_trimmed(out, table, whole_rows=True)


def change_text(result: SchemeResult) -> str:
    """The change of perplexity with its interval."""
    ends = result.change_range
    middle = f"{result.change:+.2%}"
    return middle if ends is None else f"{middle} ({ends[0]:+.2%} … {ends[1]:+.2%})"


def verdict_text(found: Quality, verdict: Verdict, tolerance: float, language: Language) -> str:
    """What the windows tell, and no more."""
    if verdict.worst is None:
        return message(f"quality.verdict.{verdict.key}", language, tolerance=f"{tolerance:.2%}")
    worst = verdict.worst
    ends = worst.change_range
    return message(
        f"quality.verdict.{verdict.key}",
        language,
        scheme=worst.scheme,
        tolerance=f"{tolerance:.2%}",
        highest=f"{(worst.change if ends is None else ends[1]):+.2%}",
        context=worst.context_tokens,
        saved=f"{worst.saved_share:.1%}",
        share=f"{found.confidence:.0%}",
    )
