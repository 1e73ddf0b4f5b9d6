"""A workload served by a deployment, told as it goes: what ``tokenroom simulate`` does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tokenroom.fitting import fit
from tokenroom.reports.messages import Language
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.units import parse_seconds
from tokenroom.web.answers import ModelFinder, OnProgress, deployment_arguments
from tokenroom.web.traffic import traffic_of

if TYPE_CHECKING:
    from tokenroom.web.questions import SimulateQuestion

_TOLD_EVERY_SECONDS: Final = 0.25


def answer_simulate(
    question: SimulateQuestion, find: ModelFinder, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """What ``tokenroom simulate --json`` prints, and the run as a moving picture (``playback``).

    Raises:
        TokenroomError: The deployment or the workload is refused, or larger than one run may be.
    """
    from tokenroom.reports.playback_json import playback_json
    from tokenroom.reports.simulation_json import refusal_json, simulation_json
    from tokenroom.serving.metrics import LatencyLimits
    from tokenroom.serving.playback import PlaybackRecorder
    from tokenroom.serving.run import Run

    language = Language(question.language)
    wanted = {
        f"{name}_seconds": parse_seconds(text, name)
        for name, text in (("ttft", question.ttft), ("tpot", question.tpot))
        if text is not None
    }
    result = fit(**deployment_arguments(question, find))
    if result.plan.refusal is not None:
        return refusal_json(result, language)
    run = Run(
        result,
        limits=LatencyLimits(**wanted) if wanted else None,
        price_per_gpu_hour=question.price,
        scheduling=question.scheduling,
    )
    recorder = PlaybackRecorder()
    pool_blocks = sum(
        pool.engine.usable_blocks * pool.copies.count * pool.replicas for pool in run.pools
    )
    with traffic_of(question, run.engine.block_tokens) as traffic:
        teller = _Teller(on_progress, traffic.total, pool_blocks)
        records = run.serve(
            traffic.arrivals,
            waits_for_answers=traffic.waits_for_answers,
            observe=_both(recorder.step, teller.step),
        )
        for record in records:
            recorder.request(record)
            teller.request(record)
    answer = simulation_json(run.outcome(), traffic.name, language)
    return answer | {"playback": playback_json(recorder.result(), pool_blocks)}


def _both(
    one: Callable[[StepRecord], None], two: Callable[[StepRecord], None]
) -> Callable[[StepRecord], None]:
    def observe(step: StepRecord) -> None:
        one(step)
        two(step)

    return observe


class _Teller:
    """Tells every quarter of a second how far a run is, and what it has found."""

    def __init__(self, tell: OnProgress | None, total: int | None, pool_blocks: int) -> None:
        self._tell = tell
        self._total = total or 0
        self._pool_blocks = pool_blocks
        self._told = time.monotonic()
        self._ended = self._served = self._many = self._tokens = 0
        self._ttft = self._tpot = 0.0

    def request(self, record: RequestRecord) -> None:
        """Take in what became of a request."""
        self._ended += 1
        if record.refused is not None:
            return
        self._served += 1
        self._ttft += record.ttft_seconds
        if record.tpot_seconds is not None:
            self._many += 1
            self._tpot += record.tpot_seconds

    def step(self, step: StepRecord) -> None:
        """Tell where the run stands, unless it was told a moment ago."""
        self._tokens += step.tokens
        if self._tell is None or time.monotonic() - self._told < _TOLD_EVERY_SECONDS:
            return
        seconds = step.end_seconds
        figures = {
            "simulated_seconds": seconds,
            "running": step.running,
            "waiting": step.waiting,
            "kv_pool_usage": step.used_blocks / self._pool_blocks,
            "computed_tokens_per_second": self._tokens / seconds if seconds else 0.0,
        }
        if self._served:
            figures["ttft_mean_seconds"] = self._ttft / self._served
        if self._many:
            figures["tpot_mean_seconds"] = self._tpot / self._many
        self._tell(self._ended, self._total, figures)
        self._told = time.monotonic()
