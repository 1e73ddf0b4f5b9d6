"""Which layers attend within a sliding window, as each configuration class resolves it.

Every rule gives one window in tokens a layer, None for full attention. The rules restate
``__post_init__`` of the configuration classes of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tokenroom.models.config import Config

Windows: TypeAlias = Sequence[int | None]
WindowRule: TypeAlias = Callable[[Config, int], Windows]

SLIDING: Final = "sliding_attention"


def full(config: Config, count: int) -> Windows:
    """No layer has a window."""
    return (None,) * count


def window_of(config: Config) -> int | None:
    """``sliding_window``; null and 0 mean none.

    Raises:
        ModelError: It is not a whole number.
    """
    return config.optional_integer("sliding_window", minimum=0) or None


def every_layer(config: Config, count: int) -> Windows:
    """All layers share ``sliding_window`` (Mistral, Mixtral, Phi-3, StarCoder2)."""
    return (window_of(config),) * count


def listed(config: Config, count: int, key: str = "layer_types") -> tuple[str, ...] | None:
    """The file's own list of one type a layer, None when it has none.

    A longer list is cut: checkpoints list types of multi-token-prediction layers too.

    Raises:
        ModelError: The list names fewer types than there are layers.
    """
    layer_types = config.texts(key)
    if layer_types is None:
        return None
    if len(layer_types) < count:
        config.refuse(key, f"one type for each of the {count} layers")
    return layer_types[:count]


def by_type(layer_types: Sequence[str], window: int | None) -> Windows:
    """The window where the type is sliding, None elsewhere."""
    return tuple(window if kind == SLIDING else None for kind in layer_types)


def listed_or(default: Callable[[int, int], bool]) -> WindowRule:
    """``layer_types`` decides; without it ``default(index, count)`` says which layers slide."""

    def rule(config: Config, count: int) -> Windows:
        window = window_of(config)
        layer_types = listed(config, count)
        if layer_types is not None:
            return by_type(layer_types, window)
        return tuple(window if default(index, count) else None for index in range(count))

    return rule


def every_nth_full(period: int, *, key: str | None = None) -> WindowRule:
    """Each ``period``-th layer is full, those between have the window (Gemma 3, Cohere 2).

    Args:
        period: The period, or its default when a field holds it.
        key: The field that holds it; its 0 makes every layer full. EXAONE 4 writes one letter a
            layer of the period instead, L where the layer slides (``"LLLG"``).
    """

    def rule(config: Config, count: int) -> Windows:
        if key and isinstance(config.get(key), str):
            pattern = config.text(key)
            if not pattern or set(pattern) - set("LG"):
                config.refuse(key, "a whole number or letters L (sliding) and G (full)")
            return listed_or(lambda index, _: pattern[index % len(pattern)] == "L")(config, count)
        every = config.integer(key, default=period, minimum=0) if key else period
        slides = listed_or(lambda index, _: every > 0 and (index + 1) % every != 0)
        return slides(config, count)

    return rule


def after_max_window_layers(config: Config, count: int) -> Windows:
    """Qwen2 and Qwen3: only with ``use_sliding_window``, from ``max_window_layers`` on."""
    if not config.flag("use_sliding_window"):
        config.mark_read("max_window_layers", "layer_types", "sliding_window")
        return full(config, count)
    first = config.integer("max_window_layers", minimum=0)
    return listed_or(lambda index, _: index >= first)(config, count)


def alternate_below_max_window_layers(config: Config, count: int) -> Windows:
    """Qwen2-MoE: every other layer below ``max_window_layers``, with ``use_sliding_window``."""
    if not config.flag("use_sliding_window"):
        config.mark_read("max_window_layers", "layer_types", "sliding_window")
        return full(config, count)
    last = config.integer("max_window_layers", minimum=0)
    return listed_or(lambda index, _: index % 2 == 0 and index < last)(config, count)


def when_used(config: Config, count: int) -> Windows:
    """All layers, only with ``use_sliding_window`` (Qwen3-MoE)."""
    if not config.flag("use_sliding_window"):
        config.mark_read("max_window_layers", "sliding_window")
        return full(config, count)
    return every_layer(config, count)


def without_rope(config: Config, count: int) -> Windows:
    """SmolLM3: layers without rotary positions slide, with ``use_sliding_window``."""
    if not config.flag("use_sliding_window"):
        config.mark_read("no_rope_layers", "no_rope_layer_interval", "layer_types")
        return full(config, count)
    interval = config.integer("no_rope_layer_interval")
    rope = config.integers("no_rope_layers")

    def slides(index: int, _: int) -> bool:
        if rope is None:
            return (index + 1) % interval == 0
        return index < len(rope) and rope[index] == 0

    return listed_or(slides)(config, count)
