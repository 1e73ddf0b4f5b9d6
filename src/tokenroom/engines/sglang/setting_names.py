"""What SGLang's settings are called: by its flags of any version, and as every engine's are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from tokenroom.engines.setting_checks import (
    check_choice,
    check_count,
    check_share,
    check_switch,
    renamed,
)
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.errors import CommandLineError, DeploymentError, shown
from tokenroom.units import GIB

_SHARED_NAMES: Final = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "enable_expert_parallel": "enable_ep_moe",
    "max_model_len": "context_length",
    "gpu_memory_utilization": "mem_fraction_static",
    "max_num_seqs": "max_running_requests",
    "max_num_batched_tokens": "chunked_prefill_size",
    "block_size": "page_size",
    "enforce_eager": "decode_graphs",
}
_COUNTS: Final = frozenset(
    {
        *(
            "tp_size",
            "pp_size",
            "dp_size",
            "ep_size",
            "attn_dp_size",
            "attn_cp_size",
            "context_length",
        ),
        *("max_running_requests", "max_total_tokens", "max_prefill_tokens", "page_size"),
        *("max_mamba_cache_size", "cuda_graph_max_bs", "prefill_graph_max_tokens"),
        *("speculative_num_steps", "speculative_num_draft_tokens", "speculative_eagle_topk"),
        *("max_lora_rank", "max_loras_per_batch", "moe_dense_tp_size", "prefill_max_requests"),
        "scheduler_recv_interval",
    }
)

_SCHEDULE_POLICIES: Final = (
    *("lpm", "random", "fcfs", "dfs-weight", "lof", "priority"),
    *("routing-key", "hrrn", "shortest-prefill-first"),
)
"""``--schedule-policy`` of 0.5.23."""

_FIELDS: Final = tuple(item.name for item in fields(SGLangSettings))
_OWN: Final = frozenset(_FIELDS) - {
    *("version", "environment", "unknown_flags", "ignored_flags"),
}
RENAMED: Final[Mapping[str, str]] = {
    "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "cuda_graph_bs_decode": "cuda_graph_bs",
    "piecewise_cuda_graph_max_tokens": "prefill_graph_max_tokens",
    "cuda_graph_max_bs_prefill": "prefill_graph_max_tokens",
    "piecewise_cuda_graph_tokens": "prefill_graph_tokens",
    "cuda_graph_bs_prefill": "prefill_graph_tokens",
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
    "language_model_only": "language_only",
    "nsa_prefill_backend": "dsa_prefill_backend",
    "nsa_decode_backend": "dsa_decode_backend",
    "speculative_draft": "speculative_draft_model_path",
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "attention_context_parallel_size": "attn_cp_size",
}
"""Name of a flag: the field that it sets, where they differ."""
_LISTS: Final = frozenset({"cuda_graph_bs", "prefill_graph_tokens"})
_GRAPH_SWITCHES: Final[Mapping[str, Mapping[str, bool]]] = {
    "disable_cuda_graph": {"decode_graphs": False, "prefill_graphs": False},
    "disable_decode_cuda_graph": {"decode_graphs": False},
    "disable_prefill_cuda_graph": {"prefill_graphs": False},
    "disable_piecewise_cuda_graph": {"prefill_graphs": False},
    "enable_piecewise_cuda_graph": {"prefill_graphs": True},
    "enforce_piecewise_cuda_graph": {"prefill_graphs": True},
}
_PHASES: Final = ("decode", "prefill")
_MOST_FACTOR: Final = 1000
_SIZES: Final[Mapping[str, tuple[str, int]]] = {
    "cpu_offload_gb": ("cpu_offload_bytes", GIB),
    "hicache_size": ("hicache_size_bytes", 10**9),
}
"""Sizes that SGLang takes in units: the field, and the bytes of one."""


_ALIASES: Final = {**{name: name for name in _GRAPH_SWITCHES}, **RENAMED, **_SHARED_NAMES}
"""Names beside the fields' own, also to suggest for a misspelt one."""


