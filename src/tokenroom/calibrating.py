"""The question of ``calibrate``: by which factors a machine differs, from its own benchmarks.

Every measured point is predicted as ``speed`` would, with its own load, and the factors of
:mod:`tokenroom.performance.calibration` are sought that bring the predictions to the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Final

from tokenroom.benchmarks.point import MeasuredPoint, Remark, Subject, Work
from tokenroom.benchmarks.read import BenchmarkFile
from tokenroom.errors import BenchmarkError, HardwareError, ModelError
from tokenroom.fitting import FitResult
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models.catalogue import lookup
from tokenroom.performance.calibration import Observation, Predict, calibrate
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.floor import step_floor
from tokenroom.performance.load import Load, Speed
from tokenroom.performance.load import speed as load_speed
from tokenroom.performance.operators import step_operators
from tokenroom.performance.step_time import step_time
from tokenroom.performance.work import Chunk, StepWork
from tokenroom.profiles import PointRecord, Profile, Source
from tokenroom.serving_speed import served_by, waves_of
from tokenroom.serving_terms import Terms, replica_of, terms_of
from tokenroom.units import format_seconds

_CONTRADICTION: Final = 1.25
"""Figures of one load that differ by more than this factor contradict each other; repeated runs of
one machine are within a few percent."""

_OUTLIER: Final = 0.5
"""Weight below which a figure is said not to fit the others."""


_SHAPE: Final = ("model_type", "num_layers", "hidden_size", "vocab_size")
"""What models that were trained further from one another have alike."""

_SLOWEST: Final = 100.0
"""Times the model's own figure beyond which no machine explains a figure without a queue in it."""

_LONGEST_QUEUE: Final = 1000.0
"""The same of first tokens, which may queue."""

_Run = Callable[[Factors], Speed]


