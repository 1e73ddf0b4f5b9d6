"""Observed figures: what was printed, or what somebody wrote of it, with the precision it has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

_MOST: Final = 10**18
"""No figure of an engine is as large; what is, is a slip."""
_ROUNDED: Final = re.compile(
    r"(?:~|≈|about\s|approx(?:imately|\.)?\s|ca\.?\s)\s*(\d[\d,]*)(?:\.(\d+))?\s*([kKM]?)"
)
_SCALES: Final = {"": 1, "k": 1000, "K": 1000, "M": 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One observed figure.

    Attributes:
        value: As stated, in the quantity's unit.
        half_digit: Half of the last digit written, where the figure was rounded by whoever wrote
            it: ``"~1.2M"`` stands for 1.15 to 1.25 million. 0 for a figure as it was printed.
    """

    value: float
    half_digit: float = 0

    @property
    def low(self) -> float:
        """The least that it stands for."""
        return self.value - self.half_digit

    @property
    def high(self) -> float:
        """The most that it stands for."""
        return self.value + self.half_digit


def figure(value: Any) -> Figure | None:
    """An observed value as a figure; None for lists, nothing and what no figure can be.

    A number is a figure as printed. A text that says it is rounded (``"~55k"``, ``"about 50"``)
    is one of the precision it is written with; k is a thousand, M a million.
    """
    if isinstance(value, str):
        match = _ROUNDED.fullmatch(value.strip())
        if match is None:
            return None
        decimals = match[2] or ""
        scale = _SCALES[match[3]]
        stated = float(f"{match[1].replace(',', '')}.{decimals}") * scale
        if stated >= _MOST:
            return None
        return Figure(value=stated, half_digit=scale / 10 ** len(decimals) / 2)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        return None
    return Figure(value=value)


def numeric(value: Any) -> float | None:
    """The number of an observed value, however precise; None when it is none."""
    found = figure(value)
    return None if found is None else found.value


def numbers(value: Any) -> list[float]:
    """Every number of an observed value, which is one or a list of them."""
    stated = value if isinstance(value, list) else [value]
    return [number for item in stated if (number := numeric(item)) is not None]
