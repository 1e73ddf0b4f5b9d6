"""One scrape of an endpoint: what its replicas hold and have counted so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tokenroom.watching.exposition import Exposition, Labels
from tokenroom.watching.histograms import Histogram, read_histogram
from tokenroom.watching.metric_names import NAMES, MetricNames, Names
from tokenroom.watching.observation import TorchMemory

COUNTERS: Final = (
    "prompt_tokens",
    "generation_tokens",
    "requests",
    "preemptions",
    "prefix_queries",
    "prefix_hits",
    "prefix_misses",
)
HISTOGRAMS: Final = ("ttft", "itl", "tpot", "queue", "e2e")
_MODEL: Final = "model_name"
_TORCH: Final = ("tokenroom_torch_allocated_bytes", "tokenroom_torch_reserved_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A replica as one page shows it; attributes are those of ``Replica``.

    Attributes:
        counters: Of :data:`COUNTERS` those that it has, since its process began.
        histograms: Of :data:`HISTOGRAMS` those that it has.
    """

    model: str | None
    rank: str | None
    running: int | None = None
    waiting: int | None = None
    kv_share: float | None = None
    kv_used_tokens: int | None = None
    kv_pool_tokens: int | None = None
    prefix_hit_share: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


def engine_of(page: Exposition) -> str | None:
    """The engine whose figures a page has; ``torch`` of a server that tells of PyTorch alone."""
    for engine, names in NAMES.items():
        if page.has(names.prefix):
            return engine
    return "torch" if any(True for _ in page.of(_TORCH[0])) else None


def read_snapshots(engine: str, page: Exposition) -> tuple[Snapshot, ...]:
    """The replicas of a page, by model and rank."""
    names = NAMES.get(engine)
    if names is None:
        return ()
    found: list[Snapshot] = []
    for model, ranks in _models(page, names).items():
        replicas = [_snapshot(page, names, model, rank, where) for rank, where in ranks]
        if len(replicas) > 1 and not any("prompt_tokens" in one.counters for one in replicas):
            found.append(_whole(page, names, model, replicas))
        found += replicas
    return tuple(found)


def read_torch(page: Exposition) -> tuple[TorchMemory, ...]:
    """PyTorch's allocator by GPU, where a server tells of it.

    The names are tokenroom's own: ``tokenroom_torch_allocated_bytes`` and
    ``tokenroom_torch_reserved_bytes`` with a label ``gpu``, set from ``torch.cuda.memory_stats``.
    """
    allocated, reserved = (
        {
            labels.get("gpu", "0"): round(value)
            for labels, value in page.of(name)
            if math.isfinite(value)
        }
        for name in _TORCH
    )
    return tuple(
        TorchMemory(gpu=gpu, allocated_bytes=allocated[gpu], reserved_bytes=reserved[gpu])
        for gpu in sorted(allocated.keys() & reserved.keys())
    )


def start_mark(page: Exposition) -> float | None:
    """What tells one process of a server from the next: when it began.

    ``process_start_time_seconds`` is missing from vLLM's page with several API servers and from
    SGLang's, whose collectors count over processes; counters that fall show a restart there.
    """
    return page.value("process_start_time_seconds")


def host_bytes(page: Exposition) -> int | None:
    """Resident memory of the process that serves the page."""
    value = page.value("process_resident_memory_bytes")
    return None if value is None else round(value)


def _models(
    page: Exposition, names: MetricNames
) -> dict[str | None, list[tuple[str | None, dict[str, str]]]]:
    """Models with their ranks, and the labels that choose each."""
    seen: dict[str | None, dict[str | None, list[Labels]]] = {}
    for labels, _ in page.of(*names.running, *names.prompt_tokens):
        rank = labels.get(names.rank) if names.rank else None
        seen.setdefault(labels.get(_MODEL), {}).setdefault(rank, []).append(labels)
    found: dict[str | None, list[tuple[str | None, dict[str, str]]]] = {}
    for model, ranks in seen.items():
        several = len(ranks) > 1
        for rank in sorted(ranks, key=_rank_order):
            where = {} if model is None else {_MODEL: model}
            if several and rank is not None:
                where[names.rank] = rank
            where |= _first_worker(ranks[rank])
            found.setdefault(model, []).append((rank if several else None, where))
    return found


