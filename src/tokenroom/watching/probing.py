"""Which engine answers at an address, where its figures are, and what it tells of its start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenroom.errors import WatchError
from tokenroom.units import GIB
from tokenroom.watching.exposition import Exposition, read_exposition
from tokenroom.watching.fetching import Fetcher, Page
from tokenroom.watching.observation import Facts, Value
from tokenroom.watching.snapshots import Snapshot, engine_of, read_iteration_stats

_OK: Final = 200
_NO_SUCH_PAGE: Final = (404, 405, 501)
"""llama-server answers 501 where it was started without ``--metrics``."""
_REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One look at a server.

    Attributes:
        page: Its figures in Prometheus's format; None where it has none.
        stats: TensorRT-LLM's iterations instead.
        slots: llama-server's slots.
        start_mark: Of the page's head.
    """

    page: Exposition | None = None
    stats: Snapshot | None = None
    slots: tuple[Mapping[str, Any], ...] = ()
    start_mark: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that was recognised.

    Attributes:
        engine: Its engine.
        facts: What it tells of its start.
        path: Where its figures are; empty where it has no such page.
        has_slots: Whether llama-server tells of its slots.
    """

    engine: str
    facts: Facts
    path: str
    has_slots: bool = False


def recognise(fetcher: Fetcher) -> Server:
    """The engine behind an address.

    Raises:
        WatchError: Nobody answers, or none of the engines.
    """
    page = fetcher.get("/metrics")
    if page.status in _REFUSED:
        raise WatchError(
            f"it wants a key for /metrics (status {page.status}); give it with --api-key"
        )
    if page.status == _OK and isinstance(page.json, list):
        return _tensorrt(fetcher)
    if page.status == _OK:
        figures = read_exposition(page.body)
        engine = engine_of(figures)
        if engine is None:
            raise WatchError(
                "its /metrics has figures of no engine that is known: vLLM, SGLang, TensorRT-LLM, "
                "llama-server, or tokenroom_torch_allocated_bytes"
            )
        if engine == "llama.cpp":
            return _llama(fetcher, "/metrics")
        return Server(engine=engine, facts=_FACTS[engine](fetcher, figures), path="/metrics")
    if page.status in _NO_SUCH_PAGE:
        return _without_metrics(fetcher)
    raise WatchError(f"its /metrics answers with status {page.status}")


def scrape(fetcher: Fetcher, server: Server) -> Scrape:
    """The server's figures now.

    Raises:
        WatchError: They cannot be had.
    """
    slots: tuple[Mapping[str, Any], ...] = ()
    if server.has_slots:
        told = fetcher.get("/slots").json
        slots = (
            tuple(one for one in told if isinstance(one, dict)) if isinstance(told, list) else ()
        )
    if not server.path:
        if not server.has_slots:
            fetcher.get("/health")
        return Scrape(slots=slots)
    page = fetcher.get(server.path)
    if page.status != _OK:
        raise WatchError(f"its {server.path} answers with status {page.status}")
    if server.engine == "tensorrt-llm" and server.path == "/metrics" and page.json is not None:
        return Scrape(stats=read_iteration_stats(page.json))
    return Scrape(page=read_exposition(page.body), slots=slots, start_mark=page.start_mark)


def _without_metrics(fetcher: Fetcher) -> Server:
    """A server that serves no page of figures: which engine it is, by what else it answers."""
    props = _object(fetcher, "/props")
    if "default_generation_settings" in props:
        return _llama(fetcher, "")
    info = _object(fetcher, "/get_server_info") or _object(fetcher, "/server_info")
    if info:
        return Server(engine="sglang", facts=_sglang(fetcher, None), path="")
    raise WatchError(
        "it serves no /metrics and is no engine that is known (SGLang needs --enable-metrics, "
        "llama-server --metrics)"
    )


def _tensorrt(fetcher: Fetcher) -> Server:
    """trtllm-serve: its Prometheus page where ``return_perf_metrics`` made one, else the JSON."""
    page = fetcher.get("/prometheus/metrics")
    figures, path = None, "/metrics"
    if page.status == _OK and "trtllm_" in page.body:
        figures, path = read_exposition(page.body), "/prometheus/metrics"
    return Server(engine="tensorrt-llm", facts=_tensorrt_facts(fetcher, figures), path=path)


def _vllm(fetcher: Fetcher, page: Exposition | None) -> Facts:
    """``/version``, ``/v1/models`` and the labels of ``cache_config_info`` (from 0.6).

    Of several engines ``num_gpu_blocks`` is the sum (``v1/engine/core_client.py`` of 0.33); they
    are alike.
    """
    labels: Mapping[str, str] = {}
    engines = 1
    if page is not None:
        labels = next((found for found, _ in page.of("vllm:cache_config_info")), {})
        engines = len({of.get("engine") for of, _ in page.of("vllm:prompt_tokens_total")}) or 1
    model = _first_model(fetcher)
    blocks, tokens = _digits(labels.get("num_gpu_blocks")), _digits(labels.get("block_size"))
    if blocks:
        blocks //= engines
    pool = _digits(labels.get("kv_cache_size_tokens"))  # 2026; exact with several groups, too
    if pool is None and blocks and tokens:
        pool = blocks * tokens
    return Facts(
        engine="vllm",
        version=_version(fetcher),
        model=_text(model.get("root")) or _text(model.get("id")),
        max_model_len=_whole(model.get("max_model_len")),
        kv_pool_tokens=pool,
        kv_blocks=blocks,
        kv_block_tokens=tokens,
        settings=_kept(
            {
                "gpu_memory_utilization": _decimal(labels.get("gpu_memory_utilization")),
                "block_size": tokens,
                "kv_cache_dtype": labels.get("cache_dtype"),
                "kv_cache_memory_bytes": _digits(labels.get("kv_cache_memory_bytes")),
                "num_gpu_blocks_override": _digits(labels.get("num_gpu_blocks_override")),
                "data_parallel_size": engines if engines > 1 else None,
            }
        ),
    )


_SGLANG_SETTINGS: Final = (
    *("tp_size", "pp_size", "dp_size", "dtype", "kv_cache_dtype", "mem_fraction_static"),
    *("chunked_prefill_size", "context_length", "page_size", "quantization"),
)


def _sglang(fetcher: Fetcher, page: Exposition | None) -> Facts:
    """``/server_info`` (``/get_server_info`` before 0.5.6), and the gauges of its start."""
    info = _object(fetcher, "/get_server_info") or _object(fetcher, "/server_info")

    def gauge(name: str) -> int | None:
        value = None if page is None else _largest(page, name)
        return None if value is None else round(value)

    def gib(name: str) -> int | None:
        value = None if page is None else _largest(page, name)
        return None if value is None else round(value * GIB)

    graphs = None
    if page is not None and (found := page.value("sglang:graph_memory_usage_gb")) is not None:
        graphs = round(found * GIB)
    return Facts(
        engine="sglang",
        version=_text(info.get("version")),
        model=_text(info.get("model_path")),
        max_model_len=_whole(info.get("context_length")) or gauge("sglang:context_len"),
        max_num_seqs=_whole(info.get("max_running_requests")),
        kv_pool_tokens=_whole(info.get("max_total_num_tokens"))
        or gauge("sglang:max_total_num_tokens"),
        kv_block_tokens=_whole(info.get("page_size")),
        kv_bytes=gib("sglang:kv_cache_memory_usage_gb"),
        weights_bytes=gib("sglang:weight_memory_usage_gb"),
        graphs_bytes=graphs,
        settings=_kept({name: _plain(info.get(name)) for name in _SGLANG_SETTINGS}),
    )


def _tensorrt_facts(fetcher: Fetcher, page: Exposition | None) -> Facts:
    blocks = None if page is None else page.value("trtllm_kv_cache_max_blocks")
    tokens = None if page is None else page.value("trtllm_kv_cache_tokens_per_block")
    most = None if page is None else page.value("trtllm_max_batch_size_runtime")
    model = _first_model(fetcher)
    return Facts(
        engine="tensorrt-llm",
        version=_version(fetcher),
        model=_text(model.get("id")),
        max_num_seqs=None if most is None else round(most),
        kv_pool_tokens=round(blocks * tokens) if blocks and tokens else None,
        kv_blocks=None if blocks is None else round(blocks),
        kv_block_tokens=None if tokens is None else round(tokens),
    )


def _llama(fetcher: Fetcher, path: str) -> Server:
    """llama-server: ``/props`` and whether there are ``/slots``."""
    props = _object(fetcher, "/props")
    settings = props.get("default_generation_settings")
    each = _whole(settings.get("n_ctx")) if isinstance(settings, dict) else None
    slots = _whole(props.get("total_slots"))
    has_slots = isinstance(fetcher.get("/slots").json, list)
    if not path and not has_slots:
        raise WatchError("llama-server serves neither /metrics nor /slots; start it with --metrics")
    return Server(
        engine="llama.cpp",
        path=path,
        has_slots=has_slots,
        facts=Facts(
            engine="llama.cpp",
            version=_text(props.get("build_info")),
            model=_text(props.get("model_path")),
            max_model_len=each,
            max_num_seqs=slots,
            # One slot holds the whole cache; several share it or divide it, which is not told.
            kv_pool_tokens=each if slots == 1 else None,
        ),
    )


_FACTS: Final[Mapping[str, Callable[[Fetcher, Exposition | None], Facts]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_facts,
    "torch": lambda _, __: Facts(engine="torch"),
}


def _version(fetcher: Fetcher) -> str | None:
    return _text(_object(fetcher, "/version").get("version"))


def _first_model(fetcher: Fetcher) -> dict[str, Any]:
    data = _object(fetcher, "/v1/models").get("data")
    first = data[0] if isinstance(data, list) and data else {}
    return first if isinstance(first, dict) else {}


def _object(fetcher: Fetcher, path: str) -> dict[str, Any]:
    """What a page tells; nothing where it cannot be had, since only the figures are needed."""
    try:
        page: Page = fetcher.get(path)
    except WatchError:
        return {}
    found = page.json if page.status == _OK else None
    return found if isinstance(found, dict) else {}


def _largest(page: Exposition, name: str) -> float | None:
    """The largest over workers, which hold alike."""
    values = [value for _, value in page.of(name) if math.isfinite(value) and value > 0]
    return max(values, default=None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _digits(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None


def _decimal(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _plain(value: Any) -> Value:
    return value if isinstance(value, str | int | float) else None


def _kept(settings: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in settings.items() if value is not None}
