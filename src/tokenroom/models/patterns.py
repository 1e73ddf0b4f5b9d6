"""Regular expressions that files and commands bring along, matched in bounded time.

Python's ``re`` backtracks: ``(a|.)*(b|.)*z`` takes longer than anybody waits. A pattern whose
choices are few goes to ``re``; any other runs as an automaton, which reads each character once; and
one that an automaton cannot express (look-around, back references) among many choices is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

_Test: TypeAlias = Callable[[str], bool]

_MOST_CHARACTERS: Final = 2_000
_MOST_STATES: Final = 5_000
_MOST_KEPT: Final = 20_000  # transitions remembered before they are forgotten
_MOST_CHOICES: Final = 10_000  # ways through a pattern that backtracking may try
_MOST_UNBOUNDED: Final = 2  # "*" and "+" in a row: backtracking takes length to that power
_SINGLE: Final = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT"})
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


class Pattern(Protocol):
    """A compiled pattern: whether it matches at the start of a text, or anywhere in it."""

    @property
    def pattern(self) -> str:
        """Its text."""

    def match(self, text: str, /) -> object:
        """Something true when it matches from the first character on."""

    def search(self, text: str, /) -> object:
        """Something true when it matches anywhere."""


@lru_cache(maxsize=4096)
def compile_pattern(text: str) -> Pattern:
    """A regular expression whose matching ends soon, whatever it is.

    Raises:
        ValueError: It is no regular expression, longer than 2,000 characters, or cannot be matched
            in bounded time; the message says which.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it is longer than {_MOST_CHARACTERS:,} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that a later Python will read otherwise
        try:
            parsed = import_module("re._parser").parse(text)
            if _is_quick(parsed):
                return re.compile(text)
            flags = parsed.state.flags & ~re.UNICODE
        except (re.error, OverflowError) as error:
            raise ValueError(str(error)) from error
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
    if flags:
        raise ValueError("it combines inline flags with repeated choices")
    return _Automaton(parsed, text)


def _is_quick(parsed: Any) -> bool:
    """Whether backtracking has few ways to go through the pattern."""
    unbounded, choices = _choices(parsed)
    return unbounded <= _MOST_UNBOUNDED and choices <= _MOST_CHOICES


def _choices(nodes: Any) -> tuple[int, int]:
    """Unbounded repeats in a row, and the product of all other choices."""
    unbounded, choices = 0, 1
    for operator, argument in nodes:
        name = str(operator)
        if name in _REPEATS or name == "POSSESSIVE_REPEAT":
            least, most, body = argument
            inner_unbounded, inner = _choices(body)
            if int(most) > 64 and int(most) != int(least):
                single = len(body) == 1 and str(body[0][0]) in _SINGLE
                unbounded += 1 if single else _MOST_UNBOUNDED + 1
            else:
                unbounded += inner_unbounded * min(int(most), _MOST_UNBOUNDED + 1)
                inner = min(inner, _MOST_CHOICES + 1)
                ways = inner ** min(int(most), 64) if inner > 1 else 1
                choices *= ways * (int(most) - int(least) + 1)
        elif name == "BRANCH":
            parts = [_choices(part) for part in argument[1]]
            unbounded += max(part[0] for part in parts)
            choices *= sum(part[1] for part in parts)
        else:
            for part in _inner(name, argument):
                inner_unbounded, inner = _choices(part)
                unbounded += inner_unbounded
                choices *= inner
        choices = min(choices, _MOST_CHOICES + 1)
    return unbounded, choices


def _inner(name: str, argument: Any) -> Iterator[Any]:
    """Patterns inside a group, a look-around or a condition."""
    if name == "SUBPATTERN":
        yield argument[3]
    elif name in ("ASSERT", "ASSERT_NOT"):
        yield argument[1]
    elif name == "ATOMIC_GROUP":
        yield argument
    elif name == "GROUPREF_EXISTS":
        yield from (part for part in argument[1:] if part is not None)


