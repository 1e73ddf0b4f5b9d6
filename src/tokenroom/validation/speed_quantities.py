"""Speeds that rows state, and what a predicted load says of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tokenroom.serving_speed import Range
from tokenroom.validation.measured_load import MeasuredLoad

PER_GPU: Final = "output_tokens_per_s_per_gpu"
PER_USER: Final = "output_tokens_per_s_per_user"
TTFT: Final = "ttft_ms"
TPOT: Final = "tpot_ms"
ITL: Final = "itl_ms"
PREFILL: Final = "pp_tokens_per_s"
DECODE: Final = "tg_tokens_per_s"

#: Name in rows -> the quantity as it is compared.
_NAMES: Final[Mapping[str, str]] = {
    **{name: name for name in (TTFT, TPOT, ITL, PREFILL, DECODE, PER_GPU, PER_USER)},
    "output_tokens_per_s": PER_GPU,
    "total_tokens_per_s": "total_tokens_per_s_per_gpu",
    "total_tokens_per_s_per_gpu": "total_tokens_per_s_per_gpu",
    "e2e_latency_ms": "e2e_latency_ms",
    "requests_per_s": "requests_per_s",
    "request_rate_completed_per_s": "requests_per_s",
}
SPEED_NAMES: Final = frozenset(_NAMES)
"""Names of speeds in a row's ``reported`` or ``metric``."""

OF_A_REQUEST: Final = frozenset({TTFT, TPOT, ITL, PER_USER, "e2e_latency_ms"})
"""What one request sees."""

_OF_ALL_GPUS: Final = frozenset({"output_tokens_per_s", "total_tokens_per_s"})


def compared_as(name: str) -> str:
    """The quantity that one of :data:`SPEED_NAMES` is compared as."""
    return _NAMES[name]


def is_throughput(name: str) -> bool:
    """Whether a figure of that name is of all GPUs or of one, which its ``stat`` says."""
    return name in _OF_ALL_GPUS


def of_all_gpus(name: str, load: MeasuredLoad) -> bool:
    """Whether a throughput is that of all GPUs, so that it is divided by their number."""
    return name in _OF_ALL_GPUS and load.stat != "per_gpu"


def served_quantities(
    *,
    input_tokens: int,
    output_tokens: int,
    accelerators: int,
    ttft_seconds: Range,
    tpot_seconds: Range,
    output_tokens_per_second: Range,
) -> Mapping[str, Range]:
    """Every quantity of a served load, in its own unit.

    A request takes its first token and output - 1 further ones; throughputs are per GPU, that of a
    user is the inverse of the time a token takes.
    """
    further = output_tokens - 1
    latency = Range(
        *(first + further * each for first, each in zip(ttft_seconds, tpot_seconds, strict=True))
    )
    rate = output_tokens_per_second.divided(accelerators)
    share = output_tokens / (input_tokens + output_tokens)
    return {
        TTFT: ttft_seconds.divided(1e-3),
        TPOT: tpot_seconds.divided(1e-3),
        ITL: tpot_seconds.divided(1e-3),
        "e2e_latency_ms": latency.divided(1e-3),
        PER_GPU: rate,
        PER_USER: tpot_seconds.over(1),
        "total_tokens_per_s_per_gpu": rate.divided(share),
        "requests_per_s": output_tokens_per_second.divided(output_tokens),
    }


def amounts_to(
    observed: Mapping[str, float], load: MeasuredLoad, accelerators: int
) -> Mapping[str, float]:
    """Throughputs that observed times amount to, where none are stated.

    A client has its first token after TTFT and each further one after TPOT, and then sends its next
    request.
    """
    found: dict[str, float] = {}
    each = observed.get(TPOT, observed.get(ITL))
    if each is None or each <= 0:
        return found
    if PER_USER not in observed:
        found[PER_USER] = 1e3 / each
    first = observed.get(TTFT)
    if PER_GPU in observed or first is None or not load.output_tokens or not load.concurrency:
        return found
    cycle_seconds = (first + (load.output_tokens - 1) * each) / 1e3
    found[PER_GPU] = load.concurrency * load.output_tokens / cycle_seconds / accelerators
    return found


def told_by(load: MeasuredLoad, values: Mapping[str, Range]) -> Mapping[str, Range]:
    """What a load tells.

    When all requests are sent at once, what one of them sees hangs on how many there were; when
    they come at a rate, the throughput is that rate.
    """
    if load.concurrency is not None:
        return values
    at_once = load.request_rate == math.inf
    return {name: value for name, value in values.items() if (name in OF_A_REQUEST) != at_once}
