"""One measured point of a benchmark, whichever tool wrote it.

Times are seconds, lengths are mean tokens a request. What a tool does not say is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple


class Work(StrEnum):
    """What a point's requests do."""

    SERVING = "serving"  # requests of clients: a prompt, then tokens one after another
    PROMPT = "prompt"  # one prompt on an idle machine, no token after it
    GENERATION = "generation"  # one request that decodes, its prompt not counted
    BOTH = "both"  # one prompt, then its tokens, with no client and no server between


class Spread(NamedTuple):
    """How one figure is distributed over requests.

    Attributes:
        mean: Arithmetic mean, None when only percentiles are known.
        percentiles: Value by percentile, for example ``{50.0: 0.1, 99.0: 0.4}``.
    """

    mean: float | None
    percentiles: Mapping[float, float]

    @property
    def typical(self) -> float | None:
        """The mean, or the median where there is none."""
        return self.mean if self.mean is not None else self.percentiles.get(50.0)

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of these values; None of no values."""
        if not values:
            return None
        ordered = sorted(values)
        last = len(ordered) - 1
        return cls(fmean(ordered), {at: ordered[round(at / 100 * last)] for at in (50, 90, 95, 99)})


class Remark(NamedTuple):
    """Something about a point that its reader should know; ``reports`` words it.

    Attributes:
        key: Which, as in ``"failed"``.
        place: Where in the file.
        values: What the sentence names.
    """

    key: str
    place: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was measured, as far as the file says.

    Attributes:
        engine: ``"vllm"``, ``"sglang"``, ``"tensorrt-llm"`` or ``"llama.cpp"``.
        engine_version: As the file has it.
        model: Name or path.
        gpu: As the driver names it.
        gpus: How many.
        tensor_parallel_size: Ranks that a layer is divided over.
    """

    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    tensor_parallel_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """One run of a benchmark at one load.

    Attributes:
        place: Where in the file, as ``"line 3"``.
        work: What the requests do.
        subject: What was measured.
        clients: Requests that the tool keeps in flight at most.
        in_flight: Requests in flight on average, queued ones too.
        request_rate: Requests a second that the tool sends; infinite when it sends all at once.
        input_tokens: Prompt.
        output_tokens: Tokens generated.
        context_tokens: Tokens already in the cache before the prompt.
        completed: Requests that succeeded.
        failed: Requests that did not.
        ttft: Time to the first token.
        tpot: Mean time of each further token of a request.
        latency: Time of a whole request.
        output_tokens_per_second: Of all requests together.
        requests_per_second: Likewise.
        accepted_tokens: Tokens a step of speculative decoding; None without it.
        step_tokens: Most tokens of a prompt that one step takes, where the tool sets it.
        kv_type: Type of the cache's keys, where the tool sets it.
        remarks: What to know about it.
    """

    place: str
    work: Work = Work.SERVING
    subject: Subject = field(default_factory=Subject)
    clients: int | None = None
    in_flight: float | None = None
    request_rate: float | None = None
    input_tokens: float
    output_tokens: float
    context_tokens: float = 0.0
    completed: int | None = None
    failed: int | None = None
    ttft: Spread | None = None
    tpot: Spread | None = None
    latency: Spread | None = None
    output_tokens_per_second: float | None = None
    requests_per_second: float | None = None
    accepted_tokens: float | None = None
    step_tokens: int | None = None
    kv_type: str | None = None
    remarks: tuple[Remark, ...] = ()

    @property
    def all_at_once(self) -> bool:
        """Whether every request was sent at the start, with no bound on those in flight."""
        return self.request_rate == math.inf and self.clients is None

    @property
    def concurrency(self) -> float | None:
        """Requests in flight: the clients, or their mean number where requests come by rate.

        All of them where they are sent at once. By Little's law where the tool counts none:
        requests a second times the time each takes.
        """
        if self.work is not Work.SERVING:
            return 1.0
        if self.all_at_once and self.completed is not None:
            return float(self.completed)
        mean = self.in_flight
        took = self.latency.typical if self.latency is not None else None
        if mean is None and self.requests_per_second is not None and took is not None:
            mean = self.requests_per_second * took
        if self.clients is None:
            return mean
        most = float(min(self.clients, self.completed or self.clients))
        if mean is None or self.request_rate in (None, math.inf):
            return most
        return min(mean, most)
