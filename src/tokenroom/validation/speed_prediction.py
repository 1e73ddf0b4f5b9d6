"""A measured load predicted: what its clients would have seen, or the reason there is no telling.

Published rows run as their source says (:mod:`tokenroom.validation.circumstances`); every other
row's token budget, requests at once and division over GPUs are the engine's own, by its flags or
defaults, as in :func:`tokenroom.speed`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tokenroom.errors import RowError, TokenroomError
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.idle import tpot, ttft
from tokenroom.performance.llama_cpp import engine_of
from tokenroom.performance.replica import Replica
from tokenroom.performance.work import Layout
from tokenroom.serving_speed import Range, ServingSpeed, speed_of
from tokenroom.serving_terms import check_engine
from tokenroom.validation.circumstances import (
    Circumstances,
    circumstances,
    llama_cpp_build,
    model_name,
)
from tokenroom.validation.commands import engine_version
from tokenroom.validation.hardware_bounds import beats_hardware
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.measurements import Measurement
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.published_room import PublishedRooms
from tokenroom.validation.published_run import published_values
from tokenroom.validation.rows import UNNAMED, Row
from tokenroom.validation.speed_quantities import (
    DECODE,
    PREFILL,
    compared_as,
    served_quantities,
    told_by,
)
from tokenroom.validation.stored_weights import stored_as

ENGINES: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt_llm",
    "llama.cpp": "llama_cpp",
}
"""Engine of rows -> its name in :mod:`tokenroom.performance`."""

_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": (
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
        "kv_cache_dtype",
    ),
    "sglang": ("tp", "pp", "dp", "kv_cache_dtype"),
    "tensorrt-llm": ("tp", "pp"),
}
"""What each engine's flags call the sizes and the type of cache of a load, in that order."""

_LLAMA_UBATCH: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPrediction:
    """What tokenroom says of a measured load.

    Attributes:
        spec: The model, stored as the row's.
        accelerator: The kind of GPU.
        accelerators: How many there are.
        values: Every quantity that is predicted, with its range.
    """

    spec: ModelSpec
    accelerator: Accelerator
    accelerators: int
    values: Mapping[str, Range]


class SpeedPredictor:
    """Predicts measured loads; models and deployments are worked out once."""

    def __init__(self, predictor: Predictor) -> None:
        """``predictor`` finds models and accelerators, and fits what rows' flags say."""
        self._predictor = predictor
        self._stored: dict[tuple[str, str | None, str], ModelSpec] = {}
        self._fits: dict[tuple[object, ...], FitResult | TokenroomError] = {}
        self._rooms = PublishedRooms()

    def predict(self, found: Measurement) -> SpeedPrediction:
        """The load as it would be served.

        Raises:
            TokenroomError: It cannot be told; the sentence says why.
        """
        load = found.load
        row, spec, accelerator = self._served(found)
        quantities = {compared_as(item.name) for item in found.observed}
        if quantities <= {PREFILL, DECODE}:
            return _benched(row, load, spec, accelerator)
        _check_load(load)
        run = _run_of(row)
        if run is None:
            return self._as_configured(row, load, spec, accelerator)
        observed = {compared_as(item.name): item.value for item in found.observed}
        if beats_hardware(load, run, spec, accelerator, observed):
            raise RowError("faster than the hardware allows: speculation or cached prompts")
        values = published_values(
            load,
            run,
            spec,
            accelerator,
            ENGINES[row.engine],
            requests_held=self._rooms.requests_held(row, load, run, spec, accelerator),
        )
        return SpeedPrediction(
            spec=spec,
            accelerator=accelerator,
            accelerators=run.layout.accelerators,
            values=told_by(load, values),
        )

    def deployment_of(self, found: Measurement) -> FitResult:
        """The deployment that served a load, by its source or by the engine's own settings.

        Raises:
            TokenroomError: It cannot be told; the sentence says why.
        """
        load = found.load
        row, spec, accelerator = self._served(found)
        _check_load(load)
        check_engine(row.engine)
        run = _run_of(row)
        if run is None:
            return self._fit(row, load, spec, accelerator)
        result = self._rooms.deployment_of(row, load, run, spec, accelerator)
        if result is None:
            raise RowError("how its server was set is not known in full")
        return result

    def _served(self, found: Measurement) -> tuple[Row, ModelSpec, Accelerator]:
        """A row with its engine's own name, its model and its kind of GPU.

        Raises:
            TokenroomError: It does not say, or one of them is not known.
        """
        row = found.row
        if row.engine == UNNAMED:
            raise RowError("the row names no engine")
        row = replace(row, engine=re.sub(r"\s*\([^()]*\)$", "", row.engine))
        if row.engine not in ENGINES:
            raise RowError(
                f"the speed of engine {row.engine} is not modelled; it may be {', '.join(ENGINES)}"
            )
        name = model_name(row)
        if name is None:
            raise RowError("the row names no model")
        accelerator = self._predictor.accelerator_of(row)
        return row, self._spec(name, found.load.precision, row.engine), accelerator

    def _spec(self, name: str, precision: str | None, engine: str) -> ModelSpec:
        key = (name, precision, engine)
        if key not in self._stored:
            found = self._predictor.model_of(name, engine)
            if not found.weights_known and precision is None:
                raise RowError(f"{found.note.split(',')[0]}; give its precision")
            self._stored[key] = stored_as(found.spec, precision, engine)
        return self._stored[key]

    def _as_configured(
        self, row: Row, load: MeasuredLoad, spec: ModelSpec, accelerator: Accelerator
    ) -> SpeedPrediction:
        """By the engine's own settings: what the flags leave open is at its default."""
        check_engine(row.engine)
        result = self._fit(row, load, spec, accelerator)
        if load.concurrency is None and load.request_rate not in (None, math.inf):
            served = _at_rate(result, load)
        else:
            served = _with_clients(result, load, load.concurrency)
        values = served_quantities(
            input_tokens=load.input_tokens or 1,
            output_tokens=load.output_tokens or 1,
            accelerators=served.gpus,
            ttft_seconds=served.ttft_seconds,
            tpot_seconds=served.tpot_seconds,
            output_tokens_per_second=served.output_tokens_per_second,
        )
        return SpeedPrediction(
            spec=result.deployment.spec,
            accelerator=accelerator,
            accelerators=served.gpus,
            values=told_by(load, values),
        )

    def _fit(
        self, row: Row, load: MeasuredLoad, spec: ModelSpec, accelerator: Accelerator
    ) -> FitResult:
        sizes = (load.tp, load.pp, load.dp, load.ep)
        key = (
            *(row.engine, row.engine_version, spec.name, load.precision, load.kv_dtype),
            *(accelerator.key, row.gpus, sizes, row.command, repr(sorted(row.flags.items()))),
        )
        if key not in self._fits:
            try:
                self._fits[key] = self._fitted(row, load, spec, accelerator)
            except TokenroomError as error:
                self._fits[key] = error
        found = self._fits[key]
        if isinstance(found, TokenroomError):
            raise found
        return found

    def _fitted(
        self, row: Row, load: MeasuredLoad, spec: ModelSpec, accelerator: Accelerator
    ) -> FitResult:
        version = engine_version(row)
        engine = row.engine if version is None else f"{row.engine}@{version}"
        if row.command is not None or row.flags:
            prediction = self._predictor.predict(_with_sizes(row, load))
            if prediction.result is None:
                raise RowError(prediction.reason)
            deployment = prediction.result.deployment
            if load.precision is None or deployment.spec.quantization == spec.quantization:
                return prediction.result
            gpus = deployment.node.count
            return fit(spec, accelerator, gpus=gpus, engine=engine, settings=deployment.asked)
        sizes: dict[str, Any] = {"tp": load.tp, "pp": load.pp, "dp": load.dp}
        return fit(
            spec,
            accelerator,
            gpus=row.gpus,
            engine=engine,
            ep=True if (load.ep or 1) > 1 else None,
            kv=load.kv_dtype,
            **{name: size for name, size in sizes.items() if size is not None},
        )


