"""Vision-language models of LLaVA's shape: an image encoder, a projector, any language model.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the largest item
as vLLM 0.33's processing classes compute them (``model_executor/models/<type>.py``), from the
published preprocessor files where config.json does not carry the limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tokenroom.models.architectures import Builder, dense
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import (
    language_model,
    ties,
    vision_tower,
    with_tie,
    wrap,
)
from tokenroom.models.architectures.towers import (
    clip,
    internvit,
    norms,
    patches,
    pixtral,
    side,
    siglip,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight

PROJECTOR: Final = "model.multi_modal_projector"


TOWER: Final = "model.vision_tower"


def encoder(vision: Config, prefix: str) -> tuple[Weight, ...]:
    """The image encoder of the configuration's own type.

    Raises:
        ModelError: The type is none of CLIP, SigLIP, Pixtral and InternViT.
    """
    kind = vision.model_type
    if kind == "clip_vision_model":
        return clip(vision, prefix)
    if kind in ("siglip_vision_model", "siglip2_vision_model"):
        return siglip(
            vision,
            prefix,
            head=vision.flag("vision_use_head"),
            flat_patches=kind == "siglip2_vision_model",
            positions=vision.optional_integer("num_patches"),
        )
    if kind == "pixtral":
        return pixtral(vision, prefix)
    if kind == "internvl_vision":
        return internvit(vision, prefix)
    vision.refuse("model_type", "clip_vision_model, siglip_vision_model or pixtral")


def feature_layers(config: Config) -> int:
    """How many of the encoder's layers feed the projector."""
    value = config.get("vision_feature_layer")
    return len(value) if isinstance(value, list | tuple) else 1


def features(config: Config, vision: Config) -> int:
    """Positions of one image that reach the projector (``vision_feature_select_strategy``)."""
    count = patches(vision)
    whole = config.text("vision_feature_select_strategy", default="default") == "full"
    return count + 1 if whole and vision.model_type == "clip_vision_model" else count


def positions(vision: Config) -> int:
    """Positions the encoder itself processes for one image."""
    return patches(vision) + (vision.model_type in ("clip_vision_model", "internvl_vision"))


def two_layer_projector(
    prefix: str, inputs: int, hidden: int, *, bias: bool, inner: int | None = None
) -> tuple[Weight, ...]:
    """``linear_1``, an activation, ``linear_2``; whole on every rank.

    vLLM divides LLaVA's own projector over ranks; its size makes no difference worth a rule.
    """
    width = hidden if inner is None else inner
    return (
        linear(f"{prefix}.linear_1", width, inputs, bias=bias),
        linear(f"{prefix}.linear_2", hidden, width, bias=bias),
    )


def _llava_parts(config: Config, name: str) -> tuple[ModelSpec, Config, tuple[Weight, ...]]:
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    inputs = vision.integer("hidden_size") * feature_layers(config)
    weights = (
        *encoder(vision, TOWER),
        *two_layer_projector(
            PROJECTOR, inputs, spec.hidden_size, bias=config.flag("multimodal_projector_bias")
        ),
    )
    return spec, vision, weights


def llava(config: Config, name: str) -> ModelSpec:
    """LLaVA 1.5 and checkpoints in its form (Pixtral 12B)."""
    spec, vision, weights = _llava_parts(config, name)
    if vision.model_type == "pixtral":
        tokens, seen = _pixtral_tokens(vision, merge=1)
    else:
        tokens, seen = features(config, vision), positions(vision)
    tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(spec, [tower], tied=ties(config, spec, either=True))


