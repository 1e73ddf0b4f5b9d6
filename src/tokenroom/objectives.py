"""The largest load that keeps latency objectives, which of them binds, and what sets its bound.

Objectives are of the mean: every client's TPOT and TTFT at a steady load is to stay at or below
them. Loads are tried by halving a range that depends on the deployment alone, not on the objective.
So the answer keeps the objectives, one client more does not, and a tighter objective never gives a
larger answer, even where the step-time model is not quite monotone (a step holds whole chunks of
prompts): two objectives part ways at the first load that one keeps and the other misses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from tokenroom.errors import DeploymentError, shown
from tokenroom.performance.drafting import acceptance_of, expected_tokens
from tokenroom.performance.floor import Floor, step_floor
from tokenroom.performance.idle import burst_ttft
from tokenroom.performance.operators import step_operators
from tokenroom.performance.work import Chunk, StepWork
from tokenroom.serving_speed import MAX_CONCURRENCY, Range, ServingSpeed
from tokenroom.serving_terms import replica_of
from tokenroom.step_ledger import LIMITERS

Objective: TypeAlias = Literal["tpot", "ttft"]

_DRAFTED: Final = (3, 5, 7)
"""Tokens that are drafted in a row, as engines' own examples do."""

_LIKELY: Final = 0.9
"""The largest acceptance that was measured of a chain of drafts (acceptance.py: MTP)."""

