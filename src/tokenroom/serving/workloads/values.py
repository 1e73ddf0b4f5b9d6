"""Times and lengths out of the fields of a trace."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from tokenroom.errors import shown

MAX_LENGTH_TOKENS: Final = 10**8
"""Longest prompt or answer that is believed; models read 10 million tokens at most."""

MAX_SPAN_SECONDS: Final = 100 * 365.25 * 86400.0
"""Longest workload that is believed; longer ones are times in another unit."""

_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d*)?(Z|[+-]\d\d(?::?\d\d)?)?\s*", re.ASCII
)


class NotANumberError(ValueError):
    """A field holds no number; the message says what it holds instead."""


class NotATimeError(ValueError):
    """A field holds no time; the message says what it holds instead."""


def whole_number(value: Any, field: str) -> int:
    """A count, written as a whole number or as a float without a fraction.

    Raises:
        NotANumberError: It is none.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if value is None or (isinstance(value, str) and not value.strip()):
        raise NotANumberError(f"{field} has no value")
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise NotANumberError(f"{field} is {_said(value)}, which is no number") from None
    if not math.isfinite(number) or number != int(number):
        raise NotANumberError(f"{field} is {_said(value)}; it must be a whole number of tokens")
    return int(number)


def session_number(value: Any) -> int | None:
    """A session's name as a number: itself if it is one, else 56 bits of its hash."""
    if value is None or value == "":
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value == value and abs(value) < 2**53:
        return int(value)
    text = str(value)
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    import hashlib  # loads OpenSSL, which drawn workloads do not need

    data = text.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest(), "big")


def time_reader(first: Any, units_per_second: float | None, field: str) -> Callable[[Any], float]:
    """What turns the values of an arrival column into seconds.

    Args:
        first: The column's first value: it says whether they are numbers or dates.
        units_per_second: Units of a number that make a second; None for seconds, unless they
            cannot be.
        field: The column, for messages.

    Returns:
        A function that raises :class:`NotATimeError` on a value that is no time. Dates count from
        the first one's minute, so that 100 ns are kept; without a time zone they are UTC.
    """
    if isinstance(first, str) and _STAMP.fullmatch(first):
        return _dates(first, field)
    if isinstance(first, datetime):
        return _datetimes(first)
    per_second = 1.0 if units_per_second is None else units_per_second

    def numbers(value: Any) -> float:
        try:
            seconds = float(value) / per_second
        except (TypeError, ValueError, OverflowError):
            raise NotATimeError(f"{field} is {_said(value)}, which is no time") from None
        if not -1e15 < seconds < 1e15:
            raise NotATimeError(f"{field} is {_said(value)}, which is no finite time")
        if units_per_second is None and seconds > 1e11:
            raise NotATimeError(
                f"{field} is {_said(value)}, which cannot be seconds; say its unit, as in "
                f"--columns arrival={field}:ms"
            )
        return seconds

    return numbers


def _dates(first: str, field: str) -> Callable[[Any], float]:
    match = _STAMP.fullmatch(first)
    assert match is not None
    zone = match.group(1) or ""
    cut = -len(zone) if zone else None
    start = _instant(first, field)
    origin = start.replace(second=0, microsecond=0)
    minute, minute_seconds = "", 0.0

    def dates(value: Any) -> float:
        nonlocal minute, minute_seconds
        if isinstance(value, str) and (not zone or value.endswith(zone)):
            if value[:17] != minute:
                if not _STAMP.fullmatch(value):
                    return float((_instant(value, field) - origin).total_seconds())
                whole = _instant(value[:16] + zone, field)
                minute, minute_seconds = value[:17], (whole - origin).total_seconds()
            try:
                second = float(value[17:cut])
            except ValueError:
                second = -1.0
            if 0 <= second < 61:
                return minute_seconds + second
        return (_instant(value, field) - origin).total_seconds()

    return dates


def _datetimes(first: datetime) -> Callable[[Any], float]:
    origin = first if first.tzinfo is not None else first.replace(tzinfo=UTC)

    def datetimes(value: Any) -> float:
        if not isinstance(value, datetime):
            raise NotATimeError(f"the arrival is {_said(value)}, which is no date")
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - origin).total_seconds()

    return datetimes


def _instant(value: Any, field: str) -> datetime:
    try:
        found = datetime.fromisoformat(value.strip())
    except (AttributeError, ValueError):
        raise NotATimeError(f"{field} is {_said(value)}, which is no date and time") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _said(value: Any) -> str:
    if isinstance(value, str) and any("\udc80" <= letter <= "\udcff" for letter in value):
        return "not UTF-8 text"
    return shown(value)


def json_problem(problem: ValueError | RecursionError) -> str:
    """Why a text is no JSON, in a few words."""
    if isinstance(problem, RecursionError):
        return "nested too deeply"
    return getattr(problem, "msg", "a number with thousands of digits")
