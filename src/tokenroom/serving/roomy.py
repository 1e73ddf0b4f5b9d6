"""Serving while every KV pool has room for all who run: steps found sooner, the rest alike.

Servers, routers and handovers are those of :class:`~tokenroom.serving.fleet.Fleet`, in the same
virtual time; only their engines are :mod:`~tokenroom.serving.roomy_engine`. Records are those of
:class:`~tokenroom.serving.run.Run` to the last bit; what is not covered is told, and served step by
step instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.engine import Fetch
from tokenroom.serving.events import Events
from tokenroom.serving.fleet import Fleet
from tokenroom.serving.fleet_description import Role, RouterDescription, Transfer
from tokenroom.serving.pool import Pool
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.roomy_engine import NoRoomError, RoomyEngine, is_covered
from tokenroom.serving.roomy_receiver import RoomyReceiver
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.step_table import StepTable

_IN_TURN: Final = RouterDescription()
_NETWORK: Final = Transfer()


class _Made(NamedTuple):
    """An engine, and the place of its pool."""

    place: int
    engine: RoomyEngine


class RoomyServing:
    """One run of a workload; see the module.

    Args:
        pools: Servers.
        router: What chooses among them.
        transfer: How KV moves from servers of prompts to those of answers.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        *,
        router: RouterDescription = _IN_TURN,
        transfer: Transfer = _NETWORK,
    ) -> None:
        self._pools = tuple(pools)
        self._router = router
        self._transfer = transfer
        self._tables = [StepTable(pool.cost) for pool in pools]
        self._made: list[_Made] = []

    @property
    def is_covered(self) -> bool:
        """Whether the servers are of a kind whose steps are found so."""
        return all(map(_is_covered, self._pools, self._tables))

    def serve(self, arrivals: Arrivals) -> list[RequestRecord] | None:
        """Records of a workload in the order of their end; None where it is not covered.

        Arrivals may then have been read from.

        Raises:
            FleetError: Pools do not serve together.
        """
        if not self.is_covered:
            return None
        fleet = Fleet(
            self._pools,
            self._router,
            lambda place, step: None,
            lambda place, record: None,
            transfer=self._transfer,
            new_engine=self._new_engine,
        )
        try:
            return list(fleet.serve(arrivals))
        except NoRoomError:
            return None

    def _new_engine(self, place: int, events: Events, fetch: Fetch, replica: int) -> RoomyEngine:
        pool, table = self._pools[place], self._tables[place]
        config = pool.engine.config
        assert isinstance(config, VllmSchedulerConfig)
        engine: RoomyEngine
        if pool.role is Role.DECODE:
            engine = RoomyReceiver(config, table, events.next_seconds, replica=replica, fetch=fetch)
        else:
            keeps = pool.role is Role.PREFILL
            engine = RoomyEngine(config, table, events.next_seconds, replica=replica, keeps=keeps)
        self._made.append(_Made(place, engine))
        return engine

    @property
    def max_running(self) -> int:
        """Requests that ran at once in an engine, at most."""
        return max(made.engine.max_running for made in self._made)

    @property
    def max_waiting(self) -> int:
        """The most requests that waited for one."""
        return max(made.engine.max_waiting for made in self._made)

    @property
    def mean_waiting(self) -> float:
        """Requests that waited for an engine, on average over the time of steps."""
        busy = math.fsum(made.engine.busy_seconds for made in self._made)
        waited = math.fsum(made.engine.waited_seconds for made in self._made)
        return waited / busy if busy else 0.0

    @property
    def max_used_blocks(self) -> int:
        """KV blocks that an engine held at most; of other pools the same share of the first's."""
        of_first = self._pools[0].engine.usable_blocks
        return max(
            round(
                made.engine.max_used_blocks
                * of_first
                / self._pools[made.place].engine.usable_blocks
            )
            for made in self._made
        )


def _is_covered(pool: Pool, table: StepTable) -> bool:
    return (
        pool.copies.count == 1
        and pool.scaling is None
        and pool.stages == 1
        and pool.step_seconds is None
        and pool.engine.transfer_seconds is None
        and is_covered(pool.engine.config, table)
    )
