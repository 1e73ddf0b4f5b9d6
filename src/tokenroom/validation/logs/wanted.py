"""The lines of a log that hold a wanted word, found fast: a server's log is long and alike.

Most lines differ from earlier ones in their figures alone. Without its digits such a line is the
same *shape*, and no word without a digit is in a line whose shape lacks it (taking digits away can
only join letters), so each shape is looked at once. Of lines whose shape is new, as texts are, the
tokens between blanks are compared with those seen before: a wanted word has a *core* without a
blank, and a line all of whose tokens lack every core lacks every word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from tokenroom.validation.logs.quotes import QUOTING, has_header, is_quote, stays_open

ANSI: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""What terminals take for colours, titles and movements."""

_DIGITS: Final = b"0123456789"
_FIGURE: Final = re.compile(rb"\d+")
_DULL, _WANTED, _QUOTE = 0, 1, 2
_LONGEST_SHAPE: Final = 512
"""Longer lines hold texts and seldom come again."""

_MOST_SHAPES: Final = 20_000
_MOST_TOKENS: Final = 100_000
_LONGEST_TOKEN: Final = 64
"""Tokens that are longer are data, and not kept."""

_LEAST_CORE: Final = 3
_LEAST_PART: Final = 3
_MOST_PART: Final = 6
_COMMON: Final = (
    b'INFO:     10.0.0.1:52344 - "POST /v1/chat/completions HTTP/1.1" 200 OK '
    b"INFO WARNING ERROR DEBUG 2026-01-01T00:00:00.000000 GET /health /metrics engine request"
)


