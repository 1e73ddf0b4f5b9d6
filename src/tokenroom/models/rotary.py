"""Which rotary position tables a model needs, read from its configuration.

Engines precompute sines and cosines for every position a model may reach and keep them beside the
weights; a model of a million positions spends a gigabyte on them. Field names: transformers 5.24
``modeling_rope_utils.py``; defaults of the rotated share: the models' configuration classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.models.spec import Attention, LatentAttention, ModelSpec, Rotary

_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")

_WITHOUT: Final = frozenset(
    {
        "bert",
        "biogpt",
        "bloom",
        "camembert",
        "ctrl",
        "gpt-sw3",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "jais",
        "jamba",
        "kimi_linear",
        "mpt",
        "nemotron_h",
        "openai-gpt",
        "opt",
        "roberta",
        "t5",
        "whisper",
        "xglm",
        "xlm-roberta",
    }
)
"""Model types whose attention is not rotary: learned positions, ALiBi, or none."""

_ROTATED_SHARE: Final[Mapping[str, float]] = {
    "chatglm": 0.5,
    "glm": 0.5,
    "glm4": 0.5,
    "glm4_moe": 0.5,
    "gpt_neox": 0.25,
    "nemotron": 0.5,
    "persimmon": 0.5,
    "phi": 0.5,
    "qwen3_5_moe_text": 0.25,
    "qwen3_5_text": 0.25,
    "qwen3_next": 0.25,
    "stablelm": 0.25,
}
"""Share of a head that is rotated when the file does not say."""

_LOCAL_TABLE: Final = frozenset({"gemma3_text", "gemma3n_text", "modernbert"})
"""Model types whose sliding-window layers have an unscaled table of their own."""


def text_configuration(data: Mapping[str, object]) -> Mapping[str, object]:
    """The innermost nested configuration of the language model, or ``data`` itself."""
    found = data
    for _ in range(len(_NESTED)):
        nested = next(
            (value for key in _NESTED if isinstance(value := found.get(key), Mapping)), None
        )
        if nested is None:
            break
        found = nested
    return found


def with_rotary(spec: ModelSpec, data: Mapping[str, object]) -> ModelSpec:
    """``spec`` with its position tables.

    Args:
        spec: The model.
        data: Its parsed config.json.
    """
    return replace(spec, rotary=rotary_tables(spec, text_configuration(data)))


def rotary_tables(spec: ModelSpec, text: Mapping[str, object]) -> tuple[Rotary, ...]:
    """The distinct tables of a model; empty when its attention is not rotary.

    Args:
        spec: The model.
        text: The configuration of its language model.
    """
    if spec.model_type in _WITHOUT or text.get("position_embedding_type") in ("nope", "absolute"):
        return ()
    if text.get("alibi") is True:
        return ()
    width, sliding = _widths(spec)
    if width is None and sliding is None:
        return ()
    positions = spec.max_position_embeddings or 0
    settings = _settings(text)
    layered = {
        key: value for key, value in settings.items() if isinstance(value, Mapping) and value
    }
    if layered:  # one block a kind of layer, keyed by its name
        tables = []
        for name, block in layered.items():
            own = sliding if name == "sliding_attention" and sliding is not None else width
            if own is not None:
                tables.append(_table(spec, text, block, own, positions))
        return tuple(dict.fromkeys(tables))
    tables = [_table(spec, text, settings, width or sliding or 0, positions)]
    if _selector_has_own_table(spec, text) or _has_two_compressions(spec):
        tables.append(tables[0])
    if spec.model_type in _LOCAL_TABLE:
        tables.append(_table(spec, text, {}, sliding or width or 0, positions))
    return tuple(tables)


def _widths(spec: ModelSpec) -> tuple[int | None, int | None]:
    """Head width that positions apply to: of full attention, and of sliding windows."""
    full: int | None = None
    sliding: int | None = None
    for layer, _ in spec.layer_kinds:
        for mixer in layer.mixers:
            if isinstance(mixer, LatentAttention):
                full = mixer.qk_rope_head_dim
            elif isinstance(mixer, Attention):
                if mixer.window is None:
                    full = mixer.head_dim
                else:
                    sliding = mixer.head_dim
    return full, sliding


def _selector_has_own_table(spec: ModelSpec, text: Mapping[str, object]) -> bool:
    """Whether a sparse selector rotates halves while latent attention rotates pairs."""
    return text.get("indexer_rope_interleave") is not True and any(
        isinstance(mixer, LatentAttention)
        and mixer.indexer is not None
        and mixer.compress_ratio == 1
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
    )


def _has_two_compressions(spec: ModelSpec) -> bool:
    """Whether layers with and without compressed states differ in their base (DeepSeek V4)."""
    ratios = {
        mixer.compress_ratio > 1
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
        if isinstance(mixer, LatentAttention)
    }
    return len(ratios) == 2


def _settings(text: Mapping[str, object]) -> Mapping[str, object]:
    for key in ("rope_parameters", "rope_scaling"):
        value = text.get(key)
        if isinstance(value, Mapping):
            return value
    return {}


def _number(value: object) -> float | None:
    """A finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond what a float holds
        return None
    return number if math.isfinite(number) else None


def _table(
    spec: ModelSpec,
    text: Mapping[str, object],
    settings: Mapping[str, object],
    head_width: int,
    positions: int,
) -> Rotary:
    kind = str(settings.get("rope_type") or settings.get("type") or "default")
    sections = "mrope_section" in settings or kind == "mrope"
    if kind == "mrope":
        kind = "default"
    if kind == "su":
        kind = "longrope"
    original = _number(settings.get("original_max_position_embeddings")) or _number(
        text.get("original_max_position_embeddings")
    )
    return Rotary(
        width=_rotated(spec, text, settings, head_width, kind),
        kind=kind,
        positions=positions,
        factor=_number(settings.get("factor")) or 1.0,
        original_positions=None if original is None else int(original),
        multimodal=sections,
    )


def _rotated(
    spec: ModelSpec,
    text: Mapping[str, object],
    settings: Mapping[str, object],
    head_width: int,
    kind: str,
) -> int:
    latent = any(
        isinstance(mixer, LatentAttention)
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
    )
    if latent or kind == "proportional":  # the rotary part is a width of its own, or padded
        return head_width
    share = _number(settings.get("partial_rotary_factor"))
    for key in ("partial_rotary_factor", "rotary_pct"):
        share = _number(text.get(key)) if share is None else share
    exact = _number(text.get("rotary_dim"))
    if share is None and exact is not None:
        return int(exact)
    if share is None:
        share = _ROTATED_SHARE.get(spec.model_type, 1.0)
    return int(head_width * share)
