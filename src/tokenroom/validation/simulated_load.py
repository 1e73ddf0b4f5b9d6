"""Measured loads served step by step: what the simulator says that their clients saw."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from tokenroom.errors import DeploymentError, RowError
from tokenroom.fitting import FitResult, fit
from tokenroom.serving.arrivals import Arrivals, ClosedLoop, OpenLoop
from tokenroom.serving.deployments import engine_of
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.request import Request
from tokenroom.serving.simulator import simulate
from tokenroom.serving.step_cost import step_cost
from tokenroom.serving.step_table import StepTable
from tokenroom.validation.circumstances import circumstances
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.measurements import Measurement
from tokenroom.validation.speed_prediction import SpeedPredictor

_REQUESTS: Final = 500
"""Requests of a run at a rate of which no number is stated: those of TensorRT-LLM's tables."""

_WAVES: Final = 10
"""Requests of each client where no number is stated."""

_LEFT_WAITING: Final = 0.05
"""Share of requests that wait when the last one comes, beyond which a server falls behind."""

_SHORTEST: Final = 0.8
"""InferenceX's requests are drawn evenly from this share of the nominal length to the whole."""

SEEDS: Final = (1, 2, 3)
"""Draws of arrivals at a rate. Clients who wait for their answers are served once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoad:
    """What clients of a simulated server saw.

    Attributes:
        ttft_seconds: Mean time to the first token.
        tpot_seconds: Mean over requests of the time of each further token.
        falls_behind: Requests came faster than they were served.
        rules: Whose scheduler decided: the engine and version.
    """

    ttft_seconds: float
    tpot_seconds: float
    falls_behind: bool
    rules: str


class LoadSimulator:
    """Serves measured loads; deployments are worked out once.

    Decisions are those of the row's engine and version where they are simulated, otherwise those of
    its newest release (TensorRT-LLM's built engines: without overlapping steps, which they did not
    have); steps take what the row's own version takes. Requests at a rate come as a Poisson process
    does, in the mean of three draws.
    """

    def __init__(self, predictor: SpeedPredictor) -> None:
        """``predictor`` finds the deployments of rows."""
        self._predictor = predictor
        self._newest: dict[tuple[str, str, int, int], FitResult] = {}

    def simulate(self, found: Measurement) -> SimulatedLoad:
        """A load as it would be served.

        Raises:
            TokenroomError: It cannot be told, or is not simulated; the sentence says why.
        """
        load = found.load
        result = self._predictor.deployment_of(found)
        cost = step_cost(result)
        if cost.terms.layout.data_parallel_size * cost.terms.replicas > 1:
            raise RowError("its data-parallel copies are not simulated here")
        try:
            engine, deciding = engine_of(result), result
        except DeploymentError:
            deciding = self._by_newest(result)
            overlaps = {} if cost.terms.asynchronous else {"disable_overlap_scheduler": True}
            engine = engine_of(deciding, overlaps)
        runs = [
            list(
                simulate(
                    _arrivals(found, seed),
                    engine.new_scheduler(),
                    StepTable(cost),
                    delay_seconds=cost.delay_seconds,
                )
            )
            for seed in (SEEDS if load.concurrency is None else SEEDS[:1])
        ]
        records = [record for run in runs for record in run if record.refused is None]
        if not records:
            raise RowError("every request of it is refused")
        further = [_tpot_seconds(record) for record in records if record.output_tokens > 1]
        deployment = deciding.deployment
        return SimulatedLoad(
            ttft_seconds=fmean(record.ttft_seconds for record in records),
            tpot_seconds=fmean(further) if further else math.nan,
            falls_behind=load.concurrency is None and any(map(_falls_behind, runs)),
            rules=f"{deployment.engine} {deployment.version}",
        )

    def _by_newest(self, result: FitResult) -> FitResult:
        """The same deployment of the engine's newest release."""
        deployment = result.deployment
        node = deployment.node
        tokens = result.plan.max_model_len
        key = (deployment.spec.name, node.accelerator.key, node.count, tokens)
        if key not in self._newest:
            self._newest[key] = fit(
                deployment.spec,
                node.accelerator,
                gpus=node.count,
                engine=deployment.engine,
                context=tokens,
            )
        return self._newest[key]


def _tpot_seconds(record: RequestRecord) -> float:
    return (record.finish_seconds - record.first_token_seconds) / (record.output_tokens - 1)


def _falls_behind(records: list[RequestRecord]) -> bool:
    last = max(record.arrival_seconds for record in records)
    waiting = sum(record.scheduled_seconds > last for record in records)
    return waiting > _LEFT_WAITING * len(records)


def _arrivals(found: Measurement, seed: int) -> Arrivals:
    """The requests of a measured load.

    Raises:
        RowError: It states neither clients nor a rate.
    """
    load, drawn = found.load, random.Random(seed)
    run = circumstances(found.row)
    varies = run is not None and run.lengths_vary
    if load.concurrency is not None:
        waves = _WAVES if run is None or run.waves is None else run.waves
        count = load.num_prompts or waves * load.concurrency
        requests = _requests(load, count, varies, drawn)
        return ClosedLoop(requests, load.concurrency)
    if load.request_rate is None or load.request_rate == math.inf:
        raise RowError("the row states neither clients nor a rate of requests")
    count = load.num_prompts or _REQUESTS
    return OpenLoop(_requests(load, count, varies, drawn, load.request_rate))


def _requests(
    load: MeasuredLoad, count: int, varies: bool, drawn: random.Random, rate: float | None = None
) -> Iterator[Request]:
    prompt, answer = load.input_tokens or 1, load.output_tokens or 1
    clock = 0.0
    for number in range(count):
        if rate is not None:
            clock += drawn.expovariate(rate)
        yield Request(
            id=number,
            arrival_seconds=clock,
            prompt_tokens=_length(prompt, varies, drawn),
            output_tokens=_length(answer, varies, drawn),
        )


def _length(tokens: int, varies: bool, drawn: random.Random) -> int:
    return drawn.randint(math.ceil(_SHORTEST * tokens), tokens) if varies else tokens
