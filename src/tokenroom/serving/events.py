"""Virtual time: what happens when, in an order that is always the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from heapq import heappop, heappush

from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.request import Request

Action = Callable[[float], Iterable[RequestRecord]]
"""What happens at a time; gives the records of requests that it ended."""


class Turn(IntEnum):
    """The order of what happens at the same time."""

    END = 0
    """Steps end, and their tokens come out."""
    ARRIVE = 1
    """Requests arrive, reach an engine, or their KV does."""
    SCALE = 2
    """Replicas are started and stopped."""
    BEGIN = 3
    """Idle engines decide: they know of everything that came by now."""


class Events:
    """What will happen, earliest first; at the same time by turn, then in the order of planning.

    Attributes:
        now: The time, in seconds from the start of the workload.
        due: When the next request arrives, as far as that is known; infinity if it is not.
    """

    __slots__ = ("_heap", "_serial", "due", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.due = math.inf
        self._heap: list[tuple[float, int, int, Action]] = []
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def at(self, seconds: float, turn: Turn, action: Action) -> None:
        """Plan what happens at a time that is not past."""
        heappush(self._heap, (seconds, turn, self._serial, action))
        self._serial += 1

    def come(self, seconds: float) -> bool:
        """Whether it is the turn of a request that arrives at a time."""
        return not self._heap or (seconds, Turn.ARRIVE) < self._heap[0][:2]

    def next_seconds(self) -> float:
        """When the next thing happens or request arrives; infinity for never."""
        return min(self._heap[0][0], self.due) if self._heap else self.due

    def step(self) -> Iterable[RequestRecord]:
        """Let the next thing happen."""
        self.now, _, _, action = heappop(self._heap)
        return action(self.now)


def happen(
    events: Events, arrivals: Arrivals, accept: Callable[[Request, float], object]
) -> Iterator[RequestRecord]:
    """Let time pass until nothing is left to happen; gives records of requests as they end.

    Args:
        events: What is planned; ``accept`` plans more.
        arrivals: The requests.
        accept: Takes in a request that arrives, and the time.
    """
    while True:
        due = arrivals.next_seconds()
        events.due = math.inf if due is None else due
        if due is not None and events.come(due):
            events.now = max(events.now, due)
            accept(arrivals.pop(), events.now)
        elif events:
            for record in events.step():
                arrivals.ended(record.id, events.now)
                yield record
        else:
            return
