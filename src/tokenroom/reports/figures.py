"""What a picture shows, as plain data: stacked bars of memory and curves.

The same bars are drawn as text (:mod:`tokenroom.reports.console`) and as a plot
(:mod:`tokenroom.reports.plots`). Labels are in the reader's language already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("context", "weights", "activation", "graphs", "reserve", "kv", "free")
"""Kinds of segments in the order they are stacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSegment:
    """One part of a bar.

    Attributes:
        label: What it is called.
        num_bytes: Its size, never negative.
        kind: One of :data:`KINDS`; decides how it is filled.
    """

    label: str
    num_bytes: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The memory of one GPU.

    Attributes:
        title: Which one, for example ``"GPU 0-3"``.
        segments: Its parts from the bottom; what lies above the capacity does not fit.
        capacity_bytes: All there is.
        fitting_bytes: How much of the stack fits, when an engine allows itself less than there is;
            None when everything up to the capacity fits.
    """

    title: str
    segments: Sequence[BarSegment]
    capacity_bytes: int
    fitting_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Sum of the parts."""
        return sum(segment.num_bytes for segment in self.segments)

    @property
    def limit_bytes(self) -> int:
        """Height above which the stack does not fit."""
        return self.capacity_bytes if self.fitting_bytes is None else self.fitting_bytes

    @property
    def missing_bytes(self) -> int:
        """What does not fit; 0 when everything does."""
        return max(0, self.total_bytes - self.limit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line of a plot.

    Attributes:
        label: What it is called; written at its end.
        xs: Abscissae, rising.
        ys: Ordinates; bytes when the plot's axis is memory.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """Points of one kind in a scatter plot.

    Attributes:
        label: What they are called.
        points: (abscissa, ordinate), all above 0.
    """

    label: str
    points: Sequence[tuple[float, float]]
