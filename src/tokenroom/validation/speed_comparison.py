"""Predicted against observed speeds: every figure of a measurement that has a prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tokenroom.validation.architecture import architecture_class
from tokenroom.validation.circumstances import is_fitted, unfit
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.measurements import Measurement, Observed
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_prediction import SpeedPrediction
from tokenroom.validation.speed_quantities import (
    OF_A_REQUEST,
    amounts_to,
    compared_as,
    is_throughput,
    of_all_gpus,
)

_STATS: Final = frozenset({None, "mean", "median", "p50", "total", "per_gpu"})
"""What of many values a prediction stands for: the middle, or all of a throughput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedComparison:
    """One speed.

    Attributes:
        id: Of the row.
        engine: Its engine.
        engine_version: As the row states it; None when it does not.
        gpu: Name of the accelerator.
        gpus: How many.
        model: The model's full name.
        precision: How its weights were stored; None for the checkpoint's own.
        architecture_class: Kind of the model.
        input_tokens: Prompt of a request.
        output_tokens: Tokens it got.
        concurrency: Requests in flight; None for as many as run at once.
        quantity: What is compared, with its unit at the end.
        predicted: In that unit.
        low: Lower end of the predicted range.
        high: Upper end.
        observed: In the same unit.
        derived: It is what stated times amount to.
        fitted: A coefficient was set on this measurement, so that it is no check.
        repeats: The row repeats another's measurement, so that it does not count again.
    """

    id: str
    engine: str
    engine_version: str | None
    gpu: str
    gpus: int
    model: str
    precision: str | None
    architecture_class: str
    input_tokens: int | None
    output_tokens: int | None
    concurrency: int | None
    quantity: str
    predicted: float
    low: float
    high: float
    observed: float
    derived: bool = False
    fitted: bool = False
    repeats: bool = False

    @property
    def counts(self) -> bool:
        """It is a check, and the first of its measurement."""
        return not self.fitted and not self.repeats

    @property
    def ratio(self) -> float:
        """Predicted over observed."""
        return self.predicted / self.observed

    @property
    def error_pct(self) -> float:
        """Signed error in percent of the observed."""
        return (self.ratio - 1) * 100

    @property
    def inside(self) -> bool:
        """The observed figure lies in the predicted range."""
        return self.low <= self.observed <= self.high


class SpeedComparer:
    """Compares measurements one after the other and knows which were there before."""

    def __init__(self, measurements: tuple[Measurement, ...]) -> None:
        """``measurements`` are all there are: one that was fitted anywhere is fitted everywhere."""
        self._fitted = {_measured(item) for item in measurements if is_fitted(item.row)}
        self._seen: set[tuple[object, ...]] = set()

    def compare(self, found: Measurement, prediction: SpeedPrediction) -> Iterator[SpeedComparison]:
        """Every figure of a measurement that is predicted, and those its times amount to."""
        key = _measured(found)
        marks = {"fitted": key in self._fitted, "repeats": key in self._seen}
        self._seen.add(key)
        stated: dict[str, float] = {}
        for one in found.observed:
            if without_prediction(one, prediction):
                continue
            quantity, value = compared_as(one.name), one.value
            if of_all_gpus(one.name, one.load):
                value /= prediction.accelerators
            stated[quantity] = value
            yield _figure(one.row, one.load, prediction, quantity, value, **marks)
        for quantity, value in amounts_to(stated, found.load, prediction.accelerators).items():
            if quantity in prediction.values:
                yield _figure(
                    found.row, found.load, prediction, quantity, value, derived=True, **marks
                )


def without_prediction(one: Observed, prediction: SpeedPrediction) -> str:
    """Why a figure of a predicted load is not compared; empty when it is."""
    quantity = compared_as(one.name)
    if one.value <= 0:
        return f"{one.name} is {one.value:g}; a speed is above 0"
    if one.load.stat not in _STATS:
        return f"the {one.load.stat} of {one.name} is not predicted, its mean is"
    if reason := unfit(one.row, quantity):
        return reason
    if one.load.concurrency is None and quantity not in prediction.values:
        if quantity in OF_A_REQUEST:
            return f"{one.name} hangs on how many requests were sent at once; state concurrency"
        return f"{one.name} is that of the rate at which requests came"
    if quantity not in prediction.values:
        return f"{one.name} is not predicted of this load"
    said = one.load.stat in ("total", "per_gpu")
    if is_throughput(one.name) and prediction.accelerators > 1 and not said:
        return f"{one.name} of {prediction.accelerators} GPUs is not said to be total or per_gpu"
    return ""


def _measured(found: Measurement) -> tuple[object, ...]:
    """What tells a measurement that was published twice."""
    load = found.load
    return (
        *(found.row.engine, found.row.model, found.row.gpu, load.precision),
        *(load.input_tokens, load.output_tokens, load.request_rate),
        *(found.observed[0].name, found.observed[0].value),
    )


def _figure(
    row: Row,
    load: MeasuredLoad,
    prediction: SpeedPrediction,
    quantity: str,
    observed: float,
    *,
    derived: bool = False,
    fitted: bool,
    repeats: bool,
) -> SpeedComparison:
    value = prediction.values[quantity]
    return SpeedComparison(
        id=row.id,
        engine=row.engine,
        engine_version=row.engine_version,
        gpu=prediction.accelerator.name,
        gpus=prediction.accelerators,
        model=prediction.spec.name,
        precision=load.precision,
        architecture_class=architecture_class(prediction.spec),
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        concurrency=load.concurrency,
        quantity=quantity,
        predicted=value.value,
        low=value.low,
        high=value.high,
        observed=observed,
        derived=derived,
        fitted=fitted,
        repeats=repeats,
    )
