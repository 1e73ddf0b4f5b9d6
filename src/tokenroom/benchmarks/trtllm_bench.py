"""Report of ``trtllm-bench throughput|latency --report_json``.

Read in NVIDIA/TensorRT-LLM ``tensorrt_llm/bench/dataclasses/reporting.py``
(``ReportUtility.get_statistics_dict``) of 0.17 to 1.2: times end in ``_ms``, rates in ``_s``.
``avg_num_concurrent_requests`` is the sum of all requests' times over the duration, queued time
too. TTFT and TPOT are there with ``--streaming`` only; TPOT is a request's time after its first
token over its further tokens. ``machine`` exists since 1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenroom.benchmarks.fields import Fields
from tokenroom.benchmarks.point import MeasuredPoint, Spread, Subject
from tokenroom.errors import BenchmarkError

TITLE = "trtllm-bench --report_json (JSON)"


def recognises(document: object) -> bool:
    """Whether an object is a report of trtllm-bench."""
    return isinstance(document, Mapping) and {"engine", "request_info", "performance"} <= set(
        document
    )


def read_point(document: Mapping[str, Any], file: str, place: str) -> MeasuredPoint:
    """One run.

    Raises:
        BenchmarkError: A field is missing or impossible, or no request succeeded.
    """
    fields = Fields(document, f"{file}, {place}" if place else file)
    engine, requests = fields.needed("engine"), fields.needed("request_info")
    performance, streaming = fields.needed("performance"), fields.section("streaming_metrics")
    world, machine = fields.section("world_info"), fields.section("machine")
    outputs = requests.figure("avg_output_length", zero=True)
    if not outputs:
        raise BenchmarkError(
            f"{fields.place}: avg_output_length is 0; requests without output say nothing about "
            f"speed"
        )
    took = performance.number("avg_request_latency_ms", zero=False)
    decoding = fields.section("decoding_stats")
    lengths = decoding.section("acceptance_length_percentiles") if decoding is not None else None
    return MeasuredPoint(
        place=place,
        subject=Subject(
            engine="tensorrt-llm",
            engine_version=engine.text("version"),
            model=engine.text("model"),
            gpu=machine.text("name") if machine is not None else None,
            gpus=world.count("world_size") if world is not None else None,
            tensor_parallel_size=world.count("tp_size") if world is not None else None,
        ),
        in_flight=requests.number("avg_num_concurrent_requests", zero=False),
        input_tokens=requests.figure("avg_input_length"),
        output_tokens=outputs,
        completed=requests.count("num_requests"),
        ttft=_spread(streaming, "avg_ttft_ms", "ttft_percentiles"),
        tpot=_spread(streaming, "avg_tpot_ms", "tpot_percentiles"),
        latency=None if took is None else Spread(took / 1e3, {}),
        output_tokens_per_second=performance.number("system_output_throughput_tok_s", zero=False),
        requests_per_second=performance.number("request_throughput_req_s", zero=False),
        accepted_tokens=lengths.number("average") if lengths is not None else None,
    )


def _spread(streaming: Fields | None, mean: str, percentiles: str) -> Spread | None:
    value = streaming.number(mean) if streaming is not None else None
    if streaming is None or not value:
        return None
    parts = streaming.section(percentiles)
    found = {}
    for at in (50, 90, 95, 99):
        each = parts.number(f"p{at}") if parts is not None else None
        if each:
            found[float(at)] = each / 1e3
    return Spread(value / 1e3, found)
