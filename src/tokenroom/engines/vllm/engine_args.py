"""vLLM's engine arguments as :class:`VLLMSettings`: which count, within which bounds.

Every engine argument that memory or speed depends on is named in :data:`INFLUENTIAL`; the others
are listed in ``data/flags_without_influence.json``: without influence and reported as ignored, or
with an influence that is not modelled, which a note says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tokenroom.engines.vllm.config_keys import check_keys
from tokenroom.engines.vllm.flags import ParsedFlags, flags_of
from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings
from tokenroom.errors import CommandLineError, shown
from tokenroom.units import GIB

_DATA: Final = Path(__file__).parent / "data"

#: Engine arguments that become a setting of the same name.
_DIRECT: Final = frozenset(
    {
        *("dtype", "quantization", "tensor_parallel_size", "pipeline_parallel_size"),
        *("data_parallel_size", "data_parallel_size_local", "data_parallel_external_lb", "nnodes"),
        *("enable_expert_parallel", "enable_eplb", "all2all_backend", "enable_dbo"),
        *("decode_context_parallel_size", "prefill_context_parallel_size"),
        *("disable_custom_all_reduce", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
        *("max_num_scheduled_tokens", "gpu_memory_utilization", "kv_cache_dtype"),
        *("kv_cache_memory_bytes", "num_gpu_blocks_override", "block_size"),
        *("enable_prefix_caching", "enable_chunked_prefill", "disable_hybrid_kv_cache_manager"),
        *("kv_cache_dtype_skip_layers", "kv_sharing_fast_prefill", "mamba_cache_dtype"),
        *("mamba_ssm_cache_dtype", "mamba_block_size", "mamba_cache_mode", "enforce_eager"),
        *("max_cudagraph_capture_size", "async_scheduling", "enable_lora", "max_loras"),
        *("max_lora_rank", "max_cpu_loras", "fully_sharded_loras", "lora_dtype"),
        *("lora_extra_vocab_size", "language_model_only", "max_logprobs", "runner", "task"),
        "convert",
        *("disable_sliding_window", "performance_mode", "enable_prompt_embeds"),
        *("enable_sleep_mode", "skip_mm_profiling", "mm_encoder_only", "mm_encoder_tp_mode"),
        *("model_impl", "load_format", "moe_backend", "linear_backend"),
        *("max_num_active_seqs", "scheduling_policy", "long_prefill_token_threshold"),
        *("long_prefill_token_threshold_adaptive", "scheduler_reserve_full_isl", "watermark"),
        "prefix_cache_retention_interval",
    }
)
#: Engine arguments that become settings by a rule of their own.
_BY_RULE: Final = frozenset(
    {
        *("model", "cudagraph_capture_sizes", "cuda_graph_sizes", "compilation_config"),
        *("optimization_level", "cpu_offload_gb", "kv_offloading_size", "mm_ipc_gpu_memory_gb"),
        *("limit_mm_per_prompt", "mm_processor_kwargs", "hf_overrides", "attention_backend"),
        *("attention_config", "speculative_config", "spec_method", "spec_model", "spec_tokens"),
        *("speculative_model", "num_speculative_tokens", "speculative_draft_tensor_parallel_size"),
        *("speculative_max_model_len", "speculative_model_quantization"),
        *("kv_transfer_config", "eplb_config", "num_redundant_experts", "device_ids"),
        *("rope_scaling", "rope_theta", "enable_multimodal_encoder_data_parallel"),
    }
)
#: Every engine argument that memory or speed depends on.
INFLUENTIAL: Final = _DIRECT | _BY_RULE

#: Least value, greatest value and what to write, per engine argument.
_BOUNDS: Final[Mapping[str, tuple[float, float, str]]] = {
    **dict.fromkeys(
        (
            *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
            *("decode_context_parallel_size", "prefill_context_parallel_size", "nnodes"),
            *("max_num_seqs", "max_num_batched_tokens", "block_size", "mamba_block_size"),
            *("num_gpu_blocks_override", "kv_cache_memory_bytes", "max_loras", "max_lora_rank"),
            *("max_num_scheduled_tokens", "max_num_active_seqs", "num_speculative_tokens"),
            "spec_tokens",
        ),
        (1, 2**62, "a whole number of at least 1"),
    ),
    **dict.fromkeys(
        (
            *("max_cudagraph_capture_size", "num_redundant_experts", "lora_extra_vocab_size"),
            *("data_parallel_size_local", "max_cpu_loras", "long_prefill_token_threshold"),
            "prefix_cache_retention_interval",
        ),
        (0, 2**62, "a whole number of at least 0"),
    ),
    **dict.fromkeys(
        ("cpu_offload_gb", "kv_offloading_size", "mm_ipc_gpu_memory_gb"),
        (0, 2**33, "a size in GiB of at least 0"),
    ),
    "watermark": (0, 1 - 2**-53, "a share of at least 0 and below 1"),
    "max_logprobs": (-1, 2**62, "a whole number of at least -1 (-1: the whole vocabulary)"),
}
_COMPILATION_MODES: Final = {
    "NONE": 0,
    "STOCK_TORCH_COMPILE": 1,
    "DYNAMO_TRACE_ONCE": 2,
    "VLLM_COMPILE": 3,
}
_NGRAM: Final = ("ngram", "[ngram]")
"""Words in place of a draft model for drafting from the prompt."""

_CUDAGRAPH_MODES: Final = (
    "NONE",
    "PIECEWISE",
    "FULL",
    "FULL_DECODE_ONLY",
    "FULL_AND_PIECEWISE",
)


@lru_cache(maxsize=1)
def without_influence() -> frozenset[str]:
    """Engine and server arguments that neither memory nor speed of a rank depends on."""
    text = _DATA.joinpath("flags_without_influence.json").read_text()
    return frozenset(name for names in json.loads(text)["groups"].values() for name in names)


@lru_cache(maxsize=1)
def not_modelled() -> frozenset[str]:
    """Engine arguments that change memory in a way that is not modelled; each use is noted."""
    text = _DATA.joinpath("flags_without_influence.json").read_text()
    return frozenset(json.loads(text)["not_modelled"])


def to_settings(
    values: Mapping[str, Any], version: str, *, parsed: ParsedFlags | None = None
) -> VLLMSettings:
    """Engine arguments, as the command line gave them, as settings.

    Args:
        values: Engine argument to value.
        version: One of :func:`~tokenroom.engines.vllm.flags.known_versions`.
        parsed: Where they come from, for the unknown flags.

    Raises:
        CommandLineError: A value is outside what vLLM takes.
    """
    names = {flag.dest: flag.name for flag in flags_of(version)}
    values = {key: value for key, value in values.items() if value is not None}
    for key, value in values.items():
        _check_bounds(names.get(key, f"--{key.replace('_', '-')}"), key, value)
    chosen: dict[str, Any] = {key: values[key] for key in _DIRECT if key in values}
    if "long_prefill_token_threshold" in chosen:  # a float until 0.8.5
        chosen["long_prefill_token_threshold"] = int(chosen["long_prefill_token_threshold"])
    if "kv_cache_dtype_skip_layers" in chosen:
        chosen["kv_cache_dtype_skip_layers"] = tuple(chosen["kv_cache_dtype_skip_layers"])
    for key, setting in (
        ("cpu_offload_gb", "cpu_offload_bytes"),
        ("kv_offloading_size", "kv_offload_bytes"),
        ("mm_ipc_gpu_memory_gb", "mm_ipc_gpu_memory_bytes"),
    ):
        if key in values:
            chosen[setting] = int(values[key] * GIB)
    _set_graphs(chosen, values, version)
    _set_multimodal(chosen, values)
    _set_attention(chosen, values)
    chosen["speculative"] = _speculative(values, version)
    if isinstance(transfer := values.get("kv_transfer_config"), dict):
        chosen["kv_connector"] = _optional_text("--kv-transfer-config", transfer, "kv_connector")
    overrides = values.get("hf_overrides")
    overrides = dict(overrides) if isinstance(overrides, dict) else {}
    for key in ("rope_scaling", "rope_theta"):  # flags until 0.13
        if key in values:
            overrides.setdefault(key, values[key])
    chosen["hf_overrides"] = overrides
    if values.get("enable_multimodal_encoder_data_parallel"):
        chosen["mm_encoder_tp_mode"] = "data"
    eplb = values.get("eplb_config")
    if isinstance(eplb, dict) and "num_redundant_experts" in eplb:
        redundant = _whole("--eplb-config", eplb, "num_redundant_experts", least=0)
        chosen["num_redundant_experts"] = redundant
    elif "num_redundant_experts" in values:
        chosen["num_redundant_experts"] = values["num_redundant_experts"]
    ignored = sorted(names.get(key, key) for key in values if key in without_influence())
    return VLLMSettings(
        **chosen,
        unknown_flags=parsed.unknown if parsed else (),
        ignored_flags=tuple(ignored),
    )


def _check_bounds(name: str, key: str, value: Any) -> None:
    if key == "gpu_memory_utilization":
        if not (isinstance(value, int | float) and 0 < value <= 1):
            raise CommandLineError(f"{name} is {value}; give a share above 0 and at most 1")
    elif key == "max_model_len":
        if value != -1 and value < 1:
            raise CommandLineError(
                f"{name} is {value}; give a whole number of at least 1, or auto for what fits"
            )
    elif key in _BOUNDS and isinstance(value, int | float):
        least, most, wanted = _BOUNDS[key]
        if not (math.isfinite(value) and least <= value <= most):
            raise CommandLineError(f"{name} is {value}; give {wanted}")
    elif key in ("cudagraph_capture_sizes", "cuda_graph_sizes") and min(value, default=1) < 1:
        raise CommandLineError(f"{name} holds {min(value)}; give sizes of at least 1")


def _set_graphs(chosen: dict[str, Any], values: Mapping[str, Any], version: str) -> None:
    """Settings of CUDA graphs and compilation: ``config/compilation.py`` by version."""
    sizes = values.get("cudagraph_capture_sizes")
    legacy = values.get("cuda_graph_sizes")
    if legacy and len(legacy) == 1:  # one value is the largest size, several are the sizes
        chosen["max_cudagraph_capture_size"] = legacy[0]
    elif legacy:
        sizes = sizes or legacy
    level = values.get("optimization_level")
    if level is not None:
        chosen["optimization_level"] = _member(
            "--optimization-level", str(level), {str(place): place for place in range(4)}
        )
    config = values.get("compilation_config")
    if isinstance(config, int) and not isinstance(config, bool):
        config = {"level": config}
    if not isinstance(config, dict):
        config = {}
    name = "--compilation-config"
    check_keys(name, map(str, config), version)
    mode = config.get("mode", config.get("level"))
    if mode is not None:
        modes = {**_COMPILATION_MODES, **{str(place): place for place in range(4)}}
        chosen["compilation_mode"] = _member(f"{name} mode", str(mode).upper(), modes)
    if (graphs := config.get("cudagraph_mode")) is not None:
        plain = {mode: mode for mode in _CUDAGRAPH_MODES}
        numbers = {str(place): mode for place, mode in enumerate(_CUDAGRAPH_MODES[:3])}
        text = str(graphs).upper()
        chosen["cudagraph_mode"] = _member(f"{name} cudagraph_mode", text, {**plain, **numbers})
    elif config.get("full_cuda_graph") is True:
        chosen["cudagraph_mode"] = "FULL"
    elif config.get("use_cudagraph") is False:
        chosen["cudagraph_mode"] = "NONE"
    listed = config.get("cudagraph_capture_sizes")
    if listed is not None:
        whole = [_whole_of(size) for size in listed] if isinstance(listed, list) else [None]
        if any(size is None or size < 1 for size in whole):
            raise CommandLineError(
                f"{name} cudagraph_capture_sizes is {shown(listed)}; give a list of sizes"
            )
        if sizes is not None:
            raise CommandLineError(
                "--cudagraph-capture-sizes and the same key of --compilation-config are both "
                "given; give one"
            )
        sizes = [size for size in whole if size is not None]
    for key in ("max_cudagraph_capture_size", "max_capture_size"):
        if config.get(key) is not None:
            if "max_cudagraph_capture_size" in values:
                raise CommandLineError(
                    "--max-cudagraph-capture-size and the same key of --compilation-config are "
                    "both given; give one"
                )
            chosen["max_cudagraph_capture_size"] = _whole(name, config, key, least=0)
    if sizes is not None:
        chosen["cudagraph_capture_sizes"] = tuple(sizes)


def _set_multimodal(chosen: dict[str, Any], values: Mapping[str, Any]) -> None:
    limits = values.get("limit_mm_per_prompt")
    if limits is not None:
        name = "--limit-mm-per-prompt"
        if not isinstance(limits, dict):
            raise CommandLineError(f'{name} is {shown(limits)}; give JSON such as {{"image": 2}}')
        counts: dict[str, int] = {}
        for modality, limit in limits.items():
            count = limit.get("count") if isinstance(limit, dict) else limit
            if count is None:
                continue
            whole = _whole_of(count)
            if whole is None or whole < 0:
                raise CommandLineError(
                    f"{name} {modality} is {shown(count)}; give a whole number of at least 0"
                )
            counts[str(modality)] = whole
        chosen["limit_mm_per_prompt"] = counts
    kwargs = values.get("mm_processor_kwargs")
    if isinstance(kwargs, dict):
        chosen["mm_processor_kwargs"] = kwargs
        pixels = _whole_of(kwargs.get("max_pixels"))
        if pixels is not None and pixels > 0:
            chosen["mm_processor_max_pixels"] = pixels


def _set_attention(chosen: dict[str, Any], values: Mapping[str, Any]) -> None:
    backend = values.get("attention_backend")
    config = values.get("attention_config")
    if isinstance(config, dict):
        inner = config.get("backend")
        if inner is not None and backend is not None:
            raise CommandLineError(
                "--attention-backend and --attention-config backend are both given; give one"
            )
        backend = inner if inner is not None else backend
        chosen["attention_config"] = {key: config[key] for key in config if key != "backend"}
    if isinstance(backend, str) and backend.lower() != "auto":
        chosen["attention_backend"] = backend.upper()


def _speculative(values: Mapping[str, Any], version: str) -> SpeculativeSettings | None:
    """``--speculative-config`` with its short forms, and the flags of versions before 0.9."""
    name = "--speculative-config"
    config = values.get("speculative_config")
    if config is not None and not isinstance(config, dict):
        raise CommandLineError(f"{name} is {shown(config)}; give a JSON object")
    merged = {str(key).replace("-", "_"): value for key, value in (config or {}).items()}
    check_keys(name, merged, version)
    for flag, key in (
        ("spec_method", "method"),
        ("spec_model", "model"),
        ("spec_tokens", "num_speculative_tokens"),
    ):
        if flag in values:
            if key in merged:
                raise CommandLineError(
                    f"--{flag.replace('_', '-')} and {key} of {name} are both given; give one"
                )
            merged[key] = values[flag]
    for flag, key in (
        ("speculative_model", "model"),
        ("num_speculative_tokens", "num_speculative_tokens"),
        ("speculative_draft_tensor_parallel_size", "draft_tensor_parallel_size"),
        ("speculative_max_model_len", "max_model_len"),
        ("speculative_model_quantization", "quantization"),
    ):
        if flag in values:
            merged.setdefault(key, values[flag])
    if not merged:
        return None
    tokens = merged.get("num_speculative_tokens")
    return SpeculativeSettings(
        method=drafting_method(merged),
        num_speculative_tokens=(
            0 if tokens is None else _whole(name, merged, "num_speculative_tokens", least=1)
        ),
        model=None if merged.get("model") in _NGRAM else _optional_text(name, merged, "model"),
        draft_tensor_parallel_size=_optional_whole(name, merged, "draft_tensor_parallel_size"),
        quantization=_optional_text(name, merged, "quantization"),
        max_model_len=_optional_whole(name, merged, "max_model_len"),
        kv_cache_dtype=_optional_text(name, merged, "kv_cache_dtype"),
    )


def drafting_method(config: Mapping[str, Any]) -> str:
    """The method of ``--speculative-config``, or what vLLM infers from the draft's name.

    Source: ``SpeculativeConfig.__post_init__``, vllm/config/speculative.py 0.33.0.
    """
    method = config.get("method")
    if method is not None:
        if not isinstance(method, str):
            raise CommandLineError(
                f"--speculative-config method is {shown(method)}; give a name such as mtp or eagle3"
            )
        return "mtp" if method.endswith("_mtp") else method
    model = config.get("model")
    if not isinstance(model, str):
        raise CommandLineError("--speculative-config has neither method nor model; give one")
    if model in _NGRAM:
        return "ngram"
    lowered = model.lower()
    for part, name in (("eagle3", "eagle3"), ("eagle-", "eagle"), ("medusa", "medusa")):
        if part in lowered:
            return name
    return "draft_model"


def _member(name: str, text: str, allowed: Mapping[str, Any]) -> Any:
    if text not in allowed:
        raise CommandLineError(f"{name} is {shown(text)}; choose from {', '.join(allowed)}")
    return allowed[text]


def _whole_of(value: Any) -> int | None:
    """A JSON value as a whole number the way pydantic takes one: ``2``, ``2.0`` or ``"2"``."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value):
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(name: str, config: Mapping[str, Any], key: str, *, least: int) -> int:
    value = _whole_of(config.get(key))
    if value is None or value < least:
        raise CommandLineError(
            f"{name} {key} is {shown(config.get(key))}; give a whole number from {least} up"
        )
    return value


def _optional_whole(name: str, config: Mapping[str, Any], key: str) -> int | None:
    return None if config.get(key) is None else _whole(name, config, key, least=1)


def _optional_text(name: str, config: Mapping[str, Any], key: str) -> str | None:
    value = config.get(key)
    if value is not None and not isinstance(value, str):
        raise CommandLineError(f"{name} {key} is {shown(value)}; give a text")
    return value