class _Figure:
    """One figure of a point that takes part."""

    __slots__ = ("file", "observation", "point", "what")

    def __init__(
        self, file: str, point: MeasuredPoint, what: str, observation: Observation
    ) -> None:
        self.file = file
        self.point = point
        self.what = what
        self.observation = observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What a calibration came to.

    Attributes:
        profile: Factors, ranges and points.
        remarks: What to know about the files and points, each with its file.
    """

    profile: Profile
    remarks: tuple[tuple[str, Remark], ...]


def calibrate_deployment(
    result: FitResult,
    files: Sequence[BenchmarkFile],
    *,
    name: str,
    now: datetime,
    on_round: Callable[[int, int], None] | None = None,
) -> Calibrated:
    """The factors of the machine that a deployment was measured on.

    Args:
        result: The deployment, as :func:`tokenroom.fitting.fit` gives it.
        files: What was measured of it.
        name: Name of the profile.
        now: Date of the profile, with its zone.
        on_round: Called with (rounds done, rounds at most), for progress.

    Raises:
        BenchmarkError: A file was measured on something else, a point cannot have been of this
            deployment, or none can be used.
        TokenroomError: The speed of the deployment is not modelled.
    """
    remarks: list[tuple[str, Remark]] = []
    figures: list[_Figure] = []
    number = 0
    for file in files:
        for point in file.points:
            _check_subject(result, file, point.subject)
            remarks += ((file.name, said) for said in _other_model(result, file, point))
            remarks += ((file.name, remark) for remark in point.remarks)
            taken, said = _figures(result, file.name, point, number)
            _check_possible(result, point, taken)
            remarks += ((file.name, remark) for remark in said)
            figures += taken
            number += 1
    if not figures:
        names = ", ".join(file.name for file in files)
        raise BenchmarkError(
            f"no point of {names} can be used: each lacks TTFT, TPOT and throughput, or was "
            f"measured with speculative decoding that the deployment does not have"
        )
    found = calibrate([figure.observation for figure in figures], on_round=on_round)
    records = []
    for figure, fitted in zip(figures, found.fitted, strict=True):
        point = figure.point
        if fitted.weight < _OUTLIER:
            off = fitted.observation.measured / fitted.after
            remarks.append(
                (
                    figure.file,
                    Remark("outlier", point.place, {"figure": figure.what, "ratio": off}),
                )
            )
        records.append(
            PointRecord(
                file=figure.file,
                place=point.place,
                figure=figure.what,
                concurrency=point.concurrency or 1.0,
                input_tokens=point.input_tokens,
                output_tokens=point.output_tokens,
                measured=fitted.observation.measured,
                before=fitted.before,
                after=fitted.after,
                held_out=math.exp(fitted.held_out),
                weight=fitted.weight,
            )
        )
    remarks += _contradictions(records)
    return Calibrated(
        profile=Profile(
            name=name,
            created=now.isoformat(timespec="seconds"),
            served=served_by(result),
            factors=found.factors,
            spreads=found.spreads,
            identified=found.identified,
            remaining=found.remaining,
            sources=tuple(Source(file.name, file.sha256, file.title) for file in files),
            points=tuple(records),
        ),
        remarks=tuple(_told_once(remarks)),
    )


def _check_subject(result: FitResult, file: BenchmarkFile, subject: Subject) -> None:
    """Refuse a file that says it was measured on something else."""
    deployment = result.deployment
    accelerator = deployment.node.accelerator
    # What names OpenAI's interface may be any engine; these are themselves.
    certain = {"tensorrt-llm", "llama.cpp", "sglang"}
    if subject.engine in certain and subject.engine != deployment.engine:
        raise BenchmarkError(
            f"{file.name} was measured with {subject.engine} and the deployment is of "
            f"{deployment.engine}; give the engine that was measured"
        )
    ranks = result.deployment.settings.get("tensor_parallel_size")
    if (
        subject.tensor_parallel_size is not None
        and ranks is not None
        and subject.tensor_parallel_size != ranks.value
    ):
        raise BenchmarkError(
            f"{file.name} was measured with tensor_parallel_size {subject.tensor_parallel_size} "
            f"and the deployment has {ranks.value}; give --tp {subject.tensor_parallel_size}"
        )
    if subject.gpu is None or subject.gpu == accelerator.name:
        return
    try:
        known = find_accelerator(subject.gpu.split(", ")[0])
    except HardwareError:  # a name that the catalogue does not have contradicts nothing
        return
    if known.key != accelerator.key and not accelerator.custom:
        raise BenchmarkError(
            f"{file.name} was measured on {subject.gpu} and the deployment has "
            f"{accelerator.name}; give --gpu {known.key}"
        )


def _other_model(result: FitResult, file: BenchmarkFile, point: MeasuredPoint) -> list[Remark]:
    """What a model's name that nobody knows is worth.

    Raises:
        BenchmarkError: The file names a model of another shape.
    """
    named, spec = point.subject.model, result.deployment.spec
    if named is None or point.subject.engine == "llama.cpp":  # which writes a description
        return []
    own = spec.name.partition("@")[0]
    if named == own or Path(named).name == Path(own).name:
        return []
    try:
        known = lookup(named)
    except ModelError:  # the beginning of several names
        known = None
    if known is None:
        return [Remark("other_model", "", {"named": named, "model": own})]
    if any(getattr(known, trait) != getattr(spec, trait) for trait in _SHAPE):
        raise BenchmarkError(
            f"{file.name} was measured on {known.name} and the deployment is of {own}; give the "
            f"model that was measured"
        )
    return []


def _figures(
    result: FitResult, file: str, point: MeasuredPoint, number: int
) -> tuple[list[_Figure], list[Remark]]:
    """What of a point takes part, and why other figures of it do not."""
    place = f"{file}, {point.place}" if point.place else file
    tokens = math.ceil(point.context_tokens + point.input_tokens + point.output_tokens)
    if tokens > result.plan.max_model_len:
        raise BenchmarkError(
            f"{place}: its requests are {tokens:,} tokens and max_model_len of the deployment is "
            f"{result.plan.max_model_len:,}; give the context that was served"
        )
    terms = terms_of(result, max(1, round(point.input_tokens)))
    accepted = point.accepted_tokens
    if accepted is not None and accepted > 1:
        if terms.drafting is None:
            return [], [Remark("speculation", point.place, {"accepted": accepted})]
        terms = terms_of(result, max(1, round(point.input_tokens)), accepted)
    if point.work is not Work.SERVING:
        return list(_alone(result, terms, file, point, number)), []
    clients = point.concurrency
    if clients is None or clients <= 0:
        return [], [Remark("no_concurrency", point.place, {})]
    asked = replace(result, request_tokens=tokens)
    copies = terms.replicas * terms.layout.data_parallel_size
    room = max(1, asked.requests_running // copies)
    run = _served(result, terms, point, clients, room)
    seen: list[tuple[str, str, float | None]] = []
    said = []
    ttft = point.ttft.typical if point.ttft is not None else None
    tpot = point.tpot.typical if point.tpot is not None else None
    if any(remark.key == "cached" for remark in point.remarks):
        ttft = None  # part of each prompt was not computed
    if ttft is not None and point.all_at_once and clients > room * copies:
        ttft = None
        said.append(Remark("burst", point.place, {"sent": round(clients), "room": room * copies}))
    if point.output_tokens < 2:
        tpot = None
    seen.append(("ttft", "ttft", ttft))
    seen.append(("tpot", "tpot", tpot))
    if tpot is None and point.output_tokens >= 2:
        seen.append(("throughput", "tpot", point.output_tokens_per_second))
    waves = _waves(point)
    if ttft and waves is not None and not point.all_at_once:
        values = {"sent": point.completed, "clients": round(clients)}
        said.append(Remark("first_burst", point.place, values))
    figures = []
    for what, kind, measured in seen:
        if measured:
            figures.append(
                _Figure(
                    file,
                    point,
                    what,
                    Observation(number, kind, measured, _part(run, what, terms.replicas)),
                )
            )
    return figures, said


def _served(
    result: FitResult, terms: Terms, point: MeasuredPoint, clients: float, room: int
) -> _Run:
    """How fast one replica serves a point's load, by the factors."""
    load = Load(
        input_tokens=max(1, round(point.input_tokens)),
        output_tokens=max(1, round(point.output_tokens)),
        concurrency=max(1, round(clients / terms.replicas)),
        waves=_waves(point),
    )

    @lru_cache(maxsize=64)
    def run(factors: Factors) -> Speed:
        return load_speed(replica_of(result, terms, max_num_seqs=room, factors=factors), load)

    return run


