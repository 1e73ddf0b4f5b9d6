"""Values as descriptions of workloads hold them: numbers, times, rates, lengths, distributions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tokenroom.errors import TokenroomError, WorkloadError, shown
from tokenroom.serving.workloads import distributions
from tokenroom.serving.workloads.distributions import Distribution
from tokenroom.serving.workloads.values import MAX_LENGTH_TOKENS
from tokenroom.units import parse_tokens

_TIME: Final = {
    **{"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0},
    **{"h": 3600.0, "d": 86400.0},
}
_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)")
CALL: Final = re.compile(r"([a-z]+)\((.*)\)", re.DOTALL)
"""A name with arguments in parentheses."""

_MAX_SECONDS: Final = 1e10
_MAX_NUMBERS_BYTES: Final = 2**26

_EXAMPLES: Final = {
    "rate": "rate=5",
    "cv": "cv=2",
    "count": "count=32",
    "input": "input=lognormal(1024,0.8)",
    "output": "output=256",
}


def split(text: str) -> list[str]:
    """The parts between commas outside of parentheses.

    Raises:
        WorkloadError: Parentheses do not match.
    """
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth < 0:
                break
        elif letter == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        raise WorkloadError(f"the parentheses in {shown(text)} do not match")
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def seconds_of(text: str, field: str) -> float:
    """A time written as ``30s``, ``10m``, ``1.5h``, ``1d`` or ``250ms``; 0 needs no unit.

    Raises:
        WorkloadError: It is none.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is not None and (match[2] in _TIME or float(match[1]) == 0):
        seconds = float(match[1]) * _TIME.get(match[2], 1.0)
        if seconds <= _MAX_SECONDS:
            return seconds
    raise WorkloadError(f"{field} is {shown(text)}; write a time with a unit, as 30s, 10m or 24h")


def window_of(text: str, field: str) -> tuple[float, float]:
    """A stretch of time written by its two ends, as ``10m..20m``, in seconds.

    Raises:
        WorkloadError: It is none.
    """
    start, dots, end = text.partition("..")
    if not dots:
        raise WorkloadError(f"{field} is {shown(text)}; write its two ends, as 10m..20m")
    return seconds_of(start, field), seconds_of(end, field)