def _run_of(row: Row) -> Circumstances | None:
    """How its source says that a row was run; None where it says by flags, or only its fields."""
    return circumstances(row) if not row.flags and row.command is None else None


def _check_load(load: MeasuredLoad) -> None:
    """Refuse a load that does not say what was sent.

    Raises:
        RowError: It does not.
    """
    if load.input_tokens is None or load.output_tokens is None:
        raise RowError("the row states no lengths of prompt and answer (isl, osl)")
    if not load.input_tokens or not load.output_tokens:
        raise RowError("its prompt or answer (isl, osl) is of 0 tokens")
    if load.concurrency is None and load.request_rate is None:
        raise RowError("the row states neither concurrency nor a request_rate")


def _with_clients(result: FitResult, load: MeasuredLoad, clients: int | None) -> ServingSpeed:
    return speed_of(
        result,
        input_tokens=load.input_tokens or 1,
        output_tokens=load.output_tokens or 1,
        concurrency=clients,
        num_prompts=load.num_prompts,
        acceptance=load.acceptance,
    )


def _at_rate(result: FitResult, load: MeasuredLoad) -> ServingSpeed:
    """Requests that come at a rate.

    Raises:
        RowError: More come than are served.
    """
    rate = load.request_rate or 0.0
    served = _with_clients(result, load, None).at_rate(rate)
    if served.arrivals is not None and served.arrivals.falls_behind:
        most = served.arrivals.capacity
        raise RowError(f"at {rate:g} requests a second it falls behind: it serves {most:.3g}")
    return served


def _with_sizes(row: Row, load: MeasuredLoad) -> Row:
    """The row with sizes and type of cache that its load states among its flags."""
    stated = (load.tp, load.pp, load.dp, load.kv_dtype)
    named = zip(_FLAGS.get(row.engine, ()), stated, strict=False)
    flags = {name: value for name, value in named if value is not None}
    return replace(row, flags={**flags, **row.flags}, reported={})


def _benched(
    row: Row, load: MeasuredLoad, spec: ModelSpec, accelerator: Accelerator
) -> SpeedPrediction:
    """llama-bench: a prompt in micro-batches of 512, or one request's tokens one by one."""
    if row.engine != "llama.cpp":
        raise RowError("pp and tg are llama-bench's; state ttft_ms and tpot_ms of other engines")
    if row.gpus not in (None, 1):
        raise RowError(f"{row.gpus} GPUs; how they share a test of llama-bench is not modelled")
    values: dict[str, Range] = {}
    replica = Replica(
        spec=spec,
        layout=Layout(),
        accelerator=accelerator,
        engine=engine_of(llama_cpp_build(row)),
        max_num_batched_tokens=_LLAMA_UBATCH,
        kv_dtype=load.kv_dtype or "float16",
    )
    if load.input_tokens:
        seconds = ttft(replica, load.input_tokens)
        values[PREFILL] = Range(*seconds).over(load.input_tokens)
    if load.output_tokens:
        context = (load.input_tokens or 0) + load.output_tokens / 2
        values[DECODE] = Range(*tpot(replica, context, 1)).over(1)
    if not values:
        raise RowError("the row states no length of the test (isl, osl)")
    return SpeedPrediction(spec=spec, accelerator=accelerator, accelerators=1, values=values)
