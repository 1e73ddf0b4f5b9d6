"""Claims and their answers for a person and for programs: terminal, Markdown, CSV, JSON."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from math import isinf
from typing import TYPE_CHECKING, Any, Final, get_args

from tokenroom.claims.claim import Answer, Article, Claim, Text, Unit, Verdict
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message
from tokenroom.units import format_bytes, format_figure, format_parameters, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
_COLUMNS: Final = (
    *("id", "article", "section", "claim", "unit", "published_low", "published_high"),
    *("case", "value", "verdict"),
)
_SHADES: Final = {"corrected": "red", "depends": "yellow", "added": "dim"}


def words(text: Text | str, language: Language) -> str:
    """A text in a language."""
    if isinstance(text, str):
        return text
    return text.chinese if language is Language.CHINESE else text.english


def figure_text(value: float, unit: Unit, language: Language) -> str:
    """A figure in its unit."""
    match unit:
        case "truth":
            return message("claims.yes" if value else "claims.no", language)
        case "bytes":
            return format_bytes(value)
        case "gigabytes":
            return f"{value / 1e9:,.1f} GB"
        case "parameters":
            return format_parameters(round(value))
        case "seconds":
            return f"{value * 1e6:.1f} µs" if value < 1e-3 else format_seconds(value)
        case "share":
            return f"{value:.1%}"
        case "rate":
            return f"{format_figure(value)} /s"
        case _:
            return f"{value:,.0f}" if float(value).is_integer() else format_figure(value)


def ours_text(answer: Answer, language: Language) -> str:
    """Our figures in a line."""
    parts = []
    for case in answer.cases:
        figure = figure_text(case.value, answer.claim.unit, language)
        name = words(case.name, language)
        parts.append(
            message("claims.named", language, name=name, figure=figure) if name else figure
        )
    return message("claims.join", language).join(parts)


def published_text(claim: Claim, language: Language) -> str:
    """What the article prints."""
    if claim.published is None:
        return "-"
    return words(claim.printed, language) or message("claims.yes", language)


def why_text(answer: Answer, language: Language) -> str:
    """Why figures differ where they do, and where that comes from."""
    claim = answer.claim
    differs = answer.verdict != "equal" and claim.reason is not None
    reason = words(claim.reason, language) if differs and claim.reason else ""
    return " ".join(part for part in (reason, f"({claim.source})" if claim.source else "") if part)


def counts_text(found: Sequence[Answer], language: Language) -> str:
    """How many of each verdict."""
    counts = Counter(answer.verdict for answer in found)
    return message("speed.parts_join", language).join(
        message(
            "claims.count",
            language,
            count=counts[verdict],
            verdict=message(f"claims.verdict.{verdict}", language),
        )
        for verdict in VERDICTS
        if counts[verdict]
    )


def print_claims(out: Console, found: Sequence[Answer], language: Language) -> None:
    """A table of rows, or each in full when there are few."""
    if len(found) <= 3:
        for number, answer in enumerate(found):
            if number:
                out.print()
            _print_whole(out, answer, language)
        return
    from rich.table import Table

    about = message(
        "claims.about", language, claims=len(found), counts=counts_text(found, language)
    )
    out.print(Paragraph(about, style="bold"))
    out.print()
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("id", "verdict", "published", "ours"):
        drawn.add_column(message(f"claims.column.{column}", language))
    for answer in found:
        drawn.add_row(
            answer.claim.id + ("*" if answer.claim.simulated else ""),
            message(f"claims.verdict.{answer.verdict}", language),
            published_text(answer.claim, language),
            ours_text(answer, language),
            style=_SHADES.get(answer.verdict),
        )
    print_trimmed(out, drawn, whole_rows=True)
    out.print(Paragraph(message("claims.footer", language), style="dim"))


def _print_whole(out: Console, answer: Answer, language: Language) -> None:
    claim = answer.claim
    out.print(Paragraph(words(claim.text, language), style="bold"))
    out.print(Paragraph(f"{claim.id}, {_where(claim, language)}", style="dim"))
    for label, text in (
        ("published", published_text(claim, language)),
        ("ours", ours_text(answer, language)),
        ("verdict", message(f"claims.verdict.{answer.verdict}", language)),
    ):
        named = message(
            "claims.named",
            language,
            name=message(f"claims.column.{label}", language),
            figure=text,
        )
        out.print(Paragraph(named))
    if claim.reason is not None and answer.verdict != "equal":
        out.print(Paragraph(words(claim.reason, language)))
    if claim.source:
        out.print(Paragraph(message("claims.source", language, source=claim.source), style="dim"))


def _where(claim: Claim, language: Language) -> str:
    return f"{message(f'claims.short.{claim.article}', language)} {claim.section}"


def claims_markdown(found: Sequence[Answer], language: Language) -> str:
    """A page of all rows, by article and section."""
    return "\n".join(_page(found, language)) + "\n"


def _page(found: Sequence[Answer], language: Language) -> Iterator[str]:
    yield f"# {message('claims.title', language)}"
    yield ""
    yield message("claims.about", language, claims=len(found), counts=counts_text(found, language))
    yield message("claims.reading", language)
    yield ""
    yield message("claims.generated", language)
    columns = [
        message(f"claims.column.{name}", language)
        for name in ("id", "claim", "published", "ours", "verdict", "why")
    ]
    for article, of_article in groupby(found, key=lambda answer: answer.claim.article):
        yield from ("", f"## {message(f'claims.article.{article}', language)}")
        for section, rows in groupby(of_article, key=lambda answer: answer.claim.section):
            yield from ("", f"### {message('claims.section', language, section=section)}", "")
            yield _line(columns)
            yield _line(["---"] * len(columns))
            for answer in rows:
                yield _line(
                    [
                        f"`{answer.claim.id}`",
                        words(answer.claim.text, language),
                        published_text(answer.claim, language),
                        ours_text(answer, language),
                        message(f"claims.verdict.{answer.verdict}", language),
                        why_text(answer, language),
                    ]
                )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def claims_csv(found: Sequence[Answer]) -> str:
    """A line for each of our figures, as plain numbers."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for answer in found:
        claim = answer.claim
        span = claim.published
        ends = ("", "") if span is None else (span.low, "" if isinf(span.high) else span.high)
        for case in answer.cases:
            writer.writerow(
                (
                    *(claim.id, claim.article, claim.section, claim.text.english, claim.unit),
                    *ends,
                    words(case.name, Language.ENGLISH),
                    case.value,
                    answer.verdict,
                )
            )
    return stream.getvalue()


