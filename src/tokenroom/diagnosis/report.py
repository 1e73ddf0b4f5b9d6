"""What a log holds: sightings, the phase it ended in, the engine, in bounded memory."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from tokenroom.diagnosis.sightings import (
    ADVICE,
    ENGINE_WORDS,
    KINDS,
    MILESTONES,
    Kind,
    Sighting,
    is_aside,
)
from tokenroom.validation.logs.facts import Facts, without_secrets
from tokenroom.validation.logs.lines import Message, messages_of
from tokenroom.validation.logs.read import Reading

_KEPT: Final = 64
"""Sightings of one kind that are kept from the start, and as many from the end."""

_LONGEST: Final = 2_000


@dataclass(slots=True, kw_only=True)
class Report:
    """What was read of a log.

    Attributes:
        sightings: The first and last of each kind, in the order of their lines.
        counts: How many of each kind there were, kept or not.
        phases: Phases that began, with the line.
        engines: Votes for each engine.
        lines: Lines that were looked at closely.
        reading: What the engine printed of its start.
    """

    sightings: list[Sighting] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    phases: list[tuple[str, int]] = field(default_factory=list)
    engines: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    reading: Reading = field(default_factory=Reading)

    @property
    def facts(self) -> Facts:
        """What the engine printed of its start."""
        return self.reading.facts

    def of(self, *kinds: str) -> list[Sighting]:
        """Sightings of some kinds, in the order of their lines."""
        return [found for found in self.sightings if found.kind in kinds]

    def has(self, *kinds: str) -> bool:
        """Whether there is one of some kinds."""
        return any(self.counts[kind] for kind in kinds)

    @property
    def engine(self) -> str | None:
        """The engine that wrote it; None when nothing tells. Ollama runs llama.cpp's own code."""
        if self.engines["ollama"] and self.engines["llama.cpp"]:
            return "ollama"
        votes = self.engines.most_common(1)
        return votes[0][0] if votes else None

    def served_after(self, line: int) -> int | None:
        """The line by which a start after some line served; None where none did."""
        later = [(phase, first) for phase, first in self.phases if first > line]
        loads = [first for phase, first in later if phase == "load"]
        served = [
            first for phase, first in later if phase == "runtime" and loads and first > loads[0]
        ]
        return served[-1] if served else None

    def phase_at(self, line: int) -> str | None:
        """The phase that a line is in; None before any began."""
        began = [phase for phase, first in self.phases if first <= line]
        return began[-1] if began else None


def wanted_words() -> tuple[str, ...]:
    """Words, one of which is in every line that is looked at."""
    words = [word for kind in KINDS for word in kind.words]
    words += [word for _, several in MILESTONES for word in several]
    words += [word for _, several in ENGINE_WORDS for word in several]
    return tuple(dict.fromkeys(words))


def read_report(file: BinaryIO | io.BufferedIOBase) -> Report:
    """Read a log of any length: only lines with a wanted word are looked at."""
    return report_of(messages_of(file, (*wanted_words(), *Reading().words)))


def report_of(messages: Iterable[Message]) -> Report:
    """What messages say."""
    report = Report()
    kept: dict[str, list[Sighting]] = {}
    last: dict[str, list[Sighting]] = {}
    for message in messages:
        text = message.text[:_LONGEST]
        if is_aside(text):
            continue
        report.lines += 1
        report.reading.feed(message)
        for engine, words in ENGINE_WORDS:
            if any(word in text or word in message.process for word in words):
                report.engines[engine] += 1
        for phase, words in MILESTONES:
            if any(word in text for word in words) and (
                not report.phases or report.phases[-1][0] != phase
            ):
                report.phases.append((phase, message.line))
        for kind in KINDS:
            found = _sighted(kind, message, text)
            if found is None:
                continue
            report.counts[kind.name] += 1
            if len(kept.setdefault(kind.name, [])) < _KEPT:
                kept[kind.name].append(found)
            else:
                ring = last.setdefault(kind.name, [])
                ring.append(found)
                del ring[:-_KEPT]
    every = [found for group in (kept, last) for several in group.values() for found in several]
    report.sightings = sorted(every, key=lambda found: found.line)
    return report


def _sighted(kind: Kind, message: Message, text: str) -> Sighting | None:
    if not any(word in text for word in kind.words):
        return None
    match = kind.pattern.search(text)
    if match is None or (kind.warned_of and ADVICE.search(text[: match.start()])):
        return None
    values = dict(_named(match.groupdict()))
    for pattern in kind.more:
        if (further := pattern.search(text)) is not None:
            values |= dict(_named(further.groupdict()))
    return Sighting(kind.name, message.line, without_secrets(text.strip()), message.process, values)


def _named(groups: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in groups.items() if text is not None)


def lines_of(found: Sequence[Sighting]) -> tuple[Sighting, ...]:
    """Sightings without those of a line that is there already."""
    return tuple({one.line: one for one in reversed(found)}.values())[::-1]
