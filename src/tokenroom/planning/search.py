"""The search: judge every candidate, keep the front, simulate it until enough plans hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, NamedTuple

from tokenroom.errors import DeploymentError
from tokenroom.execution.inline import Inline
from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.front import front, in_turns
from tokenroom.planning.judging import Bounds, Judged, Proposal, Rejection, judged_layout
from tokenroom.planning.judging_together import WORTH_IT, judged_together
from tokenroom.planning.proving import Case, Proven, Prover
from tokenroom.planning.split_judging import splits_of
from tokenroom.planning.tuned import Counts, Verdicts
from tokenroom.planning.tuning import DEFAULTS_ALONE, TuningSpace, space_of
from tokenroom.planning.verification import Verification

_NEAR: Final = ("ttft", "tpot", "simulation", "gpus", "budget")
"""Reasons of rejected deployments that others with prompts and answers apart may not have."""


class Progress(NamedTuple):
    """How far a search has come.

    Attributes:
        phase: ``"judge"`` or ``"verify"``.
        done: Candidates judged, or plans found.
        of: How many there are, or are wanted.
        subject: The candidate at hand.
    """

    phase: str
    done: int
    of: int
    subject: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A deployment that holds the demand.

    Attributes:
        proposal: The deployment.
        verification: What its own simulation showed.
    """

    proposal: Proposal
    verification: Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What may be deployed.

    Attributes:
        demand: What was asked.
        options: Deployments that hold it, cheapest first.
        rejections: Everything else that was tried, with the reason.
        untried: Proposals by the closed form that were not simulated, since enough others hold.
        candidates: Every layout that was to be judged.
        judged: Layouts that were.
        counts: Deployments, each a layout with settings of its engine: how many were judged, and
            how many a bound ruled out together with one that was.
        complete: The search was not interrupted.
    """

    demand: Demand
    options: tuple[Option, ...]
    rejections: tuple[Rejection, ...]
    untried: tuple[Proposal, ...]
    candidates: Sequence[Candidate]
    judged: int
    counts: Counts
    complete: bool


class Search:
    """One search, which can be ended at any point with what it has found.

    Args:
        candidates: Layouts to be tried.
        demand: What is to be served.
        space: Settings to be tried of each, as far as its engine has them.
        prices: USD of one GPU for an hour by the accelerator's key, as far as known.
        inventory: GPUs of each kind there are, by key; None for any number.
        budget_usd_per_hour: The most that all GPUs may cost; None for any sum.
        wanted: How many plans are looked for.
        seed: Of the simulations.
        split_gpus: GPUs of a replica with prompts and answers apart, at most; 0 for none.
        executor: What simulates; this process when None. The answer does not depend on it.
        workers: How many simulations the executor works on at once.
        verdicts: What is known of layouts, which is added to.

    Raises:
        DeploymentError: A budget is given without any price or is no sum, or nothing is wanted.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        demand: Demand,
        *,
        space: TuningSpace = DEFAULTS_ALONE,
        prices: Mapping[str, float] | None = None,
        inventory: Mapping[str, int] | None = None,
        budget_usd_per_hour: float | None = None,
        wanted: int = 5,
        seed: int = 0,
        split_gpus: int = 0,
        executor: Executor | None = None,
        workers: int = 1,
        verdicts: Verdicts | None = None,
    ) -> None:
        if budget_usd_per_hour is not None and not prices:
            raise DeploymentError("a budget needs prices; give the price of each kind of GPU")
        if budget_usd_per_hour is not None and not 0 < budget_usd_per_hour < math.inf:
            raise DeploymentError(f"the budget is {budget_usd_per_hour:g}; give USD above 0")
        if wanted < 1:
            raise DeploymentError(f"wanted is {wanted}; ask for 1 plan or more")
        self._candidates = candidates
        self._demand = demand
        self._space = space
        self._verdicts = verdicts
        self._prices = prices or {}
        self._inventory = inventory
        self._budget = budget_usd_per_hour
        self._wanted = wanted
        self._seed = seed
        self._split_gpus = split_gpus
        self._ladders: dict[object, list[Proposal]] = {}
        self._judged = 0
        self._counts = Counts()
        self._proposals: list[Proposal] = []
        self._rejections: list[Rejection] = []
        self._verified: dict[Proposal, Verification] = {}
        self._executor, self._workers = executor or Inline(), workers
        self._prover = Prover(self._executor, workers)
        self._complete = False

    def steps(self) -> Iterator[Progress]:
        """Search; gives a note before each piece of work."""
        self._prover.begin()
        judged = self._verdicts_of_all()
        for candidate in self._candidates:
            yield Progress("judge", self._judged, len(self._candidates), candidate)
            found = next(judged)
            self._judged += 1
            self._counts += found.counts
            self._proposals += found.proposals
            if found.rejection is not None:
                self._rejections.append(found.rejection)
        while upcoming := self._wanting():
            yield Progress("verify", len(self._options), self._wanted, upcoming[0].candidate)
            self._prover.ahead(map(self._case, upcoming))
            self._settle(upcoming[0], self._prover.result(self._case(upcoming[0])))
        self._complete = True

    def _verdicts_of_all(self) -> Iterator[Judged]:
        """What becomes of each candidate, by several workers where there are many."""
        layouts = [(candidate, self._bounds(candidate)) for candidate in self._candidates]
        if self._workers > 1 and self._verdicts is None and len(layouts) >= WORTH_IT:
            yield from judged_together(
                layouts, self._demand, self._space, self._executor, self._workers
            )
            return
        kept = Verdicts() if self._verdicts is None else self._verdicts
        for candidate, bounds in layouts:
            space = space_of(candidate.engine, self._space)
            yield judged_layout(candidate, self._demand, space, bounds, kept)

    def plan(self) -> Plan:
        """What has been found up to now, of an unfinished search by any worker."""
        proposals, verified = list(self._proposals), dict(self._verified)
        if not self._complete:
            for proposal, proof in self._prover.finished():
                proposals[proposals.index(proposal)] = proof.proposal
                verified[proof.proposal] = proof.verification
        kept, beaten = front(proposals)
        return Plan(
            demand=self._demand,
            options=tuple(
                Option(proposal=proposal, verification=verified[proposal])
                for proposal in kept
                if proposal in verified
            ),
            rejections=(*self._rejections, *beaten),
            untried=tuple(proposal for proposal in kept if proposal not in verified),
            candidates=self._candidates,
            judged=self._judged,
            counts=self._counts,
            complete=self._complete,
        )

    @property
    def _options(self) -> list[Proposal]:
        """Proposals of the front that hold."""
        return [each for each in front(self._proposals)[0] if each in self._verified]

    def _upcoming(self) -> list[Proposal]:
        """Proposals in the order of simulating them; what failed no longer stands before others."""
        kept, _ = front(self._proposals)
        return [each for each in in_turns(kept) if each not in self._verified]

    def _wanting(self) -> list[Proposal]:
        """What is still to be simulated: what pays beside a plan that was found is, in any case."""
        upcoming = self._upcoming()
        if len(self._options) >= self._wanted:
            return [each for each in upcoming if each.candidate.split is not None]
        if not upcoming and self._split_others():
            return self._upcoming()
        return upcoming

    def _split_others(self) -> bool:
        """Where nothing is left to simulate: split what comes nearest without holding."""
        missing = [each for each in self._rejections if each.reason in _NEAR]
        for rejection in sorted(missing, key=lambda each: each.nearest):
            if self._split(rejection.candidate):
                return True
        return False

    def _split(self, like: Candidate) -> bool:
        """Try, once for each kind, to serve prompts and answers apart; whether it may pay."""
        kind = _kind(like)
        if kind in self._ladders or not self._split_gpus:
            return False
        found = splits_of(
            like,
            self._demand,
            self._bounds(like),
            most_gpus=self._split_gpus,
            others=self._holding(kind),
        )
        self._ladders[kind] = []
        if isinstance(found, list):
            self._ladders[kind] = found[1:]
            self._proposals.append(found[0])
            return True
        if found is not None:
            self._rejections.append(found)
        return False

    def _holding(self, kind: object) -> list[Proposal]:
        """Proposals of a kind that hold, of servers that do both."""
        return [
            each
            for each in self._verified
            if each.candidate.split is None and _kind(each.candidate) == kind
        ]

    def _bounds(self, candidate: Candidate) -> Bounds:
        key = candidate.accelerator.key
        return Bounds(
            usd_per_gpu_hour=self._prices.get(key),
            most_gpus=None if self._inventory is None else self._inventory.get(key, 0),
            budget_usd_per_hour=self._budget,
        )

    def _case(self, proposal: Proposal) -> Case:
        return Case(
            proposal=proposal,
            demand=self._demand,
            bounds=self._bounds(proposal.candidate),
            seed=self._seed,
        )

    def _settle(self, proposal: Proposal, found: Proven) -> None:
        """Put what became of a proposal in its place."""
        candidate = proposal.candidate
        if isinstance(found, Rejection):
            self._proposals.remove(proposal)
            self._rejections.append(found)
            ladder = self._ladders.get(_kind(candidate))
            if candidate.split is not None and ladder:
                self._proposals.append(ladder.pop(0))
            return
        self._proposals[self._proposals.index(proposal)] = found.proposal
        self._verified[found.proposal] = found.verification
        if candidate.split is None:
            self._split(candidate)


def _kind(candidate: Candidate) -> object:
    """What deployments that are compared have in common."""
    return candidate.spec.name, candidate.accelerator.key, candidate.engine, candidate.kv
