"""Settings of transformers with every default filled in.

Defaults of 5.24: ``modeling_utils.py`` (dtype as stored, SDPA attention), ``generation/utils.py``
(DynamicCache, one position of logits) and ``cache_utils.py`` ``QuantizedCache``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenroom.engines.policy import Setting
from tokenroom.engines.transformers.activation import AttentionKernel
from tokenroom.engines.transformers.caches import Backend, CacheKind, CacheSettings
from tokenroom.engines.transformers.placement import DeviceMap
from tokenroom.engines.transformers.settings import TransformersSettings
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Node
from tokenroom.memory.kv_cache import element_bytes
from tokenroom.models.spec import ModelSpec

NEWEST: Final = "5.24"
_OLDEST_MAJOR: Final = 5
_LONGEST_UNBOUNDED: Final = 4096
_NBITS: Final = {Backend.QUANTO: 4, Backend.HQQ: 4, Backend.FP8: 8}


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Every setting with its value; see :class:`TransformersSettings`."""

    version: str
    num_gpus: int
    device_map: DeviceMap
    host_memory_bytes: int | None
    max_model_len: int
    tokens: int
    prompt_tokens: int | None
    batch: int
    kernel: AttentionKernel
    cache: CacheSettings
    logits_to_keep: int
    padded: bool
    settings: Mapping[str, Setting]

    def prompt_of(self, tokens: int) -> int:
        """Tokens that come at once of a sequence that reaches ``tokens``."""
        return min(tokens, self.prompt_tokens) if self.prompt_tokens is not None else tokens


def resolve(settings: TransformersSettings, spec: ModelSpec, node: Node) -> Resolved:
    """Fill in every default.

    Raises:
        DeploymentError: A value is impossible for this model.
    """
    known: dict[str, Setting] = {}

    def chosen(name: str, default: Any, origin: str = "engine", reason: str = "") -> Any:
        value = getattr(settings, name)
        known[name] = (
            Setting(value=default, origin=origin, reason=reason)
            if value is None
            else Setting(value=value, origin="user")
        )
        return known[name].value

    version = settings.version or NEWEST
    match = re.match(r"v?(\d{1,9})(\.|$)", version)
    if match is None or int(match.group(1)) < _OLDEST_MAJOR:
        raise DeploymentError(
            f"the version is {shown(version)}; transformers 5.0 and later are known "
            f"(transformers@5.24)"
        )
    known["tensor_parallel_size"] = Setting(value=1, origin="engine")
    known["num_gpus"] = Setting(
        value=node.count, origin="user" if settings.num_gpus is not None else "tokenroom"
    )
    dtype = chosen("dtype", spec.dtype, "model")
    element_bytes(dtype)
    longest = spec.max_position_embeddings
    if longest is None:
        length = chosen("max_model_len", _LONGEST_UNBOUNDED, "tokenroom", "the model has no bound")
    else:
        length = chosen("max_model_len", longest, "model")
    batch = chosen("concurrency", 1, "tokenroom", "one sequence")
    tokens = min(chosen("request_tokens", length, "tokenroom", "max_model_len"), length)
    if settings.prompt_tokens is not None:
        chosen("prompt_tokens", None)
    backend = Backend(chosen("cache_backend", "quanto"))
    cache = CacheSettings(
        kind=CacheKind(chosen("cache_implementation", "dynamic")),
        dtype=dtype,
        backend=backend,
        nbits=chosen("nbits", _NBITS[backend]),
        group_size=chosen("q_group_size", 64),
        residual_length=chosen("residual_length", 128),
        axis=0,
    )
    return Resolved(
        version=version,
        num_gpus=node.count,
        device_map=DeviceMap(chosen("device_map", "auto")),
        host_memory_bytes=settings.host_memory_bytes,
        max_model_len=length,
        tokens=tokens,
        prompt_tokens=settings.prompt_tokens,
        batch=batch,
        kernel=AttentionKernel(chosen("attn_implementation", "sdpa")),
        cache=cache,
        logits_to_keep=chosen("logits_to_keep", 1),
        padded=chosen("padded", False),
        settings=known,
    )
