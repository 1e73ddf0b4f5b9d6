"""Dense Llama-like decoders, one row a model type (transformers 5.24 ``modeling_*.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import windows
from tokenroom.models.architectures.family import Family, QKNorm, builders

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder

_FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(q_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "mistral": Family(windows=windows.every_layer),
    "qwen2": Family(q_bias=True, windows=windows.after_max_window_layers),
    "qwen3": Family(
        q_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=QKNorm.HEAD,
        windows=windows.after_max_window_layers,
    ),
}

BUILDERS: Final[Mapping[str, Builder]] = builders(_FAMILIES)
