"""Deployments beside each other: every run of each, their means, and what sets them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal

from tokenroom.comparing.differences import Mean, mean_of, paired_difference
from tokenroom.comparing.draws import Draws, draws_of
from tokenroom.comparing.serving_question import ServingQuestion, serve
from tokenroom.errors import ComparisonError, shown
from tokenroom.execution.store import Store
from tokenroom.execution.tasks import Outcome, Task, run_tasks
from tokenroom.serving.metrics import LatencyLimits
from tokenroom.serving.served_deployment import ServedDeployment
from tokenroom.serving.served_fleet import ServedFleet
from tokenroom.serving.workloads.source import WorkloadSource

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
        drawn_by: What tells the draws apart that all serve; None where nothing is drawn.
        draws: They, by seed or by the number of the stretch; ``(None,)`` where nothing is drawn.
        limits: What requests are promised; None for nothing.
        confidence: Share of intervals that hold the true value.
        answers: Of each subject's runs by draw, as :func:`serve` gives them.
        problems: Why a run has no answer, by subject and draw.
        interrupted: It was ended early.
    """

    subjects: tuple[Subject, ...]
    workload: WorkloadSource
    drawn_by: Literal["seed", "stretch"] | None
    draws: tuple[int | None, ...]
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
    def complete_draws(self) -> tuple[int | None, ...]:
        """Draws of which every deployment's run is known; all figures are over these."""
        known = [self.answers.get(subject.name, {}) for subject in self.compared]
        return tuple(draw for draw in self.draws if all(draw in runs for runs in known))

    def values(self, subject: Subject, key: str) -> tuple[float, ...] | None:
        """A figure in each run, by draw; None where a run does not have it."""
        found = tuple(
            self.answers[subject.name][draw]["figures"][key] for draw in self.complete_draws
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
        return sum(bool(runs[draw]["falls_behind"]) for draw in self.complete_draws)


def compare(
    subjects: Sequence[Subject],
    workload: WorkloadSource,
    executor: Executor,
    *,
    workers: int,
    draws: int | None = None,
    limits: LatencyLimits | None = None,
    confidence: float = 0.95,
    store: Store | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Comparison:
    """Serve the same requests by each deployment, once for each draw.

    An interrupt ends it early: what is known by then is given.

    Args:
        subjects: The deployments, of different names.
        workload: What is served.
        executor: Who works.
        workers: How many runs it works on at once.
        draws: How many seeds a drawn workload is drawn with, from its own on (10), or how many
            stretches a trace is cut into (1), as :func:`tokenroom.comparing.draws.draws_of` does.
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
    if not 0 < confidence < 1:
        raise ComparisonError(f"confidence is {confidence:g}; give a share between 0 and 1")
    drawn = draws_of(workload, draws)
    answers: dict[str, dict[int | None, Answer]] = {name: {} for name in names}
    problems: dict[tuple[str, int | None], str] = {}
    asked = [
        (subject, draw) for draw in drawn.workloads for subject in subjects if subject.starts
    ]  # draw by draw, so that what is done when it is ended early can be compared
    tasks = (_task(subject, drawn, draw, limits) for subject, draw in asked)
    interrupted = False
    try:
        for outcome in run_tasks(tasks, executor, workers=workers, store=store):
            subject, draw = asked[outcome.index]
            if outcome.problem is None:
                answers[subject.name][draw] = outcome.answer
            elif outcome.lost:
                problems[subject.name, draw] = outcome.problem
            else:
                raise ComparisonError(f"{subject.name}: {outcome.problem}")
            if on_outcome is not None:
                on_outcome(outcome)
    except KeyboardInterrupt:
        interrupted = True
    return Comparison(
        subjects=tuple(subjects),
        workload=workload,
        drawn_by=drawn.by,
        draws=tuple(drawn.workloads),
        limits=limits,
        confidence=confidence,
        answers={
            # in the order of the draws, however they came
            name: {draw: runs[draw] for draw in drawn.workloads if draw in runs}
            for name, runs in answers.items()
        },
        problems=problems,
        interrupted=interrupted,
    )


def _task(subject: Subject, drawn: Draws, draw: int | None, limits: LatencyLimits | None) -> Task:
    assert subject.servers is not None
    workload = drawn.workloads[draw]
    question = ServingQuestion(servers=subject.servers, workload=workload, limits=limits)
    name = subject.name if draw is None else f"{subject.name}, {drawn.by} {draw}"
    return Task(name=name, function=serve, question=question, identity=question.identity)
