"""Arrays of what became of requests as records, one a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from tokenroom.serving.compiled.state import BEYOND_POOL, NO_SESSION, SERVED, TOO_LONG
from tokenroom.serving.record import Refusal, RequestRecord

REFUSALS: Final = {
    SERVED: None,
    TOO_LONG: Refusal.TOO_LONG,
    BEYOND_POOL: Refusal.BEYOND_POOL,
}


def refusals_in(done: Any) -> Counter[Refusal]:
    """How many of :data:`~.state.ENDED` were refused, by reason."""
    found: Counter[Refusal] = Counter()
    for code in done["refused"][done["refused"] != SERVED].tolist():
        found[Refusal.TOO_LONG if code == TOO_LONG else Refusal.BEYOND_POOL] += 1
    return found


def records_of(done: Any) -> Iterator[RequestRecord]:
    """The records that :data:`~.state.ENDED` stand for."""
    for row in done.tolist():
        yield RequestRecord(
            id=row[0],
            session=None if row[1] == NO_SESSION else row[1],
            arrival_seconds=row[2],
            scheduled_seconds=row[3],
            first_token_seconds=row[4],
            finish_seconds=row[5],
            prompt_tokens=row[6],
            output_tokens=row[7],
            cached_tokens=row[8],
            preemptions=row[9],
            refused=REFUSALS[row[10]],
        )
