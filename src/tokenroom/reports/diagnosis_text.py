"""Why it ran out of memory: for a person, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from tokenroom.diagnosis.explain import Diagnosis
from tokenroom.diagnosis.finding import CauseName, Finding
from tokenroom.diagnosis.recovered import Recovered
from tokenroom.diagnosis.remedies import Remedy
from tokenroom.diagnosis.remedy_effects import Effect
from tokenroom.reports.console import Paragraph
from tokenroom.reports.messages import Language, message, printable
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN: Final = 160
"""Characters of a line that are shown."""

_LONGEST: Final = 600
"""Characters that are shown where figures that were read stand so far behind."""

_FELT: Final = 0.01
SCHEMA_VERSION: Final = "1.1"


def print_diagnosis(
    out: Console,
    found: Diagnosis,
    recovered: Recovered,
    helps: Sequence[Remedy],
    language: Language,
) -> None:
    """Write the whole report to ``out``."""
    first = found.first
    out.print(Paragraph(verdict_text(found, language), style=_style(found)))
    if first is not None:
        out.print(Paragraph(reason_text(first, language)))
        if (served := found.served_after) is not None:
            out.print(Paragraph(message("explain.served_later", language, line=served)))
    for line in snapshot_lines(found, language):
        out.print(Paragraph(line, rest="  "))
    facts = "" if found.report.snapshot is not None else recovered_text(found, recovered)
    if facts:
        told = message("explain.recovered", language, facts=printable(facts))
        out.print(Paragraph(told, style="dim"))
    if first is not None:
        out.print()
        out.print(Paragraph(message("explain.evidence", language), style="bold"))
        for line in evidence_lines(first, language):
            out.print(Paragraph(line, first="  ", rest="    "))
    if helps:
        out.print()
        out.print(Paragraph(message("explain.remedies", language), style="bold"))
        for number, remedy in enumerate(helps, start=1):
            out.print(Paragraph(f"{number}. {remedy_text(remedy, language)}", rest="   "))
            if remedy.flag:
                out.print(f"     {remedy.flag}", soft_wrap=True)
    others = found.findings[1:3]
    if others:
        causes = message("speed.parts_join", language).join(
            message(f"explain.cause.{finding.cause}", language) for finding in others
        )
        out.print()
        out.print(Paragraph(message("explain.alternatives", language, causes=causes), style="dim"))
    told_of_start = found.report.snapshot is None
    if first is not None and recovered.result is None and recovered.missing and told_of_start:
        reason = printable(refusal_in(language, recovered.missing))
        told = message("explain.no_ledger", language, reason=reason)
        out.print(Paragraph(told, style="dim"))


def verdict_text(found: Diagnosis, language: Language) -> str:
    """What happened, in a sentence."""
    if found.healthy:
        return message("explain.healthy", language)
    if found.first is None:
        if found.report.snapshot is not None:
            return message("explain.snapshot.calm", language)
        if (error := found.other_error) is not None:
            return message("explain.not_memory", language, error=printable(error))
        kinds = ", ".join(sorted(found.report.counts))
        if not kinds:
            return message("explain.unknown.nothing", language)
        return message("explain.unknown", language, lines=found.report.lines, kinds=kinds)
    cause = message(f"explain.cause.{found.cause}", language)
    return message(
        "explain.verdict",
        language,
        cause=cause[:1].upper() + cause[1:],
        phase=message(f"explain.phase.{found.phase}", language),
        confidence=message(f"explain.confidence.{found.confidence}", language),
    )


def reason_text(finding: Finding, language: Language) -> str:
    """Why, in a sentence."""
    values = {name: printable(str(value)) for name, value in finding.values.items()}
    return message(f"explain.reason.{finding.reason}", language, **values)


def evidence_lines(finding: Finding, language: Language) -> Iterator[str]:
    """The lines that speak for it."""
    for sighting in finding.evidence:
        text = printable(" ".join(sighting.text.split()))
        ends = (text.find(value) + len(value) for value in sighting.values.values() if value)
        most = min(_LONGEST, max(_SHOWN, *ends, 0))
        shown = text if len(text) <= most + 1 else text[:most] + "…"
        if sighting.line:
            yield message("explain.line", language, line=sighting.line, text=shown)
        else:
            yield shown


def snapshot_lines(found: Diagnosis, language: Language) -> Iterator[str]:
    """What PyTorch held, where the file is a memory snapshot."""
    for device in () if found.report.snapshot is None else found.report.snapshot.devices:
        yield message(
            "explain.snapshot",
            language,
            device=device.device,
            reserved=format_bytes(device.reserved_bytes),
            segments=device.segments,
            allocated=format_bytes(device.allocated_bytes),
            unused=format_bytes(device.unused_bytes),
            fragmented=f"{device.fragmentation:.0%}",
        )
        takers = message("speed.parts_join", language).join(
            f"{message(f'explain.taker.{taker}', language)} {format_bytes(size)}"
            for taker, size in sorted(device.by_taker.items(), key=lambda one: -one[1])
        )
        if takers:
            yield message("explain.snapshot.takers", language, takers=takers)
        if device.sites:
            yield message("explain.snapshot.sites", language) + ":"
        for site in device.sites:
            yield f"  {format_bytes(site.num_bytes)}  {printable(site.where)}"


def recovered_text(found: Diagnosis, recovered: Recovered) -> str:
    """Engine, version, model and GPU, as far as they are known."""
    row = recovered.row
    if row is None:
        return found.report.engine or ""
    gpus = "" if row.gpus is None or row.gpu is None else f"{row.gpus} x "
    parts = (
        " ".join(part for part in (row.engine, row.engine_version) if part),
        row.model or "",
        f"{gpus}{row.gpu}" if row.gpu else "",
        " ".join(f"{name}={value}" for name, value in list(row.flags.items())[:6]),
    )
    return ", ".join(part for part in parts if part)


def remedy_text(remedy: Remedy, language: Language) -> str:
    """What to do, what it costs and what it changes."""
    what = message(f"explain.remedy.{remedy.key}", language, **remedy.values)
    cost = message(f"explain.cost.{int(remedy.cost)}", language)
    told = [cost]
    if remedy.doubtful:
        told.append(message("explain.doubtful", language))
    if remedy.effect is not None:
        told += _effect_parts(remedy.effect, language)
    aside = message("speed.parts_join", language).join(told)
    return message("watch.aside", language, text=what, aside=aside)


def diagnosis_json(
    found: Diagnosis, recovered: Recovered, helps: Sequence[Remedy], language: Language
) -> dict[str, Any]:
    """The same as one object."""
    from tokenroom.reports.fit_json import fit_json

    first, row = found.first, recovered.row
    return {
        "schema_version": SCHEMA_VERSION,
        "healthy": found.healthy,
        "cause": None if found.healthy else str(found.cause),
        "phase": None if found.phase is None else str(found.phase),
        "confidence": found.confidence,
        "served_after": found.served_after,
        "verdict": verdict_text(found, language),
        "reason": None if first is None else reason_text(first, language),
        "error": found.other_error,
        "alternatives": [
            {"cause": str(other.cause), "phase": str(other.phase), "weight": other.weight}
            for other in found.findings[1:]
        ],
        "evidence": []
        if first is None
        else [{"line": one.line, "text": one.text} for one in first.evidence],
        "recovered": {
            "engine": found.report.engine if row is None else row.engine,
            "version": None if row is None else row.engine_version,
            "model": None if row is None else row.model,
            "gpu": None if row is None else row.gpu,
            "gpus": None if row is None else row.gpus,
            "flags": {} if row is None else dict(row.flags),
            "figures": {} if row is None else dict(row.reported),
        },
        "snapshot": snapshot_json(found),
        "ledger": None
        if recovered.result is None
        else fit_json(recovered.result, language=language),
        "no_ledger": refusal_in(language, recovered.missing) or None,
        "remedies": [_remedy_json(remedy, language) for remedy in helps],
    }


def snapshot_json(found: Diagnosis) -> list[dict[str, Any]] | None:
    """What PyTorch held of each GPU; None where the file is no memory snapshot."""
    if found.report.snapshot is None:
        return None
    return [
        {
            "device": device.device,
            "reserved_bytes": device.reserved_bytes,
            "allocated_bytes": device.allocated_bytes,
            "unused_bytes": device.unused_bytes,
            "largest_free_bytes": device.largest_free_bytes,
            "fragmentation": round(device.fragmentation, 4),
            "segments": device.segments,
            "by_taker": dict(device.by_taker),
            "sites": [
                {
                    "where": site.where,
                    "taker": site.taker,
                    "bytes": site.num_bytes,
                    "blocks": site.blocks,
                }
                for site in device.sites
            ],
            "failures": [
                {
                    "asked_bytes": failure.asked_bytes,
                    "free_bytes": failure.free_bytes,
                    "where": failure.where or None,
                }
                for failure in device.failures
            ],
        }
        for device in found.report.snapshot.devices
    ]


def schema_text() -> str:
    """The JSON schema, as text."""
    return files("tokenroom.reports").joinpath("data/diagnosis.schema.json").read_text("utf-8")


def _remedy_json(remedy: Remedy, language: Language) -> dict[str, Any]:
    effect = remedy.effect
    return {
        "key": remedy.key,
        "text": remedy_text(remedy, language),
        "what": message(f"explain.remedy.{remedy.key}", language, **remedy.values),
        "flag": remedy.flag or None,
        "value": remedy.values.get("value"),
        "settings": dict(remedy.settings),
        "cost": remedy.cost.name.lower(),
        "effect": None
        if effect is None
        else {
            "starts": effect.starts,
            "pool_tokens": list(effect.pool_tokens),
            "activation_bytes": list(effect.activation_bytes),
            "weights_bytes": list(effect.weights_bytes),
            "ttft_ratio": effect.ttft_ratio,
            "tpot_ratio": effect.tpot_ratio,
        },
    }


def _effect_parts(effect: Effect, language: Language) -> Iterator[str]:
    if not effect.starts:
        yield message("explain.effect.starts_not", language)
    before, after = effect.pool_tokens
    if before != after:
        yield message("explain.effect.pool", language, before=f"{before:,}", after=f"{after:,}")
    for name in ("activation", "weights"):
        small, large = getattr(effect, f"{name}_bytes")
        if small != large:
            yield message(
                f"explain.effect.{name}",
                language,
                before=format_bytes(small),
                after=format_bytes(large),
            )
    for name in ("ttft", "tpot"):
        ratio = getattr(effect, f"{name}_ratio")
        if ratio is not None and abs(ratio - 1) >= _FELT:
            yield message(f"explain.effect.{name}", language, change=f"{ratio - 1:+.0%}")


def _style(found: Diagnosis) -> str:
    if found.healthy:
        return "bold green"
    return "bold yellow" if found.cause is CauseName.UNKNOWN else "bold red"
