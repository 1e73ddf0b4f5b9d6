"""Several servers in one virtual time: which of them gets a request, and how many there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.engine import Fetch
from tokenroom.serving.events import Events, Turn, happen
from tokenroom.serving.fleet_description import Role, RouterDescription, Transfer, check_roles
from tokenroom.serving.handover import Handovers
from tokenroom.serving.pool import Pool, ReplicaFactory
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.replica import Replica, ServingEngine
from tokenroom.serving.request import Request
from tokenroom.serving.routers import new_router
from tokenroom.serving.scaler import Scaler
from tokenroom.serving.simulator import check_served

_NETWORK: Final = Transfer()

Observed = Callable[[int, StepRecord], object]
"""Hears of a step that has ended, and the place of its pool."""
Ended = Callable[[int, RequestRecord], object]
"""Hears of a request that a pool has done with, and the place of the pool."""
NewEngine = Callable[[int, Events, Fetch, int], ServingEngine]
"""Makes the engine of a server: the place of its pool, where it plans, who hears whose KV is to
come, and the server's number."""


class _Held:
    """The servers of a pool: those that serve, and the time that each was held."""

    __slots__ = ("factory", "most", "place", "pool", "scaler", "serving", "spans")

    def __init__(self, place: int, pool: Pool, factory: ReplicaFactory) -> None:
        self.place = place
        self.pool = pool
        self.factory = factory
        self.scaler = None if pool.scaling is None else Scaler(pool.scaling)
        self.serving: list[Replica] = []
        self.spans: dict[int, tuple[float, float | None]] = {}
        self.most = 0

    def held_seconds(self, start: float, end: float) -> float:
        """Time of all servers between two moments."""
        return math.fsum(
            max(0.0, min(end, end if until is None else until) - max(start, since))
            for since, until in self.spans.values()
        )


