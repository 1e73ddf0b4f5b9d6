"""The search: judge every candidate, keep the front, simulate it until enough plans hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tokenroom.errors import DeploymentError
from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.front import front, in_turns
from tokenroom.planning.judging import Proposal, Rejection, judged, proposed
from tokenroom.planning.verification import Verification, statistic_of, verified

_GROWTH: Final = 1.1
"""Replicas of the next try over those of the one that failed."""

_TRIES: Final = 6
"""Simulations of a proposal at most, each with more replicas."""


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
        candidates: Everything that was to be judged.
        judged: Candidates that were.
        complete: The search was not interrupted.
    """

    demand: Demand
    options: tuple[Option, ...]
    rejections: tuple[Rejection, ...]
    untried: tuple[Proposal, ...]
    candidates: Sequence[Candidate]
    judged: int
    complete: bool


class Search:
    """One search, which can be ended at any point with what it has found.

    Args:
        candidates: Replicas to be tried.
        demand: What is to be served.
        prices: USD of one GPU for an hour by the accelerator's key, as far as known.
        inventory: GPUs of each kind there are, by key; None for any number.
        budget_usd_per_hour: The most that all GPUs may cost; None for any sum.
        wanted: How many plans are looked for.
        seed: Of the simulations.

    Raises:
        DeploymentError: A budget is given without any price or is no sum, or nothing is wanted.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        demand: Demand,
        *,
        prices: Mapping[str, float] | None = None,
        inventory: Mapping[str, int] | None = None,
        budget_usd_per_hour: float | None = None,
        wanted: int = 5,
        seed: int = 0,
    ) -> None:
        if budget_usd_per_hour is not None and not prices:
            raise DeploymentError("a budget needs prices; give the price of each kind of GPU")
        if budget_usd_per_hour is not None and not 0 < budget_usd_per_hour < math.inf:
            raise DeploymentError(f"the budget is {budget_usd_per_hour:g}; give USD above 0")
        if wanted < 1:
            raise DeploymentError(f"wanted is {wanted}; ask for 1 plan or more")
        self._candidates = candidates
        self._demand = demand
        self._prices = prices or {}
        self._inventory = inventory
        self._budget = budget_usd_per_hour
        self._wanted = wanted
        self._seed = seed
        self._judged = 0
        self._proposals: list[Proposal] = []
        self._rejections: list[Rejection] = []
        self._verified: dict[Proposal, Verification] = {}
        self._complete = False

    def steps(self) -> Iterator[Progress]:
        """Search; gives a note before each piece of work."""
        for candidate in self._candidates:
            yield Progress("judge", self._judged, len(self._candidates), candidate)
            found = self._judge(candidate)
            self._judged += 1
            if isinstance(found, Proposal):
                self._proposals.append(found)
            else:
                self._rejections.append(found)
        while len(self._options) < self._wanted and (following := self._next()) is not None:
            yield from self._verify(following)
        self._complete = True

    def plan(self) -> Plan:
        """What has been found up to now."""
        kept, beaten = front(self._proposals)
        return Plan(
            demand=self._demand,
            options=tuple(
                Option(proposal=proposal, verification=self._verified[proposal])
                for proposal in kept
                if proposal in self._verified
            ),
            rejections=(*self._rejections, *beaten),
            untried=tuple(proposal for proposal in kept if proposal not in self._verified),
            candidates=self._candidates,
            judged=self._judged,
            complete=self._complete,
        )

    @property
    def _options(self) -> list[Proposal]:
        """Proposals of the front that hold."""
        return [each for each in front(self._proposals)[0] if each in self._verified]

    def _next(self) -> Proposal | None:
        """The proposal to be simulated next; what failed no longer stands before others."""
        kept, _ = front(self._proposals)
        return next((each for each in in_turns(kept) if each not in self._verified), None)

    def _judge(self, candidate: Candidate) -> Proposal | Rejection:
        key = candidate.accelerator.key
        return judged(
            candidate,
            self._demand,
            usd_per_gpu_hour=self._prices.get(key),
            most_gpus=None if self._inventory is None else self._inventory.get(key, 0),
            budget_usd_per_hour=self._budget,
        )

    def _verify(self, proposal: Proposal) -> Iterator[Progress]:
        """Simulate a proposal, with smaller steps or more replicas until it holds."""
        first, last = proposal, None
        for _ in range(_TRIES):
            yield Progress("verify", len(self._options), self._wanted, proposal.candidate)
            try:
                last = verified(proposal, self._demand, seed=self._seed)
            except DeploymentError as error:
                self._reject(
                    first,
                    Rejection(
                        candidate=proposal.candidate, reason="refused", values={"text": str(error)}
                    ),
                )
                return
            if last.kept:
                self._proposals[self._proposals.index(first)] = proposal
                self._verified[proposal] = last
                return
            following = self._with_more(proposal)
            if isinstance(following, Rejection):
                self._reject(first, following)
                return
            proposal = following
        assert last is not None
        self._reject(first, self._failed(proposal, last))

    def _with_more(self, proposal: Proposal) -> Proposal | Rejection:
        """The same with more replicas."""
        key = proposal.candidate.accelerator.key
        return proposed(
            proposal.candidate,
            self._demand,
            proposal.most,
            replicas=max(proposal.replicas + 1, round(proposal.replicas * _GROWTH)),
            usd_per_gpu_hour=self._prices.get(key),
            most_gpus=None if self._inventory is None else self._inventory.get(key, 0),
            budget_usd_per_hour=self._budget,
        )

    def _reject(self, proposal: Proposal, why: Rejection) -> None:
        self._proposals.remove(proposal)
        self._rejections.append(why)

    def _failed(self, proposal: Proposal, found: Verification) -> Rejection:
        """Why its simulations fail: the objective that is missed the most."""
        promised = self._demand.objectives
        misses = [
            (seconds / wanted, name, seconds, wanted)
            for name, wanted, seen in (
                ("ttft", promised.ttft_seconds, found.ttft),
                ("tpot", promised.tpot_seconds, found.tpot),
            )
            if wanted is not None and (seconds := statistic_of(self._demand, seen)) is not None
        ]
        factor, name, seconds, wanted = max(misses)
        return Rejection(
            candidate=proposal.candidate,
            reason="simulation",
            values={
                "objective": name,
                "seconds": seconds,
                "wanted_seconds": wanted,
                "gpus": proposal.gpus,
                "replicas": proposal.replicas,
            },
            nearest=factor,
        )
