"""Lines that say something about memory: what each kind looks like, and the figures in it.

Sources are named beside each pattern: the file of the program that prints the line, or the manual
of the tool. Sizes are read with their unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tokenroom.units import GIB, KIB, MIB
from tokenroom.validation.logs.quotes import has_header

_UNITS: Final = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "kb": KIB,
    "kib": KIB,
    "ki": KIB,
    "mb": MIB,
    "mib": MIB,
    "mi": MIB,
    "gb": GIB,
    "gib": GIB,
    "gi": GIB,
    "tb": 1024 * GIB,
    "tib": 1024 * GIB,
    "ti": 1024 * GIB,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1024 * GIB,
}
_SIZE: Final = r"([\d.,]+)\s*([KMGT]i?B?|bytes|B)?"


class Sighting(NamedTuple):
    """A line that says something.

    Attributes:
        kind: What, the name of a :class:`Kind`.
        line: Its number, from 1; 0 when unknown.
        text: The line without what terminals and runtimes added.
        process: Which process wrote it, empty when the line does not say.
        values: Figures and words in it by name.
    """

    kind: str
    line: int
    text: str
    process: str
    values: dict[str, str]

    def number(self, name: str) -> float | None:
        """A figure; None when the line has none of that name."""
        text = self.values.get(name)
        if text is None:
            return None
        try:
            return float(text.replace(",", ""))
        except ValueError:
            return None

    def size_bytes(self, name: str) -> float | None:
        """A size with its unit, in bytes; None when the line has none of that name."""
        text = self.values.get(name)
        found = None if text is None else re.fullmatch(_SIZE, text.strip(), re.I)
        if found is None:
            return None
        try:
            return float(found[1].replace(",", "")) * _UNITS[(found[2] or "").lower()]
        except (ValueError, KeyError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a kind of line looks like.

    Attributes:
        name: What it is called.
        words: Words, one of which is in every such line; they are searched for first.
        pattern: The line; its named groups become values.
        more: Further patterns looked for in such a line.
        warned_of: A line may also advise against it or warn of it, which is not it.
    """

    name: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    more: tuple[re.Pattern[str], ...] = field(default=())
    warned_of: bool = False


def kind_of(
    name: str,
    words: str | tuple[str, ...],
    pattern: str,
    *more: str,
    warned_of: bool = False,
) -> Kind:
    """A kind by its words, its pattern and further ones, none of which mind the case."""
    return Kind(
        name=name,
        words=(words,) if isinstance(words, str) else words,
        pattern=re.compile(pattern, re.I),
        more=tuple(re.compile(one, re.I) for one in more),
        warned_of=warned_of,
    )


ADVICE: Final = re.compile(
    r"\b(?:if|in case of|avoid\w*|prevent\w*|risk of|reduc\w+|potential\w*|possible|likely to"
    r"|to fix|(?:may|might|can|could)\s+(?:\w+\s+)?(?:cause|lead|result|run|trigger|get|hit))\b"
    r"[^.:;!]{0,60}$",
    re.I,
)
"""What stands before an error in a line that only speaks of it."""

_OUT: Final = re.compile(r"(?:CUDA )?out of memory|(?:[\w.]+\.)?OutOfMemory", re.I)


def is_aside(text: str) -> bool:
    """Whether a line only warns of running out of memory."""
    found = _OUT.search(text)
    return found is not None and ADVICE.search(text[: found.start()]) is not None


_WORD: Final = re.compile(r"[A-Za-z]+[,.;:!?]?")
_ERROR_AHEAD: Final = re.compile(
    r"\s*(?:[\w.]+(?:Error|Exception)\b|(?:CUDA|HIP) error: |File \"|raise |return |\W)"
)
_LEAST_WORDS: Final = 8


def is_prose(text: str) -> bool:
    """Whether a line is a sentence of somebody's, and not in a form that engines or shells print.

    Prompts that are printed as they are stand in such lines.
    """
    words = text.split()
    plain = sum(_WORD.fullmatch(word) is not None for word in words)
    return (
        plain >= _LEAST_WORDS
        and plain >= 0.75 * len(words)
        and _ERROR_AHEAD.match(text) is None
        and not has_header(text.encode("utf-8", "replace"))
    )


AMOUNT: Final = r"[\d.,]+\s*(?:[KMGT]i?B|bytes|B\b)"
"""A size with its unit."""
