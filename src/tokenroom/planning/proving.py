"""Proposals simulated until they hold: each by itself, so that several workers may do it at once.

What becomes of a proposal depends on nothing but itself and the demand. A search that works with
several workers asks for what it will probably need next before it needs it, and takes the answers
in the order in which one worker would have found them. So its answer is the same whatever works.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tokenroom.errors import DeploymentError
from tokenroom.execution.lost import WorkerLostError
from tokenroom.planning.demand import Demand
from tokenroom.planning.judging import Bounds, Proposal, Rejection, proposed
from tokenroom.planning.verification import Verification, statistic_of, verified

_GROWTH: Final = 1.1
"""Replicas of the next try over those of the one that failed."""

_TRIES: Final = 6
"""Simulations of a proposal at most, each with more replicas."""

_LOST: Final = 2
"""Workers that may end with a proposal, killed or out of memory, before it is given up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A proposal to be proven.

    Attributes:
        proposal: What is proposed by the closed form.
        demand: What is to be served.
        bounds: What there is of its kind of GPU.
        seed: Of the simulations.
    """

    proposal: Proposal
    demand: Demand
    bounds: Bounds
    seed: int


class Proof(NamedTuple):
    """A proposal that holds, perhaps with more replicas than the closed form said.

    Attributes:
        proposal: What holds.
        verification: What its simulation showed.
    """

    proposal: Proposal
    verification: Verification


Proven: TypeAlias = Proof | Rejection


def proven(case: Case) -> Proven:
    """Simulate a proposal, with more replicas until it holds or is not worth more."""
    proposal = case.proposal
    # of prompts and answers apart, other divisions are tried before more replicas
    tries = _TRIES if proposal.candidate.split is None else 1
    while True:
        try:
            found = verified(proposal, case.demand, seed=case.seed)
        except DeploymentError as error:
            return Rejection(
                candidate=proposal.candidate, reason="refused", details={"text": str(error)}
            )
        if found.kept:
            return Proof(proposal, found)
        if found.refused:
            return _refusing(proposal, found)
        tries -= 1
        if not tries:
            return _failed(proposal, found, case.demand)
        following = proposed(
            proposal.tuned,
            case.demand,
            replicas=max(proposal.replicas + 1, round(proposal.replicas * _GROWTH)),
            bounds=case.bounds,
        )
        if isinstance(following, Rejection):
            # what there is takes it by the closed form, which a simulation has just denied
            short = following.reason == "gpus"
            return _failed(proposal, found, case.demand) if short else following
        proposal = following


def _refusing(proposal: Proposal, found: Verification) -> Rejection:
    """That requests are longer than it takes, which more replicas do not change."""
    text = (
        f"requests of one replica's share that are longer than its max_model_len of "
        f"{proposal.fit.plan.max_model_len:,} tokens, and refused: {found.refused:,}"
    )
    return Rejection(candidate=proposal.candidate, reason="refused", details={"text": text})


def _failed(proposal: Proposal, found: Verification, demand: Demand) -> Rejection:
    """Why its simulations fail: the objective that is missed the most."""
    promised = demand.objectives
    misses = [
        (seconds / wanted, name, seconds, wanted)
        for name, wanted, seen in (
            ("ttft", promised.ttft_seconds, found.ttft),
            ("tpot", promised.tpot_seconds, found.tpot),
        )
        if wanted is not None and (seconds := statistic_of(demand, seen)) is not None
    ]
    factor, name, seconds, wanted = max(misses)
    return Rejection(
        candidate=proposal.candidate,
        reason="simulation",
        details={
            "objective": name,
            "seconds": seconds,
            "wanted_seconds": wanted,
            "gpus": proposal.gpus,
            "replicas": proposal.replicas,
        },
        nearest=factor,
    )


class Prover:
    """Proves proposals with the workers of an executor, ahead of their being asked for.

    Args:
        executor: What calls functions elsewhere.
        workers: How many it works on at once.
    """

    def __init__(self, executor: Executor, workers: int) -> None:
        self._executor = executor
        self._workers = workers
        self._under_way: dict[Proposal, tuple[Case, Future[Proven]]] = {}

    def begin(self) -> None:
        """Have every worker get ready, while there is other work to do."""
        if self._workers > 1:
            for _ in range(self._workers):
                self._executor.submit(_ready)

    def ahead(self, cases: Iterable[Case]) -> None:
        """Begin as many of the cases as keep the workers busy, in their order.

        One worker, which may be this process, begins nothing before it is asked for.
        """
        for case in cases if self._workers > 1 else ():
            unfinished = sum(not future.done() for _, future in self._under_way.values())
            if unfinished >= self._workers:
                return
            if case.proposal not in self._under_way:
                self._under_way[case.proposal] = case, self._executor.submit(proven, case)

    def result(self, case: Case) -> Proven:
        """What becomes of a case, which is waited for."""
        for _ in range(_LOST):
            if case.proposal not in self._under_way:
                self._under_way[case.proposal] = case, self._executor.submit(proven, case)
            try:
                found = self._under_way[case.proposal][1].result()
            except WorkerLostError:
                del self._under_way[case.proposal]
                continue
            del self._under_way[case.proposal]
            return found
        return Rejection(
            candidate=case.proposal.candidate,
            reason="refused",
            details={"text": f"the worker that simulated it ended {_LOST} times, out of memory"},
        )

    def finished(self) -> Iterator[tuple[Proposal, Proof]]:
        """What was proven and not asked for yet."""
        for proposal, (_, future) in self._under_way.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                found = future.result()
                if isinstance(found, Proof):
                    yield proposal, found


def _ready() -> None:
    """A worker that has called it has loaded what proofs need."""
