"""Settings of an allocation policy with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenroom.engines.abstract.settings import AbstractSettings
from tokenroom.engines.abstract.workload import draw_lengths
from tokenroom.engines.policy import Setting
from tokenroom.errors import DeploymentError
from tokenroom.memory.allocation import Allocator, Sharing
from tokenroom.memory.kv_cache import element_bytes
from tokenroom.models.spec import ModelSpec
from tokenroom.units import MAX_TOKENS

_PREFILL_TOKENS: Final = 8192
_LONGEST_UNBOUNDED: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Every setting with its value.

    Attributes:
        allocator: How room is given.
        lengths: Lengths of the workload's requests.
        describes_lengths: They differ, so that the batch is that of the workload.
        settings: Each with its origin.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    max_num_seqs: int | None
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    kv_cache_dtype: str
    dtype: str
    allocator: Allocator
    lengths: tuple[int, ...]
    describes_lengths: bool
    settings: Mapping[str, Setting]


def resolve(sharing: Sharing, spec: ModelSpec, settings: AbstractSettings) -> Resolved:
    """Fill in every setting.

    Raises:
        DeploymentError: The lengths cannot be understood, or a value is impossible for this model.
    """
    known = _resolve(sharing, spec, settings)
    resolved = Resolved(
        tensor_parallel_size=known["tensor_parallel_size"].value,
        pipeline_parallel_size=known["pipeline_parallel_size"].value,
        max_num_seqs=known["max_num_seqs"].value,
        max_num_batched_tokens=known["max_num_batched_tokens"].value,
        gpu_memory_utilization=known["gpu_memory_utilization"].value,
        kv_cache_memory_bytes=settings.kv_cache_memory_bytes,
        kv_cache_dtype=known["kv_cache_dtype"].value,
        dtype=known["dtype"].value,
        allocator=Allocator(
            sharing=sharing,
            max_tokens=known["max_model_len"].value,
            block_size=known["block_size"].value if "block_size" in known else 1,
            first_tokens=known["first_tokens"].value if "first_tokens" in known else 0,
            knows_length=known["knows_length"].value if "knows_length" in known else False,
        ),
        lengths=_lengths(settings, known["max_model_len"].value),
        describes_lengths=settings.lengths is not None,
        settings=known,
    )
    element_bytes(resolved.dtype)
    if resolved.pipeline_parallel_size > spec.num_layers:
        raise DeploymentError(
            f"pipeline_parallel_size is {resolved.pipeline_parallel_size}; the model has "
            f"{spec.num_layers} layers"
        )
    return resolved


def _resolve(sharing: Sharing, spec: ModelSpec, settings: AbstractSettings) -> dict[str, Setting]:
    def chosen(name: str, default: Any, origin: str = "engine", reason: str = "") -> None:
        value = getattr(settings, name)
        known[name] = (
            Setting(value=default, origin=origin, reason=reason)
            if value is None
            else Setting(value=value, origin="user")
        )

    known: dict[str, Setting] = {}
    dtype = "bfloat16" if spec.dtype == "float32" else spec.dtype
    longest = spec.max_position_embeddings
    chosen("tensor_parallel_size", 1)
    chosen("pipeline_parallel_size", 1)
    chosen("dtype", dtype, "model")
    chosen("kv_cache_dtype", spec.kv_cache_dtype or known["dtype"].value, "model")
    if longest is None:
        chosen("max_model_len", _LONGEST_UNBOUNDED, "tokenroom", "the model has no bound")
    else:
        chosen("max_model_len", longest, "model")
    chosen("max_num_seqs", None)
    chosen("max_num_batched_tokens", _PREFILL_TOKENS)
    chosen("gpu_memory_utilization", 1.0)
    if sharing is Sharing.CONTIGUOUS:
        chosen("knows_length", False)
    else:
        chosen("block_size", 16)
    if sharing is Sharing.HYBRID:
        longest = known["max_model_len"].value
        typical = typical_tokens(settings)
        first = longest if typical is None else min(typical, longest)
        chosen("first_tokens", first, "tokenroom", "half of the requests need no more")
    for name in ("kv_cache_memory_bytes", "concurrency", "request_tokens", "lengths", "seed"):
        value = getattr(settings, name)
        if value is not None:
            known[name] = Setting(value=value, origin="user")
    return known


def typical_tokens(settings: AbstractSettings) -> int | None:
    """Median length of the workload before any is cut to the longest; None where that is asked."""
    if settings.lengths is None:
        return settings.request_tokens
    lengths = sorted(_lengths(settings, MAX_TOKENS))
    return lengths[len(lengths) // 2]


def _lengths(settings: AbstractSettings, longest: int) -> tuple[int, ...]:
    if settings.lengths is not None:
        return draw_lengths(
            settings.lengths,
            count=settings.concurrency,
            longest=longest,
            seed=settings.seed or 0,
        )
    return (min(settings.request_tokens or longest, longest),) * (settings.concurrency or 1)
