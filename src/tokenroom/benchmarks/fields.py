"""Reading figures out of a parsed document, with errors that name the place and the field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tokenroom.errors import BenchmarkError, shown


class Fields:
    """One JSON object of a benchmark's output.

    Attributes:
        data: The object itself.
        place: How messages call it, as ``"bench.json, line 3"``.
    """

    __slots__ = ("data", "place")

    def __init__(self, data: Mapping[str, Any], place: str) -> None:
        self.data = data
        self.place = place

    def section(self, name: str) -> Fields | None:
        """An object inside, None when it is not there.

        Raises:
            BenchmarkError: It is something else.
        """
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        return Fields(value, f"{self.place}, {name}")

    def needed(self, name: str) -> Fields:
        """An object that must be there.

        Raises:
            BenchmarkError: It is missing or something else.
        """
        found = self.section(name)
        if found is None:
            raise self.wrong(name, None, "an object")
        return found

    def number(self, name: str, *, zero: bool = True) -> float | None:
        """A finite number from 0, None when it is not there or null.

        Args:
            name: The field.
            zero: Whether 0 is allowed.

        Raises:
            BenchmarkError: It is no such number.
        """
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, str):  # as CSV and SQL hold numbers
            try:
                value = float(value)
            except ValueError:
                raise self.wrong(name, value, "a number") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        if not math.isfinite(value) or value < 0 or not (zero or value):
            raise self.wrong(name, value, "a number from 0" if zero else "a number above 0")
        return float(value)

    def figure(self, name: str, *, zero: bool = False) -> float:
        """A number that must be there.

        Raises:
            BenchmarkError: It is missing or no such number.
        """
        found = self.number(name, zero=zero)
        if found is None:
            raise self.wrong(name, None, "a number from 0" if zero else "a number above 0")
        return found

    def count(self, name: str) -> int | None:
        """A whole number from 0, None when it is not there.

        Raises:
            BenchmarkError: It is no such number.
        """
        found = self.number(name)
        if found is None:
            return None
        if not found.is_integer():
            raise self.wrong(name, found, "a whole number")
        return int(found)

    def text(self, name: str) -> str | None:
        """A text, None when it is not there, empty, or something else."""
        value = self.data.get(name)
        return value.strip() or None if isinstance(value, str) else None

    def numbers(self, name: str) -> list[float] | None:
        """A list of numbers, None when it is not there.

        Raises:
            BenchmarkError: It is something else.
        """
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.wrong(name, value, "a list of numbers")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int | float):
                raise self.wrong(name, item, "a list of numbers")
        return [float(item) for item in value]

    def wrong(self, name: str, value: object, wanted: str) -> BenchmarkError:
        """The error that says what a field holds and what it may hold."""
        held = "is missing" if value is None else f"is {shown(value)}"
        return BenchmarkError(
            f"{self.place}: {name} {held}; a benchmark's output holds {wanted} there"
        )
