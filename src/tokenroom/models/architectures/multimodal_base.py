"""Putting a language model and its encoders together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tokenroom.errors import UnknownArchitectureError
from tokenroom.models.architectures import Builder, blocks, builder_for
from tokenroom.models.architectures.assembly import stored_dtype
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Role, Tower, Weight

TEXT_PREFIX: Final = "model.language_model"
"""Where the language model lies in the classes of transformers 5.24."""


def text_config(config: Config, key: str = "text_config", fixed: str | None = None) -> Config:
    """The language model's configuration.

    Args:
        config: The whole model's configuration.
        key: Its field.
        fixed: The type that the outer class gives it whatever it names, None when it may choose.

    Raises:
        ModelError: The field is not an object.
    """
    return config.sub(key, fixed, fixed=fixed is not None)


def language_model(
    config: Config,
    name: str,
    *,
    key: str = "text_config",
    fixed: str | None = None,
    builder: Builder | None = None,
) -> ModelSpec:
    """The language model that ``key`` describes.

    Args:
        config: The whole model's configuration.
        name: What to call the model.
        key: Field of the language model's configuration.
        fixed: See :func:`text_config`.
        builder: What reads it, None for the builder of its type.

    Raises:
        UnknownArchitectureError: No builder knows its type.
        ModelError: A field is missing or holds what it cannot.
    """
    text = text_config(config, key, fixed)
    if builder is None:
        try:
            builder = builder_for(text.model_type)
        except UnknownArchitectureError as error:
            raise UnknownArchitectureError(f"{config.field(key)}: {error}") from None
    text.mark_read("tie_word_embeddings", "dtype", "torch_dtype")
    spec = builder(text, name)
    return spec if stored_dtype(text) else replace(spec, dtype=stored_dtype(config) or spec.dtype)


def with_tie(spec: ModelSpec, tied: bool) -> ModelSpec:
    """``spec`` with the output projection tied to the embedding, or not."""
    if tied == spec.tied_embeddings:
        return spec
    outputs = tuple(weight for weight in spec.output_weights if weight.role is not Role.LM_HEAD)
    if not tied:
        outputs += (blocks.lm_head(spec.vocab_size, spec.hidden_size),)
    return replace(spec, output_weights=outputs, tied_embeddings=tied)


def ties(config: Config, spec: ModelSpec, *, either: bool = False) -> bool:
    """Whether the whole model ties its head: what the outer configuration says.

    Args:
        config: The whole model's configuration.
        spec: The language model.
        either: Whether a tied language model decides as well (LLaVA).

    Raises:
        ModelError: ``tie_word_embeddings`` is neither true nor false.
    """
    tied = config.flag("tie_word_embeddings")
    return tied or (either and spec.tied_embeddings)


def wrap(
    spec: ModelSpec,
    towers: Sequence[Tower | None],
    *,
    tied: bool | None = None,
    prefix: str = TEXT_PREFIX,
    assumptions: Sequence[str] = (),
) -> ModelSpec:
    """The language model with encoders beside it.

    Args:
        spec: The language model.
        towers: Its encoders; None for one that the configuration leaves out.
        tied: Whether the head is the embedding, None for as the language model says.
        prefix: Checkpoint path of the language model.
        assumptions: What had to be assumed about the encoders.
    """
    if tied is not None:
        spec = with_tie(spec, tied)
    return replace(
        spec,
        towers=tuple(tower for tower in towers if tower is not None),
        layer_prefix=spec.layer_prefix.replace("model", prefix, 1),
        input_weights=_moved(spec.input_weights, prefix),
        output_weights=_moved(spec.output_weights, prefix),
        assumptions=(*spec.assumptions, *assumptions),
    )


def _moved(weights: Sequence[Weight], prefix: str) -> tuple[Weight, ...]:
    return tuple(
        replace(weight, name=prefix + weight.name.removeprefix("model"))
        if weight.name.startswith("model.")
        else weight
        for weight in weights
    )


def vision_tower(
    config: Config,
    weights: Sequence[Weight],
    *,
    tokens: int | None,
    encoder_tokens: int | None,
    name: str = "vision",
    num_layers: int | None = None,
    hidden_size: int | None = None,
    intermediate_size: int | None = None,
    num_heads: int | None = None,
) -> Tower:
    """An encoder with its projector; sizes not given are read from its configuration.

    Args:
        config: The encoder's configuration.
        weights: Its parameters and its projector's.
        tokens: Language-model tokens of the largest item, None for unbounded.
        encoder_tokens: Positions the encoder processes for it.
        name: ``"vision"`` or ``"audio"``.
        num_layers: Blocks.
        hidden_size: Width.
        intermediate_size: Width of the feed-forward block.
        num_heads: Attention heads.

    Raises:
        ModelError: A size is missing or out of range.
    """
    return Tower(
        name=name,
        weights=tuple(weights),
        num_layers=config.integer("num_hidden_layers") if num_layers is None else num_layers,
        hidden_size=config.integer("hidden_size") if hidden_size is None else hidden_size,
        intermediate_size=(
            config.integer("intermediate_size") if intermediate_size is None else intermediate_size
        ),
        num_heads=config.integer("num_attention_heads") if num_heads is None else num_heads,
        max_tokens_per_item=tokens,
        encoder_tokens_per_item=encoder_tokens,
    )


Builders = Mapping[str, Builder]
