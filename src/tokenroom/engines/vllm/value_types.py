"""What each field of :class:`VLLMSettings` may hold, checked for the fields that were given.

Types follow from the annotations of the class, so that a field cannot be left out; bounds and
choices are those of vLLM's config classes (config/*.py 0.11.0 to 0.33.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings
from tokenroom.errors import DeploymentError, shown

_AT_LEAST_ONE: Final = frozenset(
    {
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "nnodes"),
        *("decode_context_parallel_size", "prefill_context_parallel_size", "max_num_seqs"),
        *("max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes"),
        *("num_gpu_blocks_override", "block_size", "mamba_block_size", "max_loras"),
        *("max_lora_rank", "mm_processor_max_pixels", "max_num_active_seqs"),
    }
)
_MINUS_ONE: Final = {
    "max_model_len": "a whole number of at least 1, or -1 for the longest that fits",
    "max_logprobs": "a whole number of at least 0, or -1 for the whole vocabulary",
}
_LEVELS: Final = frozenset({"optimization_level", "compilation_mode"})
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "usage": ("server", "llm", "other"),
    "mamba_cache_mode": ("none", "align", "all"),
    "mamba_cache_dtype": ("auto", "float32", "float16", "bfloat16"),
    "mamba_ssm_cache_dtype": ("auto", "float32", "float16", "bfloat16"),
    "lora_dtype": ("auto", "float16", "bfloat16", "float32"),
    "performance_mode": ("balanced", "interactivity", "throughput"),
    "mm_encoder_tp_mode": ("weights", "data"),
    "scheduling_policy": ("fcfs", "priority"),
    "runner": ("auto", "generate", "pooling", "draft"),
    "cudagraph_mode": ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
}


def checked(name: str, value: Any) -> Any:
    """The value of a field, lists made tuples; None is not set.

    Args:
        name: A field of :class:`VLLMSettings`.
        value: What was given.

    Raises:
        DeploymentError: It has another type, or is no value that vLLM takes.
    """
    if value is None:
        if name in _REQUIRED:
            raise DeploymentError(f"{name} is None; leave it out")
        return None
    return _CHECKS[name](name, value)


def _refuse(name: str, value: Any, wanted: str) -> DeploymentError:
    shown = repr(value)
    return DeploymentError(f"{name} is {shown[:80]}; it must be {wanted}")


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        least = 1 if name in _AT_LEAST_ONE else 0
        raise _refuse(name, value, _MINUS_ONE.get(name, f"a whole number of at least {least}"))
    if name in _MINUS_ONE:
        if value < -1 or (value == 0 and name == "max_model_len"):
            raise _refuse(name, value, _MINUS_ONE[name])
    elif name in _AT_LEAST_ONE:
        if value < 1:
            raise _refuse(name, value, "a whole number of at least 1")
    elif name in _LEVELS:
        if not 0 <= value <= 3:
            raise _refuse(name, value, "a level from 0 to 3")
    elif value < 0:
        raise _refuse(name, value, "a whole number of at least 0")
    return value


def _share(name: str, value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "watermark":
        if not number or not 0 <= value < 1:
            raise _refuse(name, value, "0 or more and below 1")
    elif not number or not 0 < value <= 1:
        raise _refuse(name, value, "above 0 and at most 1")
    return float(value)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, value, "True or False")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse(name, value, "a text")
    choices = CHOICES.get(name)
    if choices is not None and value not in choices:
        raise DeploymentError(f"{name} is {shown(value)}; choose from {', '.join(choices)}")
    return value


def _counts(name: str, value: Any) -> tuple[int, ...]:
    sizes = value if isinstance(value, (tuple, list)) else None
    if sizes is None or any(
        isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes
    ):
        raise _refuse(name, value, "a tuple of whole numbers of at least 1")
    return tuple(sizes)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    words = value if isinstance(value, (tuple, list)) else None
    if words is None or any(not isinstance(word, str) for word in words):
        raise _refuse(name, value, "a tuple of texts")
    return tuple(words)


def _limits(name: str, value: Any) -> Mapping[str, int]:
    wanted = 'counts by modality, such as {"image": 2, "video": 0}'
    if not isinstance(value, Mapping):
        raise _refuse(name, value, wanted)
    for modality, limit in value.items():
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        if not isinstance(modality, str) or not whole or limit < 0:
            raise _refuse(name, value, wanted)
    return value


def _mapping(name: str, value: Any) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
        raise _refuse(name, value, "a mapping from names to values")
    return value


def _environment(name: str, value: Any) -> Mapping[str, str]:
    _mapping(name, value)
    if any(not isinstance(item, str) for item in value.values()):
        raise _refuse(name, value, "a mapping from names to texts")
    return dict(value)


def _speculative(name: str, value: Any) -> SpeculativeSettings:
    if not isinstance(value, SpeculativeSettings):
        raise _refuse(name, value, "SpeculativeSettings(method=..., num_speculative_tokens=...)")
    _text("speculative method", value.method)
    _whole("num_speculative_tokens", value.num_speculative_tokens)
    for field in ("draft_tensor_parallel_size", "max_model_len"):
        if getattr(value, field) is not None:
            _whole(f"speculative {field}", getattr(value, field))
    for field in ("model", "quantization", "kv_cache_dtype"):
        if getattr(value, field) is not None:
            _text(f"speculative {field}", getattr(value, field))
    return value


_BY_ANNOTATION: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "int": _whole,
    "float": _share,
    "bool": _switch,
    "str": _text,
    "tuple[int, ...]": _counts,
    "tuple[str, ...]": _texts,
    "Mapping[str, int]": _limits,
    "Mapping[str, object]": _mapping,
    "Mapping[str, str]": _environment,
    "SpeculativeSettings": _speculative,
}
_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    item.name: _BY_ANNOTATION[str(item.type).removesuffix(" | None")]
    for item in fields(VLLMSettings)
}
_REQUIRED: Final = frozenset(
    item.name for item in fields(VLLMSettings) if not str(item.type).endswith("| None")
)
