"""Deployments beside each other: every run of each, their means, and what sets them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from tokenroom.comparing.differences import Mean, mean_of, paired_difference
from tokenroom.comparing.serving_question import ServingQuestion, serve
from tokenroom.errors import ComparisonError, shown
from tokenroom.execution.store import Store
from tokenroom.execution.tasks import Outcome, Task, run_tasks
from tokenroom.serving.metrics import LatencyLimits
from tokenroom.serving.served_deployment import ServedDeployment
from tokenroom.serving.served_fleet import ServedFleet
from tokenroom.serving.workloads.source import DrawnSource, WorkloadSource

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One of the deployments.

    Attributes:
        name: What it is called; no two have one name.
        servers: The deployment, or the fleet; what does not start serves nothing and is only told
            of.
        problem: Why the engine refuses its settings, where it does; ``servers`` is None then.
    """

    name: str
    servers: ServedDeployment | ServedFleet | None = None
    problem: str | None = None

    @property
    def starts(self) -> bool:
        """Whether the engine would start."""
        return self.servers is not None and self.servers.refused is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was asked, and what is known by now.

    Attributes:
        subjects: The deployments; differences are to the first that starts.
        workload: What they all serve.
        seeds: Of the draws that all serve; ``(None,)`` where nothing is drawn.
        limits: What requests are promised; None for nothing.
        confidence: Share of intervals that hold the true value.
        answers: Of each subject's runs by seed, as :func:`serve` gives them.
        problems: Why a run has no answer, by subject and seed.
        interrupted: It was ended early.
    """

    subjects: tuple[Subject, ...]
    workload: WorkloadSource
    seeds: tuple[int | None, ...]
    limits: LatencyLimits | None
    confidence: float
    answers: Mapping[str, Mapping[int | None, Answer]]
    problems: Mapping[tuple[str, int | None], str]
    interrupted: bool

    @property
    def compared(self) -> tuple[Subject, ...]:
        """Those that serve."""
        return tuple(subject for subject in self.subjects if subject.starts)

    @property
    def complete_seeds(self) -> tuple[int | None, ...]:
        """Seeds of which every deployment's run is known; all figures are over these."""
        known = [self.answers.get(subject.name, {}) for subject in self.compared]
        return tuple(seed for seed in self.seeds if all(seed in runs for runs in known))

    def values(self, subject: Subject, key: str) -> tuple[float, ...] | None:
        """A figure in each run, by seed; None where a run does not have it."""
        found = tuple(
            self.answers[subject.name][seed]["figures"][key] for seed in self.complete_seeds
        )
        return None if not found or None in found else found

    def mean(self, subject: Subject, key: str) -> Mean | None:
        """Its mean over the runs; None where a run does not have it."""
        values = self.values(subject, key)
        return None if values is None else mean_of(values, self.confidence)

    def difference(self, subject: Subject, key: str) -> Mean | None:
        """How much more of it there is than under the first deployment; None where unknown."""
        base, values = self.values(self.compared[0], key), self.values(subject, key)
        if base is None or values is None:
            return None
        return paired_difference(base, values, self.confidence)

    def falls_behind(self, subject: Subject) -> int:
        """In how many of the runs it could not keep up."""
        runs = self.answers[subject.name]
        return sum(bool(runs[seed]["falls_behind"]) for seed in self.complete_seeds)


def compare(
    subjects: Sequence[Subject],
    workload: WorkloadSource,
    executor: Executor,
    *,
    workers: int,
    seeds: int = 10,
    limits: LatencyLimits | None = None,
    confidence: float = 0.95,
    store: Store | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Comparison:
    """Serve the same requests by each deployment, once for each seed.

    An interrupt ends it early: what is known by then is given.

    Args:
        subjects: The deployments, of different names.
        workload: What is served.
        executor: Who works.
        workers: How many runs it works on at once.
        seeds: How many seeds a drawn workload is drawn with, from its own on; a trace is served
            once.
        limits: What requests are promised; None for nothing.
        confidence: Share of intervals that are to hold the true value.
        store: Where answers are kept, so that a later comparison need not find them again.
        on_outcome: Hears of each run when it has ended.

    Raises:
        ComparisonError: There is nothing to compare, or a number is out of range.
        TokenroomError: A run is refused; the workload or the store cannot be read.
    """
    names = [subject.name for subject in subjects]
    if len(names) < 2:
        raise ComparisonError("one deployment is given; give two or more to compare")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ComparisonError(f"two deployments are called {shown(twice)}; name them apart")
    if seeds < 1:
        raise ComparisonError(f"seeds is {seeds}; draw the workload with 1 or more")
    if not 0 < confidence < 1:
        raise ComparisonError(f"confidence is {confidence:g}; give a share between 0 and 1")
    drawn = _drawn(workload, seeds)
    answers: dict[str, dict[int | None, Answer]] = {name: {} for name in names}
    problems: dict[tuple[str, int | None], str] = {}
    asked = [
        (subject, seed) for seed in drawn for subject in subjects if subject.starts
    ]  # seed by seed, so that what is done when it is ended early can be compared
    tasks = (_task(subject, seed, drawn[seed], limits) for subject, seed in asked)
    interrupted = False
    try:
        for outcome in run_tasks(tasks, executor, workers=workers, store=store):
            subject, seed = asked[outcome.index]
            if outcome.problem is None:
                answers[subject.name][seed] = outcome.answer
            elif outcome.lost:
                problems[subject.name, seed] = outcome.problem
            else:
                raise ComparisonError(f"{subject.name}: {outcome.problem}")
            if on_outcome is not None:
                on_outcome(outcome)
    except KeyboardInterrupt:
        interrupted = True
    return Comparison(
        subjects=tuple(subjects),
        workload=workload,
        seeds=tuple(drawn),
        limits=limits,
        confidence=confidence,
        answers={
            name: {seed: runs[seed] for seed in drawn if seed in runs}  # however they came
            for name, runs in answers.items()
        },
        problems=problems,
        interrupted=interrupted,
    )


def _drawn(workload: WorkloadSource, seeds: int) -> dict[int | None, WorkloadSource]:
    """The workload by the seeds it is drawn with; a trace under None."""
    if not isinstance(workload, DrawnSource):
        return {None: workload}
    first = workload.drawn(1).seed
    return {seed: replace(workload, seed=seed) for seed in range(first, first + seeds)}


def _task(
    subject: Subject, seed: int | None, workload: WorkloadSource, limits: LatencyLimits | None
) -> Task:
    assert subject.servers is not None
    question = ServingQuestion(servers=subject.servers, workload=workload, limits=limits)
    name = subject.name if seed is None else f"{subject.name}, seed {seed}"
    return Task(name=name, function=serve, question=question, identity=question.identity)
