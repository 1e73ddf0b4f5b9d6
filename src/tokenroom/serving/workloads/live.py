"""A workload as a simulator runs it: what comes by itself, and what follows an answer.

A replayed trace knows every arrival beforehand. A user who reads an answer before asking on does
not: that request comes when the engine is done with the one before it. A simulator merges
:meth:`LiveWorkload.arrivals` (in order of time) with what :meth:`LiveWorkload.ended` gives back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from tokenroom.serving.request import Request


class LiveWorkload(Protocol):
    """One run of a workload."""

    def arrivals(self) -> Iterator[Request]:
        """Requests whose time is known beforehand, in order of arrival; to be taken once."""

    def ended(self, request: Request, seconds: float) -> Request | None:
        """The request that follows one that was answered, or that an engine refused.

        Args:
            request: The one that ended.
            seconds: When it ended.

        Returns:
            A request that arrives at ``seconds`` or later; None when nothing follows.
        """


class Replayed:
    """Requests that come at their times whatever becomes of them."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = requests

    def arrivals(self) -> Iterator[Request]:
        """The requests as they are."""
        return iter(self._requests)

    def ended(self, request: Request, seconds: float) -> Request | None:
        """None: nothing follows an answer."""
        return None


def unhindered(live: LiveWorkload) -> Iterator[Request]:
    """The requests of a run in which every answer takes no time, in order of arrival.

    The lengths, and what requests share, are those of any run; the times are the earliest there
    can be.
    """
    import heapq

    arrivals = live.arrivals()
    following: list[tuple[float, int, Request]] = []
    coming = next(arrivals, None)
    while coming is not None or following:
        if coming is not None and (not following or coming.arrival_seconds <= following[0][0]):
            request, coming = coming, next(arrivals, None)
        else:
            request = heapq.heappop(following)[2]
        yield request
        after = live.ended(request, request.arrival_seconds)
        if after is not None:
            heapq.heappush(following, (after.arrival_seconds, after.id, after))
