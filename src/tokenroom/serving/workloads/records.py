"""A trace's row out of a record: each field checked, wrong ones told by line and reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.columns import Columns
from tokenroom.serving.workloads.rows import Row
from tokenroom.serving.workloads.values import (
    NotANumberError,
    NotATimeError,
    session_number,
    time_reader,
    whole_number,
)


class Times:
    """An arrival column: its first value that is a time says how they are written.

    Attributes:
        read: What turns a value into seconds; None before the first.
    """

    __slots__ = ("_field", "_units_per_second", "read")

    def __init__(self, field: str, units_per_second: float | None) -> None:
        self._field = field
        self._units_per_second = units_per_second
        self.read: Callable[[Any], float] | None = None

    def seconds(self, value: Any) -> float:
        """A value in seconds.

        Raises:
            NotATimeError: It is no time.
        """
        if value is None:
            raise NotATimeError(f"{self._field} has no value")
        read = self.read or time_reader(value, self._units_per_second, self._field)
        found = read(value)
        self.read = read
        return found


class Records:
    """Where a record holds what.

    Attributes:
        times: Its arrivals; None where they are not asked for.
    """

    __slots__ = ("_names", "times")

    def __init__(self, columns: Columns, *, arrivals: bool) -> None:
        """Take the columns that were found; without ``arrivals`` every row arrives at 0."""
        self._names = columns.names
        self.times = Times(columns.names["arrival"], columns.units_per_second) if arrivals else None

    def read(self, record: Mapping[str, Any], line: int, bad: BadRows) -> Row | None:
        """A record as a row; None when it is left out.

        Raises:
            WorkloadError: It cannot be read, and bad rows are not left out.
        """
        names = self._names
        try:
            blocks = record.get(names["blocks"]) if "blocks" in names else None
            if blocks is not None and not (
                isinstance(blocks, list) and all(type(block) is int for block in blocks)
            ):
                raise NotBlocksError(f"{names['blocks']} holds no list of whole numbers")
            return (
                line,
                0.0 if self.times is None else self.times.seconds(record.get(names["arrival"])),
                whole_number(record.get(names["input"]), names["input"]),
                whole_number(record.get(names["output"]), names["output"]),
                session_number(record.get(names["session"])) if "session" in names else None,
                whole_number(record.get(names["priority"]), names["priority"])
                if "priority" in names
                else 0,
                blocks,
            )
        except NotATimeError as problem:
            bad.refuse(line, "time", str(problem))
        except NotANumberError as problem:
            bad.refuse(line, "number", str(problem))
        except NotBlocksError as problem:
            bad.refuse(line, "blocks", str(problem))
        return None


class NotBlocksError(ValueError):
    """A field holds no block ids."""
