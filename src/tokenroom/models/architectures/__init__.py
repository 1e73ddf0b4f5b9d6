"""Which builder turns a configuration of a given model type into a :class:`ModelSpec`.

Each module here exports ``BUILDERS``, a mapping from model type to builder. Only the module that a
model type needs is imported, so that start-up stays cheap.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, TypeAlias

from tokenroom.errors import UnknownArchitectureError
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec

Builder: TypeAlias = Callable[[Config, str], ModelSpec]

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "dense": ("llama", "mistral", "qwen2", "qwen3"),
    "recurrent_mamba": (
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "mamba",
        "mamba2",
        "zamba",
        "zamba2",
    ),
    "recurrent_nemotron": ("nemotron_h",),
    "recurrent_linear": (
        "bailing_hybrid",
        "kimi_linear",
        "lfm2",
        "lfm2_moe",
        "lfm3",
        "minimax",
        "olmo_hybrid",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
    ),
    "recurrent_rnn": ("recurrent_gemma", "rwkv"),
}

_MODULE_OF: Final[Mapping[str, str]] = {
    model_type: module for module, model_types in _MODULES.items() for model_type in model_types
}


def supported_model_types() -> tuple[str, ...]:
    """Every model type that has a builder, sorted."""
    return tuple(sorted(_MODULE_OF))


def builder_for(model_type: str, architectures: Sequence[str] = ()) -> Builder:
    """The builder of ``model_type``.

    Args:
        model_type: As in config.json.
        architectures: Class names in config.json, named in the error.

    Raises:
        UnknownArchitectureError: No builder knows the type.
    """
    module = _MODULE_OF.get(model_type)
    if module is None:
        near = difflib.get_close_matches(model_type, _MODULE_OF, n=3, cutoff=0.5)
        named = f" ({', '.join(architectures)})" if architectures else ""
        hint = f"; the nearest known types are {', '.join(near)}" if near else ""
        raise UnknownArchitectureError(
            f"model type {model_type!r}{named} is not known{hint}; if its layers are those of a "
            f"known type, say so with --assume-architecture {near[0] if near else 'llama'}"
        )
    builders: Mapping[str, Builder] = import_module(f"{__name__}.{module}").BUILDERS
    return builders[model_type]
