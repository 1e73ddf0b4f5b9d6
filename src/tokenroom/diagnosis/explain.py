"""The front door: a log in, a diagnosis with its evidence out."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, Literal, TypeAlias

from tokenroom.diagnosis.causes import CAUSES
from tokenroom.diagnosis.finding import CauseName, Finding, Phase
from tokenroom.diagnosis.report import Report, read_report

Confidence: TypeAlias = Literal["high", "medium", "low"]

_HIGH: Final = 0.8
_MEDIUM: Final = 0.55
_WORTH_TELLING: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What happened, as far as the log tells.

    Attributes:
        report: What was read.
        findings: Causes, the likeliest first; each cause once.
    """

    report: Report
    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding | None:
        """The likeliest; None where the log says nothing of memory."""
        return self.findings[0] if self.findings else None

    @property
    def healthy(self) -> bool:
        """Whether the engine serves and nothing in the log speaks of trouble."""
        return not self.findings and _serves(self.report)

    @property
    def served_after(self) -> int | None:
        """The line by which a start after what happened served; None where none did."""
        if self.first is None or not self.first.evidence:
            return None
        return self.report.served_after(max(one.line for one in self.first.evidence))

    @property
    def other_error(self) -> str | None:
        """The last error, where nothing in the log speaks of memory; None where there is none."""
        return None if self.findings or self.healthy else self.report.facts.error

    @property
    def cause(self) -> CauseName:
        """Its name."""
        if self.first is not None:
            return self.first.cause
        return CauseName.UNKNOWN if self.other_error is None else CauseName.NOT_MEMORY

    @property
    def phase(self) -> Phase | None:
        """When; None where the log does not tell."""
        if self.first is not None:
            return self.first.phase
        return Phase.RUNTIME if self.other_error and self.report.facts.ended else None

    @property
    def confidence(self) -> Confidence:
        """How sure it is."""
        weight = 0.0 if self.first is None else self.first.weight
        if self.other_error is not None:
            weight = _MEDIUM
        return "high" if weight >= _HIGH else "medium" if weight >= _MEDIUM else "low"


def explain(file: BinaryIO | io.BufferedIOBase) -> Diagnosis:
    """Diagnose a log of any length, or a memory snapshot of PyTorch.

    Args:
        file: Open for reading bytes.

    Raises:
        SnapshotError: It is a pickle and no memory snapshot.
    """
    report = read_report(file)
    best: dict[CauseName, Finding] = {}
    for cause in CAUSES:
        for finding in cause.weigh(report):
            known = best.get(finding.cause)
            if known is None or finding.weight > known.weight:
                best[finding.cause] = finding
    if _serves(report):
        best.pop(CauseName.NOT_MEMORY, None)  # a remark of an engine that serves
    findings = sorted(map(_with_each_line_once, best.values()), key=lambda found: -found.weight)
    return Diagnosis(
        report=report,
        findings=tuple(found for found in findings if found.weight >= _WORTH_TELLING),
    )


def _serves(report: Report) -> bool:
    """Whether the engine started, and said nothing since that it cannot serve on from."""
    facts = report.facts
    return facts.started and not facts.ended and facts.failure != "fails"


def _with_each_line_once(finding: Finding) -> Finding:
    """A finding whose evidence names no line twice, though it may be of several kinds."""
    kept = {(found.line, found.text): found for found in finding.evidence}
    return replace(finding, evidence=tuple(kept.values()))
