"""What a user may set on TensorRT-LLM, as far as memory depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from tokenroom.engines.setting_checks import (
    check_choice,
    check_count,
    check_share,
    check_switch,
    check_text,
    renamed,
)
from tokenroom.errors import DeploymentError, shown

BACKENDS: Final = ("pytorch", "tensorrt", "_autodeploy")
KV_DTYPES: Final = ("auto", "fp8", "nvfp4", "float16", "bfloat16")
CAPACITY_POLICIES: Final = ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH")
CHUNKING_POLICIES: Final = ("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRTSettings:
    """Arguments of ``trtllm-serve`` and of its YAML under their own names; None is not set.

    Keys of ``kv_cache_config``, ``cuda_graph_config``, ``speculative_config`` and
    ``scheduler_config`` (which change what steps run, and no memory) stand here flat:
    the cache's ``dtype`` as ``kv_cache_dtype``, the graphs' keys with ``cuda_graph_`` before them.
    Sizes are in bytes, lengths in tokens (``tensorrt_llm/llmapi/llm_args.py``).
    """

    version: str | None = None
    backend: str | None = None
    dtype: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    moe_expert_parallel_size: int | None = None
    enable_attention_dp: bool | None = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    max_seq_len: int | None = None
    max_input_len: int | None = None
    max_output_len: int | None = None  # of built engines
    max_beam_width: int | None = None
    free_gpu_memory_fraction: float | None = None
    max_tokens: int | None = None
    max_gpu_total_bytes: int | None = None
    kv_cache_dtype: str | None = None
    tokens_per_block: int | None = None
    enable_block_reuse: bool | None = None
    host_cache_size: int | None = None
    max_attention_window: tuple[int, ...] | None = None
    use_kv_cache_manager_v2: bool | None = None
    mamba_ssm_cache_dtype: str | None = None
    mamba_state_cache_interval: int | None = None
    cuda_graphs: bool | None = None
    cuda_graph_max_batch_size: int | None = None
    cuda_graph_batch_sizes: tuple[int, ...] | None = None
    cuda_graph_enable_padding: bool | None = None
    enable_chunked_prefill: bool | None = None
    capacity_scheduler_policy: str | None = None
    context_chunking_policy: str | None = None
    enable_prefix_aware_scheduling: bool | None = None
    disable_overlap_scheduler: bool | None = None
    speculative_type: str | None = None
    speculative_tokens: int | None = None
    speculative_model: str | None = None
    fail_fast_on_attention_window_too_large: bool | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown_flags: tuple[str, ...] = ()
    ignored_flags: tuple[str, ...] = ()


_NAMES: Final = frozenset(item.name for item in fields(TensorRTSettings))
_ALIASES: Final[Mapping[str, str]] = {
    # the name that all engines share: this engine's
    "max_model_len": "max_seq_len",
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "max_num_tokens",
    "gpu_memory_utilization": "free_gpu_memory_fraction",
    "kv_cache_free_gpu_memory_fraction": "free_gpu_memory_fraction",
    "kv_cache_free_gpu_mem_fraction": "free_gpu_memory_fraction",
    "kv_cache_memory_bytes": "max_gpu_total_bytes",
    "block_size": "tokens_per_block",
    "enable_prefix_caching": "enable_block_reuse",
    "kv_offload_bytes": "host_cache_size",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "ep_size": "moe_expert_parallel_size",
}
_SWITCHES: Final = frozenset(
    {
        "enable_attention_dp",
        "enable_block_reuse",
        "use_kv_cache_manager_v2",
        "cuda_graphs",
        "cuda_graph_enable_padding",
        "enable_chunked_prefill",
        "enable_prefix_aware_scheduling",
        "disable_overlap_scheduler",
        "fail_fast_on_attention_window_too_large",
    }
)
_COUNTS: Final = frozenset(
    {
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "moe_expert_parallel_size",
        "max_batch_size",
        "max_num_tokens",
        "max_seq_len",
        "max_input_len",
        "max_output_len",
        "max_beam_width",
        "max_tokens",
        "tokens_per_block",
        "cuda_graph_max_batch_size",
        "speculative_tokens",
    }
)
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "backend": BACKENDS,
    "kv_cache_dtype": KV_DTYPES,
    "capacity_scheduler_policy": CAPACITY_POLICIES,
    "context_chunking_policy": CHUNKING_POLICIES,
    "mamba_ssm_cache_dtype": ("auto", "float16", "bfloat16", "float32"),
}
_LARGEST_BLOCK: Final = 2**20


def changed(base: TensorRTSettings | None, changes: Mapping[str, Any]) -> TensorRTSettings:
    """The settings with some fields set, by the engine's names or those that engines share.

    Raises:
        DeploymentError: A field is unknown or holds an impossible value.
    """
    given = dict(changes)
    if "enforce_eager" in given:
        check_switch("enforce_eager", given["enforce_eager"])
        given["cuda_graphs"] = not given.pop("enforce_eager")
    if given.pop("data_parallel_size", None) not in (None, 1):
        raise DeploymentError(
            "data_parallel_size is not a setting of tensorrt-llm; give enable_attention_dp, or "
            "plan one copy"
        )
    experts = given.pop("enable_expert_parallel", None)
    settings = replace(
        base or TensorRTSettings(), **renamed(given, _ALIASES, _NAMES, "tensorrt-llm")
    )
    if experts:
        settings = replace(settings, moe_expert_parallel_size=settings.tensor_parallel_size or 1)
    _check(settings)
    return settings


def _check(settings: TensorRTSettings) -> None:
    for name in ("version", "dtype", "speculative_type", "speculative_model"):
        check_text(name, getattr(settings, name))
    for name in _SWITCHES:
        check_switch(name, getattr(settings, name))
    for name in _COUNTS:
        check_count(name, getattr(settings, name))
    for name in ("host_cache_size", "max_gpu_total_bytes", "mamba_state_cache_interval"):
        check_count(name, getattr(settings, name), least=0)
    for name, choices in _CHOICES.items():
        check_choice(name, getattr(settings, name), choices)
    check_share("free_gpu_memory_fraction", settings.free_gpu_memory_fraction)
    block = settings.tokens_per_block
    if block is not None and (block & (block - 1) or block > _LARGEST_BLOCK):
        raise DeploymentError(f"tokens_per_block is {block}; it must be a power of two")
    for name in ("max_attention_window", "cuda_graph_batch_sizes"):
        values = getattr(settings, name)
        if values is None:
            continue
        if not isinstance(values, (tuple, list)) or not values:
            raise DeploymentError(f"{name} is {shown(values)}; it must be a list of whole numbers")
        for value in values:
            check_count(name, value)
