"""The tunings of one layout, judged: what serves the most, what answers sooner.

Memory is planned once for each token budget and number of requests, speed found once for each
budget and way of drafting (:mod:`~tokenroom.planning.load_curve`); each tuning then has its room
and the most clients that it serves, exactly as :func:`~tokenroom.fitting.fit` and
:func:`~tokenroom.serving_speed.speed_of` say. Two bounds spare whole blocks: what does not fit with
the smallest batches in the largest share fits with none, and what one request alone is promised too
soon no number of them gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

from tokenroom.errors import TokenroomError
from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.layout_memory import LayoutMemory, no_tuning_helps
from tokenroom.planning.load_curve import Curve, LoadCurve, Means
from tokenroom.planning.tuning import AS_IT_IS, Draft, Tuning, TuningSpace, without_repeats
from tokenroom.serving_speed import MAX_CONCURRENCY, ServingSpeed

ALIKE: Final = 0.01
"""Loads that differ by less count as one: the engine's own setting is then kept."""


class Counts(NamedTuple):
    """How many tunings a verdict is about.

    Attributes:
        judged: Those whose memory and speed were found.
        skipped: Those that a bound ruled out together with one that was judged.
    """

    judged: int = 0
    skipped: int = 0

    def __add__(self, other: object) -> Counts:
        """Both together."""
        assert isinstance(other, Counts)
        return Counts(self.judged + other.judged, self.skipped + other.skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A tuning of a layout that keeps the objectives.

    Attributes:
        candidate: The layout with it.
        clients: The most that one replica serves under the objectives; of users no more than there
            are.
        served: The part of the demand that they make.
        at_most: What one replica would take if there were as many users as it has room for.
        curve: Its speed by clients.
    """

    candidate: Candidate
    clients: int
    served: float
    at_most: float
    curve: Curve

    def speed(self, demand: Demand, clients: int) -> ServingSpeed:
        """What so many clients of one replica see.

        Raises:
            TokenroomError: The engine refuses the candidate, or its speed is not modelled.
        """
        return self.curve.speed(self.candidate, demand, clients)

    def replicas_for(self, demand: Demand, least: int = 1) -> int:
        """As many as the demand needs, at least ``least``."""
        return max(least, math.ceil(demand.amount / self.served - 1e-9))

    def at_share(self, demand: Demand, replicas: int) -> tuple[int, Means]:
        """The fewest clients by whom one of so many replicas serves its share, and their means."""
        clients = self.curve.fewest(demand.amount / replicas, self.clients)
        return clients, self.curve.at(clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a layout.

    Attributes:
        tuned: The best of its tunings for each token budget and way of drafting; none where no
            tuning keeps the objectives.
        counts: Its tunings.
        slow: Some tuning starts and holds a request, but none keeps the objectives.
    """

    tuned: tuple[Tuned, ...]
    counts: Counts
    slow: bool = False


class Verdicts:
    """Verdicts of layouts, kept for demands that differ in nothing but how many users there are."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Candidate, Demand, TuningSpace, Verdict]] = {}

    def of(self, layout: Candidate, demand: Demand, space: TuningSpace) -> Verdict:
        """What becomes of a layout under all tunings of a space, all of its bounds at work."""
        kept = self._kept.get(id(layout))
        if kept is not None and space == kept[2] and _holds(kept[3], kept[1], demand):
            return kept[3]
        verdict = LayoutJudge(layout, demand, space).verdict()
        self._kept[id(layout)] = layout, demand, space, verdict
        return verdict


def _holds(verdict: Verdict, demand: Demand, other: Demand) -> bool:
    """Whether a verdict holds for another demand: fewer users, but as many as any tuning takes."""
    if demand.users is None or other.users is None or other.users > demand.users:
        return False
    alike = all(
        getattr(demand, item.name) == getattr(other, item.name)
        for item in fields(Demand)
        if item.name != "users"
    )
    return alike and all(tuned.clients <= other.users for tuned in verdict.tuned)


class LayoutJudge:
    """Judges the tunings of one layout.

    Args:
        layout: The layout, as the engine takes it by itself.
        demand: What is to be served.
        space: The tunings, of :func:`~tokenroom.planning.tuning.space_of` the layout's engine.
        bounds: Whether bounds may rule tunings out together.
    """

    def __init__(
        self, layout: Candidate, demand: Demand, space: TuningSpace, *, bounds: bool = True
    ) -> None:
        self._layout = layout
        self._demand = demand
        self._space = space
        self._bounds = bounds
        self._slow = False
        self._first: LayoutMemory | None = None

    def verdict(self) -> Verdict:
        """What becomes of it."""
        self._space = self._without_repeats()
        whole = len(self._space)
        if self._bounds and whole > 1 and self._nothing_fits():
            return Verdict(tuned=(), counts=Counts(1, whole - 1))
        counts, found = Counts(), []
        first: LoadCurve | None = None
        memory: LayoutMemory | None = None
        each = whole // (len(self._space.drafts) * len(self._space.max_num_batched_tokens))
        for draft, budget in self._speeds():
            tuning = Tuning(max_num_batched_tokens=budget, draft=draft)
            try:
                if tuning == AS_IT_IS and self._first is not None:
                    memory = self._first
                else:
                    memory = LayoutMemory(self._layout, self._demand, tuning, memory)
                curve = LoadCurve(memory.base, self._demand, first)
                slow = not curve.keeps(1)
            except TokenroomError:
                counts += Counts(each, 0)  # refused whatever the rest is
                continue
            first = first or curve
            if slow and self._bounds:
                self._slow = True
                counts += Counts(1, each - 1)
                continue
            best = self._best(memory, curve, tuning)
            counts += Counts(each, 0)
            if best is not None:
                found.append(best)
        return Verdict(tuned=tuple(found), counts=counts, slow=self._slow and not found)

    def _without_repeats(self) -> TuningSpace:
        """The space without what is the engine's own setting anyway."""
        if len(self._space) == 1:
            return self._space
        try:
            self._first = LayoutMemory(self._layout, self._demand, AS_IT_IS)
        except TokenroomError:
            return self._space
        return without_repeats(self._space, self._first.base.deployment.settings)

    def _speeds(self) -> Iterator[tuple[Draft | None, int | None]]:
        """What speed depends on."""
        for draft in self._space.drafts:
            for budget in self._space.max_num_batched_tokens:
                yield draft, budget

    def _nothing_fits(self) -> bool:
        """Whether even the tuning that takes the least memory leaves no room for a request."""
        space, first = self._space, self._first
        if first is not None and first.base.requests_running:
            return False

        def least(values: tuple[int | None, ...]) -> int | None:
            return min((value for value in values if value is not None), default=None)

        shares = [share for share in space.memory_shares if share is not None]
        smallest = Tuning(
            max_num_batched_tokens=least(space.max_num_batched_tokens),
            max_num_seqs=least(space.max_num_seqs),
            memory_share=max(shares, default=None),
            max_model_len=None if None in space.max_model_lens else least(space.max_model_lens),
        )
        try:
            found = LayoutMemory(self._layout, self._demand, smallest).base
        except TokenroomError:
            return False  # others may be refused for other reasons
        return found.plan.refusal is not None and no_tuning_helps(found.plan.refusal)

    def _best(self, memory: LayoutMemory, curve: LoadCurve, tuning: Tuning) -> Tuned | None:
        """The tuning that serves the most clients, with as few settings as that takes.

        Who has more room serves no fewer, so of those with equally many settings the roomiest is
        asked for its clients.
        """
        shares = self._space.memory_shares
        rooms: dict[int, tuple[int, Tuning, float | None]] = {}
        for plain in self._batches(tuning):
            settled = plain.settled
            for share, room in zip(shares, memory.running(plain, shares), strict=True):
                level = settled + (share is not None)
                held = rooms.get(level)
                if held is None or room > held[0]:
                    rooms[level] = room, plain, share
        cap = self._demand.users or MAX_CONCURRENCY
        copies = curve.copies
        for level, (room, plain, share) in rooms.items():
            if room > copies:  # as many on each copy, so that all of them run
                rooms[level] = room - room % copies, plain, share
        most = min(cap, max(room for room, _, _ in rooms.values()))
        if not most:
            return None
        self._slow = True
        wanted = curve.largest(most)
        for _, (room, plain, share) in sorted(rooms.items()):
            clients = curve.largest(min(cap, room)) if room else 0
            if clients and clients * (1 + ALIKE) >= wanted:
                return Tuned(
                    candidate=replace(self._layout, tuning=replace(plain, memory_share=share)),
                    clients=clients,
                    served=curve.served(clients),
                    at_most=curve.served(curve.largest(room)),
                    curve=curve,
                )
        return None

    def _batches(self, tuning: Tuning) -> Iterator[Tuning]:
        """Every tuning of a budget and way of drafting, the share of memory left out."""
        space = self._space
        for length in space.max_model_lens:
            for offload in space.kv_offload_bytes:
                for caching in space.prefix_caching:
                    for seqs in space.max_num_seqs:
                        yield replace(
                            tuning,
                            max_model_len=length,
                            kv_offload_bytes=offload,
                            prefix_caching=caching,
                            max_num_seqs=seqs,
                        )
