"""A workload served by a fitted deployment: the run, its figures, and whether it keeps up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from tokenroom.errors import DeploymentError, WorkloadError, shown
from tokenroom.fitting import FitResult
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.deployments import engine_of
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine
from tokenroom.serving.metrics import LatencyLimits, MetricsCollector, Point, ServingMetrics
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.simulator import simulate
from tokenroom.serving.step_cost import step_cost
from tokenroom.serving.step_table import StepTable

_PARTS: Final = 4
_LEFT_WAITING: Final = 0.05
_TOKENS: Final = 1_000_000  # the unit that output is priced by
_HOUR_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What became of a workload.

    Attributes:
        fit: The deployment.
        engine: How it is simulated.
        metrics: The figures.
        limits: What requests are promised; None for nothing.
        refusals: Requests that were refused, by reason.
        arrived: Requests that came.
        last_arrival_seconds: When the last of them did.
        falls_behind: Requests come faster than they are served: the number that wait grows from
            each quarter of the time of arrivals to the next, and when the last request comes more
            than 5% of all that came wait. None where users wait for their answers, so that
            the load adapts.
        names_prefixes: Some request says which of its blocks others may have.
        interrupted: It was ended early.
        price_per_gpu_hour: In USD; None when not given.
    """

    fit: FitResult
    engine: SimulatedEngine
    metrics: ServingMetrics
    limits: LatencyLimits | None
    refusals: Mapping[Refusal, int]
    arrived: int
    last_arrival_seconds: float
    falls_behind: bool | None
    names_prefixes: bool
    interrupted: bool
    price_per_gpu_hour: float | None

    @property
    def pool_tokens(self) -> int:
        """Tokens of the KV pool that requests are given."""
        return _pool_tokens(self.fit, self.engine)

    @property
    def gpus(self) -> int:
        """GPUs of the deployment."""
        return self.fit.deployment.node.count

    @property
    def gpu_hours(self) -> float:
        """Time of all GPUs, from the first arrival to the last token."""
        return self.metrics.duration_seconds * self.gpus / _HOUR_SECONDS

    @property
    def usd(self) -> float | None:
        """Their price in USD; None when it is not given."""
        return None if self.price_per_gpu_hour is None else self.gpu_hours * self.price_per_gpu_hour

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """The price over what came out; None when it is not given, or nothing came out."""
        if self.usd is None or not self.metrics.output_tokens:
            return None
        return self.usd / self.metrics.output_tokens * _TOKENS

    @property
    def unfinished(self) -> int:
        """Requests that came and were neither served nor refused."""
        return self.arrived - self.metrics.requests - self.metrics.refused


class Run:
    """One run of a workload through a deployment; it can be ended at any request.

    Args:
        result: The deployment.
        limits: What requests are promised; None for nothing.
        price_per_gpu_hour: In USD.
        factors: Those of the machine, where it was calibrated.
        scheduling: Settings that change what steps run but no memory, under the engine's names,
            as vLLM's ``scheduling_policy``.

    Raises:
        DeploymentError: It does not start, or is not simulated.
        HardwareError: A peak or bandwidth that its speed needs is not known.
    """

    def __init__(
        self,
        result: FitResult,
        *,
        limits: LatencyLimits | None = None,
        price_per_gpu_hour: float | None = None,
        factors: Factors = UNCALIBRATED,
        scheduling: Scheduling = MappingProxyType({}),
    ) -> None:
        if price_per_gpu_hour is not None and not 0 < price_per_gpu_hour < math.inf:
            raise DeploymentError(
                f"price_per_gpu_hour is {shown(price_per_gpu_hour)}; give USD above 0"
            )
        self._fit = result
        self.engine = engine_of(result, scheduling)
        self._cost = step_cost(result, factors)
        copies = self._cost.terms.replicas * self._cost.terms.layout.data_parallel_size
        if copies > 1:
            raise DeploymentError(
                f"the deployment is {copies} data-parallel copies, and one engine is simulated; "
                "leave the copies out and give it its share of the requests"
            )
        self._scheduler = self.engine.new_scheduler()
        self._limits = limits
        self._price = price_per_gpu_hour
        self._collector = MetricsCollector(limits)
        self._refusals: Counter[Refusal] = Counter()
        self._arrived = 0
        self._last_arrival = 0.0
        self._names_prefixes = False
        self._open = True
        self._ended = False

    @property
    def pool_tokens(self) -> int:
        """Tokens of the KV pool that requests are given."""
        return _pool_tokens(self._fit, self.engine)

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
        collector = self._collector

        def seen(step: StepRecord) -> None:
            collector.step(step)
            if observe is not None:
                observe(step)

        for record in simulate(
            _Counted(arrivals, self._arrives),
            self._scheduler,
            StepTable(self._cost),
            observe=seen,
            delay_seconds=self._cost.delay_seconds,
        ):
            collector.request(record)
            if record.refused is not None:
                self._refusals[record.refused] += 1
            yield record
        if not self._arrived:
            raise WorkloadError("the workload has no request; give one with at least one")
        self._ended = True

    def _arrives(self, request: Request) -> None:
        self._arrived += 1
        self._last_arrival = request.arrival_seconds
        self._names_prefixes |= bool(request.block_hashes)

    def outcome(self) -> Simulation:
        """What has become of the workload up to now."""
        metrics = self._collector.result()
        behind = None
        if self._open:
            behind = _falls_behind(metrics.timeline, self._last_arrival, self._arrived)
        return Simulation(
            fit=self._fit,
            engine=self.engine,
            metrics=metrics,
            limits=self._limits,
            refusals=dict(self._refusals),
            arrived=self._arrived,
            last_arrival_seconds=self._last_arrival,
            falls_behind=behind,
            names_prefixes=self._names_prefixes,
            interrupted=not self._ended,
            price_per_gpu_hour=self._price,
        )


def _pool_tokens(result: FitResult, engine: SimulatedEngine) -> int:
    return result.plan.kv_pool_tokens if engine.pool_tokens is None else engine.pool_tokens


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


def _falls_behind(timeline: tuple[Point, ...], last_arrival_seconds: float, arrived: int) -> bool:
    """Whether ever more requests wait until the last one comes; see :class:`Simulation`."""
    during = [point for point in timeline if point.start_seconds <= last_arrival_seconds]
    if not during or not last_arrival_seconds:
        return False
    waits = [0.0] * _PARTS
    for point in during:
        part = min(_PARTS - 1, int(point.start_seconds / last_arrival_seconds * _PARTS))
        waits[part] += point.waiting * point.seconds
    grows = all(later > earlier for earlier, later in pairwise(waits))
    return grows and during[-1].waiting > _LEFT_WAITING * arrived