def with_changes(settings: SGLangSettings, changes: Mapping[str, Any]) -> SGLangSettings:
    """Settings with some fields set, by SGLang's own names or those that engines share.

    Raises:
        DeploymentError: A field is unknown or holds an impossible value.
    """
    if "kv_cache_memory_bytes" in changes:
        raise DeploymentError(
            "SGLang takes no size for its KV cache; give mem_fraction_static (--util) or "
            "max_total_tokens"
        )
    found: dict[str, Any] = {}
    for name, value in changes.items():
        own = None if name in _SHARED_NAMES else fields_of(name, value)
        if own is None:
            own = renamed({name: value}, _ALIASES, _FIELDS, "SGLang")
        found |= own
    if "enforce_eager" in changes:
        eager = found["decode_graphs"]
        found["decode_graphs"] = found["prefill_graphs"] = False if eager else None
    if found.get("kv_cache_dtype") == "fp8":
        found["kv_cache_dtype"] = "fp8_e4m3"
    for name, value in found.items():
        if name in _COUNTS:
            check_count(name, value)
        elif name == "mem_fraction_static":
            check_share(name, value)
        elif name in ("cpu_offload_bytes", "hicache_size_bytes"):
            check_count(name, value, least=0)
        elif name == "chunked_prefill_size" and value != -1:
            check_count(name, value)
        elif name == "schedule_policy":
            check_choice(name, value, _SCHEDULE_POLICIES)
        elif name == "schedule_conservativeness":
            _check_factor(name, value)
        elif name == "enable_mixed_chunk":
            check_switch(name, value)
    return replace(settings, **found) if found else settings


def _check_factor(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value <= _MOST_FACTOR):
        raise DeploymentError(
            f"{name} is {shown(value)}; it must be above 0 and at most {_MOST_FACTOR}"
        )


def fields_of(name: str, value: Any) -> dict[str, Any] | None:
    """What one of SGLang's own settings sets, None when memory does not depend on it.

    Args:
        name: As a flag has it, with underscores; of any version.
        value: As SGLang reads it.

    Raises:
        CommandLineError: ``cuda_graph_config`` is no JSON object of the two phases, or a list holds
            something else than whole numbers.
        DeploymentError: A switch is neither on nor off, a size no whole number.
    """
    if name in _GRAPH_SWITCHES:
        if value not in (None, True, False):
            raise DeploymentError(f"{name} is {shown(value)}; it must be true or false")
        return {field: state if value else None for field, state in _GRAPH_SWITCHES[name].items()}
    if name == "cuda_graph_config":
        return _graph_config(value)
    if name in ("cuda_graph_backend_prefill", "cuda_graph_backend_decode"):
        return {f"{name.rsplit('_', 1)[-1]}_graphs": value != "disabled"}
    if name in _SIZES:
        field, unit = _SIZES[name]
        check_count(name, value, least=0)
        return {field: value * unit or None if value is not None else None}
    if name == "enable_deepep_moe":
        return {"moe_a2a_backend": "deepep"} if value else {}
    if name == "lora_paths":
        return {"enable_lora": True}
    own = RENAMED.get(name, name)
    if own in _LISTS:
        return {own: _numbers(name, value)}
    return {own: value} if own in _OWN else None


def _numbers(name: str, value: Any) -> tuple[int, ...] | None:
    """A list of numbers, which the flag of prefill graphs took as JSON until 0.5.8."""
    if value is None:
        return None
    try:
        numbers = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        numbers = None
    if not isinstance(numbers, list | tuple) or any(type(item) is not int for item in numbers):
        raise CommandLineError(f"{name} is {shown(value)}; give a list of whole numbers")
    return tuple(numbers)


def _graph_config(text: str | None) -> dict[str, Any]:
    """Settings of ``--cuda-graph-config``, JSON by phase.

    Raises:
        CommandLineError: It is no JSON object of the two phases.
    """
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise CommandLineError(f"--cuda-graph-config is not valid JSON: {error}") from error
    if not isinstance(data, dict) or not all(isinstance(item, dict) for item in data.values()):
        raise CommandLineError("--cuda-graph-config must hold an object for decode and prefill")
    found: dict[str, Any] = {}
    for phase in _PHASES:
        config = data.get(phase, {})
        if "backend" in config:
            found[f"{phase}_graphs"] = config["backend"] != "disabled"
        largest = "cuda_graph_max_bs" if phase == "decode" else "prefill_graph_max_tokens"
        sizes = "cuda_graph_bs" if phase == "decode" else "prefill_graph_tokens"
        if config.get("max_bs") is not None:
            found[largest] = config["max_bs"]
        if isinstance(config.get("bs"), list):
            found[sizes] = tuple(config["bs"])
    return found
