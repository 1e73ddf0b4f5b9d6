"""One server: a front end, and the engines behind it that share its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from tokenroom.serving.events import Events, Turn
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.request import Request
from tokenroom.serving.routers.router import Router, Target

Heard = Callable[["Replica", list[RequestRecord], float], Iterable[RequestRecord]]
"""Hears which requests of a server ended, and when; gives the records that are to be told of."""


class Runs(Protocol):
    """What decides and ends steps: an engine alone, or several in lockstep."""

    def take_in(self) -> list[RequestRecord]:
        """Hand schedulers what has come in; gives the records of what they refuse."""

    def begin(self, now: float) -> float | None:
        """Decide what can be decided; when a step ends next, None with nothing to run."""

    def end(self) -> list[RequestRecord]:
        """End that step; gives the records of requests that ended with it."""


class ServingEngine(Runs, Target, Protocol):
    """An engine of a server."""

    @property
    def keeps_any(self) -> bool:
        """Whether it keeps anything for others to read."""

    def add(self, request: Request) -> None:
        """Let a request come in."""

    def keeps(self, request_id: int) -> bool:
        """Whether it keeps what it computed of a request."""

    def release(self, request_id: int) -> None:
        """Give back what is kept of a request that has ended: it has been read."""

    def awaits(self, request_id: int) -> bool:
        """Whether KV of a request is on its way to it."""

    def deliver(self, request_id: int) -> None:
        """Let the KV of a request's prompt arrive."""


class Replica:
    """A server in virtual time.

    Attributes:
        number: Which one it is; unique in a fleet.
        engines: Its engines.
        in_flight: Requests that were sent to it and have not ended.

    Args:
        number: Which one it is.
        events: Where it plans what it does.
        engines: Its engines: one, or one a data-parallel rank.
        lockstep: What steps all of them together; None when each steps by itself.
        balancer: What chooses among them for a request that has passed the front end; None for a
            single one.
        delay_seconds: What passes between a request's arrival and its reaching an engine.
        heard: Hears which requests ended.
    """

    __slots__ = (
        "_balancer",
        "_begins",
        "_busy",
        "_coming_tokens",
        "_delay_seconds",
        "_ends",
        "_events",
        "_heard",
        "_runs",
        "engines",
        "in_flight",
        "number",
    )

    def __init__(
        self,
        number: int,
        events: Events,
        engines: Sequence[ServingEngine],
        *,
        lockstep: Runs | None = None,
        balancer: Router | None = None,
        delay_seconds: Callable[[Request], float] | None = None,
        heard: Heard | None = None,
    ) -> None:
        self.number = number
        self.engines = tuple(engines)
        self.in_flight = 0
        self._events = events
        self._runs: tuple[Runs, ...] = self.engines if lockstep is None else (lockstep,)
        self._begins = [partial(self._begin, unit) for unit in range(len(self._runs))]
        self._ends = [partial(self._end, unit) for unit in range(len(self._runs))]
        self._busy = [False] * len(self._runs)
        self._coming_tokens = 0
        self._balancer = balancer
        self._delay_seconds = delay_seconds
        self._heard = heard

    @property
    def num_running(self) -> int:
        """Requests that run."""
        return sum(engine.num_running for engine in self.engines)

    @property
    def num_waiting(self) -> int:
        """Requests that were sent to it and neither run nor have ended."""
        return self.in_flight - self.num_running

    @property
    def prompt_tokens_ahead(self) -> int:
        """Tokens of prompts whose first answer token is not out."""
        return self._coming_tokens + sum(engine.prompt_tokens_ahead for engine in self.engines)

    @property
    def used_blocks(self) -> int:
        """KV blocks that are held."""
        return sum(engine.used_blocks for engine in self.engines)

    @property
    def used_share(self) -> float:
        """Share of the KV blocks that are held."""
        return sum(engine.used_share for engine in self.engines) / len(self.engines)

    @property
    def is_drained(self) -> bool:
        """Whether it has nothing to do, and nothing that others are to read."""
        return not self.in_flight and not any(engine.keeps_any for engine in self.engines)

    @property
    def is_active(self) -> bool:
        """Whether it runs steps, or requests are on the way to it."""
        return any(self._busy) or self._coming_tokens > 0

    def send(self, request: Request, now: float) -> None:
        """Let a request arrive."""
        self.in_flight += 1
        self._coming_tokens += request.prompt_tokens
        if self._delay_seconds is None:
            self._enter(request, now)
        else:
            reaches = now + self._delay_seconds(request)
            self._events.at(reaches, Turn.ARRIVE, partial(self._enter, request))

    def _enter(self, request: Request, now: float) -> tuple[()]:
        self._coming_tokens -= request.prompt_tokens
        chosen = 0
        if self._balancer is not None:
            chosen = self._balancer.choose(request, self.engines, now)
        self.engines[chosen].add(request)
        self._wake(chosen, now)
        return ()

    def _wake(self, engine: int, now: float) -> None:
        """Let an engine decide, if it is not at work."""
        unit = engine if len(self._runs) > 1 else 0
        if not self._busy[unit]:
            self._busy[unit] = True
            self._events.at(now, Turn.BEGIN, self._begins[unit])

    def release(self, request_id: int, now: float) -> None:
        """Give back what an engine keeps of a request that has ended: it has been read."""
        for place, engine in enumerate(self.engines):
            if engine.keeps(request_id):
                engine.release(request_id)
                self._wake(place, now)

    def deliver(self, request_id: int, now: float) -> None:
        """Let the KV of a request's prompt arrive at the engine that awaits it."""
        for place, engine in enumerate(self.engines):
            if engine.awaits(request_id):
                engine.deliver(request_id)
                self._wake(place, now)

    def _begin(self, unit: int, now: float) -> Iterable[RequestRecord]:
        runs = self._runs[unit]
        refused = runs.take_in()
        if refused:  # who asked may ask again at once, before anything is decided
            self._events.at(now, Turn.BEGIN, self._begins[unit])
            return self._ended(refused, now)
        ends = runs.begin(now)
        if ends is None:
            self._busy[unit] = False
        else:
            self._events.at(ends, Turn.END, self._ends[unit])
        return ()

    def _end(self, unit: int, now: float) -> Iterable[RequestRecord]:
        ended = self._runs[unit].end()
        self._events.at(now, Turn.BEGIN, self._begins[unit])
        if self._balancer is not None:
            self._balancer.stepped(self.engines, now)
        return self._ended(ended, now)

    def _ended(self, records: list[RequestRecord], now: float) -> Iterable[RequestRecord]:
        self.in_flight -= len(records)
        return records if self._heard is None else self._heard(self, records, now)
