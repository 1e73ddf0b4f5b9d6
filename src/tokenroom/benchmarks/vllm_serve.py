"""Output of ``vllm bench serve --save-result`` and of ``benchmark_serving.py`` before it.

Read in vLLM 0.6.2 ``benchmarks/benchmark_serving.py`` to 0.33.0 ``vllm/benchmarks/serve.py``:
``main_async`` writes one object, or appends one a line with ``--append-result``; times end in
``_ms``. ``calculate_metrics`` takes requests that succeeded; TPOT is (latency - TTFT) / (tokens -
1) of those with more than one token, averaged over requests. ``failed`` exists since 0.12; lists
by request only with ``--save-detailed`` (before 0.8 always), where a request that failed has 0
output tokens. ``max_concurrency`` exists since 0.6.4, ``spec_decode_*`` since 0.14.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from tokenroom.benchmarks.fields import Fields
from tokenroom.benchmarks.point import MeasuredPoint, Remark, Spread, Subject
from tokenroom.errors import BenchmarkError

TITLE = "vllm bench serve --save-result (JSON)"

_SLACK: Final = 1.5
"""How far figures of one run may be apart: tools count the first and last moments differently."""


def recognises(document: object) -> bool:
    """Whether an object is one that vLLM's serving benchmark writes."""
    return isinstance(document, Mapping) and {"model_id", "tokenizer_id", "completed"} <= set(
        document
    )


def read_point(document: Mapping[str, Any], file: str, place: str) -> MeasuredPoint:
    """One run.

    Raises:
        BenchmarkError: A field is missing or impossible, or no request succeeded.
    """
    fields = Fields(document, f"{file}, {place}" if place else file)
    if "total_output_tokens" not in document:
        raise BenchmarkError(
            f"{fields.place}: total_output_tokens is missing; it is of embeddings or pooling, "
            f"which generate no tokens"
        )
    made = fields.text("backend") or ""
    return read_requests(
        fields,
        place,
        failed=_failed(fields),
        accepted=fields.number("spec_decode_acceptance_length"),
        # the client's kind, which names the engine only where it has an interface of its own
        subject=Subject(
            engine={"tensorrt-llm": "tensorrt-llm", "sglang": "sglang"}.get(made, "vllm"),
            model=fields.text("model_id"),
        ),
    )


def _failed(fields: Fields) -> int | None:
    known = fields.count("failed")
    if known is not None:
        return known
    completed, sent = fields.count("completed"), fields.count("num_prompts")
    lists = fields.numbers("output_lens")
    if lists is not None:
        sent = len(lists)
    return None if completed is None or sent is None else max(0, sent - completed)


def read_requests(
    fields: Fields,
    place: str,
    *,
    failed: int | None,
    accepted: float | None,
    subject: Subject,
    cached_share: float | None = None,
) -> MeasuredPoint:
    """What vLLM's serving benchmark and SGLang's, which grew from it, write alike.

    Raises:
        BenchmarkError: A field is missing or impossible, or no request succeeded.
    """
    completed = fields.count("completed")
    if not completed:
        raise BenchmarkError(f"{fields.place}: completed is {completed}; no request succeeded")
    duration = fields.figure("duration")
    sent = fields.count("num_prompts")
    if sent is not None and completed > sent:
        raise BenchmarkError(
            f"{fields.place}: completed is {completed:,} of num_prompts {sent:,}; it can be no more"
        )
    outputs = fields.figure("total_output_tokens", zero=True)
    if not outputs:
        raise BenchmarkError(
            f"{fields.place}: total_output_tokens is 0; requests without output say nothing about "
            f"speed"
        )
    ttft, tpot, latency = (_spread(fields, name) for name in ("ttft", "tpot", "e2el"))
    latency = latency or _spread(fields, "e2e_latency")
    detail = _by_request(fields)
    ttft, tpot = ttft or detail.ttft, tpot or detail.tpot
    latency = latency or detail.latency or _whole(ttft, tpot, outputs / completed)
    for name, spread in (("ttft", ttft), ("tpot", tpot)):
        mean = spread.mean if spread is not None else None
        tokens = 1 if name == "ttft" else outputs / completed - 1
        if mean is not None and mean * tokens > _SLACK * duration:
            raise BenchmarkError(
                f"{fields.place}: duration is {duration:g} s and mean_{name}_ms {mean * 1e3:,g}, "
                f"by which a request takes longer than the whole run; correct one"
            )
    remarks = []
    if failed:
        remarks.append(Remark("failed", place, {"failed": failed, "sent": failed + completed}))
    if detail.empty:
        remarks.append(Remark("empty", place, {"empty": detail.empty, "sent": completed}))
    if cached_share:
        remarks.append(Remark("cached", place, {"share": cached_share}))
    return MeasuredPoint(
        place=place,
        subject=subject,
        clients=fields.count("max_concurrency") or None,
        in_flight=fields.number("concurrency"),
        request_rate=_rate(fields),
        input_tokens=fields.figure("total_input_tokens") / completed,
        output_tokens=outputs / completed,
        completed=completed,
        failed=failed,
        ttft=ttft,
        tpot=tpot,
        latency=latency,
        output_tokens_per_second=outputs / duration,
        requests_per_second=completed / duration,
        accepted_tokens=accepted,
        remarks=tuple(remarks),
    )


