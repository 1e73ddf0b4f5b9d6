"""Short and long prompts in one pool of servers, or in two: which keeps more promises.

Long prompts hold up short ones that share their engine. Two pools keep them apart and lose what one
pool shares. Splits are searched on one draw of the workload (or the first stretch of a trace), and
the best is held against the mixed pool on others: what is chosen on a draw looks better on it than
it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from tokenroom.comparing.differences import Mean, mean_of, paired_difference
from tokenroom.comparing.draws import draws_of
from tokenroom.comparing.serving_question import ServingQuestion, serve
from tokenroom.errors import ComparisonError
from tokenroom.execution.store import Store
from tokenroom.execution.tasks import Outcome, Task, run_tasks
from tokenroom.serving.fleet_description import (
    FleetDescription,
    Policy,
    PoolDescription,
    RouterDescription,
)
from tokenroom.serving.metrics import LatencyLimits
from tokenroom.serving.served_deployment import ServedDeployment
from tokenroom.serving.served_fleet import ServedFleet
from tokenroom.serving.workloads.source import WorkloadSource

SHARES: Final = (0.5, 0.75, 0.9, 0.95)
"""Of all prompts, those that are as short as a threshold that is tried."""

_MORE: Final = (-1, 0, 1)
"""Servers that the short pool has more than its share of the work."""

_LOOKED_AT: Final = 20_000
_SCORE: Final = "goodput_share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Servers of short prompts beside servers of long ones.

    Attributes:
        threshold_tokens: The longest short prompt; None for one mixed pool.
        short: Servers of short prompts, 0 of a mixed pool.
        long: The others.
    """

    threshold_tokens: int | None
    short: int
    long: int

    @property
    def is_mixed(self) -> bool:
        """Whether all servers take all prompts."""
        return self.threshold_tokens is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A split on the draw that it is searched on.

    Attributes:
        split: The split.
        goodput_share: Requests that keep all promises, of all.
        ttft_p95_seconds: Of all requests.
        tpot_p95_seconds: Of all requests.
    """

    split: Split
    goodput_share: float
    ttft_p95_seconds: float | None
    tpot_p95_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """What became of a search.

    Attributes:
        server: One server.
        servers: How many.
        workload: What is served.
        limits: What requests are promised.
        confidence: Share of intervals that hold the true value.
        tried: The mixed pool and every split on the first draw, the best first.
        best: The best split; None where no prompt is longer than others.
        mixed_share: Mean goodput share of the mixed pool on other draws.
        best_share: Of the best split.
        gain: How much more it is, draw by draw.
        interrupted: It was ended early: only ``tried`` is known.
    """

    server: ServedDeployment
    servers: int
    workload: WorkloadSource
    limits: LatencyLimits
    confidence: float
    tried: tuple[Tried, ...]
    best: Split | None
    mixed_share: Mean | None
    best_share: Mean | None
    gain: Mean | None
    interrupted: bool

    @property
    def pays(self) -> bool | None:
        """Whether splitting keeps more promises for sure; None where that is not known."""
        if self.gain is None:
            return None
        return self.gain.value > 0 and self.gain.excludes_zero is True


def splitting(
    server: ServedDeployment,
    servers: int,
    workload: WorkloadSource,
    limits: LatencyLimits,
    executor: Executor,
    *,
    workers: int,
    draws: int = 5,
    confidence: float = 0.95,
    store: Store | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Splitting:
    """Search a split of servers, and hold the best against one mixed pool.

    Args:
        server: One server.
        servers: How many there are.
        workload: What is served; of a trace, ``draws + 1`` stretches of equal time.
        limits: What requests are promised.
        executor: Who works.
        workers: How many runs it works on at once.
        draws: Of the workload, on which the best split is held against the mixed pool.
        confidence: Share of intervals that are to hold the true gain.
        store: Where answers are kept.
        on_outcome: Hears of each run when it has ended.

    Raises:
        ComparisonError: There are fewer than two servers or draws.
        TokenroomError: A run is refused; the workload or the store cannot be read.
    """
    if servers < 2:
        raise ComparisonError(
            f"servers is {servers}; two or more are needed to divide them into pools"
        )
    if draws < 2:
        raise ComparisonError(f"draws is {draws}; two or more are needed to know a gain")
    first, *others = draws_of(workload, draws + 1).workloads.values()
    mixed = Split(threshold_tokens=None, short=0, long=servers)
    splits = [mixed, *_splits(_pairs(workload), servers)]
    search = _Search(server, limits, executor, workers, store, on_outcome)
    interrupted = False
    try:
        search.search([(split, first) for split in splits])
        search.hold(mixed, others)
    except KeyboardInterrupt:
        interrupted = True
    best = search.best
    shares = search.shares(mixed, len(others))
    known = len(shares) > 1
    plain, divided = ([pair[place] for pair in shares] for place in (0, 1))
    return Splitting(
        server=server,
        servers=servers,
        workload=workload,
        limits=limits,
        confidence=confidence,
        tried=tuple(sorted(search.tried.values(), key=_rank)),
        best=best,
        mixed_share=mean_of(plain, confidence) if known else None,
        best_share=mean_of(divided, confidence) if known else None,
        gain=paired_difference(plain, divided, confidence) if known else None,
        interrupted=interrupted,
    )


def most_runs(draws: int) -> int:
    """Runs that a search makes at most."""
    return 1 + len(SHARES) * len(_MORE) + 2 * draws


def fleet_of(server: ServedDeployment, split: Split) -> ServedFleet:
    """The servers of a split behind a router that sends each request to the least loaded."""
    pools = [PoolDescription(name="mixed", deployment=(), replicas=split.long)]
    if not split.is_mixed:
        pools = [
            PoolDescription(
                name="short",
                deployment=(),
                replicas=split.short,
                max_prompt_tokens=split.threshold_tokens,
            ),
            PoolDescription(name="long", deployment=(), replicas=split.long),
        ]
    return ServedFleet(
        description=FleetDescription(
            pools=tuple(pools), router=RouterDescription(policy=Policy.LEAST_LOAD)
        ),
        deployments=(server,) * len(pools),
    )


class _Search:
    """Runs of splits, and what is known of them."""

    def __init__(
        self,
        server: ServedDeployment,
        limits: LatencyLimits,
        executor: Executor,
        workers: int,
        store: Store | None,
        on_outcome: Callable[[Outcome], None] | None,
    ) -> None:
        self._server = server
        self._limits = limits
        self._executor = executor
        self._workers = workers
        self._store = store
        self._hear = on_outcome
        self._held: dict[tuple[Split, int], float] = {}
        self.tried: dict[Split, Tried] = {}

    @property
    def best(self) -> Split | None:
        """The best split by now."""
        apart = [found for split, found in self.tried.items() if not split.is_mixed]
        return min(apart, key=_rank).split if apart else None

    def search(self, runs: Sequence[tuple[Split, WorkloadSource]]) -> None:
        """Try every split on one draw."""
        for index, answer in self._answers(runs):
            split = runs[index][0]
            self.tried[split] = _tried(split, answer)

    def hold(self, mixed: Split, draws: Sequence[WorkloadSource]) -> None:
        """Serve other draws by the mixed pool and by the best split."""
        best = self.best
        if best is None:
            return
        places = [(split, number) for number in range(len(draws)) for split in (mixed, best)]
        for index, answer in self._answers([(split, draws[number]) for split, number in places]):
            self._held[places[index]] = answer["figures"][_SCORE] or 0.0

    def shares(self, mixed: Split, draws: int) -> list[tuple[float, float]]:
        """What both kept of each draw that both have served."""
        best, held = self.best, self._held
        return [
            (held[mixed, number], held[best, number])
            for number in range(draws)
            if best is not None and (mixed, number) in held and (best, number) in held
        ]

    def _answers(
        self, runs: Sequence[tuple[Split, WorkloadSource]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The answer of each run, as it comes."""
        questions = (
            ServingQuestion(
                servers=fleet_of(self._server, split), workload=source, limits=self._limits
            )
            for split, source in runs
        )
        tasks = (
            Task(name=_name(split), function=serve, question=asked, identity=asked.identity)
            for (split, _), asked in zip(runs, questions, strict=True)
        )
        for outcome in run_tasks(tasks, self._executor, workers=self._workers, store=self._store):
            if self._hear is not None:
                self._hear(outcome)
            if outcome.problem is not None:
                raise ComparisonError(f"{outcome.task.name}: {outcome.problem}")
            yield outcome.index, outcome.answer


