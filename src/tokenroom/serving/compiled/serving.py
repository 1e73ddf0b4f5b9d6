"""A workload served by the compiled engine, and its figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenroom.serving.arrivals import Arrivals, OpenLoop
from tokenroom.serving.compiled.engine import CompiledEngine
from tokenroom.serving.compiled.figures import ArrayCollector
from tokenroom.serving.compiled.sources import (
    AwaitedSource,
    Delay,
    OpenSource,
    Source,
    tables_of,
)
from tokenroom.serving.compiled.trace_tables import tables_of_trace
from tokenroom.serving.metrics import LatencyLimits, ServingMetrics
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.step_cost import StepCost
from tokenroom.serving.step_table import StepTable
from tokenroom.serving.workloads.trace import Trace


class CompiledServing:
    """One run of a workload through one engine.

    Args:
        config: The scheduler's settings; :func:`.coverage.covers` them.
        cost: How long steps take.
        table: The same, looked up.
        arrivals: The requests.
        limits: What they are promised; None for nothing.
    """

    __slots__ = ("_collector", "_engine", "_source")

    def __init__(
        self,
        config: VllmSchedulerConfig,
        cost: StepCost,
        table: StepTable,
        arrivals: Arrivals,
        limits: LatencyLimits | None,
    ) -> None:
        delay = Delay(*cost.delays())
        size = config.groups[0].block_tokens
        known = isinstance(arrivals, OpenLoop)
        self._source: Source
        if isinstance(arrivals, OpenLoop) and isinstance(arrivals.requests, Trace):
            self._source = OpenSource(tables_of_trace(arrivals.requests, delay, size))
        elif known:
            self._source = OpenSource(tables_of(arrivals, delay, size))
        else:
            self._source = AwaitedSource(arrivals, delay, size)
        self._engine = CompiledEngine(config, table, answers_awaited=not known)
        self._collector = ArrayCollector(limits)

    def serve(self) -> Iterator[Any]:
        """Serve them; gives :data:`~.state.ENDED` of those that end, some at a time.

        Raises:
            WorkloadError: Requests are out of order, or wait and can never be scheduled.
        """
        for done in self._engine.serve(self._source, self._collector.gaps):
            self._collector.requests(done)
            yield done

    @property
    def arrived(self) -> int:
        """Requests that have come."""
        return self._source.given - self._engine.still_to_come()

    @property
    def last_arrival_seconds(self) -> float:
        """When the last of them did."""
        return min(self._source.last_arrival, self._engine.clock)

    @property
    def names_prefixes(self) -> bool:
        """Whether some request says which of its blocks others may have."""
        return self._source.names_prefixes

    def result(self) -> ServingMetrics:
        """The figures up to now."""
        return self._collector.result(self._engine.core)
