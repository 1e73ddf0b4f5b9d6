"""What clients and operators see of a served workload: latencies, throughput, queues, the cache."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.record import RequestRecord, StepRecord

_POINTS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Times of many; percentiles are interpolated between neighbours, as numpy does by default.

    Attributes:
        count: How many.
        mean_seconds: Their mean; None of none, as all that follow.
        p50_seconds: Half are at or below it.
        p90_seconds: 90% are.
        p95_seconds: 95% are.
        p99_seconds: 99% are.
        max_seconds: The longest.
    """

    count: int
    mean_seconds: float | None = None
    p50_seconds: float | None = None
    p90_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    max_seconds: float | None = None


def distribution(values: Iterable[tuple[float, int]]) -> Distribution:
    """The distribution of seconds, each with how often it occurred."""
    ordered = sorted(values)
    count = sum(times for _, times in ordered)
    if not count:
        return Distribution(count=0)
    ranks = [(count - 1) * share for share in (0.5, 0.9, 0.95, 0.99)]
    wanted = sorted({bound for rank in ranks for bound in (math.floor(rank), math.ceil(rank))})
    at: dict[int, float] = {}
    seen = 0
    positions = iter(wanted)
    position = next(positions, None)
    for seconds, times in ordered:
        seen += times
        while position is not None and position < seen:
            at[position] = seconds
            position = next(positions, None)
    p50, p90, p95, p99 = (
        at[math.floor(rank)]
        + (at[math.ceil(rank)] - at[math.floor(rank)]) * (rank - math.floor(rank))
        for rank in ranks
    )
    return Distribution(
        count=count,
        mean_seconds=math.fsum(seconds * times for seconds, times in ordered) / count,
        p50_seconds=p50,
        p90_seconds=p90,
        p95_seconds=p95,
        p99_seconds=p99,
        max_seconds=ordered[-1][0],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLimits:
    """What each request is promised; goodput counts those that got all of it.

    Attributes:
        ttft_seconds: Time to the first token, at most; None for no promise, as all that follow.
        tpot_seconds: Mean time of each further token, at most.
        e2e_seconds: Time to the last token, at most.

    Raises:
        WorkloadError: One is no positive time.
    """

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    e2e_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_seconds", "tpot_seconds", "e2e_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise WorkloadError(f"{name} is {shown(value)}; give seconds above 0")

    def kept(self, record: RequestRecord) -> bool:
        """Whether a served request got all that was promised."""
        tpot = record.tpot_seconds
        return (
            record.refused is None
            and (self.ttft_seconds is None or record.ttft_seconds <= self.ttft_seconds)
            and (self.tpot_seconds is None or tpot is None or tpot <= self.tpot_seconds)
            and (self.e2e_seconds is None or record.e2e_seconds <= self.e2e_seconds)
        )


class Point(NamedTuple):
    """The engine over a stretch of time; means are over time in which steps ran.

    Attributes:
        start_seconds: Where the stretch begins.
        seconds: Time of its steps.
        running: Requests that ran.
        waiting: Requests that waited.
        used_blocks: KV blocks that were held.
        tokens: Tokens that were computed.
    """

    start_seconds: float
    seconds: float
    running: float
    waiting: float
    used_blocks: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMetrics:
    """A served workload in figures.

    Attributes:
        requests: Requests that were served.
        refused: Requests that were not.
        first_arrival_seconds: When the first request came.
        duration_seconds: From then to the last token.
        busy_seconds: Time in which steps ran, of all engines together.
        steps: How many.
        ttft: Time to the first token, over requests.
        tpot: Mean time of each further token, over requests of two tokens or more.
        itl: Time between two tokens, over tokens.
        e2e: Time to the last token, over requests.
        queue: Time until the first step that computed something of a request.
        prompt_tokens: Tokens of the served prompts.
        output_tokens: Tokens that came out.
        cached_tokens: Those of the prompts that were in the cache.
        computed_tokens: Tokens that steps computed, again after preemptions too.
        preemptions: How often a request lost its blocks.
        within_limits: Served requests that got what was promised; None without promises.
        mean_running: Requests that ran, over the time of steps.
        max_running: Most of them.
        mean_waiting: Requests that waited, over the time of steps.
        max_waiting: Most of them.
        mean_used_blocks: KV blocks that were held, over the time of steps.
        max_used_blocks: Most of them.
        timeline: The same over time, in at most 512 stretches.
    """

    requests: int
    refused: int
    first_arrival_seconds: float
    duration_seconds: float
    busy_seconds: float
    steps: int
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    e2e: Distribution
    queue: Distribution
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    computed_tokens: int
    preemptions: int
    within_limits: int | None
    mean_running: float
    max_running: int
    mean_waiting: float
    max_waiting: int
    mean_used_blocks: float
    max_used_blocks: int
    timeline: tuple[Point, ...]

    def _rate(self, count: float) -> float:
        return count / self.duration_seconds if self.duration_seconds else 0.0

    @property
    def requests_per_second(self) -> float:
        """Requests served, over the whole duration."""
        return self._rate(self.requests)

    @property
    def output_tokens_per_second(self) -> float:
        """Tokens that came out, over the whole duration."""
        return self._rate(self.output_tokens)

    @property
    def total_tokens_per_second(self) -> float:
        """Tokens that went in or came out, over the whole duration."""
        return self._rate(self.prompt_tokens + self.output_tokens)

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that were in the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def goodput_per_second(self) -> float | None:
        """Requests that got what was promised, over the whole duration; None without promises."""
        return None if self.within_limits is None else self._rate(self.within_limits)

    @property
    def goodput_share(self) -> float | None:
        """Their share of all requests, refused ones included; None without promises."""
        if self.within_limits is None:
            return None
        asked = self.requests + self.refused
        return self.within_limits / asked if asked else 0.0


class _Timeline:
    """Sums over stretches of steps that double in length when there are too many of them."""

    __slots__ = ("_ended_at", "_per_point", "_rows")

    def __init__(self) -> None:
        self._per_point = 1
        self._rows: list[list[float]] = []
        self._ended_at: dict[tuple[int, int], float] = {}

    def add(self, step: StepRecord) -> None:
        engine = step.replica, step.rank
        # Steps of a pipeline overlap: the time of several is counted once.
        start = max(step.start_seconds, self._ended_at.get(engine, 0.0))
        self._ended_at[engine] = step.end_seconds
        seconds = step.end_seconds - start
        row = [
            start,
            seconds,
            seconds * step.running,
            seconds * step.waiting,
            seconds * step.used_blocks,
            step.tokens,
            1,
        ]
        if self._rows and self._rows[-1][-1] < self._per_point:
            self._join(self._rows[-1], row)
            return
        self._rows.append(row)
        if len(self._rows) > _POINTS:
            for index in range(0, _POINTS, 2):
                self._join(self._rows[index], self._rows[index + 1])
            self._rows = self._rows[::2]
            self._per_point *= 2

    @staticmethod
    def _join(into: list[float], row: Sequence[float]) -> None:
        for column in range(1, len(row)):
            into[column] += row[column]

    def points(self) -> tuple[Point, ...]:
        return tuple(
            Point(
                start_seconds=start,
                seconds=seconds,
                running=running / seconds if seconds else 0.0,
                waiting=waiting / seconds if seconds else 0.0,
                used_blocks=used / seconds if seconds else 0.0,
                tokens=int(tokens),
            )
            for start, seconds, running, waiting, used, tokens, _ in self._rows
        )


class MetricsCollector:
    """Takes in records of requests and steps as they end.

    It holds four numbers a request, one a distinct time between tokens, and no more.

    Args:
        limits: What requests are promised, None for nothing.
    """

    def __init__(self, limits: LatencyLimits | None = None) -> None:
        self._limits = limits
        self._ttft, self._tpot = array("d"), array("d")
        self._e2e, self._queue = array("d"), array("d")
        self._gaps: dict[float, int] = {}
        self._timeline = _Timeline()
        self._first_arrival, self._last_token = math.inf, 0.0
        self._refused = self._within = self._steps = 0
        self._prompt_tokens = self._output_tokens = self._cached_tokens = 0
        self._computed_tokens = self._preemptions = 0
        self._max_running = self._max_waiting = self._max_used = 0

    def request(self, record: RequestRecord) -> None:
        """Take in what became of a request."""
        self._first_arrival = min(self._first_arrival, record.arrival_seconds)
        if record.refused is not None:
            self._refused += 1
            return
        self._last_token = max(self._last_token, record.finish_seconds)
        self._ttft.append(record.ttft_seconds)
        if (tpot := record.tpot_seconds) is not None:
            self._tpot.append(tpot)
        self._e2e.append(record.e2e_seconds)
        self._queue.append(record.scheduled_seconds - record.arrival_seconds)
        self._prompt_tokens += record.prompt_tokens
        self._output_tokens += record.output_tokens
        self._cached_tokens += record.cached_tokens
        if self._limits is not None:
            self._within += self._limits.kept(record)

    def step(self, step: StepRecord) -> None:
        """Take in a step."""
        self._steps += 1
        self._computed_tokens += step.tokens
        self._preemptions += step.preempted
        self._max_running = max(self._max_running, step.running)
        self._max_waiting = max(self._max_waiting, step.waiting)
        self._max_used = max(self._max_used, step.used_blocks)
        self._timeline.add(step)
        for seconds, times in step.gaps:
            self._gaps[seconds] = self._gaps.get(seconds, 0) + times

    def result(self) -> ServingMetrics:
        """Everything taken in so far, in figures."""
        points = self._timeline.points()
        busy = math.fsum(point.seconds for point in points)

        def over_time(column: str) -> float:
            total = math.fsum(point.seconds * getattr(point, column) for point in points)
            return total / busy if busy else 0.0

        def of(values: array[float]) -> Distribution:
            return distribution((value, 1) for value in values)

        return ServingMetrics(
            requests=len(self._ttft),
            refused=self._refused,
            first_arrival_seconds=0.0 if self._first_arrival == math.inf else self._first_arrival,
            duration_seconds=max(0.0, self._last_token - self._first_arrival),
            busy_seconds=busy,
            steps=self._steps,
            ttft=of(self._ttft),
            tpot=of(self._tpot),
            itl=distribution(self._gaps.items()),
            e2e=of(self._e2e),
            queue=of(self._queue),
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            cached_tokens=self._cached_tokens,
            computed_tokens=self._computed_tokens,
            preemptions=self._preemptions,
            within_limits=None if self._limits is None else self._within,
            mean_running=over_time("running"),
            max_running=self._max_running,
            mean_waiting=over_time("waiting"),
            max_waiting=self._max_waiting,
            mean_used_blocks=over_time("used_blocks"),
            max_used_blocks=self._max_used,
            timeline=points,
        )
