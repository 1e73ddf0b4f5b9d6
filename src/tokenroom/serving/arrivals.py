"""When requests reach the engine: at given times, or from users who wait for their answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from typing import Protocol

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.request import Request


class Arrivals(Protocol):
    """A stream of requests in the order of their arrival."""

    def next_seconds(self) -> float | None:
        """When the next one arrives, as far as that is known; None if nothing is known of it."""

    def pop(self) -> Request:
        """The next one."""

    def ended(self, request_id: int, seconds: float) -> None:
        """Hear that a request was finished or refused, and when."""


class OpenLoop:
    """Requests that arrive when they do, whatever becomes of those before.

    Attributes:
        requests: They, in the order of ``arrival_seconds``; read from when they are asked for and
            one ahead, so that they may be drawn or parsed while they are served.

    Args:
        requests: They.
    """

    __slots__ = ("_begun", "_next", "_reading", "requests")

    def __init__(self, requests: Iterable[Request]) -> None:
        self.requests = requests
        self._begun = False
        self._next: Request | None = None

    def next_seconds(self) -> float | None:
        """When the next one arrives; None at the end."""
        if not self._begun:
            self._begun = True
            self._reading = iter(self.requests)
            self._next = next(self._reading, None)
        return None if self._next is None else self._next.arrival_seconds

    def pop(self) -> Request:
        """The next one.

        Raises:
            WorkloadError: The one after it arrives earlier.
        """
        request = self._next
        assert request is not None
        self._next = next(self._reading, None)
        if self._next is not None and self._next.arrival_seconds < request.arrival_seconds:
            raise WorkloadError(
                f"request {self._next.id} arrives at {self._next.arrival_seconds} s, before "
                f"request {request.id} at {request.arrival_seconds} s; sort requests by "
                "arrival_seconds"
            )
        return request

    def ended(self, request_id: int, seconds: float) -> None:
        """Nothing: nobody waits."""


class ClosedLoop:
    """Users who each send their next request when the last one is answered, after a thought.

    Args:
        requests: What they ask, in turn; their ``arrival_seconds`` are replaced.
        users: How many there are.
        think_seconds: From an answer to the next request, or what draws it.

    Raises:
        WorkloadError: Fewer than one user, or a time that is negative or not finite.
    """

    __slots__ = ("_ready", "_requests", "_serial", "_think", "_upcoming")

    def __init__(
        self,
        requests: Iterable[Request],
        users: int,
        think_seconds: float | Callable[[], float] = 0.0,
    ) -> None:
        if users < 1:
            raise WorkloadError(f"users is {shown(users)}; there must be 1 or more")
        self._requests: Iterator[Request] = iter(requests)
        self._upcoming = next(self._requests, None)
        self._think = think_seconds
        self._serial = users
        self._ready = [(0.0, user) for user in range(users)]

    def next_seconds(self) -> float | None:
        """When the next user is ready; None while all wait, or when nothing is left to ask."""
        return self._ready[0][0] if self._ready and self._upcoming is not None else None

    def pop(self) -> Request:
        """What that user asks."""
        request = self._upcoming
        assert request is not None
        seconds, _ = heappop(self._ready)
        self._upcoming = next(self._requests, None)
        return replace(request, arrival_seconds=seconds)

    def ended(self, request_id: int, seconds: float) -> None:
        """Let a user think and ask again.

        Raises:
            WorkloadError: The time to think is negative or not finite.
        """
        think = self._think() if callable(self._think) else self._think
        if not 0 <= think < math.inf:
            raise WorkloadError(
                f"think_seconds is {shown(think)}; it must be a finite time of 0 or more"
            )
        heappush(self._ready, (seconds + think, self._serial))
        self._serial += 1
