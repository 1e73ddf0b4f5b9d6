"""Output of SGLang's serving benchmark: one object a line, appended run after run.

Read in SGLang 0.4.6 ``sglang/bench_serving.py`` and 0.5.23 ``sglang/benchmark/serving.py``
(``benchmark``): fields as vLLM's, from which it grew; ``concurrency`` is the sum of all requests'
times over the duration, ``request_rate`` Infinity when all are sent at once. It counts no failed
requests; ``errors`` lists them only with ``--output-details``. ``server_info`` (since 0.5) holds
the server's arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenroom.benchmarks.fields import Fields
from tokenroom.benchmarks.point import MeasuredPoint, Subject
from tokenroom.benchmarks.vllm_serve import read_requests

TITLE = "sglang.bench_serving (JSON lines)"

_ENGINES = {"vllm": "vllm", "vllm-chat": "vllm", "trt": "tensorrt-llm"}


def recognises(document: object) -> bool:
    """Whether an object is one that SGLang's serving benchmark writes."""
    return isinstance(document, Mapping) and {
        "total_output_tokens_retokenized",
        "dataset_name",
        "completed",
    } <= set(document)


def read_point(document: Mapping[str, Any], file: str, place: str) -> MeasuredPoint:
    """One run.

    Raises:
        BenchmarkError: A field is missing or impossible, or no request succeeded.
    """
    fields = Fields(document, f"{file}, {place}" if place else file)
    errors = document.get("errors")
    told = document.get("server_info")
    server = Fields(told if isinstance(told, Mapping) else {}, f"{fields.place}, server_info")
    ranks = server.count("tp_size")
    stages, copies = server.count("pp_size") or 1, server.count("dp_size") or 1
    report = fields.section("cache_report")
    hit = report.number("cache_hit_rate_pct") if report is not None else None
    backend = fields.text("backend") or "sglang"
    return read_requests(
        fields,
        place,
        failed=sum(map(bool, errors)) if isinstance(errors, list) else None,
        accepted=fields.number("accept_length"),
        subject=Subject(
            engine=_ENGINES.get(backend, "sglang"),
            engine_version=server.text("version"),
            model=server.text("model_path"),
            gpus=None if ranks is None else ranks * stages * (copies if not _shared(server) else 1),
            tensor_parallel_size=ranks,
        ),
        cached_share=None if hit is None else hit / 100,
    )


def _shared(server: Fields) -> bool:
    """Whether data parallelism divides the attention of the same GPUs."""
    return bool(server.data.get("enable_dp_attention"))
