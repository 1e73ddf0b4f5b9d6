"""Summaries of GenAI-Perf and of AIPerf, which keeps its form.

Read in triton-inference-server/perf_analyzer genai-perf 0.0.16
``genai_perf/export_data/json_exporter.py`` and ``genai_perf/metrics/statistics.py``
(``profile_export_genai_perf.json``), and in ai-dynamo/aiperf 0.1.1 and 0.13.0
``aiperf/common/models/export_models.py`` (``profile_export_aiperf.json``): every metric is an
object of ``unit``, ``avg`` and, except rates of the whole run, ``p1`` to ``p99``. ``inter_token_
latency`` is (latency - TTFT) / (tokens - 1) of a request, which others call TPOT. ``input_config``
holds the load: ``perf_analyzer.stimulus`` (GenAI-Perf), ``loadgen`` (AIPerf to 0.8), ``phases``
(later), ``concurrency`` (GenAI-Perf before 0.0.13). Values left at their default are not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tokenroom.benchmarks.fields import Fields
from tokenroom.benchmarks.point import MeasuredPoint, Remark, Spread, Subject
from tokenroom.errors import BenchmarkError

TITLE = "profile_export_genai_perf.json, profile_export_aiperf.json"

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def recognises(document: object) -> bool:
    """Whether an object is a summary of GenAI-Perf or AIPerf."""
    return (
        isinstance(document, Mapping)
        and isinstance(document.get("request_latency"), Mapping)
        and "unit" in document["request_latency"]
    )


def read_point(document: Mapping[str, Any], file: str, place: str) -> MeasuredPoint:
    """One run.

    Raises:
        BenchmarkError: A field is missing or impossible, or no request succeeded.
    """
    fields = Fields(document, f"{file}, {place}" if place else file)
    outputs = _average(fields, "output_sequence_length")
    inputs = _average(fields, "input_sequence_length")
    if inputs is None or outputs is None:
        name = "input" if inputs is None else "output"
        raise fields.wrong(f"{name}_sequence_length", None, "an object with unit and avg")
    if not outputs:
        raise BenchmarkError(
            f"{fields.place}: output_sequence_length is 0 on average; requests without output say "
            f"nothing about speed"
        )
    completed, failed = (
        _average(fields, name) for name in ("request_count", "error_request_count")
    )
    load = _load(fields)
    remarks = []
    if failed:
        sent = round(failed + (completed or 0))
        remarks.append(Remark("failed", place, {"failed": round(failed), "sent": sent}))
    if document.get("was_cancelled"):
        remarks.append(Remark("cancelled", place, {}))
    gpus = list(_gpus(document))
    return MeasuredPoint(
        place=place,
        subject=Subject(
            model=_model(document),
            gpu=gpus[0] if gpus else None,
            gpus=len(gpus) or None,
        ),
        clients=load.count("concurrency") or None,
        request_rate=load.number("request_rate") or load.number("rate"),
        input_tokens=inputs,
        output_tokens=outputs,
        completed=None if completed is None else round(completed),
        failed=None if failed is None else round(failed),
        ttft=_spread(fields, "time_to_first_token"),
        tpot=_spread(fields, "inter_token_latency"),
        latency=_spread(fields, "request_latency"),
        output_tokens_per_second=_average(fields, "output_token_throughput"),
        requests_per_second=_average(fields, "request_throughput"),
        remarks=tuple(remarks),
    )


def _average(fields: Fields, name: str) -> float | None:
    section = fields.section(name)
    return section.number("avg") if section is not None else None


def _spread(fields: Fields, name: str) -> Spread | None:
    section = fields.section(name)
    if section is None:
        return None
    unit = section.text("unit")
    if unit not in _SECONDS:
        raise section.wrong("unit", section.data.get("unit"), f"one of {', '.join(_SECONDS)}")
    scale = _SECONDS[unit]
    percentiles = {}
    for at in (1, 5, 10, 25, 50, 75, 90, 95, 99):
        value = section.number(f"p{at}")
        if value is not None:
            percentiles[float(at)] = value * scale
    mean = section.number("avg")
    if not mean and not percentiles:
        return None
    return Spread(mean * scale if mean else None, percentiles)


def _load(fields: Fields) -> Fields:
    """The part of the settings that says how requests are sent; empty when there is none."""
    config = fields.section("input_config")
    if config is None:
        return Fields({}, fields.place)
    analyzer = config.section("perf_analyzer")
    stimulus = analyzer.data.get("stimulus") if analyzer is not None else None
    if isinstance(stimulus, Mapping):
        return Fields(stimulus, f"{fields.place}, input_config.perf_analyzer.stimulus")
    phases = config.data.get("phases")
    if isinstance(phases, list):
        for phase in phases:
            if isinstance(phase, Mapping) and "warmup" not in (
                phase.get("kind"),
                phase.get("name"),
            ):
                return Fields(phase, f"{fields.place}, input_config.phases")
    return config.section("loadgen") or config


def _model(document: Mapping[str, Any]) -> str | None:
    config = document.get("input_config")
    if not isinstance(config, Mapping):
        return None
    endpoint = config.get("endpoint")
    listed = endpoint.get("model_names") if isinstance(endpoint, Mapping) else None
    models = config.get("models")
    if isinstance(models, Mapping):
        models = models.get("items")
    for names in (config.get("model_names"), config.get("model"), listed, models):
        first = names[0] if isinstance(names, list) and names else names
        if isinstance(first, Mapping):
            first = first.get("name")
        if isinstance(first, str) and first.strip():
            return first.strip()
    return None


def _gpus(document: Mapping[str, Any]) -> Iterator[str]:
    """Names of the GPUs that AIPerf watched."""
    told = document.get("telemetry_data")
    endpoints = told.get("endpoints") if isinstance(told, Mapping) else None
    for endpoint in endpoints.values() if isinstance(endpoints, Mapping) else ():
        gpus = endpoint.get("gpus") if isinstance(endpoint, Mapping) else None
        for gpu in gpus.values() if isinstance(gpus, Mapping) else ():
            if isinstance(gpu, Mapping) and isinstance(gpu.get("gpu_name"), str):
                yield gpu["gpu_name"]
