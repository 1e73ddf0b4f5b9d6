"""What each figure that engines print is called in rows, and which prediction answers it.

A table an engine: the name in ``reported`` and where the plan holds it. Sizes are bytes here; the
end of the name (``_gib``, ``_mib``, ``_gb``, ``_bytes``) says in which unit the row has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tokenroom.engines.policy import StageMemory
from tokenroom.fitting import FitResult
from tokenroom.units import GIB, KIB, MIB
from tokenroom.validation.llama_cpp_quantities import CACHE_READINGS, buffer_reading

Reading: TypeAlias = Callable[[FitResult], float | None]
"""A prediction in bytes or counts; None when the plan has no such figure."""

_UNITS: Final = {
    "_gib": GIB,
    "_mib": MIB,
    "_kib": KIB,
    "_gb": 10**9,
    "_mb": 10**6,
}


FROM_KV: Final = "kv_tokens_from_kv_gib"
"""Tokens of the pool, from the memory that the engine itself says it has for it."""


FROM_AVAILABLE: Final = "kv_tokens_from_avail_for_kv_gib"
"""Tokens of the pool, from the memory of which the engine says that its share becomes the pool."""

FROM_LOADED: Final = "kv_tokens_from_avail_gib"
"""Tokens of the pool, from the memory that the engine says is free once its weights are loaded."""

_COMPUTED: Final = frozenset({FROM_KV, FROM_AVAILABLE, FROM_LOADED})


def unit_of(quantity: str) -> int:
    """How many bytes one of a quantity's units is; 1 for bytes and counts."""
    if quantity in _COMPUTED:
        return 1
    return next((size for end, size in _UNITS.items() if quantity.endswith(end)), 1)


def predicted_figure(result: FitResult, engine: str, quantity: str) -> float | None:
    """What the plan says of a quantity, in the unit its name ends with; None when nothing."""
    reading = _reading(engine, quantity)
    value = reading(result) if reading is not None else None
    return None if value is None else value / unit_of(quantity)


def is_known(engine: str, quantity: str) -> bool:
    """Whether a quantity of an engine's rows has a prediction."""
    return quantity in _COMPUTED or _reading(engine, quantity) is not None


def rests_on_cache(engine: str, quantity: str) -> bool:
    """Whether a quantity follows from the model's cache and the settings, whatever its weights."""
    return quantity in _CACHE_ALONE.get(engine, frozenset())


def _reading(engine: str, quantity: str) -> Reading | None:
    found = _TABLES.get(engine, {}).get(quantity)
    if found is None and engine == "llama.cpp":
        return buffer_reading(quantity)
    return found


def _stage(read: Callable[[StageMemory], float]) -> Reading:
    """A figure of the first rank, which is the one whose lines people quote."""
    return lambda result: read(result.plan.stages[0])


def _setting(name: str) -> Reading:
    def read(result: FitResult) -> float | None:
        setting = result.deployment.settings.get(name)
        value = setting.value if setting is not None else None
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    return read


def _refused_length(result: FitResult) -> float | None:
    """The longest length that the engine suggests when one request does not fit."""
    refusal = result.plan.refusal
    if refusal is None or refusal.cause != "kv_below_one_request":
        return None
    longest = refusal.values.get("longest")
    return longest if isinstance(longest, int) else None


def _one_request(result: FitResult) -> float:
    return result.plan.kv_bytes_of(result.plan.max_model_len)


def _group_bytes(result: FitResult) -> float | None:
    """Bytes of one token over every layer that caches, where all of them cache alike."""
    kinds = {group.block_size for group in result.plan.kv_groups}
    return result.plan.stages[0].kv_bytes_per_token if len(kinds) == 1 else None


_COMMON: Final[Mapping[str, Reading]] = {
    "total_gpu_gib": _stage(lambda stage: stage.total_bytes),
    "weights_gib": _stage(lambda stage: stage.weights_bytes),
    "kv_tokens": lambda result: result.plan.kv_pool_tokens,
}

