"""Report of GuideLLM: one document, one benchmark for each strategy of its sweep.

Read in vllm-project/guidellm 0.2.1 ``guidellm/benchmark/benchmark.py``, 0.4.0
``guidellm/benchmark/schemas/generative/benchmark.py`` and 0.8.1
``guidellm/benchmark/schemas/metrics.py``: each metric has ``successful``, ``incomplete`` and
``errored`` with ``mean``, ``median`` and ``percentiles`` (``p001`` is 0.1%, ``p999`` 99.9%).
``inter_token_latency_ms`` leaves the first token out, which others call TPOT (weighted by tokens);
``time_per_output_token_ms`` counts the first token in and is not used. Incomplete requests are
those that the end of the run cut off. The strategy stands in ``args`` (to 0.3) or ``config``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tokenroom.benchmarks.fields import Fields
from tokenroom.benchmarks.point import MeasuredPoint, Remark, Spread, Subject
from tokenroom.errors import BenchmarkError

TITLE = "guidellm benchmarks.json"

_PERCENTILES: Final = {
    "p001": 0.1, "p01": 1.0, "p05": 5.0, "p10": 10.0, "p25": 25.0, "p50": 50.0,
    "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9,
}  # fmt: skip


def recognises(document: object) -> bool:
    """Whether an object is a report of GuideLLM."""
    if not isinstance(document, Mapping):
        return False
    runs = document.get("benchmarks")
    return isinstance(runs, list) and all(
        isinstance(run, Mapping) and "metrics" in run for run in runs
    )


def read_points(document: Mapping[str, Any], file: str) -> Iterator[MeasuredPoint]:
    """Every benchmark of the report.

    Raises:
        BenchmarkError: A field is missing or impossible, or no request of any succeeded.
    """
    runs = document["benchmarks"]
    if not runs:
        raise BenchmarkError(f"{file}: benchmarks is an empty list; no run is in it")
    model = _model(document, runs[0])
    for number, run in enumerate(runs):
        place = f"benchmarks[{number}]"
        yield _point(Fields(run, f"{file}, {place}"), place, model)


def _point(fields: Fields, place: str, model: str | None) -> MeasuredPoint:
    metrics = fields.needed("metrics")
    totals = metrics.section("request_totals") or fields.section("request_totals")
    completed = totals.count("successful") if totals is not None else None
    failed = totals.count("errored") if totals is not None else None
    outputs = _mean(metrics, "output_token_count")
    if not outputs:
        raise BenchmarkError(
            f"{fields.place}: output_token_count of successful requests is {outputs}; requests "
            f"without output say nothing about speed"
        )
    inputs = _mean(metrics, "prompt_token_count")
    if not inputs:
        raise metrics.wrong("prompt_token_count", inputs, "a mean above 0 of successful requests")
    latency = _spread(metrics, "request_latency", 1.0)
    clients, rate = _strategy(fields)
    remarks = []
    if failed:
        sent = failed + (completed or 0)
        remarks.append(Remark("failed", place, {"failed": failed, "sent": sent}))
    return MeasuredPoint(
        place=place,
        subject=Subject(model=model),
        clients=clients,
        in_flight=_mean(metrics, "request_concurrency") or None,
        request_rate=rate,
        input_tokens=inputs,
        output_tokens=outputs,
        completed=completed,
        failed=failed,
        ttft=_spread(metrics, "time_to_first_token_ms", 1e-3),
        tpot=_spread(metrics, "inter_token_latency_ms", 1e-3),
        latency=latency,
        output_tokens_per_second=_mean(metrics, "output_tokens_per_second"),
        requests_per_second=_mean(metrics, "requests_per_second"),
        remarks=tuple(remarks),
    )


def _successful(metrics: Fields, name: str) -> Fields | None:
    section = metrics.section(name)
    return section.section("successful") if section is not None else None


def _mean(metrics: Fields, name: str) -> float | None:
    found = _successful(metrics, name)
    return found.number("mean") if found is not None else None


def _spread(metrics: Fields, name: str, scale: float) -> Spread | None:
    found = _successful(metrics, name)
    mean = found.number("mean") if found is not None else None
    if found is None or not mean:
        return None
    percentiles = {}
    median = found.number("median")
    if median is not None:
        percentiles[50.0] = median * scale
    parts = found.section("percentiles")
    for key, at in _PERCENTILES.items():
        value = parts.number(key) if parts is not None else None
        if value is not None:
            percentiles[at] = value * scale
    return Spread(mean * scale, percentiles)


def _strategy(fields: Fields) -> tuple[int | None, float | None]:
    """Clients, and requests a second."""
    holder = fields.section("config") or fields.section("args")
    strategy = holder.section("strategy") if holder is not None else None
    if strategy is None:
        return None, None
    kind = strategy.text("type_")
    if kind == "synchronous":
        return 1, None
    if kind == "concurrent":
        return strategy.count("streams"), None
    if kind == "throughput":
        return strategy.count("max_concurrency"), math.inf
    return None, strategy.number("rate")


def _model(document: Mapping[str, Any], run: Mapping[str, Any]) -> str | None:
    """The model, which the versions keep in different places."""
    for holder, *path in (
        (run, "worker", "backend_model"),
        (document, "args", "model"),
        (document, "config", "backend", "model"),
        (run, "config", "backend", "model"),
    ):
        value: Any = holder
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value.strip():
            return value.strip()
    return None