class Fleet:
    """Pools of servers behind a router.

    A request goes to the pools that take the shortest prompts among those that take its own, or
    to those with the largest limit when none does; among their servers the router chooses.

    Args:
        pools: The pools.
        router: What chooses among servers.
        observe: Hears of each step.
        ended: Hears of each request that a pool has done with.
        transfer: How KV moves from servers of prompts to those of answers.
        new_engine: Makes the engines of servers of one copy; None for those of the pools, step by
            step.

    Raises:
        FleetError: Some servers only compute prompts and none only write answers, or the other way
            round; or GPUs have no link that KV is to move over.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        router: RouterDescription,
        observe: Observed,
        ended: Ended,
        *,
        transfer: Transfer = _NETWORK,
        new_engine: NewEngine | None = None,
    ) -> None:
        check_roles(pool.role for pool in pools)
        self._events = Events()
        self._ended = ended
        self._replicas: dict[int, Replica] = {}
        self._places: list[int] = []
        self._pools = [
            _Held(
                place,
                pool,
                ReplicaFactory(
                    pool,
                    self._events,
                    partial(observe, place),
                    partial(self._heard, place),
                    self._fetch,
                    new_engine and partial(new_engine, place, self._events, self._fetch),
                ),
            )
            for place, pool in enumerate(pools)
        ]
        for held in self._pools:
            for _ in range(held.pool.replicas):
                held.serving.append(self._hold(held, 0.0))
        self._entrances = _Entrances(
            [held for held in self._pools if held.pool.role is not Role.DECODE], router
        )
        self._handovers: Handovers | None = None
        decoding = [held for held in self._pools if held.pool.role is Role.DECODE]
        if decoding:
            self._handovers = Handovers(
                self._events,
                transfer,
                pools,
                self.place_of,
                _Entrances(decoding, router).choose,
                self._stop_if_drained,
            )

    def held_seconds(self, place: int, start: float, end: float) -> float:
        """Time of all servers of a pool between two moments."""
        return self._pools[place].held_seconds(start, end)

    def place_of(self, replica: int) -> int:
        """The place of a server's pool."""
        return self._places[replica]

    def most_replicas(self, place: int) -> int:
        """Servers that a pool held at most at a time."""
        return self._pools[place].most

    def serve(self, arrivals: Arrivals) -> Iterator[RequestRecord]:
        """Serve a workload; gives each request's record when it ends.

        Raises:
            WorkloadError: Requests are out of order, a step takes a negative or no finite time, or
                a scheduler holds requests that it never schedules.
        """
        for held in self._pools:
            if held.scaler is not None:
                look = partial(self._look, held, held.scaler, arrivals)
                self._events.at(held.scaler.every_seconds, Turn.SCALE, look)
        yield from happen(self._events, arrivals, self._arrive)
        check_served(engine for one in self._replicas.values() for engine in one.engines)

    def _arrive(self, request: Request, now: float) -> None:
        replica = self._entrances.choose(request, now)
        if self._handovers is not None and self._role_of(replica) is Role.PREFILL:
            request = self._handovers.ask(request)
        replica.send(request, now)

    def _role_of(self, replica: Replica) -> Role:
        return self._pools[self.place_of(replica.number)].pool.role

    def _fetch(self, request_id: int, blocks: int) -> None:
        assert self._handovers is not None
        self._handovers.fetch(request_id, blocks)

    def _heard(
        self, place: int, replica: Replica, records: list[RequestRecord], now: float
    ) -> Iterable[RequestRecord]:
        told = []
        held = self._pools[place]
        for record in records:
            self._ended(place, record)
            if self._handovers is None or held.pool.role is Role.BOTH:
                told.append(record)
            elif held.pool.role is Role.DECODE:
                told.append(self._handovers.answer_done(record, now))
            elif not self._handovers.prompt_done(replica, record, now):
                told.append(record)
        self._stop_if_drained(replica, now)
        return told

    def _stop_if_drained(self, replica: Replica, now: float) -> None:
        """Stop a server that is to be stopped, once nothing is left to do."""
        held = self._pools[self.place_of(replica.number)]
        if replica.is_drained and replica not in held.serving:
            self._stop(held, replica, now)

    def _hold(self, held: _Held, now: float) -> Replica:
        """A new server, whose GPUs are held from now on."""
        number = len(self._places)
        self._places.append(held.place)
        held.spans[number] = (now, None)
        held.most = max(held.most, sum(until is None for _, until in held.spans.values()))
        replica = self._replicas[number] = held.factory(number)
        return replica

    def _start(self, held: _Held, scaler: Scaler, now: float) -> None:
        """Hold a new server, and let it serve once it has started."""
        replica = self._hold(held, now)
        scaler.starting.append(replica)
        ready = partial(self._ready, held, scaler, replica)
        self._events.at(now + scaler.start_up_seconds, Turn.SCALE, ready)

    def _ready(self, held: _Held, scaler: Scaler, replica: Replica, now: float) -> tuple[()]:
        if replica in scaler.starting:
            scaler.starting.remove(replica)
            held.serving.append(replica)
        return ()

    def _stop(self, held: _Held, replica: Replica, now: float) -> None:
        since, _ = held.spans[replica.number]
        held.spans[replica.number] = (since, now)

    def _look(self, held: _Held, scaler: Scaler, arrivals: Arrivals, now: float) -> tuple[()]:
        """Start or stop servers as the pool's scaling wants it, and look again later."""
        wanted = scaler.wanted(held.serving, now)
        have = len(held.serving) + len(scaler.starting)
        for _ in range(wanted - have):
            self._start(held, scaler, now)
        for _ in range(have - wanted):
            if scaler.starting:  # those that serve nobody yet, the latest first
                self._stop(held, scaler.starting.pop(), now)
                continue
            replica = min(held.serving, key=lambda one: (one.in_flight, -one.number))
            held.serving.remove(replica)
            self._stop_if_drained(replica, now)
        more = arrivals.next_seconds() is not None
        if more or any(one.is_active for one in self._replicas.values()):
            look = partial(self._look, held, scaler, arrivals)
            self._events.at(now + scaler.every_seconds, Turn.SCALE, look)
        return ()


class _Entrances:
    """Where requests enter, by the length of their prompt: pools with one limit share a router."""

    def __init__(self, pools: Sequence[_Held], router: RouterDescription) -> None:
        limits = sorted({_limit(held.pool) for held in pools})
        self._doors = [
            (
                limit,
                alike := [held for held in pools if _limit(held.pool) == limit],
                new_router(router, alike[0].pool.engine.block_tokens),
            )
            for limit in limits
        ]

    def choose(self, request: Request, now: float) -> Replica:
        """The server that gets a request."""
        fitting = (door for door in self._doors if request.prompt_tokens <= door[0])
        _, pools, router = next(fitting, self._doors[-1])
        targets = [replica for held in pools for replica in held.serving]
        return targets[router.choose(request, targets, now)]


def _limit(pool: Pool) -> float:
    return math.inf if pool.max_prompt_tokens is None else pool.max_prompt_tokens