def claims_json(found: Sequence[Answer]) -> dict[str, Any]:
    """All rows as one object, with every text in both languages."""
    counts = Counter(answer.verdict for answer in found)
    return {
        "schema_version": "1.0",
        "articles": {
            article: _both(
                lambda language, article=article: message(f"claims.article.{article}", language)
            )
            for article in get_args(Article)
        },
        "verdicts": {
            verdict: {
                "count": counts[verdict],
                **_both(
                    lambda language, verdict=verdict: message(f"claims.verdict.{verdict}", language)
                ),
            }
            for verdict in VERDICTS
        },
        "reading": _both(lambda language: message("claims.reading", language)),
        "claims": [_row(answer) for answer in found],
    }


def _row(answer: Answer) -> dict[str, Any]:
    claim, span = answer.claim, answer.claim.published
    return {
        "id": claim.id,
        "article": claim.article,
        "section": claim.section,
        "claim": _text(claim.text),
        "unit": claim.unit,
        "published": None
        if span is None
        else {
            "low": span.low,
            "high": None if isinf(span.high) else span.high,
            "text": _both(lambda language: published_text(claim, language)),
        },
        "ours": {
            "cases": [
                {"value": case.value, "name": _text(case.name) if case.name else None}
                for case in answer.cases
            ],
            "text": _both(lambda language: ours_text(answer, language)),
        },
        "verdict": answer.verdict,
        "reason": None if claim.reason is None else _text(claim.reason),
        "source": claim.source,
        "simulated": claim.simulated,
        "recorded": answer.recorded,
    }


def _text(text: Text | str) -> dict[str, str]:
    return _both(lambda language: words(text, language))


def _both(said: Any) -> dict[str, str]:
    return {"en": said(Language.ENGLISH), "zh": said(Language.CHINESE)}


def schema_text() -> str:
    """The JSON schema of ``tokenroom claims --json``, as text."""
    return files("tokenroom.reports").joinpath("data/claims.schema.json").read_text("utf-8")
