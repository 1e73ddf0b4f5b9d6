"""Which layers attend within a sliding window, as each configuration class resolves it.

Every rule gives one window in tokens a layer, None for full attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tokenroom.models.config import Config

Windows: TypeAlias = tuple[int | None, ...]
WindowRule: TypeAlias = Callable[[Config, int], Windows]

_WINDOWED_TYPES = frozenset({"sliding_attention", "sliding", "local", "local_attention", "swa"})


def full(config: Config, num_layers: int) -> Windows:
    """No layer has a window."""
    return (None,) * num_layers


def every_layer(config: Config, num_layers: int) -> Windows:
    """All layers share ``sliding_window`` (Mistral, Mixtral, Phi-3, StarCoder2)."""
    return (config.optional_integer("sliding_window"),) * num_layers


def from_layer_types(config: Config, layer_types: tuple[str, ...], window: int | None) -> Windows:
    """Windows of an explicit ``layer_types`` list."""
    return tuple(window if kind in _WINDOWED_TYPES else None for kind in layer_types)


def listed(config: Config, num_layers: int) -> tuple[str, ...] | None:
    """The file's own ``layer_types``, checked for length; None when it has none.

    Raises:
        ModelError: The list does not name one type a layer.
    """
    layer_types = config.texts("layer_types")
    if layer_types is None:
        return None
    if len(layer_types) != num_layers:
        config.refuse("layer_types", f"one layer type for each of the {num_layers} layers")
    return layer_types


def layer_types_or_full(config: Config, num_layers: int) -> Windows:
    """``layer_types`` decides; without it every layer is full."""
    layer_types = listed(config, num_layers)
    if layer_types is None:
        return full(config, num_layers)
    return from_layer_types(config, layer_types, config.optional_integer("sliding_window"))


def after_max_window_layers(config: Config, num_layers: int) -> Windows:
    """Qwen2 and Qwen3: only with ``use_sliding_window``, from ``max_window_layers`` on."""
    window = config.optional_integer("sliding_window")
    if not config.flag("use_sliding_window"):
        config.mark_read("max_window_layers", "layer_types")
        return full(config, num_layers)
    layer_types = listed(config, num_layers)
    if layer_types is not None:
        return from_layer_types(config, layer_types, window)
    first = config.integer("max_window_layers", minimum=0)
    return tuple(window if index >= first else None for index in range(num_layers))


def every_nth_full(key: str, default: int, *, fixed: int | None = None) -> WindowRule:
    """Each ``key``-th layer is full, those between have a window (Gemma 3, Cohere 2).

    Args:
        key: Field with the period.
        default: Period when the field is absent.
        fixed: Period that no field changes.
    """

    def rule(config: Config, num_layers: int) -> Windows:
        window = config.optional_integer("sliding_window")
        period = fixed or config.integer(key, default=default)
        layer_types = listed(config, num_layers)
        if layer_types is not None:
            return from_layer_types(config, layer_types, window)
        return tuple(window if (index + 1) % period else None for index in range(num_layers))

    return rule