_VLLM: Final[Mapping[str, Reading]] = {
    **_COMMON,
    "budget_gib": _stage(lambda stage: stage.budget_bytes),
    "free_at_start_gib": _stage(lambda stage: stage.total_bytes - stage.context_bytes),
    "free_start_gib": _stage(lambda stage: stage.total_bytes - stage.context_bytes),
    "consumed_gib": _stage(
        lambda stage: stage.weights_bytes + stage.buffers_bytes + stage.non_torch.num_bytes
    ),
    "activation_gib": _stage(lambda stage: stage.activation.num_bytes),
    "peak_torch_gib": _stage(lambda stage: stage.weights_bytes + stage.activation.num_bytes),
    "non_torch_gib": _stage(lambda stage: stage.non_torch.num_bytes),
    "total_non_kv_gib": _stage(
        lambda stage: stage.weights_bytes + stage.activation.num_bytes + stage.non_torch.num_bytes
    ),
    "graph_estimated_gib": _stage(lambda stage: stage.cuda_graphs.num_bytes),
    "graph_est_gib": _stage(lambda stage: stage.cuda_graphs.num_bytes),
    "cudagraph_estimate_gib": _stage(lambda stage: stage.cuda_graphs.num_bytes),
    "graph_gib": _stage(lambda stage: stage.cuda_graph_actual_bytes),
    "cudagraph_gib": _stage(lambda stage: stage.cuda_graph_actual_bytes),
    "kv_gib": _stage(lambda stage: stage.available_bytes),
    "kv_needed_gib": _one_request,
    "kv_bytes_per_token": _group_bytes,
    "blocks": lambda result: result.plan.kv_blocks,
    "block_size": lambda result: result.plan.kv_block_size,
    "max_concurrency": lambda result: result.plan.max_concurrency,
    "est_max_model_len": _refused_length,
    "estimated_max_model_len": _refused_length,
    "max_num_batched_tokens": _setting("max_num_batched_tokens"),
    "max_num_seqs_default": _setting("max_num_seqs"),
}

_TENSORRT_LLM: Final[Mapping[str, Reading]] = {
    **_COMMON,
    "blocks": lambda result: result.plan.kv_blocks,
    "block_size": lambda result: result.plan.kv_block_size,
    "kv_gib": _stage(lambda stage: stage.kv_pool_bytes),
    "kv_bytes": _stage(lambda stage: stage.kv_pool_bytes),
    "available_kv_gib": _stage(lambda stage: stage.available_bytes),
    "avail_for_kv_gib": _stage(
        lambda stage: (
            stage.total_bytes
            - stage.context_bytes
            - stage.weights_bytes
            - stage.activation.num_bytes
            - stage.non_torch.num_bytes
            - stage.cuda_graphs.num_bytes
            - stage.buffers_bytes
        )
    ),
}


def _printed(*names: str) -> Reading:
    """The sum of figures that SGLang's log lines print."""

    def read(result: FitResult) -> float | None:
        figures: Mapping[str, int] = getattr(result.plan, "engine_figures", {})
        found = [figures[name] for name in names if name in figures]
        return sum(found) if found else None

    return read


def _loaded(result: FitResult) -> float:
    """``mem usage`` of "Load weight end": the weights and what loading leaves beside them."""
    stage = result.plan.stages[0]
    after = result.plan.engine_figures["avail_mem_after_load"]  # type: ignore[attr-defined]
    return float(stage.total_bytes - stage.context_bytes - after)


_SGLANG: Final[Mapping[str, Reading]] = {
    **_COMMON,
    "weights_gib": _loaded,
    "k_gib": _printed("k_size"),
    "v_gib": _printed("v_size"),
    "kv_gib": _printed("k_size", "v_size"),
    "avail_start_gib": _stage(lambda stage: stage.total_bytes - stage.context_bytes),
    "avail_before_weights_gib": _stage(lambda stage: stage.total_bytes - stage.context_bytes),
    "avail_after_weights_gib": _printed("avail_mem_after_load"),
    "avail_after_pool_gib": _printed("avail_mem_after_pool"),
    "avail_after_graph_gib": _printed("avail_mem_after_graphs"),
    "graph_gib": _stage(lambda stage: stage.cuda_graph_actual_bytes),
    "max_running_requests": _printed("max_running_requests"),
}

_TABLES: Final[Mapping[str, Mapping[str, Reading]]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "tensorrt-llm": _TENSORRT_LLM,
    "llama.cpp": CACHE_READINGS,
}
#: Quantities that follow from the model's cache and the settings alone.
_CACHE_ALONE: Final[Mapping[str, frozenset[str]]] = {
    "vllm": frozenset(
        {
            *(FROM_KV, "block_size", "kv_needed_gib", "kv_bytes_per_token", "total_gpu_gib"),
            *("budget_gib", "max_num_batched_tokens", "max_num_seqs_default"),
        }
    ),
    "sglang": frozenset({FROM_KV, "total_gpu_gib"}),
    "tensorrt-llm": frozenset({FROM_KV, "block_size", "total_gpu_gib"}),
    "llama.cpp": frozenset(CACHE_READINGS),
}