def _first_worker(series: list[Labels]) -> dict[str, str]:
    """SGLang's gauges of the first tensor- and pipeline-parallel rank, where all export them."""
    chosen: dict[str, str] = {}
    for label in ("pp_rank", "tp_rank"):
        values = {
            labels[label]
            for labels in series
            if label in labels and all(labels.get(key) == value for key, value in chosen.items())
        }
        if len(values) > 1:
            chosen[label] = min(values, key=_rank_order)
    return chosen


def _rank_order(rank: str | None) -> tuple[int, str]:
    text = rank or ""
    return (int(text), text) if text.isdecimal() else (-1, text)


def _snapshot(
    page: Exposition,
    names: MetricNames,
    model: str | None,
    rank: str | None,
    where: Labels,
) -> Snapshot:
    # Counters and histograms of SGLang's tokenizer know neither ranks nor workers.
    whole = {_MODEL: model} if model is not None else {}

    def figure(of: Names) -> float | None:
        value = page.value(*of, where=where)
        if value is None and rank is None:
            value = page.value(*of, where=whole)
        return value

    def whole_number(of: Names) -> int | None:
        value = figure(of)
        return None if value is None else round(value)

    narrow = where if rank is not None else whole
    counters = {
        name: value
        for name in COUNTERS
        if (value := page.value(*getattr(names, name), where=narrow)) is not None
    }
    histograms = {
        name: histogram
        for name in HISTOGRAMS
        if (histogram := read_histogram(page, getattr(names, name), narrow)) is not None
    }
    return Snapshot(
        model=model,
        rank=rank,
        running=whole_number(names.running),
        waiting=whole_number(names.waiting),
        kv_share=figure(names.kv_share),
        kv_used_tokens=whole_number(names.kv_used_tokens),
        kv_pool_tokens=whole_number(names.kv_pool_tokens),
        prefix_hit_share=figure(names.prefix_hit_share),
        counters=counters,
        histograms=histograms,
    )


def _whole(
    page: Exposition, names: MetricNames, model: str | None, ranks: list[Snapshot]
) -> Snapshot:
    """All ranks of a model together: SGLang counts tokens where requests come in, not by rank."""
    shares = [one.kv_share for one in ranks if one.kv_share is not None]
    return replace(
        _snapshot(page, names, model, None, {} if model is None else {_MODEL: model}),
        running=_sum(one.running for one in ranks),
        waiting=_sum(one.waiting for one in ranks),
        kv_share=max(shares, default=None),  # a request is refused by the rank that is full
        kv_used_tokens=_sum(one.kv_used_tokens for one in ranks),
        kv_pool_tokens=_sum(one.kv_pool_tokens for one in ranks),
        prefix_hit_share=None,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def read_iteration_stats(stats: Any) -> Snapshot | None:
    """TensorRT-LLM's ``/metrics``: the newest of the iterations since it was last asked.

    A list of objects with ``numActiveRequests``, ``numQueuedRequests`` and ``kvCacheStats``
    (``tensorrt_llm/executor`` and ``cpp/tensorrt_llm/executor/types``); empty while idle. What is
    read is gone for other readers, which is why the Prometheus page is preferred.
    """
    last = next((one for one in reversed(list(_objects(stats)))), None)
    if last is None:
        return None
    cache = last.get("kvCacheStats")
    cache = cache if isinstance(cache, dict) else {}
    used, most = _count(cache.get("usedNumBlocks")), _count(cache.get("maxNumBlocks"))
    tokens = _count(cache.get("tokensPerBlock"))
    share = used / most if used is not None and most else None
    hit = cache.get("cacheHitRate")
    reused, missed = _count(cache.get("reusedBlocks")), _count(cache.get("missedBlocks"))
    counters = {
        name: float(value)
        for name, value in (("prefix_hits", reused), ("prefix_misses", missed))
        if value is not None
    }
    return Snapshot(
        model=None,
        rank=None,
        running=_count(last.get("numActiveRequests")),
        waiting=_count(last.get("numQueuedRequests")),
        kv_share=share,
        kv_used_tokens=used * tokens if used is not None and tokens else None,
        kv_pool_tokens=most * tokens if most and tokens else None,
        prefix_hit_share=float(hit) if isinstance(hit, int | float) else None,
        counters=counters,
    )


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict):
            yield one


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