class _Automaton:
    """A pattern as a non-deterministic automaton, determinised while it runs.

    State 0 is where it accepts. Every other state either reads one character, or passes on to
    others without reading, some only at an end of the text.
    """

    __slots__ = ("_begin", "_inside", "_kept", "_passes", "_reads", "_start", "pattern")

    def __init__(self, parsed: Any, pattern: str) -> None:
        self.pattern = pattern
        self._reads: list[tuple[_Test, int] | None] = [None]
        self._passes: list[tuple[tuple[int, str], ...]] = [()]
        self._start = self._sequence(parsed, 0)
        self._kept: dict[tuple[frozenset[int], str, bool], frozenset[int]] = {}
        self._begin = self._closed({self._start}, at_start=True)
        self._inside = self._closed({self._start})

    def match(self, text: str, /) -> bool:
        return self._runs(text, anywhere=False)

    def search(self, text: str, /) -> bool:
        return self._runs(text, anywhere=True)

    def _runs(self, text: str, *, anywhere: bool) -> bool:
        states = self._begin
        for character in text:
            if 0 in states:
                return True
            key = (states, character, anywhere)
            following = self._kept.get(key)
            if following is None:
                if len(self._kept) > _MOST_KEPT:
                    self._kept.clear()
                following = self._step(states, character)
                if anywhere:
                    following |= self._inside
                self._kept[key] = following
            states = following
            if not states:
                return False
        return 0 in self._closed(set(states), at_start=not text, at_end=True)

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        found = set()
        for state in states:
            read = self._reads[state]
            if read is not None and read[0](character):
                found.add(read[1])
        return self._closed(found)

    def _closed(
        self, states: set[int], *, at_start: bool = False, at_end: bool = False
    ) -> frozenset[int]:
        """The states and all that are reached from them without reading."""
        waiting = list(states)
        while waiting:
            for following, condition in self._passes[waiting.pop()]:
                passes = not condition or (at_start if condition == "start" else at_end)
                if passes and following not in states:
                    states.add(following)
                    waiting.append(following)
        return frozenset(states)

    def _state(
        self, read: tuple[_Test, int] | None = None, passes: Sequence[tuple[int, str]] = ()
    ) -> int:
        if len(self._reads) >= _MOST_STATES:
            raise ValueError("it repeats too many parts")
        self._reads.append(read)
        self._passes.append(tuple(passes))
        return len(self._reads) - 1

    def _sequence(self, nodes: Any, following: int) -> int:
        """The state from which the nodes are read in order before ``following``."""
        for operator, argument in reversed(list(nodes)):
            following = self._node(str(operator), argument, following)
        return following

    def _node(self, name: str, argument: Any, following: int) -> int:
        if name in _SINGLE:
            return self._state(read=(_test(name, argument), following))
        if name == "BRANCH":
            starts = [self._sequence(part, following) for part in argument[1]]
            return self._state(passes=[(start, "") for start in starts])
        if name == "SUBPATTERN" and not argument[1] and not argument[2]:
            return self._sequence(argument[3], following)
        if name in _REPEATS:
            least, most, body = argument
            return self._repeated(least, most, body, following)
        if name == "AT" and str(argument) in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return self._state(passes=[(following, "start")])
        if name == "AT" and str(argument) in ("AT_END", "AT_END_STRING"):
            return self._state(passes=[(following, "end")])
        raise ValueError("it combines look-around, references or flags with repeated choices")

    def _repeated(self, least: int, most: Any, body: Any, following: int) -> int:
        if str(most) == "MAXREPEAT":  # "*", "+" and "{n,}"
            again = self._state()
            start = self._sequence(body, again)
            self._passes[again] = ((start, ""), (following, ""))
            following = again
        else:
            for _ in range(int(most) - least):
                start = self._sequence(body, following)
                following = self._state(passes=[(start, ""), (following, "")])
        for _ in range(least):
            following = self._sequence(body, following)
        return following


def _test(name: str, argument: Any) -> _Test:
    """Whether a character is one that a node reads."""
    if name == "LITERAL":
        return chr(argument).__eq__
    if name == "NOT_LITERAL":
        return chr(argument).__ne__
    if name == "ANY":
        return "\n".__ne__
    negated = str(argument[0][0]) == "NEGATE"
    tests = [_member(str(kind), value) for kind, value in argument[negated:]]
    return lambda character: any(test(character) for test in tests) is not negated


def _member(kind: str, value: Any) -> _Test:
    """Whether a character is in one part of a set."""
    if kind == "LITERAL":
        return chr(value).__eq__
    if kind == "RANGE":
        low, high = map(chr, value)
        return lambda character: low <= character <= high
    category = re.compile(_CATEGORIES[str(value)])
    return lambda character: category.match(character) is not None