def _pinpoints(config: Config, default: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The (height, width) grids that an image may be cut to."""
    listed = config.sequence("image_grid_pinpoints")
    if listed is None:
        return tuple(default)
    pairs: list[tuple[int, int]] = []
    for item in listed:
        if (
            not isinstance(item, list | tuple)
            or len(item) != 2
            or not all(isinstance(size, int) and size > 0 for size in item)
        ):
            config.refuse("image_grid_pinpoints", "a list of [height, width]")
        pairs.append((item[0], item[1]))
    return tuple(pairs)


_NEXT_PINPOINTS: Final = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


def _tiled_tokens(
    config: Config, vision: Config, pinpoints: Sequence[tuple[int, int]], limit: int | None
) -> tuple[int, int]:
    """Most tokens, and encoder positions, over the grids an image may be cut to.

    A grid of tiles gives its patches with one newline a row, and the whole image once more. With a
    ``limit`` of tiles (``anyres_max_9``) larger grids are shrunk to about that many tiles' patches.
    Source: vLLM 0.33 ``llava_next.py`` and ``llava_onevision.py`` (``_get_num_unpadded_features``).
    """
    height, _ = side(vision, "image_size")
    patch, _ = side(vision, "patch_size")
    grid = height // patch
    base, seen = features(config, vision), positions(vision)
    most, encoded = 0, 0
    for tall, wide in pinpoints:
        rows, columns = tall // height * grid, wide // height * grid
        if limit is not None:
            ratio = (rows * columns / (limit * grid**2)) ** 0.5
            if ratio > 1.1:
                rows, columns = int(rows // ratio), int(columns // ratio)
        tokens = rows * columns + rows + base
        if tokens > most:
            most, encoded = tokens, seen * (tall // height * (wide // height) + 1)
    return most, encoded


def llava_next(config: Config, name: str) -> ModelSpec:
    """LLaVA 1.6: images cut into tiles, a learned newline between rows."""
    spec, vision, weights = _llava_parts(config, name)
    weights += (vector("model.image_newline", spec.hidden_size),)
    tokens, seen = _tiled_tokens(config, vision, _pinpoints(config, _NEXT_PINPOINTS), None)
    tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(
        spec, [tower], tied=ties(config, spec, either=config.model_type == "llava_next_video")
    )


def llava_onevision(config: Config, name: str) -> ModelSpec:
    """LLaVA-OneVision: SigLIP on tiles, with a learned newline."""
    spec, vision, weights = _llava_parts(config, name)
    weights += (vector("model.image_newline", spec.hidden_size),)
    sizes = tuple(384 * step for step in range(1, 7))
    pinpoints = _pinpoints(config, [(tall, wide) for tall in sizes for wide in sizes])
    ratio = config.text("vision_aspect_ratio", default="anyres_max_9")
    digits = ratio.removeprefix("anyres_max_")
    tokens, seen = _tiled_tokens(
        config, vision, pinpoints, int(digits) if digits.isdigit() and int(digits) else None
    )
    tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(spec, [tower], tied=ties(config, spec, either=True))


def vipllava(config: Config, name: str) -> ModelSpec:
    """ViP-LLaVA: several encoder layers, normalised, feed the projector."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    layers = config.get("vision_feature_layer")
    count = len(layers) if isinstance(layers, list | tuple) else 1
    inputs = vision.integer("hidden_size") * count
    weights = (
        *encoder(vision, TOWER),
        *norms(inputs, f"{PROJECTOR}.projector_layernorm"),
        *two_layer_projector(PROJECTOR, inputs, spec.hidden_size, bias=True),
    )
    tower = vision_tower(vision, weights, tokens=patches(vision), encoder_tokens=positions(vision))
    return wrap(spec, [tower], tied=ties(config, spec))


def _pixtral_tokens(vision: Config, merge: int) -> tuple[int, int]:
    """Tokens of the largest image: merged patches, a break after each row, an end.

    Source: vLLM 0.33 ``pixtral.py`` (``PixtralHFEncoderInfo``) and ``mistral3.py``.
    """
    height, width = side(vision, "image_size")
    patch_height, patch_width = side(vision, "patch_size")
    rows = -(-height // (patch_height * merge))
    columns = -(-width // (patch_width * merge))
    return (columns + 1) * rows, rows * columns * merge**2


def _merged_pixtral(
    config: Config, name: str, *, tower: str, projector: str, bias: bool
) -> ModelSpec:
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    merge = config.integer("spatial_merge_size")
    width = vision.integer("hidden_size")
    weights = (
        *encoder(vision, tower),
        *norms(width, f"{projector}.norm", bias=False),
        linear(f"{projector}.patch_merger.merging_layer", width, width * merge**2),
        *two_layer_projector(
            projector, width * feature_layers(config), spec.hidden_size, bias=bias
        ),
    )
    tokens, seen = _pixtral_tokens(vision, merge)
    encoder_tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(spec, [encoder_tower], tied=ties(config, spec))


def mistral3(config: Config, name: str) -> ModelSpec:
    """Mistral Small 3.1, Ministral 3, Devstral 2: Pixtral with merged patches.

    Where the whole does not say, its language model decides whether the head is tied, as in vLLM
    (``mistral3.py``): Mistral Small 3.1 says nothing and has a head of its own.
    """
    spec = _merged_pixtral(
        config,
        name,
        tower=TOWER,
        projector=PROJECTOR,
        bias=config.flag("multimodal_projector_bias"),
    )
    if config.has("tie_word_embeddings"):
        return spec
    return with_tie(spec, language_model(config, name).tied_embeddings)


def lighton_ocr(config: Config, name: str) -> ModelSpec:
    """LightOnOCR: Pixtral with merged patches before a Qwen3."""
    return _merged_pixtral(
        config, name, tower="model.vision_encoder", projector="model.vision_projection", bias=False
    )


def ministral3(config: Config, name: str) -> ModelSpec:
    """Ministral 3: the language model, or (with ``text_config``) the whole that holds it."""
    if config.has("text_config"):
        return mistral3(config.viewed_as("mistral3"), name)
    return dense.BUILDERS["ministral3"](config, name)


BUILDERS: Final[Mapping[str, Builder]] = {
    "lighton_ocr": lighton_ocr,
    "llava": llava,
    "llava_next": llava_next,
    "llava_next_video": llava_next,
    "llava_onevision": llava_onevision,
    "ministral3": ministral3,
    "mistral3": mistral3,
    "vipllava": vipllava,
}
