"""Bytes, tokens and seconds: parsing what people write and formatting what they read.

Inside the package sizes are integers of bytes and counts of tokens; only this module turns them
into text and back. GiB means 2**30 bytes and GB means 10**9 bytes, never mixed.
"""

from __future__ import annotations

import math
import re
from typing import Final

from tokenroom.errors import TokenroomError, shown

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
TIB: Final = 2**40

MAX_TOKENS: Final = 10**12
"""Most tokens a length may have; anything above is a slip."""

MAX_BYTES: Final = 2**60
"""Most bytes a size may have, and most bytes a second a rate."""

_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]{1,1000}\s*")
_NUMBER: Final = re.compile(
    r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\s*|nan|[+-]?inf"
)
_SIZE = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*$")
_BYTE_UNITS: Final = {
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "ki": KIB,
    "mi": MIB,
    "gi": GIB,
    "ti": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}
_MOST_BYTES: Final = f"{MAX_BYTES // TIB:,}TiB"
_SECOND_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_COUNT_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20}


def parse_bytes(text: str, field: str) -> int:
    """Bytes written as ``"96GiB"``, ``"80 GB"`` or ``"1073741824B"``.

    A number alone is refused: people mean gibibytes, gigabytes or bytes by it.

    Args:
        text: What the user wrote. Binary units are KiB, MiB, GiB, TiB; decimal ones KB, MB, GB, TB.
        field: The name of the field, for the error.

    Raises:
        TokenroomError: The text is not a positive size with a unit, of :data:`MAX_BYTES` at most.
    """
    match = _SIZE.match(text)
    unit = match.group(2).lower() if match else None
    value = float(match.group(1)) * _BYTE_UNITS.get(unit or "", 0) if match else 0.0
    if match is not None and not unit:
        raise TokenroomError(
            f"{field} is {shown(text.strip())} without a unit; write {match.group(1)[:20]}GiB, or "
            f"another unit such as MiB or GB"
        )
    if match is None or unit not in _BYTE_UNITS or not math.isfinite(value) or value < 1:
        raise TokenroomError(
            f"{field} is {shown(text)}; give a positive size with a unit, such as 80GiB or 96GB"
        )
    if value > MAX_BYTES:
        raise TokenroomError(f"{field} is {shown(text.strip())}; give at most {_MOST_BYTES}")
    return round(value)


def parse_rate(text: str, field: str) -> float:
    """Bytes a second written as ``"3.35TB/s"`` or ``"936 GB/s"``.

    Raises:
        TokenroomError: The text is not a positive rate, a time included, of :data:`MAX_BYTES` a
            second at most.
    """
    size, times = re.subn(r"(?i)(/s|ps)\s*$", "", text)
    try:
        if not times:
            raise TokenroomError(f"{field} is a size")
        return float(parse_bytes(size, field))
    except TokenroomError as error:
        if "at most" in str(error):
            raise TokenroomError(f"{error}/s") from None
        raise TokenroomError(
            f"{field} is {shown(text)}; give a positive rate with a unit, such as 3.35TB/s or "
            f"936GB/s"
        ) from None


def parse_arrivals(text: str, field: str) -> float:
    """Requests a second written as ``"5"``, ``"5/s"`` or ``"300/min"``.

    Raises:
        TokenroomError: The text is not a positive, finite rate.
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?)\s*(/\s*(s|min))?\s*", text, re.I)
    value = float(match[1]) / (60 if (match[3] or "").lower() == "min" else 1) if match else 0.0
    if not 0 < value < math.inf:
        raise TokenroomError(
            f"{field} is {shown(text)}; give a positive number of requests, such as 5/s or 300/min"
        )
    return value


def parse_seconds(text: str, field: str) -> float:
    """Seconds written as ``"50ms"``, ``"2s"`` or ``"1 min"``.

    A number alone is refused: people mean seconds or milliseconds by it.

    Raises:
        TokenroomError: The text is not a positive, finite time with a unit.
    """
    match = _SIZE.match(text)
    unit = match.group(2).lower() if match else None
    value = float(match.group(1)) * _SECOND_UNITS.get(unit or "", 0) if match else 0.0
    if not 0 < value < math.inf:
        raise TokenroomError(
            f"{field} is {text!r}; give a positive time with a unit, such as 50ms or 2s"
        )
    return value


def parse_count(text: str, field: str, least: int | None = None, most: int | None = None) -> int:
    """A count written in plain digits, as ``"8"``.

    Raises:
        TokenroomError: It is no whole number, or not between ``least`` and ``most``.
    """
    wanted = "a whole number" if least is None else f"a whole number from {least}"
    if most is not None:
        wanted += f" to {most:,}"
    value = int(text) if text.isascii() and _WHOLE.fullmatch(text) else None
    if (
        value is None
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        raise TokenroomError(
            f"{field} is {shown(text)}; give {wanted}, such as {max(8, least or 0)}"
        )
    return value


def parse_number(text: str, field: str) -> float:
    """A number written as ``"0.9"`` or ``"1e-3"``.

    Raises:
        TokenroomError: It is no number in plain digits.
    """
    if not (text.isascii() and _NUMBER.fullmatch(text)):
        raise TokenroomError(f"{field} is {shown(text)}; give a number, such as 0.9")
    return float(text)


def parse_tokens(text: str, field: str) -> int:
    """A token count written as ``"32768"``, ``"32k"`` (times 1024) or ``"1M"`` (times 1024**2).

    Raises:
        TokenroomError: The text is not a positive whole number of tokens, or above
            :data:`MAX_TOKENS`.
    """
    match = _SIZE.match(text)
    unit = match.group(2).lower() if match else None
    value = float(match.group(1)) * _COUNT_UNITS.get(unit or "", 0) if match else 0.0
    if (
        match is None
        or unit not in _COUNT_UNITS
        or not math.isfinite(value)
        or value < 1
        or value != int(value)
    ):
        raise TokenroomError(
            f"{field} is {shown(text)}; give a positive whole number of tokens, such as 8192 or 32k"
        )
    if value > MAX_TOKENS:
        raise TokenroomError(
            f"{field} is {shown(text.strip())}; give at most {MAX_TOKENS:,} tokens"
        )
    return int(value)


def format_gib(num_bytes: float) -> str:
    """Bytes as GiB with two decimals, as the engines' logs print them."""
    return f"{num_bytes / GIB:.2f} GiB"


def format_bytes(num_bytes: float) -> str:
    """Bytes in the largest binary unit that keeps at least one whole digit."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:,.2f} {unit}"
    return f"{num_bytes:,.0f} B"


def format_figure(value: float) -> str:
    """Three digits, or whole where there are more before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_seconds(seconds: float) -> str:
    """A time in milliseconds below a second, in seconds from there on; the shortest in µs."""
    if 0 < seconds < 1e-5:
        return f"{format_figure(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{format_figure(seconds * 1e3)} ms"
    return f"{format_figure(seconds)} s"


def format_count(count: float) -> str:
    """A count with thousands separators."""
    return f"{count:,.0f}"


def format_parameters(count: int) -> str:
    """A parameter count as people say it: ``8.03B``, ``671B``, ``135M``."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        value = count / size
        if value >= 0.9995:  # what would round to a thousand of the unit below
            return f"{value:.2f}{unit}" if value < 99.995 else f"{value:.0f}{unit}"
    return f"{count:,}"
