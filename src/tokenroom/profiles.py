"""Calibration profiles: what was found about one machine, and what it means for a deployment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tokenroom.errors import ProfileError
from tokenroom.performance.factors import Factors

TRANSFER: Final[Mapping[str, Mapping[str, float]]] = {
    "layout": {"share": 0.5, "ttft": 0.49, "tpot": 0.145},
    "model": {"share": 0.25, "ttft": 0.46, "tpot": 0.135},
    "engine": {"share": 0.25, "ttft": 0.46, "tpot": 0.15},
}
"""What a profile is worth for a deployment on the same GPU that differs in this, by published
measurements (``scripts/compare_calibration.py --transfer``): the share of its factors' logarithms
that is taken, and the standard deviation of the logarithm of measured over predicted then."""

RANGE: Final = 1.2816
"""Standard deviations from the middle to the 10% and 90% points of a normal distribution."""


class Source(NamedTuple):
    """A file that was read.

    Attributes:
        name: Without its folder.
        sha256: Of its bytes.
        title: What wrote it.
    """

    name: str
    sha256: str
    title: str


class Served(NamedTuple):
    """What makes deployments alike.

    Attributes:
        model: Name of the model.
        quantization: Of its weights, None for none.
        engine: Name of the engine.
        engine_version: Whose rules were applied.
        gpu: Catalogue key.
        gpus: How many.
        tensor_parallel_size: Of one replica.
        pipeline_parallel_size: Of one replica.
        data_parallel_size: Of all replicas.
        expert_parallel_size: Of one replica.
        kv_dtype: Type of the cache, None for the checkpoint's.
        drafting: Method of speculative decoding, None without it.
    """

    model: str
    quantization: str | None
    engine: str
    engine_version: str
    gpu: str
    gpus: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel_size: int
    kv_dtype: str | None
    drafting: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRecord:
    """One measured figure before and after.

    Attributes:
        file: Its source's name.
        place: Where in it.
        figure: ``"ttft"``, ``"tpot"``, ``"throughput"``; of one request alone ``"prompt"``,
            ``"generation"``, ``"both"``.
        concurrency: Requests in flight.
        input_tokens: Prompt.
        output_tokens: Tokens it gets.
        measured: In seconds, of throughput in tokens a second.
        before: By the model as it is.
        after: With the factors.
        held_out: Measured over predicted by factors that were found without the point.
        weight: 1, or less where it contradicts the others.
    """

    file: str
    place: str
    figure: str
    concurrency: float
    input_tokens: float
    output_tokens: float
    measured: float
    before: float
    after: float
    held_out: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a calibration found.

    Attributes:
        name: Its name.
        created: Date and time, ISO 8601 with the zone.
        served: The deployment it was fitted on.
        factors: Factors on the model's times.
        spreads: Standard deviation of the logarithm of each.
        identified: Names of the factors that the data speaks of.
        remaining: Standard deviation of the logarithm of measured over predicted that remains, by
            ``"ttft"`` and ``"tpot"``.
        sources: The files.
        points: Every figure before and after.
    """

    name: str
    created: str
    served: Served
    factors: Factors
    spreads: Factors
    identified: tuple[str, ...]
    remaining: Mapping[str, float]
    sources: tuple[Source, ...]
    points: tuple[PointRecord, ...]


class Difference(NamedTuple):
    """One trait in which a deployment differs from the one that was calibrated.

    Attributes:
        trait: Its name in :class:`Served`.
        calibrated: What it was then.
        asked: What it is now.
    """

    trait: str
    calibrated: Any
    asked: Any


class Applied(NamedTuple):
    """What a profile means for a deployment.

    Attributes:
        profile: The profile.
        factors: To apply: those found, or part of them where the deployment differs.
        share: Of their logarithms; 1 where it does not differ.
        spread: Standard deviation of the logarithm of measured over predicted, by ``"ttft"`` and
            ``"tpot"``.
        differences: Where the deployment differs.
    """

    profile: Profile
    factors: Factors
    share: float
    spread: Mapping[str, float]
    differences: tuple[Difference, ...]

    def around(self, value: float, kind: str) -> tuple[float, float]:
        """The 10% to 90% range around an estimate."""
        wide = math.exp(RANGE * self.spread[kind])
        return value / wide, value * wide


def applied(profile: Profile, served: Served) -> Applied:
    """What a profile means for a deployment.

    The factors hold for the deployment that was measured. For another on the same GPU part of them
    is taken, and the range is that seen in such cases (:data:`TRANSFER`).

    Raises:
        ProfileError: It is of another GPU.
    """
    if profile.served.gpu != served.gpu:
        raise ProfileError(
            f"profile {profile.name} was calibrated on {profile.served.gpu} and says nothing about "
            f"{served.gpu}; calibrate there, or leave the profile out"
        )
    differences = tuple(
        Difference(trait, old, new)
        for trait, old, new in zip(Served._fields, profile.served, served, strict=True)
        if old != new
    )
    if not differences:
        return Applied(profile, profile.factors, 1.0, profile.remaining, ())
    traits = {difference.trait for difference in differences}
    kind = "layout"
    if "engine" in traits:
        kind = "engine"
    elif traits & {"model", "quantization"}:
        kind = "model"
    worth = TRANSFER[kind]
    share = worth["share"]
    factors = Factors(*(value**share for value in profile.factors))
    spread = {name: max(worth[name], own) for name, own in profile.remaining.items()}
    return Applied(profile, factors, share, spread, differences)
