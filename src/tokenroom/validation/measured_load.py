"""What clients sent while a speed was measured, and how the model was stored and divided.

The fields are those of rows of the speed form (docs/validation.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenroom.errors import RowError, shown
from tokenroom.serving_speed import MAX_NUM_PROMPTS
from tokenroom.units import MAX_TOKENS

LOAD_FIELDS: Final = frozenset(
    {
        *("isl", "osl", "batch_or_concurrency", "concurrency", "request_rate", "precision"),
        *("kv_dtype", "tp", "pp", "dp", "ep", "stat", "source", "acceptance", "num_prompts"),
    }
)
"""Fields of a row that belong to the speed form."""

_MEASURED: Final = frozenset({"metric", "isl", "osl", "batch_or_concurrency", "concurrency"})
"""Fields of which one makes a row one of the speed form."""

_STATS: Final = ("mean", "median", "total", "per_gpu", "p50", "p90", "p95", "p99")
_MOST: Final = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """The load of a measured speed; None is "not stated".

    Attributes:
        input_tokens: Prompt of a request.
        output_tokens: Tokens it got.
        concurrency: Requests in flight, or those of a static batch.
        request_rate: Requests a second that were sent; infinity for all at once.
        precision: How weights were stored: ``"fp8"``, ``"bf16"``, ``"Q4_K_M"``, ...
        kv_dtype: Type of the cache.
        tp: Tensor-parallel size.
        pp: Pipeline-parallel size.
        dp: Data-parallel size (of attention where experts are divided).
        ep: Expert-parallel size.
        num_prompts: Requests of a benchmark in all, whose first come at once; None for a steady
            load.
        acceptance: Of drafted tokens, as ``tokenroom speed --acceptance`` takes it.
        stat: What of many values the figure is, ``"mean"``, ``"median"``, ``"p99"``; of a
            throughput ``"total"`` or ``"per_gpu"``.
        source: Where the row was read.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    precision: str | None = None
    kv_dtype: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    acceptance: float | None = None
    num_prompts: int | None = None
    stat: str | None = None
    source: str | None = None


def read_load(data: Mapping[str, Any], place: str) -> MeasuredLoad | None:
    """The load that a row states, None when it is of the memory form.

    Raises:
        RowError: A field holds something else than it may.
    """
    if _MEASURED.isdisjoint(data):
        return None
    both = [name for name in ("concurrency", "batch_or_concurrency") if data.get(name) is not None]
    if len(both) == 2 and data[both[0]] != data[both[1]]:
        raise RowError(f"{place} has concurrency and batch_or_concurrency, which differ; give one")
    clients, sent = data.get(both[0]) if both else None, data.get("num_prompts")
    if isinstance(clients, int) and isinstance(sent, int) and sent < clients:
        raise RowError(
            f"{place} has num_prompts {sent} and {both[0]} {clients}; a benchmark sends at least a "
            f"request for each client"
        )
    stat = _word(data, "stat", place)
    if stat is not None and stat not in _STATS:
        raise RowError(f"{place} has stat {stat!r}; it may be {', '.join(_STATS)}")
    return MeasuredLoad(
        input_tokens=_count(data, "isl", place, MAX_TOKENS, least=0),
        output_tokens=_count(data, "osl", place, MAX_TOKENS, least=0),
        concurrency=_count(data, both[0] if both else "concurrency", place, _MOST),
        request_rate=_rate(data, place),
        precision=_word(data, "precision", place),
        kv_dtype=_word(data, "kv_dtype", place),
        tp=_count(data, "tp", place, _MOST, least=0) or None,
        pp=_count(data, "pp", place, _MOST, least=0) or None,
        dp=_count(data, "dp", place, _MOST, least=0) or None,
        ep=_count(data, "ep", place, _MOST, least=0) or None,
        acceptance=_acceptance(data, place),
        num_prompts=_count(data, "num_prompts", place, MAX_NUM_PROMPTS),
        stat=stat,
        source=_word(data, "source", place),
    )


def _word(data: Mapping[str, Any], name: str, place: str) -> str | None:
    value = data.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise RowError(f"{place} has {name} {shown(value)}; it is a text")
    return value.strip() or None


def _count(
    data: Mapping[str, Any], name: str, place: str, most: int, *, least: int = 1
) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RowError(
            f"{place} has {name} {shown(value)}; it is a whole number from {least} to {most:,}"
        )
    return value


def _rate(data: Mapping[str, Any], place: str) -> float | None:
    value = data.get("request_rate")
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = math.nan
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not value > 0:
        raise RowError(
            f"{place} has request_rate {shown(data['request_rate'])}; it is a number of requests a "
            f"second, or inf"
        )
    return float(value)


def _acceptance(data: Mapping[str, Any], place: str) -> float | None:
    value = data.get("acceptance")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise RowError(
            f"{place} has acceptance {shown(value)}; it is a share from 0 to 1, or the mean tokens "
            f"of a step"
        )
    return float(value)
