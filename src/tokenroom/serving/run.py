"""A workload served by a fitted deployment: the run, its figures, and whether it keeps up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tokenroom.errors import FleetError, WorkloadError
from tokenroom.fitting import FitResult
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine
from tokenroom.serving.engine import StepSeconds
from tokenroom.serving.fleet import Fleet
from tokenroom.serving.fleet_description import RouterDescription, Transfer
from tokenroom.serving.metrics import (
    POINTS,
    LatencyLimits,
    MetricsCollector,
    Point,
    ServingMetrics,
)
from tokenroom.serving.pool import Pool, pool_of
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.simulator import simulate
from tokenroom.serving.step_table import StepTable

if TYPE_CHECKING:
    from tokenroom.serving.compiled.serving import CompiledServing

_PARTS: Final = 4
_LEFT_WAITING: Final = 0.05
_TOKENS: Final = 1_000_000  # the unit that output is priced by
_HOUR_SECONDS: Final = 3600
_IN_TURN: Final = RouterDescription()
_NETWORK: Final = Transfer()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOutcome:
    """What a pool of servers did.

    Attributes:
        pool: The pool.
        metrics: Figures of the requests that were sent to it, and of its engines: means over the
            time of their steps are of one engine.
        refusals: Requests that it refused, by reason.
        most_replicas: Servers that were held at most at a time.
        held_seconds: Time that servers were held, from the first arrival to the last token.
    """

    pool: Pool
    metrics: ServingMetrics
    refusals: Mapping[Refusal, int]
    most_replicas: int
    held_seconds: float

    @property
    def gpu_hours(self) -> float:
        """Time that GPUs were held."""
        return self.held_seconds * self.pool.gpus / _HOUR_SECONDS

    @property
    def usd(self) -> float | None:
        """Their price in USD; None when it is not given."""
        price = self.pool.price_per_gpu_hour
        return None if price is None else self.gpu_hours * price

    @property
    def engines(self) -> int:
        """Engines that were there at most at a time."""
        return self.most_replicas * self.pool.copies.count

    @property
    def busy_share(self) -> float:
        """Share of the time of its engines in which they ran steps."""
        held = self.held_seconds * self.pool.copies.count
        return self.metrics.busy_seconds / held if held else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What became of a workload.

    Attributes:
        pools: The pools of servers; a single deployment is one.
        metrics: The figures of all of them. Means over the time of steps are of one engine.
        limits: What requests are promised; None for nothing.
        arrived: Requests that came.
        last_arrival_seconds: When the last of them did.
        falls_behind: Requests come faster than they are served: the number that wait grows from
            each quarter of the time of arrivals to the next, and when the last request comes more
            than 5% of all that came wait. None where users wait for their answers, so that
            the load adapts.
        names_prefixes: Some request says which of its blocks others may have.
        interrupted: It was ended early.
    """

    pools: tuple[PoolOutcome, ...]
    metrics: ServingMetrics
    limits: LatencyLimits | None
    arrived: int
    last_arrival_seconds: float
    falls_behind: bool | None
    names_prefixes: bool
    interrupted: bool

    @property
    def fit(self) -> FitResult:
        """The deployment, of the first pool where there are several."""
        return self.pools[0].pool.fit

    @property
    def engine(self) -> SimulatedEngine:
        """How it is simulated."""
        return self.pools[0].pool.engine

    @property
    def refusals(self) -> Mapping[Refusal, int]:
        """Requests that were refused, by reason."""
        counts: Counter[Refusal] = Counter()
        for pool in self.pools:
            counts.update(pool.refusals)
        return counts

    @property
    def engines(self) -> int:
        """Engines that were there at most at a time."""
        return sum(pool.engines for pool in self.pools)

    @property
    def is_fleet(self) -> bool:
        """Whether there is more than one engine."""
        return len(self.pools) > 1 or not self.pools[0].pool.is_one_engine

    @property
    def pool_tokens(self) -> int:
        """Tokens of the KV pool that requests are given, of the first pool's engines."""
        return self.pools[0].pool.pool_tokens

    @property
    def gpu_hours(self) -> float:
        """Time that GPUs were held, from the first arrival to the last token."""
        return math.fsum(pool.gpu_hours for pool in self.pools)

    @property
    def usd(self) -> float | None:
        """Their price in USD; None when it is not given of all of them."""
        prices = [pool.usd for pool in self.pools]
        known = [price for price in prices if price is not None]
        return math.fsum(known) if len(known) == len(prices) else None

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """The price over what came out; None when it is not given, or nothing came out."""
        if self.usd is None or not self.metrics.output_tokens:
            return None
        return self.usd / self.metrics.output_tokens * _TOKENS

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of the prompts' tokens that were in the cache.

        None where none could be: the engine looks for no prefixes, or no request names any.
        """
        looked = self.engine.finds_prefixes and self.names_prefixes
        return self.metrics.hit_rate if looked else None

    @property
    def unfinished(self) -> int:
        """Requests that came and were neither served nor refused."""
        return self.arrived - self.metrics.requests - self.metrics.refused


class Way(Enum):
    """How a run serves requests; the result is the same."""

    COMPILED = auto()
    STEP_BY_STEP = auto()
    """The compiled engine was not asked for."""
    NOT_COVERED = auto()
    """Step by step, since the compiled engine has not all that the deployment needs."""
    NOT_INSTALLED = auto()
    """Step by step, since what compiles it is not installed."""


class _Come(NamedTuple):
    """What has arrived: how many requests, when the last, and whether some share blocks."""

    requests: int
    last_seconds: float
    names_prefixes: bool


class Run:
    """One run of a workload through a deployment or a fleet; it can be ended at any request.

    Attributes:
        pools: Pools of servers.
        engine: How the first one's are simulated.
        compiled: Whether the compiled engine is to serve where it can; may be set until it does.

    Args:
        served: The deployment, or pools of servers.
        limits: What requests are promised; None for nothing.
        replicas: Servers of the deployment. This and the next three are of a deployment: pools
            have their own.
        price_per_gpu_hour: In USD.
        factors: Those of the machine, where it was calibrated.
        scheduling: Settings that change what steps run but no memory, under the engine's names,
            as vLLM's ``scheduling_policy``.
        router: What chooses among servers.
        transfer: How KV moves from servers of prompts to those of answers.
        compiled: Serve by the compiled engine where it covers the deployment and is installed
            (extra ``simulate``), with the same result; otherwise step by step.
        step_seconds: Of the deployment: how long a step takes that runs as planned, in seconds,
            instead of what the model of speed says.

    Raises:
        DeploymentError: It does not start, or is not simulated.
        HardwareError: A peak or bandwidth that its speed needs is not known.
        FleetError: A number is out of range, or pools do not serve together.
    """

    def __init__(
        self,
        served: FitResult | Sequence[Pool],
        *,
        limits: LatencyLimits | None = None,
        replicas: int = 1,
        price_per_gpu_hour: float | None = None,
        factors: Factors = UNCALIBRATED,
        scheduling: Scheduling = MappingProxyType({}),
        router: RouterDescription = _IN_TURN,
        transfer: Transfer = _NETWORK,
        compiled: bool = False,
        step_seconds: StepSeconds | None = None,
    ) -> None:
        if isinstance(served, FitResult):
            served = (
                pool_of(
                    served,
                    scheduling=scheduling,
                    factors=factors,
                    replicas=replicas,
                    price_per_gpu_hour=price_per_gpu_hour,
                    step_seconds=step_seconds,
                ),
            )
        if not served:
            raise FleetError("pools is empty; a fleet has at least one pool")
        self.pools = tuple(served)
        self.engine = self.pools[0].engine
        self._limits = limits
        self._collector = MetricsCollector(limits)
        self._of_pools = [MetricsCollector(limits) for _ in self.pools]
        self._fleet: Fleet | None = None
        first = self.pools[0]
        if len(self.pools) > 1 or not first.is_one_engine or first.stages > 1:
            self._fleet = Fleet(
                self.pools, router, self._pool_stepped, self._pool_ended, transfer=transfer
            )
        self.compiled = compiled
        self._compiled: CompiledServing | None = None
        self._observe: Callable[[StepRecord], object] | None = None
        self._refusals: list[Counter[Refusal]] = [Counter() for _ in self.pools]
        self._arrived = 0
        self._last_arrival = 0.0
        self._names_prefixes = False
        self._open = True
        self._ended = False

    def serve(
        self,
        arrivals: Arrivals,
        *,
        waits_for_answers: bool = False,
        observe: Callable[[StepRecord], object] | None = None,
    ) -> Iterator[RequestRecord]:
        """Serve a workload; gives each request's record when it ends.

        Args:
            arrivals: The requests.
            waits_for_answers: Users send their next request when the last one is answered.
            observe: Called with each step when it has ended.

        Raises:
            WorkloadError: Requests are out of order, or nothing arrives.
        """
        self._open = not waits_for_answers
        self._observe = observe
        if observe is None and self.way is Way.COMPILED:
            from tokenroom.serving.compiled.records import records_of

            for done in self._serve_compiled(arrivals):
                yield from records_of(done)
            return
        counted = _Counted(arrivals, self._arrives)
        if self._fleet is None:
            cost = self.pools[0].cost
            records = simulate(
                counted,
                self.engine.new_scheduler(),
                self.pools[0].step_seconds or self._table,
                observe=self._stepped,
                delay_seconds=cost.delay_seconds,
                transfer_seconds=self.engine.transfer_seconds,
            )
        else:
            records = self._fleet.serve(counted)
        for record in records:
            self._collector.request(record)
            if record.refused is not None:
                self._refusals[self._place_of(record)][record.refused] += 1
            yield record
        self._end()

    def serve_all(
        self,
        arrivals: Arrivals,
        *,
        waits_for_answers: bool = False,
        refused: Callable[[RequestRecord], object],
        progress: Callable[[int, float], object],
    ) -> None:
        """Serve a workload for its figures alone, which is quicker than a record of each request.

        Args:
            arrivals: The requests.
            waits_for_answers: Users send their next request when the last one is answered.
            refused: Called with the record of each request that is refused.
            progress: Called with how many requests have ended since it was last called, and the
                time in seconds.

        Raises:
            WorkloadError: Requests are out of order, or nothing arrives.
        """
        if self.way is not Way.COMPILED:
            for record in self.serve(arrivals, waits_for_answers=waits_for_answers):
                if record.refused is not None:
                    refused(record)
                progress(1, record.finish_seconds)
            return
        from tokenroom.serving.compiled.records import records_of

        self._open = not waits_for_answers
        for done in self._serve_compiled(arrivals):
            for record in records_of(done[done["refused"] != 0]):
                refused(record)
            progress(len(done), float(done["finish"][-1]))

    @cached_property
    def way(self) -> Way:
        """How requests are served, as long as nobody looks at each step."""
        if not self.compiled:
            return Way.STEP_BY_STEP
        from tokenroom.serving.compiled.coverage import covers, is_installed

        own_times = self.pools[0].step_seconds is not None
        if self._fleet is not None or own_times or not covers(self.engine.config, self._table):
            return Way.NOT_COVERED
        return Way.COMPILED if is_installed() else Way.NOT_INSTALLED

    @cached_property
    def _table(self) -> StepTable:
        return StepTable(self.pools[0].cost)

    def _serve_compiled(self, arrivals: Arrivals) -> Iterator[Any]:
        from tokenroom.serving.compiled.records import refusals_in
        from tokenroom.serving.compiled.serving import CompiledServing

        config = self.engine.config
        assert isinstance(config, VllmSchedulerConfig)
        self._compiled = CompiledServing(
            config, self.pools[0].cost, self._table, arrivals, self._limits
        )
        for done in self._compiled.serve():
            self._refusals[0].update(refusals_in(done))
            yield done
        self._end()

    def _end(self) -> None:
        if not self._come().requests:
            raise WorkloadError("the workload has no request; give one with at least one")
        self._ended = True

    def _come(self) -> _Come:
        if (serving := self._compiled) is not None:
            return _Come(serving.arrived, serving.last_arrival_seconds, serving.names_prefixes)
        return _Come(self._arrived, self._last_arrival, self._names_prefixes)

    def pool_of(self, record: RequestRecord) -> Pool:
        """The pool that served or refused a request."""
        return self.pools[self._place_of(record)]

    def _place_of(self, record: RequestRecord) -> int:
        return 0 if self._fleet is None else self._fleet.place_of(record.replica)

    def _stepped(self, step: StepRecord) -> None:
        self._collector.step(step)
        if self._observe is not None:
            self._observe(step)

    def _pool_stepped(self, place: int, step: StepRecord) -> None:
        self._of_pools[place].step(step)
        blocks, of_first = self.pools[place].engine.usable_blocks, self.engine.usable_blocks
        if blocks != of_first:  # shares of pools of several sizes are told in blocks of the first
            step = step._replace(used_blocks=round(step.used_blocks * of_first / blocks))
        self._stepped(step)

    def _pool_ended(self, place: int, record: RequestRecord) -> None:
        self._of_pools[place].request(record)

    def _arrives(self, request: Request) -> None:
        self._arrived += 1
        self._last_arrival = request.arrival_seconds
        self._names_prefixes |= bool(request.block_hashes)

    def outcome(self) -> Simulation:
        """What has become of the workload up to now."""
        source = self._collector if self._compiled is None else self._compiled
        metrics = source.result()
        come = self._come()
        pools = self._outcomes(metrics)
        behind = None
        if self._open:
            share = come.requests / sum(pool.engines for pool in pools)
            behind = _falls_behind(metrics.timeline, come.last_seconds, share)
        return Simulation(
            pools=pools,
            metrics=metrics,
            limits=self._limits,
            arrived=come.requests,
            last_arrival_seconds=come.last_seconds,
            falls_behind=behind,
            names_prefixes=come.names_prefixes,
            interrupted=not self._ended,
        )

    def _outcomes(self, metrics: ServingMetrics) -> tuple[PoolOutcome, ...]:
        fleet = self._fleet
        if fleet is None:
            return (
                PoolOutcome(
                    pool=self.pools[0],
                    metrics=metrics,
                    refusals=dict(self._refusals[0]),
                    most_replicas=1,
                    held_seconds=metrics.duration_seconds,
                ),
            )
        end = metrics.first_arrival_seconds + metrics.duration_seconds
        return tuple(
            PoolOutcome(
                pool=pool,
                metrics=self._of_pools[place].result(),
                refusals=dict(self._refusals[place]),
                most_replicas=fleet.most_replicas(place),
                held_seconds=fleet.held_seconds(place, metrics.first_arrival_seconds, end),
            )
            for place, pool in enumerate(self.pools)
        )


class _Counted:
    """Arrivals of which each request is told of."""

    __slots__ = ("_arrivals", "_tell", "ended", "next_seconds")

    def __init__(self, arrivals: Arrivals, tell: Callable[[Request], None]) -> None:
        self._arrivals, self._tell = arrivals, tell
        self.next_seconds = arrivals.next_seconds
        self.ended = arrivals.ended

    def pop(self) -> Request:
        request = self._arrivals.pop()
        self._tell(request)
        return request


def _falls_behind(timeline: tuple[Point, ...], last_arrival_seconds: float, arrived: float) -> bool:
    """Whether ever more requests wait until the last one comes; see :class:`Simulation`.

    Waiting requests and ``arrived`` are of one engine.
    """
    during = [point for point in timeline if point.start_seconds <= last_arrival_seconds]
    if not during or not last_arrival_seconds:
        return False
    parts: list[list[Point]] = [[] for _ in range(_PARTS)]
    for point in during:
        parts[min(_PARTS - 1, int(point.start_seconds / last_arrival_seconds * _PARTS))].append(
            point
        )
    left = during[-1].waiting > _LEFT_WAITING * arrived
    if not all(parts):
        # Stretches joined until they are longer than a quarter: the run went on for a hundred times
        # as long as requests came, so those that are left wait for want of servers.
        return left and len(timeline) > POINTS // 2
    waits = [
        math.fsum(point.waiting * point.seconds for point in part)
        / (math.fsum(point.seconds for point in part) or 1.0)
        for part in parts
    ]
    return left and all(later > earlier for earlier, later in pairwise(waits))