_ENDS: Final = (0, 2, 1)  # of a time: its estimate, its high end (cautious), its low end


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What clients are promised on average; at least one of the two.

    Attributes:
        tpot_seconds: Time of each further token, at most.
        ttft_seconds: Time to the first token, at most.

    Raises:
        DeploymentError: Neither is given, or one is no positive time.
    """

    tpot_seconds: float | None = None
    ttft_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.tpot_seconds is None and self.ttft_seconds is None:
            raise DeploymentError("no objective is given; give tpot_seconds, ttft_seconds or both")
        for name in ("tpot_seconds", "ttft_seconds"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value < math.inf):
                raise DeploymentError(f"{name} is {shown(value)}; give seconds above 0")

    def check(self, point: ServingSpeed) -> None:
        """Refuse an objective that the requests have no figure for.

        Raises:
            DeploymentError: Requests of one token have no TPOT.
        """
        if self.tpot_seconds is not None and not point.has_further_tokens:
            raise DeploymentError(
                "requests of one output token have no time per further token; leave the TPOT "
                "objective out, or ask about 2 tokens or more"
            )

    def kept(self, ttft_seconds: float, tpot_seconds: float) -> bool:
        """Whether two means keep them, of requests that have a TPOT where one is promised."""
        first, further = self.ttft_seconds, self.tpot_seconds
        return (first is None or ttft_seconds <= first) and (
            further is None or tpot_seconds <= further
        )

    def missed(self, point: ServingSpeed, end: int = 0) -> tuple[Objective, ...]:
        """The objectives that a load misses by the estimate (0), or by the low or high end.

        Raises:
            DeploymentError: Requests of one token have no TPOT.
        """
        self.check(point)
        found: list[Objective] = []
        if self.tpot_seconds is not None and point.tpot_seconds[end] > self.tpot_seconds:
            found.append("tpot")
        if self.ttft_seconds is not None and point.ttft_seconds[end] > self.ttft_seconds:
            found.append("ttft")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The largest number of clients that keeps objectives.

    Attributes:
        concurrency: By the estimate; 0 when not even one alone keeps them.
        cautious: The same when the GPUs are as slow as the ranges allow.
        hopeful: When they are as fast.
        point: What those clients see; None of 0.
        binds: The objectives that one client more would miss; none where room ends first.
        bound_by: What sets that: one of :data:`tokenroom.step_ledger.LIMITERS`, or where requests
            would wait for room ``"kv_pool"`` or ``"max_num_seqs"``.
    """

    concurrency: int
    cautious: int
    hopeful: int
    point: ServingSpeed | None
    binds: tuple[Objective, ...]
    bound_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Prompts that reach an idle server at once.

    Attributes:
        prompts: How many.
        ttft_seconds: Until the last of them has its first token.
    """

    prompts: int
    ttft_seconds: Range


class DraftsNeeded(NamedTuple):
    """What speculative decoding would have to yield, at least: drafting itself takes time, too.

    Attributes:
        tokens_per_step: Tokens a step.
        drafted_tokens: Tokens drafted in a row.
        acceptance: Share of them to be kept; None where so many drafts cannot yield it.
    """

    tokens_per_step: float
    drafted_tokens: int
    acceptance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """An objective that one request alone misses.

    Attributes:
        objective: Which.
        wanted_seconds: What was asked.
        alone_seconds: What one request sees on an idle server.
        floor: The least it could take; of a TPOT at one token a step, or where tokens are drafted
            when all of them are kept.
        drafts: What speculative decoding would have to yield, of a TPOT without it; else None.
    """

    objective: Objective
    wanted_seconds: float
    alone_seconds: Range
    floor: Floor
    drafts: DraftsNeeded | None = None

    @property
    def beyond_physics(self) -> bool:
        """Whether no engine could keep it on these GPUs with this model."""
        return self.wanted_seconds < self.floor.seconds


@dataclass(frozen=True, kw_only=True)
class LoadLimits:
    """How much load a deployment takes under objectives.

    Attributes:
        asked: The deployment and its requests.
        objectives: What is promised.
    """

    asked: ServingSpeed
    objectives: Objectives

    @property
    def met(self) -> bool:
        """Whether at least one request alone keeps all objectives."""
        return self.load.concurrency > 0

    @cached_property
    def alone(self) -> ServingSpeed:
        """One request on an idle server."""
        return self._at(1)

    @cached_property
    def batch(self) -> Largest | None:
        """Requests that may run at once under the TPOT alone; None without one.

        At most what the KV pool and ``max_num_seqs`` allow to run.
        """
        if self.objectives.tpot_seconds is None:
            return None
        return self._largest(
            Objectives(tpot_seconds=self.objectives.tpot_seconds), self.asked.fit.requests_running
        )

    @cached_property
    def load(self) -> Largest:
        """Clients under all objectives together; they may wait for room where a TTFT allows it."""
        most = self.asked.fit.requests_running
        if self.objectives.ttft_seconds is not None:
            most = MAX_CONCURRENCY
        return self._largest(self.objectives, most)

    @cached_property
    def bursts(self) -> tuple[Burst, ...]:
        """The TTFT against the prompts that arrive together, doubling up to all that may run.

        The largest number that keeps the objective is among them. Empty without a TTFT.
        """
        wanted = self.objectives.ttft_seconds
        if wanted is None:
            return ()
        room = self.asked.fit.requests_running
        kept = largest_that(room, lambda count: self.burst(count).ttft_seconds.value <= wanted)
        counts = {1, kept, *(2**power for power in range(room.bit_length()))}
        shown_counts = sorted(count for count in counts if 0 < count <= max(1, 2 * kept))
        return tuple(self.burst(count) for count in shown_counts)

    @cached_property
    def unmet(self) -> tuple[Unmet, ...]:
        """The objectives that one request alone misses, with the physical floor of each."""
        return tuple(map(self._unmet, self.objectives.missed(self.alone)))

    def burst(self, prompts: int) -> Burst:
        """So many prompts at once."""
        asked = self.asked
        terms = asked.terms._replace(drafting=None)
        times = burst_ttft(
            replica_of(asked.fit, terms, factors=asked.factors),
            asked.load.input_tokens,
            -(-prompts // terms.replicas),
        )
        return Burst(prompts=prompts, ttft_seconds=Range(*times))

    @cached_property
    def _points(self) -> dict[int, ServingSpeed]:
        return {self.asked.concurrency: self.asked}

    def _at(self, concurrency: int) -> ServingSpeed:
        if concurrency not in self._points:
            self._points[concurrency] = self.asked.at(concurrency)
        return self._points[concurrency]

    def _largest(self, objectives: Objectives, most: int) -> Largest:
        def largest(end: int) -> int:
            return largest_that(most, lambda count: not objectives.missed(self._at(count), end))

        found, cautious, hopeful = map(largest, _ENDS)
        binds: tuple[Objective, ...] = ()
        if found < most:
            binds = objectives.missed(self._at(found + 1))
        return Largest(
            concurrency=found,
            cautious=cautious,
            hopeful=hopeful,
            point=self._at(found) if found else None,
            binds=binds,
            bound_by=self._bound(self._at(found + 1) if binds else self._at(found), binds),
        )

    def _bound(self, point: ServingSpeed, binds: tuple[Objective, ...]) -> str:
        """What holds back the first load that misses, or the last that has room."""
        if not binds or ("tpot" not in binds and point.requests_waiting):
            return point.room_limiter
        shares = point.tpot_shares if "tpot" in binds else point.prefill.shares
        return max(LIMITERS, key=shares.__getitem__)

    def _unmet(self, objective: Objective) -> Unmet:
        load = self.asked.load
        if objective == "tpot":
            work = StepWork(
                decode_sequences=1,
                decode_context_tokens=load.input_tokens + load.output_tokens / 2,
            )
            wanted, alone = self.objectives.tpot_seconds, self.alone.tpot_seconds
        else:
            work = StepWork(prefill=(Chunk(load.input_tokens),))
            wanted, alone = self.objectives.ttft_seconds, self.alone.ttft_seconds
        assert wanted is not None
        deployment, terms = self.asked.fit.deployment, self.asked.terms
        floor = step_floor(
            step_operators(deployment.spec, terms.layout, work, kv_dtype=terms.kv_dtype),
            deployment.node.accelerator,
            terms.layout.per_node,
        )
        tokens = 1
        if objective == "tpot" and terms.drafting is not None:
            tokens = terms.drafting.verified  # at best a step keeps all that it verifies
        drafts = None
        if objective == "tpot" and terms.drafting is None:
            drafts = drafts_needed(alone.value / wanted)
        return Unmet(
            objective=objective,
            wanted_seconds=wanted,
            alone_seconds=alone,
            floor=floor._replace(seconds=floor.seconds / tokens),
            drafts=drafts,
        )


def drafts_needed(tokens_per_step: float) -> DraftsNeeded:
    """The shortest drafts that yield so many tokens a step at an acceptance that was measured."""
    for drafted in _DRAFTED:
        if tokens_per_step <= expected_tokens(_LIKELY, drafted):
            rate = acceptance_of(tokens_per_step, drafted).rate
            return DraftsNeeded(tokens_per_step, drafted, rate)
    return DraftsNeeded(tokens_per_step, _DRAFTED[-1], None)


def load_limits(
    asked: ServingSpeed,
    *,
    tpot_seconds: float | None = None,
    ttft_seconds: float | None = None,
) -> LoadLimits:
    """How much load a deployment takes under objectives of the mean TPOT and TTFT.

    Args:
        asked: The deployment and its requests, as :func:`tokenroom.speed` answers.
        tpot_seconds: Time of each further token, at most.
        ttft_seconds: Time to the first token, at most, waiting included.

    Raises:
        DeploymentError: Neither is given, one is no positive time, or requests of one token have
            no TPOT.
    """
    objectives = Objectives(tpot_seconds=tpot_seconds, ttft_seconds=ttft_seconds)
    objectives.check(asked)
    return LoadLimits(asked=asked, objectives=objectives)


def largest_that(most: int, holds: Callable[[int], bool], least: int = 0) -> int:
    """By halving, a count that holds while one more does not: ``least`` (untried) to ``most``."""
    low, high = least, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
