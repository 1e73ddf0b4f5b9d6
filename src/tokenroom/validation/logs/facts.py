"""What has been read of a log so far, whichever engine wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tokenroom.validation.logs.lines import Message, rank_of

_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def sized(text: str) -> re.Pattern[str]:
    """A pattern in which ``<quantity>`` stands for the number that is printed there."""
    return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>-?\\d[\\d,]*(?:\\.\\d+)?)", text))


@dataclass(slots=True, kw_only=True)
class Facts:
    """One start of an engine, filled while its log is read.

    Attributes:
        version: The engine's version.
        model: Its model.
        flags: Its arguments by name.
        gpu: Name of the accelerator.
        gpus: How many.
        figures: Quantity to process to value, the last one that process printed.
        started: It said that it serves.
        failure: ``"fails"`` for want of memory, ``"fails_other"``, None.
    """

    version: str | None = None
    model: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    gpu: str | None = None
    gpus: int | None = None
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    started: bool = False
    failure: str | None = None

    def note(self, quantity: str, process: str, text: str) -> None:
        """Keep a figure that a process printed; one that is no number is passed over."""
        match = _NUMBER.fullmatch(text.strip())
        if match is not None:
            value = float(match[0].replace(",", ""))
            plain = int(value) if value.is_integer() and "." not in match[0] else value
            self.figures.setdefault(quantity, {})[process] = plain

    def reported(self) -> dict[str, float]:
        """The figures of the first rank that printed each."""
        return {
            quantity: by_process[min(by_process, key=rank_of)]
            for quantity, by_process in self.figures.items()
        }

    @property
    def num_figures(self) -> int:
        """How many quantities were read."""
        return len(self.figures)

    def outcome(self) -> str | None:
        """How the start ended, in the words of rows."""
        if self.started:
            return "fails at run time" if self.failure == "fails" else "ok"
        return self.failure


class LogReader:
    """Reads one engine's lines; a subclass names its patterns and the lines that need more."""

    engine: str
    #: Patterns whose named groups are quantities.
    figures: Sequence[re.Pattern[str]] = ()
    #: Words, one of which a line must hold to be looked at.
    keywords: Sequence[str] = ()
    started: Sequence[str] = ()
    out_of_memory: Sequence[str] = ()

    def __init__(self) -> None:
        self.starts: list[Facts] = [Facts()]

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the lines that :meth:`feed` wants to see."""
        return (*self.keywords, *self.started, *self.out_of_memory)

    @property
    def facts(self) -> Facts:
        """The start that is being read."""
        return self.starts[-1]

    def best(self) -> Facts:
        """The last start that printed figures; the last one when none did."""
        return next((start for start in reversed(self.starts) if start.figures), self.starts[-1])

    def feed(self, message: Message) -> None:
        """Take in one message."""
        text = message.text
        if not any(word in text for word in self.words):
            return
        for pattern in self.figures:
            for match in pattern.finditer(text):
                for quantity, value in match.groupdict().items():
                    if value is not None:
                        self.facts.note(quantity, message.process, value)
        if any(words in text for words in self.started):
            self.facts.started = True
        if any(words in text for words in self.out_of_memory):
            self.facts.failure = "fails"
        self.read(message)

    def begin(self) -> None:
        """Another start begins in the same log."""
        if self.facts.figures:
            del self.starts[:-1]
            self.starts.append(Facts())

    def read(self, message: Message) -> None:
        """What patterns alone do not say; nothing by default."""

    def finish(self, facts: Facts) -> Mapping[str, Any]:
        """The figures of a start as a row reports them."""
        return facts.reported()