class _ByRequest:
    """Lists that hold one value a request."""

    __slots__ = ("empty", "latency", "tpot", "ttft")

    def __init__(self) -> None:
        self.ttft: Spread | None = None
        self.tpot: Spread | None = None
        self.latency: Spread | None = None
        self.empty = 0


def _by_request(fields: Fields) -> _ByRequest:
    found = _ByRequest()
    lengths, ttfts = fields.numbers("output_lens"), fields.numbers("ttfts")
    gaps, errors = fields.data.get("itls"), fields.data.get("errors")
    if lengths is None or ttfts is None or not isinstance(gaps, list):
        return found
    if not len(lengths) == len(ttfts) == len(gaps):
        raise BenchmarkError(
            f"{fields.place}: output_lens, ttfts and itls have {len(lengths)}, {len(ttfts)} and "
            f"{len(gaps)} entries; they have one a request"
        )
    firsts, further, whole = [], [], []
    for at, (length, first) in enumerate(zip(lengths, ttfts, strict=True)):
        own = gaps[at] if isinstance(gaps[at], list) else []
        if not length:
            failed = isinstance(errors, list) and at < len(errors) and bool(errors[at])
            found.empty += not failed and isinstance(errors, list)
            continue
        firsts.append(first)
        whole.append(first + math.fsum(own))
        if length > 1:
            further.append(math.fsum(own) / (length - 1))
    found.ttft, found.tpot, found.latency = map(Spread.of, (firsts, further, whole))
    return found


def _spread(fields: Fields, name: str) -> Spread | None:
    """``mean_NAME_ms``, ``median_NAME_ms`` and ``pNN_NAME_ms``; 0 stands for nothing measured."""
    mean = fields.number(f"mean_{name}_ms")
    percentiles = {}
    ending = f"_{name}_ms"
    for key in fields.data:
        head = key.removesuffix(ending)
        if head == key or not head.startswith("p"):
            continue
        try:
            at = float(head[1:])
        except ValueError:
            continue
        value = fields.number(key)
        if value:
            percentiles[at] = value / 1e3
    median = fields.number(f"median_{name}_ms")
    if median:
        percentiles[50.0] = median / 1e3
    if not mean and not percentiles:
        return None
    return Spread(mean / 1e3 if mean else None, percentiles)


def _whole(ttft: Spread | None, tpot: Spread | None, outputs: float) -> Spread | None:
    """A request's time from its parts, where the file has no other."""
    first, further = ttft and ttft.typical, tpot and tpot.typical
    if first is None or further is None:
        return None
    return Spread(first + further * max(0.0, outputs - 1), {})


def _rate(fields: Fields) -> float | None:
    value = fields.data.get("request_rate")
    if value in ("inf", math.inf):
        return math.inf
    if isinstance(value, str):  # SGLang replays the times of a trace
        return None
    return fields.number("request_rate")