def _waves(point: MeasuredPoint) -> int | None:
    """Requests of each client where the first of all came at once; None where they did not."""
    if point.all_at_once:
        return 1
    sent, clients, rate = point.completed, point.clients, point.request_rate
    if clients is None or sent is None or rate not in (None, math.inf):
        return None
    return waves_of(sent, clients)


def _told_once(remarks: Sequence[tuple[str, Remark]]) -> Iterator[tuple[str, Remark]]:
    """The remarks, of those on first bursts the first of each file: they all say the same."""
    told: set[str] = set()
    for file, remark in remarks:
        if remark.key != "first_burst":
            yield file, remark
        elif file not in told:
            told.add(file)
            yield file, remark


def _part(run: _Run, what: str, replicas: int) -> Predict:
    """The figure that was measured, of all replicas."""
    if what == "ttft":
        return lambda factors: run(factors).ttft_seconds
    if what == "tpot":
        return lambda factors: run(factors).tpot_seconds
    return lambda factors: replicas * run(factors).output_tokens_per_second


def _alone(
    result: FitResult, terms: Terms, file: str, point: MeasuredPoint, number: int
) -> Iterator[_Figure]:
    """Tests of one request with no server around it."""
    deployment = result.deployment
    chunk = point.step_tokens or terms.token_budget
    depth = round(point.context_tokens)
    inputs, outputs = round(point.input_tokens), round(point.output_tokens)

    def took(work: StepWork, factors: Factors) -> float:
        return step_time(
            deployment.spec,
            terms.layout,
            deployment.node.accelerator,
            work,
            engine=terms.engine,
            kv_dtype=terms.kv_dtype,
            cuda_graphs=terms.cuda_graphs,
            asynchronous=terms.asynchronous,
            factors=factors,
        ).seconds

    @lru_cache(maxsize=64)
    def prompt(factors: Factors) -> float:
        return sum(
            took(StepWork(prefill=(Chunk(min(chunk, inputs - at), depth + at),)), factors)
            for at in range(0, inputs, chunk)
        )

    @lru_cache(maxsize=64)
    def token(factors: Factors) -> float:
        context = depth + inputs + outputs / 2
        return took(StepWork(decode_sequences=1, decode_context_tokens=context), factors)

    def both(factors: Factors) -> float:
        return prompt(factors) + outputs * token(factors)

    for what, spread, predict in (
        ("prompt", point.ttft, prompt),
        ("generation", point.tpot, token),
        ("both", point.latency, both),
    ):
        if spread is not None and spread.typical:
            yield _Figure(file, point, what, Observation(number, "tpot", spread.typical, predict))


