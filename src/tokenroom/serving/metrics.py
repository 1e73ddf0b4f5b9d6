"""What clients and operators see of a served workload: latencies, throughput, queues, the cache."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.distribution import Distribution, Sample
from tokenroom.serving.record import RequestRecord, StepRecord

POINTS: Final = 512
"""Stretches of a timeline, at most."""


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


class Timeline:
    """Sums over stretches of steps that double in length when there are too many of them."""

    __slots__ = ("_ended_at", "_per_point", "_rows")

    def __init__(self) -> None:
        self._per_point = 1
        self._rows: list[list[float]] = []
        self._ended_at: dict[tuple[int, int], float] = {}

    def add(self, step: StepRecord) -> None:
        """Take in a step."""
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
        if len(self._rows) > POINTS:
            for index in range(0, POINTS, 2):
                self._join(self._rows[index], self._rows[index + 1])
            self._rows = self._rows[::2]
            self._per_point *= 2

    @staticmethod
    def _join(into: list[float], row: Sequence[float]) -> None:
        for column in range(1, len(row)):
            into[column] += row[column]

    def points(self) -> tuple[Point, ...]:
        """The stretches so far."""
        return points_of(self._rows)


def points_of(rows: Iterable[Sequence[float]]) -> tuple[Point, ...]:
    """Stretches of a timeline from their sums."""
    return tuple(
        Point(
            start_seconds=start,
            seconds=seconds,
            running=running / seconds if seconds else 0.0,
            waiting=waiting / seconds if seconds else 0.0,
            used_blocks=used / seconds if seconds else 0.0,
            tokens=int(tokens),
        )
        for start, seconds, running, waiting, used, tokens, _ in rows
    )


@dataclass(slots=True, kw_only=True)
class Tally:
    """What is counted while a workload is served; names are those of :class:`ServingMetrics`.

    Attributes:
        first_arrival_seconds: When the first request came; infinity before.
        last_token_seconds: When the last token came out.
        within_limits: Served requests that got what was promised; None without promises.
    """

    within_limits: int | None = None
    first_arrival_seconds: float = math.inf
    last_token_seconds: float = 0.0
    requests: int = 0
    refused: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    preemptions: int = 0
    max_running: int = 0
    max_waiting: int = 0
    max_used_blocks: int = 0

    def metrics(
        self,
        points: tuple[Point, ...],
        *,
        ttft: Distribution,
        tpot: Distribution,
        itl: Distribution,
        e2e: Distribution,
        queue: Distribution,
    ) -> ServingMetrics:
        """The figures of a served workload, with its timeline and distributions."""
        busy = math.fsum(point.seconds for point in points)

        def over_time(column: str) -> float:
            total = math.fsum(point.seconds * getattr(point, column) for point in points)
            return total / busy if busy else 0.0

        first = self.first_arrival_seconds
        return ServingMetrics(
            requests=self.requests,
            refused=self.refused,
            first_arrival_seconds=0.0 if first == math.inf else first,
            duration_seconds=max(0.0, self.last_token_seconds - first),
            busy_seconds=busy,
            steps=self.steps,
            ttft=ttft,
            tpot=tpot,
            itl=itl,
            e2e=e2e,
            queue=queue,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            computed_tokens=self.computed_tokens,
            preemptions=self.preemptions,
            within_limits=self.within_limits,
            mean_running=over_time("running"),
            max_running=self.max_running,
            mean_waiting=over_time("waiting"),
            max_waiting=self.max_waiting,
            mean_used_blocks=over_time("used_blocks"),
            max_used_blocks=self.max_used_blocks,
            timeline=points,
        )


class MetricsCollector:
    """Takes in records of requests and steps as they end, in bounded memory.

    Args:
        limits: What requests are promised, None for nothing.
    """

    __slots__ = ("_e2e", "_itl", "_limits", "_queue", "_tally", "_timeline", "_tpot", "_ttft")

    def __init__(self, limits: LatencyLimits | None = None) -> None:
        self._limits = limits
        self._ttft, self._tpot, self._itl = Sample(), Sample(), Sample()
        self._e2e, self._queue = Sample(), Sample()
        self._timeline = Timeline()
        self._tally = Tally(within_limits=None if limits is None else 0)

    def request(self, record: RequestRecord) -> None:
        """Take in what became of a request."""
        tally = self._tally
        tally.first_arrival_seconds = min(tally.first_arrival_seconds, record.arrival_seconds)
        if record.refused is not None:
            tally.refused += 1
            return
        tally.requests += 1
        tally.last_token_seconds = max(tally.last_token_seconds, record.finish_seconds)
        self._ttft.add(record.ttft_seconds)
        if (tpot := record.tpot_seconds) is not None:
            self._tpot.add(tpot)
        self._e2e.add(record.e2e_seconds)
        self._queue.add(record.scheduled_seconds - record.arrival_seconds)
        tally.prompt_tokens += record.prompt_tokens
        tally.output_tokens += record.output_tokens
        tally.cached_tokens += record.cached_tokens
        if self._limits is not None and tally.within_limits is not None:
            tally.within_limits += self._limits.kept(record)

    def step(self, step: StepRecord) -> None:
        """Take in a step."""
        tally = self._tally
        tally.steps += 1
        tally.computed_tokens += step.tokens
        tally.preemptions += step.preempted
        tally.max_running = max(tally.max_running, step.running)
        tally.max_waiting = max(tally.max_waiting, step.waiting)
        tally.max_used_blocks = max(tally.max_used_blocks, step.used_blocks)
        self._timeline.add(step)
        for seconds, times in step.gaps:
            self._itl.add(seconds, times)

    def result(self) -> ServingMetrics:
        """Everything taken in so far, in figures."""
        return self._tally.metrics(
            self._timeline.points(),
            ttft=self._ttft.distribution(),
            tpot=self._tpot.distribution(),
            itl=self._itl.distribution(),
            e2e=self._e2e.distribution(),
            queue=self._queue.distribution(),
        )
