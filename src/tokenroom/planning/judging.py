"""A candidate against a demand: does it fit, how much of the load does it take, how many of it.

Memory decides first, exactly; then the closed form of :mod:`tokenroom.performance.load` says how
many clients one replica takes under the objectives, and so how many replicas the demand needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Node
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.objectives import LoadLimits, largest_that
from tokenroom.planning.candidates import PER_NODE, Candidate, least_gpus
from tokenroom.planning.demand import Demand
from tokenroom.serving_speed import MAX_CONCURRENCY, ServingSpeed, speed_of

MOST_REPLICAS: Final = 4096
_COSTLY_SHARE: Final = 0.3
"""Of a step, from which on exchanging between GPUs is named as what holds a candidate back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A candidate that is not proposed.

    Attributes:
        candidate: Which.
        reason: Why: ``"refused"``, ``"weights"``, ``"memory"``, ``"ttft"``, ``"tpot"``,
            ``"gpus"``, ``"budget"``, ``"unpriced"``, ``"replicas"``,
            ``"dominated"`` or ``"simulation"``.
        values: Figures of the reason.
        nearest: How far it is from being proposed, to compare with others of the same reason:
            the factor by which it misses, or infinity where nothing measures it.
    """

    candidate: Candidate
    reason: str
    values: Mapping[str, object] = field(default_factory=dict)
    nearest: float = math.inf


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """Replicas of a candidate that take the whole demand, by the closed form.

    Attributes:
        candidate: One replica.
        fit: Its memory.
        replicas: How many there are.
        most: The largest load of one replica that keeps the objectives on average.
        point: One replica at its share of the demand.
        headroom: Demand that all replicas take at most, over the demand.
        usd_per_hour: Of all GPUs; None without a price.
    """

    candidate: Candidate
    fit: FitResult
    replicas: int
    most: ServingSpeed
    point: ServingSpeed
    headroom: float
    usd_per_hour: float | None

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.candidate.gpus

    @property
    def is_extrapolated(self) -> bool:
        """No operator was measured on this kind of GPU: its times are carried over from others."""
        own = f"{self.candidate.accelerator.key}:"
        return not any(table.startswith(own) for table in self.point.tables)

    @property
    def output_tokens_per_second(self) -> float:
        """Of all replicas, at the demand."""
        return self.point.output_tokens_per_second.value * self.replicas


def judged(
    candidate: Candidate, demand: Demand, bounds: Bounds = UNBOUNDED
) -> Proposal | Rejection:
    """What becomes of a candidate.

    Args:
        candidate: One replica.
        demand: What is to be served.
        bounds: What there is of its kind of GPU.
    """
    if bounds.budget_usd_per_hour is not None and bounds.usd_per_gpu_hour is None:
        return Rejection(candidate=candidate, reason="unpriced")
    needed = least_gpus(candidate.spec, candidate.accelerator)
    if needed > candidate.gpus:
        weights_bytes = checkpoint_weights(candidate.spec).total_bytes
        return Rejection(
            candidate=candidate,
            reason="weights",
            values={"weights_bytes": weights_bytes, "gpus": needed, "most": candidate.gpus},
            nearest=needed / candidate.gpus,
        )
    most = largest_load(candidate, demand)
    if isinstance(most, Rejection):
        return most
    return proposed(candidate, demand, most, bounds=bounds)


def largest_load(candidate: Candidate, demand: Demand) -> ServingSpeed | Rejection:
    """The largest load of one replica that keeps the objectives on average, or why none does."""
    found = fitted(candidate, demand)
    if isinstance(found, Rejection):
        return found
    try:
        asked = speed_of(
            found,
            input_tokens=demand.input_tokens,
            output_tokens=demand.output_tokens,
            concurrency=1,
        )
    except TokenroomError as error:
        return Rejection(candidate=candidate, reason="refused", values={"text": str(error)})
    most = _largest(asked, demand)
    return _too_slow(candidate, asked, demand) if most is None else most


def fitted(candidate: Candidate, demand: Demand) -> FitResult | Rejection:
    """The memory of a candidate that starts and holds a request, or why there is none."""
    try:
        found = fit(
            candidate.spec,
            Node(
                accelerator=candidate.accelerator,
                count=candidate.gpus,
                per_node=min(PER_NODE, candidate.gpus),
            ),
            **settings(candidate, demand),
        )
    except TokenroomError as error:
        return Rejection(candidate=candidate, reason="refused", values={"text": str(error)})
    if found.plan.refusal is not None:
        return Rejection(
            candidate=candidate, reason="memory", values={"refusal": found.plan.refusal}
        )
    return found


def settings(candidate: Candidate, demand: Demand) -> dict[str, Any]:
    """What the engine is told beside the model and the GPUs."""
    chosen: dict[str, Any] = {
        "engine": candidate.engine,
        "context": demand.longest_tokens,
        "request_tokens": demand.input_tokens + demand.output_tokens,
        "kv": candidate.kv,
    }
    if candidate.gpus > 1:
        chosen["tp"] = candidate.tensor_parallel_size
        if candidate.pipeline_parallel_size > 1:
            chosen["pp"] = candidate.pipeline_parallel_size
        if candidate.data_parallel_size > 1:
            chosen["dp"] = candidate.data_parallel_size
        if candidate.expert_parallel:
            chosen["ep"] = True
    if candidate.max_num_batched_tokens is not None:
        chosen["max_num_batched_tokens"] = candidate.max_num_batched_tokens
    return chosen


def proposed(
    candidate: Candidate,
    demand: Demand,
    most: ServingSpeed,
    *,
    replicas: int = 1,
    bounds: Bounds = UNBOUNDED,
) -> Proposal | Rejection:
    """As many replicas as the demand needs, at least ``replicas``, where each takes ``most``."""
    most_gpus, budget_usd_per_hour = bounds.most_gpus, bounds.budget_usd_per_hour
    usd_per_gpu_hour = bounds.usd_per_gpu_hour
    each = demand.served(most)
    replicas = max(replicas, math.ceil(demand.amount / each - 1e-9))
    values = {"replicas": replicas, "gpus": replicas * candidate.gpus}
    if most_gpus is not None and values["gpus"] > most_gpus:
        return Rejection(
            candidate=candidate,
            reason="gpus",
            values={**values, "most": most_gpus, "served": each * (most_gpus // candidate.gpus)},
            nearest=values["gpus"] / most_gpus,
        )
    if replicas > MOST_REPLICAS:
        return Rejection(candidate=candidate, reason="replicas", values=values, nearest=replicas)
    usd = None if usd_per_gpu_hour is None else values["gpus"] * usd_per_gpu_hour
    if budget_usd_per_hour is not None and usd is not None and usd > budget_usd_per_hour:
        return Rejection(
            candidate=candidate,
            reason="budget",
            values={**values, "usd": usd, "most": budget_usd_per_hour},
            nearest=usd / budget_usd_per_hour,
        )
    return Proposal(
        candidate=candidate,
        fit=most.fit,
        replicas=replicas,
        most=most,
        point=_at_share(most, demand, replicas),
        headroom=each * replicas / demand.amount,
        usd_per_hour=usd,
    )


def _largest(asked: ServingSpeed, demand: Demand) -> ServingSpeed | None:
    """The largest load that keeps the objectives on average while all requests run."""
    points = {1: asked}

    def keeps(concurrency: int) -> bool:
        if concurrency not in points:
            points[concurrency] = asked.at(concurrency)
        return not demand.objectives.missed(points[concurrency])

    running = min(asked.fit.requests_running, MAX_CONCURRENCY)
    if demand.users is not None:
        running = min(running, demand.users)
    found = largest_that(running, keeps)
    return points.get(found) if found else None


def _at_share(most: ServingSpeed, demand: Demand, replicas: int) -> ServingSpeed:
    """One replica at its share: the fewest clients by whom that much is served."""
    share = demand.amount / replicas
    points = {most.concurrency: most}

    def is_less(concurrency: int) -> bool:
        if concurrency not in points:
            points[concurrency] = most.at(concurrency)
        return demand.served(points[concurrency]) < share

    below = largest_that(most.concurrency - 1, is_less)
    return points.get(below + 1) or most.at(below + 1)


def _too_slow(candidate: Candidate, alone: ServingSpeed, demand: Demand) -> Rejection:
    """Which objective one request alone misses, by how much, and what holds it back."""
    (first, *_) = LoadLimits(asked=alone, objectives=demand.objectives).unmet
    ledger = alone.decode if first.objective == "tpot" else alone.prefill
    shares = ledger.shares
    limiter = max(shares, key=shares.__getitem__)
    if shares["communication"] >= _COSTLY_SHARE:
        limiter = "communication"
    return Rejection(
        candidate=candidate,
        reason=first.objective,
        values={
            "alone_seconds": first.alone_seconds.value,
            "wanted_seconds": first.wanted_seconds,
            "floor_seconds": first.floor.seconds,
            "limiter": limiter,
            "share": shares[limiter],
        },
        nearest=first.alone_seconds.value / first.wanted_seconds,
    )
