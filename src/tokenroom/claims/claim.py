"""A published claim as data: what it says, what was printed, and what computes our figure.

The verdict is no part of a claim. It follows from holding our figures against the printed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

from tokenroom.units import GIB

Article: TypeAlias = Literal["ledger", "handbook"]
"""``"ledger"`` is on who takes the memory, ``"handbook"`` the longer one with tables."""

Unit: TypeAlias = Literal[
    "bytes", "gigabytes", "parameters", "seconds", "count", "share", "ratio", "rate", "truth"
]
Verdict: TypeAlias = Literal["equal", "close", "depends", "corrected", "added"]

_KINDEST: Final[tuple[Verdict, ...]] = ("equal", "close", "depends", "corrected", "added")

EQUAL: Final = 0.005
"""What rounding to the printed digits explains."""
CLOSE: Final = 0.1
"""What an article means by "about"."""


class Text(NamedTuple):
    """Words in the two languages."""

    english: str
    chinese: str


class Span(NamedTuple):
    """A published figure, or the range that it was given as; ``low`` alone is at least that."""

    low: float
    high: float = inf


IT_HOLDS: Final = Span(1, 1)
"""What a sentence without a figure claims."""


class Case(NamedTuple):
    """One of our figures.

    Attributes:
        value: In the claim's unit; 1 or 0 for truth.
        name: What it is of, where there are several; the same in both languages when it is one
            string.
    """

    value: float
    name: Text | str = ""


Cases: TypeAlias = Sequence[Case]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an article says, and how the library answers.

    Attributes:
        id: Stable name of the row.
        article: Which of the two.
        section: Of the article, by its own number.
        text: What is claimed, retold.
        unit: Of the figures: ``"bytes"`` are told as GiB, ``"gigabytes"`` as 10^9 bytes,
            ``"truth"`` is whether the sentence holds.
        printed: The figure as the article writes it; "" where the sentence itself is the claim.
        published: The same as a range in the unit; None where the article prints none.
        otherwise: The same where the printed unit may be meant otherwise: a GB of a card's memory
            as 10^9 bytes and not as 2^30.
        ours: Computes our figures.
        reason: Why they differ; needed wherever they do.
        source: Where the reason or our figure comes from: configurations, an engine's file.
        simulated: Our figures take simulations, which take seconds.
    """

    id: str
    article: Article
    section: str
    text: Text
    unit: Unit
    ours: Callable[[], Cases]
    printed: Text | str = ""
    published: Span | None = IT_HOLDS
    otherwise: Span | None = None
    reason: Text | None = None
    source: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A claim with our figures.

    Attributes:
        claim: The claim.
        cases: The figures.
        recorded: They were computed when the package was written, and not now.
    """

    claim: Claim
    cases: tuple[Case, ...]
    recorded: bool = False

    @property
    def verdict(self) -> Verdict:
        """How they stand to the published figure, as it is read to its advantage."""
        claim = self.claim
        read = [claim.published] + ([] if claim.otherwise is None else [claim.otherwise])
        return min((verdict_of(span, self.cases) for span in read), key=_KINDEST.index)


def verdict_of(published: Span | None, cases: Cases) -> Verdict:
    """How figures stand to a published one.

    ``"equal"`` or ``"close"`` when all of them lie within the range and what rounding or "about"
    explains, ``"corrected"`` when none does, ``"depends"`` when some do and others do not;
    ``"added"`` when the article prints none.
    """
    if published is None:
        return "added"
    away = [_distance(published, case.value) for case in cases]
    if all(distance <= EQUAL for distance in away):
        return "equal"
    if all(distance <= CLOSE for distance in away):
        return "close"
    return "depends" if any(distance <= CLOSE for distance in away) else "corrected"


def _distance(published: Span, value: float) -> float:
    """How far outside of the range, as a share of its nearer end."""
    if published.low <= value <= published.high:
        return 0.0
    end = published.low if value < published.low else published.high
    return abs(value - end) / abs(end) if end else inf


def one(value: float) -> Cases:
    """A single figure."""
    return (Case(value),)


def holds(truth: bool) -> Cases:
    """Whether a sentence holds."""
    return (Case(float(truth)),)


def exactly(value: float) -> Span:
    """A figure that was printed as one number."""
    return Span(value, value)


def in_decimal(span: Span) -> Span:
    """What was printed in GB and read as 2^30 bytes, read as 10^9."""
    return Span(span.low / GIB * 1e9, span.high / GIB * 1e9)