def _check_possible(result: FitResult, point: MeasuredPoint, figures: Sequence[_Figure]) -> None:
    """Refuse figures that the GPUs cannot reach, and those that no machine takes.

    Raises:
        BenchmarkError: One is.
    """
    for figure in figures:
        measured, what = figure.observation.measured, figure.what
        usual = figure.observation.predict(UNCALIBRATED)
        place = f"{figure.file}, {point.place}" if point.place else figure.file
        ratio = usual / measured if what == "throughput" else measured / usual
        if ratio > (_LONGEST_QUEUE if what == "ttft" else _SLOWEST):
            raise BenchmarkError(
                f"{place}: {what} is {ratio:,.0f} times as slow as such a machine is expected to "
                f"be; check its unit, or leave the point out"
            )
        least = _least_seconds(result, point, what)
        if least is not None and measured < least:
            raise BenchmarkError(
                f"{place}: {what} is {format_seconds(measured)}, and the peaks of the GPU allow "
                f"{format_seconds(least)} at the least; check its unit, or leave the point out"
            )


def _least_seconds(result: FitResult, point: MeasuredPoint, what: str) -> float | None:
    """What no kernel goes below: a prompt's arithmetic, or one token's reads; None untold."""
    if what not in ("ttft", "tpot", "prompt", "generation"):
        return None
    if what in ("ttft", "prompt"):
        work = StepWork(prefill=(Chunk(max(1, round(point.input_tokens)), 0),))
    else:
        work = StepWork(decode_sequences=1, decode_context_tokens=point.input_tokens)
    terms, deployment = terms_of(result, max(1, round(point.input_tokens))), result.deployment
    accelerator = deployment.node.accelerator
    operators = step_operators(deployment.spec, terms.layout, work, kv_dtype=terms.kv_dtype)
    try:
        floor = step_floor(operators, accelerator, terms.layout.per_node)
    except HardwareError:  # a peak that is not known
        return None
    kept = max(1.0, point.accepted_tokens or 1.0)
    return floor.seconds if what in ("ttft", "prompt") else floor.seconds / kept


def _contradictions(records: Sequence[PointRecord]) -> Iterator[tuple[str, Remark]]:
    """Pairs of figures of the same load that say different things."""
    for first, second in combinations(records, 2):
        same = all(
            getattr(first, trait) == getattr(second, trait)
            for trait in ("figure", "concurrency", "input_tokens", "output_tokens")
        )
        ratio = max(first.measured, second.measured) / min(first.measured, second.measured)
        if same and ratio > _CONTRADICTION:
            other = f"{second.file}, {second.place}" if second.place else second.file
            yield (
                first.file,
                Remark(
                    "contradiction",
                    first.place,
                    {"figure": first.figure, "other": other, "ratio": ratio},
                ),
            )
