"""A candidate against a demand: does it fit, how much of the load does it take, how many of it.

Memory decides first, exactly; then the closed form of :mod:`tokenroom.performance.load` says how
many clients one replica takes under the objectives, and so how many replicas the demand needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, NamedTuple

from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.objectives import LoadLimits
from tokenroom.planning.candidates import Candidate, least_gpus
from tokenroom.planning.demand import Demand
from tokenroom.planning.layout_memory import fit_of
from tokenroom.planning.tuned import ALIKE, Counts, Tuned, Verdicts
from tokenroom.planning.tuning import DEFAULTS_ALONE, TuningSpace
from tokenroom.serving_speed import ServingSpeed, speed_of

MOST_REPLICAS: Final = 4096
_COSTLY_SHARE: Final = 0.3
"""Of a step, from which on exchanging between GPUs is named as what holds a candidate back."""
_SOONER: Final = 0.9
"""Of a time, from which down a tuning is proposed beside the one that serves the most."""


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A candidate that is not proposed.

    Attributes:
        candidate: Which.
        reason: Why: ``"refused"``, ``"weights"``, ``"memory"``, ``"ttft"``, ``"tpot"``,
            ``"gpus"``, ``"budget"``, ``"unpriced"``, ``"replicas"``,
            ``"dominated"``, ``"simulation"`` or ``"split"``.
        details: Figures of the reason, or what works them out when they are asked for.
        nearest: How far it is from being proposed, to compare with others of the same reason:
            the factor by which it misses, or infinity where nothing measures it.
    """

    candidate: Candidate
    reason: str
    details: Mapping[str, object] | Callable[[], Mapping[str, object]] = field(
        default_factory=dict, compare=False, repr=False
    )
    nearest: float = math.inf

    @cached_property
    def values(self) -> Mapping[str, object]:
        """Figures of the reason."""
        return self.details() if callable(self.details) else self.details


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """Replicas of a candidate that take the whole demand, by the closed form.

    Attributes:
        tuned: One replica, with the speed of each number of its clients.
        demand: What is served.
        replicas: How many there are.
        clients: Of one replica at its share of the demand.
        ttft_seconds: What they see on average.
        tpot_seconds: Likewise.
        headroom: Demand that all replicas take at most, over the demand.
        usd_per_hour: Of all GPUs; None without a price.
    """

    tuned: Tuned
    demand: Demand
    replicas: int
    clients: int
    ttft_seconds: float
    tpot_seconds: float
    headroom: float
    usd_per_hour: float | None

    @property
    def candidate(self) -> Candidate:
        """One replica."""
        return self.tuned.candidate

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.candidate.gpus

    @cached_property
    def most(self) -> ServingSpeed:
        """The largest load of one replica that keeps the objectives on average.

        With prompts apart it is of one server of answers, as is ``point``.
        """
        return self.tuned.speed(self.demand, self.tuned.clients)

    @cached_property
    def point(self) -> ServingSpeed:
        """One replica at its share of the demand."""
        return self.tuned.speed(self.demand, self.clients)

    @property
    def fit(self) -> FitResult:
        """The memory of one replica."""
        return self.most.fit

    @property
    def is_extrapolated(self) -> bool:
        """No operator was measured on this kind of GPU: its times are carried over from others."""
        own = f"{self.candidate.accelerator.key}:"
        return not any(table.startswith(own) for table in self.point.tables)

    @property
    def output_tokens_per_second(self) -> float:
        """Of all replicas, at the demand."""
        servers = self.replicas * self.candidate.servers
        return self.point.output_tokens_per_second.value * servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What all GPUs of a kind may cost and how many there are.

    Attributes:
        usd_per_gpu_hour: Price of one GPU; None when unknown.
        most_gpus: GPUs there are; None for any number.
        budget_usd_per_hour: The most that all GPUs may cost; None for any sum.
    """

    usd_per_gpu_hour: float | None = None
    most_gpus: int | None = None
    budget_usd_per_hour: float | None = None


UNBOUNDED: Final = Bounds()


class Judged(NamedTuple):
    """What becomes of a layout.

    Attributes:
        proposals: The few tunings of it that are worth a look; none of a rejected one.
        rejection: Why there is none.
        counts: Its tunings.
    """

    proposals: tuple[Proposal, ...]
    rejection: Rejection | None
    counts: Counts


def judged(
    candidate: Candidate, demand: Demand, bounds: Bounds = UNBOUNDED
) -> Proposal | Rejection:
    """What becomes of a candidate as it is, its tuning included.

    Args:
        candidate: One replica.
        demand: What is to be served.
        bounds: What there is of its kind of GPU.
    """
    tuning = candidate.tuning
    space = TuningSpace(
        max_num_batched_tokens=(tuning.max_num_batched_tokens,),
        max_num_seqs=(tuning.max_num_seqs,),
        memory_shares=(tuning.memory_share,),
        prefix_caching=(tuning.prefix_caching,),
        kv_offload_bytes=(tuning.kv_offload_bytes,),
        max_model_lens=(tuning.max_model_len,),
        drafts=(tuning.draft,),
    )
    found = judged_layout(candidate, demand, space, bounds)
    if found.rejection is not None:
        return found.rejection
    (proposal,) = found.proposals
    return proposal


def judged_layout(
    layout: Candidate,
    demand: Demand,
    space: TuningSpace = DEFAULTS_ALONE,
    bounds: Bounds = UNBOUNDED,
    verdicts: Verdicts | None = None,
) -> Judged:
    """What becomes of a layout under all tunings of a space.

    Args:
        layout: How the model is divided, and over what; its own tuning does not count.
        demand: What is to be served.
        space: Of :func:`~tokenroom.planning.tuning.space_of` its engine.
        bounds: What there is of its kind of GPU.
        verdicts: What is known of layouts.
    """
    if bounds.budget_usd_per_hour is not None and bounds.usd_per_gpu_hour is None:
        rejection = Rejection(candidate=layout, reason="unpriced")
        return Judged((), rejection, Counts(0, len(space)))
    needed = least_gpus(layout.spec, layout.accelerator)
    if needed > layout.gpus:
        rejection = Rejection(
            candidate=layout,
            reason="weights",
            details={
                "weights_bytes": checkpoint_weights(layout.spec).total_bytes,
                "gpus": needed,
                "most": layout.gpus,
            },
            nearest=needed / layout.gpus,
        )
        return Judged((), rejection, Counts(0, len(space)))
    verdict = (Verdicts() if verdicts is None else verdicts).of(layout, demand, space)
    if not verdict.tuned:
        first = replace(layout, tuning=next(iter(space)))
        return Judged((), _why_not(first, demand), verdict.counts)
    found = [proposed(tuned, demand, bounds=bounds) for tuned in verdict.tuned]
    proposals = [each for each in found if isinstance(each, Proposal)]
    if not proposals:
        refused = [each for each in found if isinstance(each, Rejection)]
        return Judged((), min(refused, key=lambda each: each.nearest), verdict.counts)
    return Judged(tuple(_few(proposals)), None, verdict.counts)


def _few(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Of one layout: what needs the fewest replicas and serves the most, and what answers sooner.

    Others are only worth a look where they need no more GPUs and the mean TTFT or TPOT is a tenth
    shorter.
    """
    replicas = min(each.replicas for each in proposals)
    least = [each for each in proposals if each.replicas == replicas]
    most = max(each.tuned.served for each in least)
    alike = [each for each in least if each.tuned.served * (1 + ALIKE) >= most]
    best = min(alike, key=lambda each: (each.candidate.tuning.settled, -each.headroom))
    kept = [best]
    for name in ("ttft_seconds", "tpot_seconds"):
        soonest = min(least, key=lambda each: getattr(each, name))
        sooner = all(getattr(soonest, name) < _SOONER * getattr(each, name) for each in kept)
        if sooner:
            kept.append(soonest)
    return kept