class WrittenValues:
    """The values of a description's keys."""

    def __init__(self, name: str, keys: Mapping[str, str], *, allow_files: bool = True) -> None:
        self.name = name
        self.keys = keys
        self.allow_files = allow_files

    def check_file(self, key: str, text: str) -> None:
        """Refuse a value that names a file, where none may be read.

        Raises:
            WorkloadError: None may be read.
        """
        if not self.allow_files:
            raise WorkloadError(
                f"{key} is {shown(text)}, and no files are read here; write quantiles(0:A,50:B,"
                "100:C) or another distribution"
            )

    def text(self, key: str) -> str:
        """A key's value as it was written.

        Raises:
            WorkloadError: It was not.
        """
        if key not in self.keys:
            raise WorkloadError(f"{self.name} needs {key}; write it as in {_EXAMPLES[key]}")
        return self.keys[key]

    def number(self, text: str, field: str) -> float:
        """A number from 0 on, without a unit.

        Raises:
            WorkloadError: It is none.
        """
        match = _NUMBER.fullmatch(text.strip())
        if match is None or match[2] or not 0 <= float(match[1]) < 1e15:
            below = text.strip().startswith("-") and _NUMBER.fullmatch(text.strip()[1:])
            wanted = "a number that is not below 0" if below else "a number"
            raise WorkloadError(f"{field} is {shown(text)}; write {wanted}, as {_example(field)}")
        return float(match[1])

    def positive(self, key: str) -> float:
        """A key's number, above 0.

        Raises:
            WorkloadError: It is none.
        """
        found = self.number(self.text(key), key)
        if not found:
            raise WorkloadError(f"{key} is 0; it must be above 0")
        return found

    def whole(self, key: str) -> int:
        """A key's whole number.

        Raises:
            WorkloadError: It is none.
        """
        text = self.text(key)
        digits = text.removeprefix("-") if key == "priority" else text
        if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
            raise WorkloadError(f"{key} is {shown(text)}; write a whole number, as {_example(key)}")
        return int(text)

    def tokens(self, key: str) -> int:
        """A key's number of tokens.

        Raises:
            WorkloadError: It is none.
        """
        return tokens_of(self.text(key), key)

    def seconds(self, key: str) -> float:
        """A key's time, above 0.

        Raises:
            WorkloadError: It is none.
        """
        found = seconds_of(self.text(key), key)
        if not found:
            raise WorkloadError(f"{key} is 0; it must be a time above 0")
        return found

    def rate(self, text: str, field: str) -> float:
        """Requests a second: a number alone, or by the minute, hour or day.

        Raises:
            WorkloadError: It is none.
        """
        head, slash, unit = text.partition("/")
        per = _TIME.get(unit.strip(), 0.0) if slash else 1.0
        if not per:
            raise WorkloadError(f"{field} is {shown(text)}; write a rate, as 5, 5/s or 300/min")
        return self.number(head, field) / per

    def distribution(self, key: str, number: Callable[[str, str], float]) -> Distribution:
        """A key's number, or distribution of numbers.

        Args:
            key: The key.
            number: What turns the text of a number and its field into one.

        Raises:
            WorkloadError: It is none.
        """
        text = self.text(key)
        call = CALL.fullmatch(text.strip())
        if call is None:
            return distributions.Constant(value=number(text, key))
        name, arguments = call[1], split(call[2])
        if name == "empirical" and len(arguments) == 1:
            self.check_file(key, text)
            return distributions.Empirical(values=_numbers(arguments[0], key))
        if name == "quantiles" and arguments:
            pairs = [pair_of(argument, key) for argument in arguments]
            return distributions.Quantiles(
                percents=tuple(self.number(share, key) for share, _ in pairs),
                values=tuple(number(value, key) for _, value in pairs),
            )
        known = {
            "constant": (1, 1),
            "uniform": (2, 2),
            "lognormal": (2, 3),
            "exponential": (1, 1),
            "geometric": (1, 1),
        }
        if name not in known:
            raise WorkloadError(
                f"{key} is {shown(text)}; distributions are {', '.join(known)}, empirical(FILE) "
                "and quantiles(0:A,50:B,100:C)"
            )
        fewest, most = known[name]
        if not fewest <= len(arguments) <= most:
            raise WorkloadError(
                f"{key} is {shown(text)}; {name} takes {fewest if fewest == most else '2 or 3'} "
                "numbers"
            )
        if name == "lognormal":
            largest = number(arguments[2], key) if len(arguments) == 3 else None
            sigma = self.number(arguments[1], key)
            if sigma > 10:
                raise WorkloadError(
                    f"{key} is {shown(text)}; its second number is the standard deviation of the "
                    "logarithm, which is at most 10"
                )
            return distributions.LogNormal(
                median=number(arguments[0], key), sigma=sigma, largest=largest
            )
        values = [number(argument, key) for argument in arguments]
        if name == "uniform":
            return distributions.Uniform(low=values[0], high=values[1])
        if name == "exponential":
            return distributions.Exponential(mean=values[0])
        if name == "geometric":
            return distributions.Geometric(mean=values[0])
        return distributions.Constant(value=values[0])


def pair_of(text: str, key: str) -> tuple[str, str]:
    """Two values with a colon between them.

    Raises:
        WorkloadError: They are none.
    """
    first, colon, second = (piece.strip() for piece in text.partition(":"))
    if not colon or not first or not second:
        raise WorkloadError(f"{key} has {shown(text)}, which is no pair such as 50:1024")
    return first, second


def tokens_of(text: str, field: str) -> int:
    """A length written as ``1024``, ``32k`` (times 1024) or ``1M``.

    Raises:
        WorkloadError: It is none, or longer than any model takes.
    """
    try:
        found = parse_tokens(text, field)
    except TokenroomError as problem:
        raise WorkloadError(str(problem)) from None
    if found > MAX_LENGTH_TOKENS:
        raise WorkloadError(
            f"{field} is {found:,} tokens; a length is at most {MAX_LENGTH_TOKENS:,}"
        )
    return found


def _numbers(path: str, key: str) -> list[float]:
    """The numbers of a text file, between blanks, commas or line ends."""
    from tokenroom.files import read_bounded_text

    name = Path(path).name
    text = read_bounded_text(
        path, _MAX_NUMBERS_BYTES, what=f"{key} of {name}", error=WorkloadError, streams=True
    )
    found: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.replace(",", " ").split():
            try:
                value = float(word)
            except ValueError:
                value = -1.0
            if not 0 <= value <= MAX_LENGTH_TOKENS:
                raise WorkloadError(
                    f"{name}, line {number}: {shown(word)} is no number from 0 to "
                    f"{MAX_LENGTH_TOKENS:,}; give a file of {key} numbers"
                )
            found.append(value)
    if not found:
        raise WorkloadError(f"{name} holds no number; give a file of {key} numbers")
    return found


def _example(field: str) -> str:
    return _EXAMPLES.get(field, "=5").partition("=")[2]