def _name(split: Split) -> str:
    if split.is_mixed:
        return f"{split.long} mixed"
    return f"{split.short} up to {split.threshold_tokens} tokens, {split.long} beyond"


def _tried(split: Split, answer: dict[str, Any]) -> Tried:
    figures = answer["figures"]
    return Tried(
        split=split,
        goodput_share=figures[_SCORE] or 0.0,
        ttft_p95_seconds=figures["ttft_p95_seconds"],
        tpot_p95_seconds=figures["tpot_p95_seconds"],
    )


def _rank(found: Tried) -> tuple[float, float]:
    """The most promises kept first; of as many, the shorter TTFT."""
    return -found.goodput_share, found.ttft_p95_seconds or math.inf


def _pairs(workload: WorkloadSource) -> list[tuple[int, int]]:
    """Lengths of the first requests: prompts and answers."""
    arrivals = workload.served(1).arrivals
    found: list[tuple[int, int]] = []
    while len(found) < _LOOKED_AT and (seconds := arrivals.next_seconds()) is not None:
        request = arrivals.pop()
        found.append((request.prompt_tokens, request.output_tokens))
        arrivals.ended(request.id, seconds)
    if not found:
        raise ComparisonError(f"{workload.name} holds no request; give one with some")
    return found


def _splits(pairs: Sequence[tuple[int, int]], servers: int) -> Iterator[Split]:
    """Thresholds at shares of all prompts, with servers about as the work is divided.

    The work of a request is taken as its tokens; one server more and one fewer are tried as well.
    """
    prompts = sorted(prompt for prompt, _ in pairs)
    whole = sum(prompt + output for prompt, output in pairs)
    thresholds = dict.fromkeys(
        prompts[min(len(prompts) - 1, int(share * len(prompts)))] for share in SHARES
    )
    for threshold in thresholds:
        if threshold >= prompts[-1]:
            continue  # nothing would be left for the long pool
        work = sum(prompt + output for prompt, output in pairs if prompt <= threshold)
        near = round(servers * work / whole)
        counts = {min(servers - 1, max(1, near + more)) for more in _MORE}
        for short in sorted(counts):
            yield Split(threshold_tokens=threshold, short=short, long=servers - short)