def proposed(
    tuned: Tuned, demand: Demand, *, replicas: int = 1, bounds: Bounds = UNBOUNDED
) -> Proposal | Rejection:
    """As many replicas as the demand needs, at least ``replicas``."""
    candidate, each = tuned.candidate, tuned.served
    replicas = tuned.replicas_for(demand, replicas)
    gpus, most_gpus = replicas * candidate.gpus, bounds.most_gpus
    values = {"replicas": replicas, "gpus": gpus}
    if most_gpus is not None and gpus > most_gpus:
        return Rejection(
            candidate=candidate,
            reason="gpus",
            details={**values, "most": most_gpus, "served": each * (most_gpus // candidate.gpus)},
            nearest=gpus / most_gpus if most_gpus else math.inf,
        )
    if replicas > MOST_REPLICAS:
        return Rejection(candidate=candidate, reason="replicas", details=values, nearest=replicas)
    price, budget = bounds.usd_per_gpu_hour, bounds.budget_usd_per_hour
    usd = None if price is None else gpus * price
    if budget is not None and usd is not None and usd > budget:
        return Rejection(
            candidate=candidate,
            reason="budget",
            details={**values, "usd": usd, "most": budget},
            nearest=usd / budget,
        )
    clients, means = tuned.at_share(demand, replicas)
    return Proposal(
        tuned=tuned,
        demand=demand,
        replicas=replicas,
        clients=clients,
        ttft_seconds=means.ttft_seconds,
        tpot_seconds=means.tpot_seconds,
        headroom=tuned.at_most * replicas / demand.amount,
        usd_per_hour=usd,
    )


def _why_not(candidate: Candidate, demand: Demand) -> Rejection:
    """Why no tuning of a layout keeps the objectives, told of the engine's own settings."""
    try:
        found = fit_of(candidate, demand)
        if found.plan.refusal is not None:
            return Rejection(
                candidate=candidate, reason="memory", details={"refusal": found.plan.refusal}
            )
        alone = speed_of(
            found,
            input_tokens=demand.input_tokens,
            output_tokens=demand.output_tokens,
            concurrency=1,
        )
        missed = demand.objectives.missed(alone)
    except TokenroomError as error:
        return Rejection(candidate=candidate, reason="refused", details={"text": str(error)})
    wanted = getattr(demand.objectives, f"{missed[0]}_seconds")
    seconds = getattr(alone, f"{missed[0]}_seconds").value
    return Rejection(
        candidate=candidate,
        reason=missed[0],
        details=partial(_too_slow, alone, demand),
        nearest=seconds / wanted,
    )


def _too_slow(alone: ServingSpeed, demand: Demand) -> Mapping[str, object]:
    """By how much one request alone misses its objective, and what holds it back."""
    (first, *_) = LoadLimits(asked=alone, objectives=demand.objectives).unmet
    ledger = alone.decode if first.objective == "tpot" else alone.prefill
    shares = ledger.shares
    limiter = max(shares, key=shares.__getitem__)
    if shares["communication"] >= _COSTLY_SHARE:
        limiter = "communication"
    return {
        "alone_seconds": first.alone_seconds.value,
        "wanted_seconds": first.wanted_seconds,
        "floor_seconds": first.floor.seconds,
        "limiter": limiter,
        "share": shares[limiter],
    }
