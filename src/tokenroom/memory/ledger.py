"""The memory ledger: what one rank's memory holds, line by line, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Confidence(StrEnum):
    """Whether a figure is computed from exact rules or modelled with a measured error."""

    EXACT = "exact"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One entry of a ledger.

    Attributes:
        key: Stable identifier (``"weights"``, ``"weights.attention"``, ``"activation_peak"``, ...).
        num_bytes: The value.
        confidence: Exact or estimated.
        low_bytes: Lower end of the predicted range; equals ``num_bytes`` when exact.
        high_bytes: Upper end of that range.
        formula: The formula in words and symbols.
        values: The symbols' values.
        source: Engine file and version, paper section or data that the formula was read from.
        parts: The lines this one is the sum of.
    """

    key: str
    num_bytes: int
    confidence: Confidence = Confidence.EXACT
    low_bytes: int
    high_bytes: int
    formula: str
    values: Mapping[str, object] = field(default_factory=dict)
    source: str
    parts: tuple[Line, ...] = ()
