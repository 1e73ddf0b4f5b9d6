"""Requests of a benchmark that was run: what vLLM's and SGLang's tools keep of each request.

``vllm bench serve --save-result --save-detailed`` (vLLM 0.33 ``vllm/benchmarks/serve.py``) writes
the lists ``input_lens``, ``output_lens`` and ``start_times`` (seconds of a clock of its own);
``sglang.bench_serving --output-details`` (SGLang 0.5 ``sglang/benchmark/serving.py``) and vLLM
before it had ``start_times`` write no times of arrival, except that all requests came at once where
``request_rate`` is infinite and nothing limits the concurrency. A request that failed has 0 tokens.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tokenroom.benchmarks import sglang_serving, vllm_serve
from tokenroom.benchmarks.fields import Fields
from tokenroom.errors import BenchmarkError, WorkloadError
from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.rows import Row
from tokenroom.serving.workloads.values import NotANumberError, json_problem, whole_number

_MAX_CHARACTERS: Final = 2**29


def is_benchmark(document: object) -> bool:
    """Whether an object is a run of vLLM's or SGLang's serving benchmark."""
    return vllm_serve.recognises(document) or sglang_serving.recognises(document)


def benchmark_rows(text: io.TextIOWrapper, bad: BadRows, *, arrivals: bool = True) -> Iterator[Row]:
    """The requests of the first run in a file; the file is read as a whole.

    Args:
        text: The file's content.
        bad: Where requests go that failed.
        arrivals: Whether arrival times are needed.

    Raises:
        WorkloadError: It is no such file, has no lists by request, or no times of arrival.
    """
    with bad.until_damage(lambda: 0):
        written = text.read(_MAX_CHARACTERS)
    try:
        document, _ = json.JSONDecoder().raw_decode(written.lstrip())
    except (ValueError, RecursionError) as problem:
        raise WorkloadError(
            f"{bad.name} is no JSON ({json_problem(problem)}); give the "
            "file that the benchmark wrote"
        ) from None
    if not is_benchmark(document):
        raise WorkloadError(
            f"{bad.name} is no output of vllm bench serve or sglang.bench_serving, and no trace "
            "with one object a line; write it so, as by jq -c '.[]' of a list"
        )
    yield from _requests(document, bad, arrivals=arrivals)


def _requests(document: Mapping[str, Any], bad: BadRows, *, arrivals: bool) -> Iterator[Row]:
    try:
        fields = Fields(document, bad.name)
        prompts, outputs = fields.numbers("input_lens"), fields.numbers("output_lens")
        starts = fields.numbers("start_times")
    except BenchmarkError as problem:
        raise WorkloadError(str(problem)) from None
    if prompts is None or outputs is None or not prompts:
        raise WorkloadError(
            f"{bad.name} has sums only, no input_lens and output_lens of each request; run the "
            "benchmark with --save-detailed (vLLM) or --output-details (SGLang)"
        )
    if len(prompts) != len(outputs) or (starts is not None and len(starts) != len(prompts)):
        raise WorkloadError(
            f"{bad.name}: input_lens, output_lens and start_times have {len(prompts)}, "
            f"{len(outputs)} and {len(starts or [])} entries; they have one a request"
        )
    if arrivals and starts is None:
        if not _at_once(document):
            raise WorkloadError(
                f"{bad.name} has no start_times, so it does not tell when each request came; use "
                f"its lengths with arrivals drawn anew, as in poisson:rate=1,"
                f"lengths=trace({bad.name})"
            )
        starts = [0.0] * len(prompts)
    for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True), 1):
        start = starts[number - 1] if arrivals and starts is not None else 0.0
        try:
            lengths = whole_number(prompt, "input_lens"), whole_number(output, "output_lens")
        except NotANumberError as problem:
            bad.refuse(number, "number", str(problem))
            continue
        if not math.isfinite(start):
            bad.refuse(number, "time", f"start_times is {start}, which is no time")
            continue
        yield number, start, *lengths, None, 0, None


def _at_once(document: Mapping[str, Any]) -> bool:
    rate = document.get("request_rate")
    return rate in ("inf", math.inf) and not document.get("max_concurrency")