class WantedLines:
    """Finds lines by their words, piece after piece of one log.

    Lines that quote what a client wrote are none, nor those that such a text goes on in.

    Args:
        words: A line is wanted that holds one of these.
    """

    def __init__(self, words: Iterable[str]) -> None:
        asked = [word.encode() for word in words]
        every = dict.fromkeys(form for word in (*asked, *QUOTING) for form in _forms(word))
        bare = {word: word.translate(None, _DIGITS) for word in every}
        cores = {word: max(bare[word].split(), key=len, default=b"") for word in every}
        self._figured = tuple(word for word in every if len(cores[word]) < _LEAST_CORE)
        self._figures = tuple(
            {max(_FIGURE.findall(word) or [word], key=len) for word in self._figured}
        )
        self._words: dict[bytes, set[bytes]] = {}
        for word in every:
            if word not in self._figured:
                self._words.setdefault(cores[word], set()).add(bare[word])
        self._parts = covering(tuple(self._words))
        self._shapes: dict[bytes, int] = {}
        self._dull: set[bytes] = set()
        self._pointing: dict[bytes, tuple[bytes, ...]] = {}
        self._quoting = False

    def find(self, piece: bytes, first: int) -> Iterator[tuple[int, bytes]]:
        """The wanted lines of a piece with their numbers; its first line is number ``first``."""
        lines = piece.split(b"\n")
        found = self._with_figures(piece, lines)
        opened: list[int] = []
        unseen: dict[bytes, list[int]] = {}
        long: list[int] = []
        known = self._shapes.get
        for place, line in enumerate(lines):
            if len(line) > _LONGEST_SHAPE:
                (opened if is_quote(line) else long).append(place)
                continue
            shape = line.translate(None, _DIGITS)
            told = known(shape)
            if told is None:
                unseen.setdefault(shape, []).append(place)
            elif told == _WANTED:
                found.add(place)
            elif told == _QUOTE:
                opened.append(place)
        for places, told in self._first_seen(lines, unseen, long):
            if told == _WANTED:
                found.update(places)
            elif told == _QUOTE:
                opened.extend(places)
        opened = sorted(place for place in opened if stays_open(lines[place]))
        if opened or self._quoting:
            found -= self._quoted(lines, found, opened)
        for place in sorted(found):
            yield first + place, lines[place]

    def _with_figures(self, piece: bytes, lines: list[bytes]) -> set[int]:
        """Places of lines with a word that is little but a figure, which shapes do not keep."""
        ends: list[int] = []
        found: set[int] = set()
        for figure in self._figures:
            at = piece.find(figure)
            while at >= 0:
                ends = ends or list(accumulate(len(line) + 1 for line in lines))
                place = bisect_right(ends, at)
                line = _plain(lines[place])
                if any(word in line for word in self._figured) and not is_quote(line):
                    found.add(place)
                at = piece.find(figure, ends[place])
        return found

    def _first_seen(
        self, lines: list[bytes], unseen: dict[bytes, list[int]], long: list[int]
    ) -> Iterator[tuple[list[int], int]]:
        """Lines that are looked at themselves, a shape once: their places, and what they are."""
        groups = [*unseen.items(), *((b"", [place]) for place in long)]
        texts = [
            _plain(shape or lines[places[0]].translate(None, _DIGITS)) for shape, places in groups
        ]
        dull = self._dull
        told = [set(text.split()) - dull for text in texts]
        pointing = self._pointing_tokens(set().union(*told))
        if len(self._shapes) > _MOST_SHAPES:
            self._shapes.clear()
        for (shape, places), text, tokens in zip(groups, texts, told, strict=True):
            kind = _DULL
            for token in tokens:
                for word in pointing.get(token, ()):
                    if word in text:
                        kind = _WANTED
            if kind == _WANTED and is_quote(_plain(lines[places[0]])):
                kind = _QUOTE
            if shape:
                self._shapes[shape] = kind
            yield places, kind

    def _pointing_tokens(self, tokens: set[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        """Of tokens those that hold a core, each with the words that may be around it.

        Cores are searched for in all new tokens together, by a few parts that cover them.
        """
        known = {token: self._pointing[token] for token in tokens if token in self._pointing}
        fresh = [token for token in tokens if token not in known]
        joined = b"\n".join(fresh)
        ends = list(accumulate(len(token) + 1 for token in fresh))
        words: dict[bytes, set[bytes]] = {}
        for part, cores in self._parts.items():
            at = joined.find(part)
            while at >= 0:
                place = bisect_right(ends, at)
                token = fresh[place]
                for core in cores:
                    if core in token:
                        words.setdefault(token, set()).update(self._words[core])
                at = joined.find(part, ends[place])
        pointing = {token: tuple(several) for token, several in words.items()}
        if len(self._dull) + len(self._pointing) > _MOST_TOKENS:
            self._dull.clear()
            self._pointing.clear()
        for token in fresh:
            if len(token) <= _LONGEST_TOKEN:
                if token in pointing:
                    self._pointing[token] = pointing[token]
                else:
                    self._dull.add(token)
        return known | pointing

    def _quoted(self, lines: list[bytes], found: set[int], opened: list[int]) -> set[int]:
        """Places of wanted lines in which a text of a client goes on; notes whether it ends."""
        starts = [-1, *opened] if self._quoting else opened
        inside: set[int] = set()
        for start, end in zip(starts, (*starts[1:], len(lines)) if starts else (), strict=True):
            place = start + 1
            while place < end and not has_header(lines[place]):
                place += 1
            inside.update(range(start + 1, place))
            self._quoting = place == len(lines)
        return found & inside


def _plain(line: bytes) -> bytes:
    """A line without what is for terminals."""
    return ANSI.sub(b"", line) if b"\x1b" in line else line


def _forms(word: bytes) -> tuple[bytes, ...]:
    """A word as it is, and as JSON writes it inside a string (Docker's escapes angles, too)."""
    escaped = word.replace(b'"', b'\\"').replace(b"<", b"\\u003c").replace(b">", b"\\u003e")
    return (word,) if escaped == word else (word, escaped)


def covering(words: tuple[bytes, ...]) -> dict[bytes, tuple[bytes, ...]]:
    """A few parts of cores, one of which is in every core, each with the cores that it is for.

    Fewer parts are searched for sooner. Parts that every line of a server's log has are not taken,
    except whole.
    """
    parts: dict[bytes, set[bytes]] = {}
    for word in words:
        for length in range(_LEAST_PART, min(len(word) - 1, _MOST_PART) + 1):
            for start in range(len(word) - length + 1):
                part = word[start : start + length]
                if part not in _COMMON:
                    parts.setdefault(part, set()).add(word)
    shared = {part: several for part, several in parts.items() if len(several) > 1}
    left = set(words)
    chosen: dict[bytes, tuple[bytes, ...]] = {}
    while shared:
        best = max(shared, key=lambda part: (len(shared[part]), len(part), part))
        covered = shared[best]
        chosen[best] = tuple(sorted(covered))
        left -= covered
        shared = {part: rest for part, each in shared.items() if len(rest := each - covered) > 1}
    for word in sorted(left):
        chosen[word] = (*chosen.get(word, ()), word)
    return chosen
