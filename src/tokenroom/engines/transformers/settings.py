"""What may be set on plain transformers, as far as memory depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tokenroom.engines.setting_checks import (
    check_choice,
    check_count,
    check_switch,
    check_text,
    renamed,
)
from tokenroom.engines.transformers.activation import AttentionKernel
from tokenroom.engines.transformers.caches import Backend, CacheKind
from tokenroom.engines.transformers.placement import DeviceMap
from tokenroom.errors import DeploymentError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersSettings:
    """Arguments of ``from_pretrained`` and ``generate`` under their own names; None is not set.

    Attributes:
        version: Version of transformers.
        dtype: Type of plain parameters and activations.
        num_gpus: GPUs that the modules are spread over.
        device_map: How.
        host_memory_bytes: Host memory for modules that no GPU holds, None for enough.
        max_model_len: Tokens of a sequence at its end, prompt and output.
        prompt_tokens: How many of them come at once; all but the last when not set.
        concurrency: Sequences of the batch.
        request_tokens: Length of the sequences at hand, at most ``max_model_len``.
        attn_implementation: How attention is computed.
        cache_implementation: Cache class.
        cache_backend: Library of a quantised cache.
        nbits: Bits of a value in it.
        q_group_size: Values that share a scale.
        residual_length: Newest tokens that may stay in the model's type.
        logits_to_keep: Positions of each prompt that get logits; 0 for all, as a plain forward
            pass; ``generate`` asks for the last.
        padded: Prompts of the batch differ in length.
    """

    version: str | None = None
    dtype: str | None = None
    num_gpus: int | None = None
    device_map: str | None = None
    host_memory_bytes: int | None = None
    max_model_len: int | None = None
    prompt_tokens: int | None = None
    concurrency: int | None = None
    request_tokens: int | None = None
    attn_implementation: str | None = None
    cache_implementation: str | None = None
    cache_backend: str | None = None
    nbits: int | None = None
    q_group_size: int | None = None
    residual_length: int | None = None
    logits_to_keep: int | None = None
    padded: bool | None = None


_NAMES: Final = frozenset(item.name for item in fields(TransformersSettings))
_ALIASES: Final[Mapping[str, str]] = {
    "tensor_parallel_size": "num_gpus",
    "pipeline_parallel_size": "num_gpus",
    "torch_dtype": "dtype",
    "max_num_seqs": "concurrency",
    "max_length": "max_model_len",
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "device_map": tuple(item.value for item in DeviceMap),
    "attn_implementation": tuple(item.value for item in AttentionKernel),
    "cache_implementation": tuple(item.value for item in CacheKind),
    "cache_backend": tuple(item.value for item in Backend),
}
_COUNTS: Final = (
    "num_gpus",
    "host_memory_bytes",
    "max_model_len",
    "prompt_tokens",
    "concurrency",
    "request_tokens",
    "nbits",
    "q_group_size",
    "residual_length",
)
_CACHE_TYPES: Final[Mapping[str, dict[str, Any]]] = {
    # what --kv says: the quantised cache it means
    "fp8": {"cache_implementation": "quantized", "cache_backend": "fp8"},
    "int8": {"cache_implementation": "quantized", "cache_backend": "hqq", "nbits": 8},
    "int4": {"cache_implementation": "quantized", "cache_backend": "quanto", "nbits": 4},
    "int3": {"cache_implementation": "quantized", "cache_backend": "hqq", "nbits": 3},
    "int2": {"cache_implementation": "quantized", "cache_backend": "quanto", "nbits": 2},
    "auto": {},
}


def changed(base: TransformersSettings | None, changes: Mapping[str, Any]) -> TransformersSettings:
    """The settings with some fields set, by the engine's names or those that engines share.

    Raises:
        DeploymentError: A field is unknown or holds an impossible value.
    """
    given = dict(changes)
    if "gpu_memory_utilization" in given:
        raise DeploymentError(
            "gpu_memory_utilization is given and transformers takes no share of a GPU; leave "
            "--util out"
        )
    kv = given.pop("kv_cache_dtype", None)
    if kv is not None:
        if not isinstance(kv, str) or kv not in _CACHE_TYPES:
            raise DeploymentError(
                f"the KV cache type is {shown(kv)}; transformers has {', '.join(_CACHE_TYPES)}"
            )
        given |= _CACHE_TYPES[kv]
    settings = replace(
        base or TransformersSettings(), **renamed(given, _ALIASES, _NAMES, "transformers")
    )
    for name in ("version", "dtype"):
        check_text(name, getattr(settings, name))
    for name in _COUNTS:
        check_count(name, getattr(settings, name))
    for name, choices in _CHOICES.items():
        check_choice(name, getattr(settings, name), choices)
    check_count("logits_to_keep", settings.logits_to_keep, least=0)
    check_switch("padded", settings.padded)
    return settings
