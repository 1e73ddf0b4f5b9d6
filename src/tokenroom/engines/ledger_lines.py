"""Lines of a ledger, written shortly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenroom.engines.policy import Estimate
from tokenroom.memory.ledger import Confidence, Line


def exact(
    key: str,
    num_bytes: int,
    formula: str,
    values: Mapping[str, object],
    source: str,
    *,
    parts: Iterable[Line] = (),
    confidence: Confidence = Confidence.EXACT,
) -> Line:
    """A line whose value has no range."""
    return Line(
        key=key,
        num_bytes=num_bytes,
        confidence=confidence,
        low_bytes=num_bytes,
        high_bytes=num_bytes,
        formula=formula,
        values=values,
        source=source,
        parts=tuple(parts),
    )


def estimated(key: str, estimate: Estimate, formula: str) -> Line:
    """A line with a range, its terms as parts."""
    return Line(
        key=key,
        num_bytes=estimate.num_bytes,
        confidence=Confidence.ESTIMATED,
        low_bytes=estimate.low_bytes,
        high_bytes=estimate.high_bytes,
        formula=formula + (f" ({estimate.phase})" if estimate.phase else ""),
        source=estimate.source,
        parts=tuple(exact(f"{key}.{name}", size, "", {}, "") for name, size in estimate.terms),
    )


def weight_parts(weights: Mapping[str, int]) -> Iterable[Line]:
    """One line a component."""
    for name, num_bytes in weights.items():
        yield exact(f"weights.{name}", num_bytes, "", {}, "")
