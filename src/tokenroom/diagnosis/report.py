"""What a log holds: sightings, the phase it ended in, the engine, in bounded memory."""

from __future__ import annotations

import io
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

from tokenroom.diagnosis.kinds import KINDS
from tokenroom.diagnosis.milestones import ENGINE_WORDS, MILESTONES
from tokenroom.diagnosis.plain_pickle import begins_a_pickle, read_plain_pickle
from tokenroom.diagnosis.sightings import ADVICE, Kind, Sighting, is_aside, is_prose
from tokenroom.diagnosis.snapshot import Snapshot, snapshot_of
from tokenroom.validation.logs.facts import Facts, without_secrets
from tokenroom.validation.logs.lines import Message, messages_of
from tokenroom.validation.logs.pieces import is_damage
from tokenroom.validation.logs.read import Reading

_KEPT: Final = 64
"""Sightings of one kind that are kept from the start, and as many from the end."""

_LONGEST: Final = 2_000
_MOST_OUTLINES: Final = 2_000
_FIGURES: Final = re.compile(r"\d+")


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
        snapshot: What PyTorch held, where the file is a memory snapshot and no log.
    """

    sightings: list[Sighting] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    phases: list[tuple[str, int]] = field(default_factory=list)
    engines: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    reading: Reading = field(default_factory=Reading)
    snapshot: Snapshot | None = None

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
        if not self.engines and self.has("ollama_ps"):
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
    """Read a log of any length, or a memory snapshot; of a log only lines with a wanted word.

    Raises:
        SnapshotError: It is a pickle and no memory snapshot.
    """
    opened = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]
    if begins_a_pickle(_start(opened.peek)):
        return Report(snapshot=snapshot_of(read_plain_pickle(opened)))
    return report_of(messages_of(opened, (*wanted_words(), *Reading().words)))


def _start(peek: Callable[[int], bytes]) -> bytes:
    """How it begins; nothing where it is packed and damaged before anything comes out."""
    try:
        return peek(2)[:2]
    except Exception as error:
        if is_damage(error):
            return b""
        raise


def report_of(messages: Iterable[Message]) -> Report:
    """What messages say."""
    report = Report()
    outlines = _Outlines()
    kept: dict[str, list[Sighting]] = {}
    last: dict[str, deque[Sighting]] = {}
    for message in messages:
        text = message.text[:_LONGEST]
        if is_aside(text):
            continue
        report.lines += 1
        outline = outlines.of(text)
        # what a server prints after it started may be what its clients wrote
        serves = bool(report.phases) and report.phases[-1][0] == "runtime"
        quoted = serves and not message.process and is_prose(text)
        if (outline.read or len(message.text) > _LONGEST) and not quoted:
            report.reading.feed(message)
        for engine, words in ENGINE_WORDS:
            if engine in outline.engines or any(word in message.process for word in words):
                report.engines[engine] += 1
        for phase in outline.phases:
            if not report.phases or report.phases[-1][0] != phase:
                report.phases.append((phase, message.line))
        for kind in outline.kinds:
            found = None if quoted and kind.warned_of else _sighted(kind, message, text)
            if found is None:
                continue
            report.counts[kind.name] += 1
            if len(kept.setdefault(kind.name, [])) < _KEPT:
                kept[kind.name].append(found)
            else:
                last.setdefault(kind.name, deque(maxlen=_KEPT)).append(found)
    every = [found for group in (kept, last) for several in group.values() for found in several]
    report.sightings = [
        found._replace(text=without_secrets(found.text))
        for found in sorted(every, key=lambda found: found.line)
    ]
    return report


class _Outline(NamedTuple):
    """What is to be done with a message: all that differ in figures alone are treated alike.

    Attributes:
        kinds: Kinds that it may be of.
        engines: Engines whose words are in it.
        phases: Phases that begin with it.
        read: Whether a reader of start-up logs wants it.
    """

    kinds: tuple[Kind, ...]
    engines: frozenset[str]
    phases: tuple[str, ...]
    read: bool


class _Outlines:
    """Outlines by a message's text without its figures, as those are looked at once."""

    def __init__(self) -> None:
        self._known: dict[str, _Outline] = {}
        self._read = tuple({_FIGURES.sub("", word) for word in Reading().words})
        self._kinds = tuple((kind, _bare(kind.words)) for kind in KINDS)
        self._phases = tuple((phase, _bare(words)) for phase, words in MILESTONES)

    def of(self, text: str) -> _Outline:
        """The outline of a text."""
        shape = _FIGURES.sub("", text)
        found = self._known.get(shape)
        if found is None:
            if len(self._known) > _MOST_OUTLINES:
                self._known.clear()
            found = self._known[shape] = _Outline(
                kinds=tuple(
                    kind for kind, words in self._kinds if any(word in shape for word in words)
                ),
                engines=frozenset(
                    engine for engine, words in ENGINE_WORDS if any(word in text for word in words)
                ),
                phases=tuple(
                    phase for phase, words in self._phases if any(word in shape for word in words)
                ),
                read=any(word in shape for word in self._read),
            )
        return found


def _bare(words: Sequence[str]) -> tuple[str, ...]:
    """Words without their figures."""
    return tuple(_FIGURES.sub("", word) for word in words)


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
    return Sighting(kind.name, message.line, text.strip(), message.process, values)


def _named(groups: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in groups.items() if text is not None)
