"""Vision-language models whose encoder works at native resolution on spatio-temporal patches.

Qwen2-VL to Qwen3.5, GLM-4V and GLM-OCR. Parameters as transformers 5.24 builds them
(``modeling_<type>.py``); the tokens of the largest image as vLLM 0.33 finds them
(``qwen2_vl.py``: ``get_image_size_with_most_features``) from the pixel limits of the published
preprocessor files, which config.json does not carry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import (
    language_model,
    ties,
    vision_tower,
    with_tie,
    wrap,
)
from tokenroom.models.architectures.towers import (
    GATED,
    attention,
    column,
    kernel,
    mlp,
    norms,
    patch_embedding,
    patches,
    repeat,
    row,
    scaled,
    side,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import Clip, ModelSpec, Tower, Weight

QWEN2_PIXELS: Final = 12_845_056
"""``max_pixels`` of the published Qwen2-VL and Qwen2.5-VL preprocessors."""

QWEN3_PIXELS: Final = 16_777_216
"""``longest_edge`` of the published Qwen3-VL and Qwen3.5 preprocessors."""

QWEN3_VIDEO_PIXELS: Final = 25_165_824
"""``longest_edge`` of the published Qwen3-VL video preprocessors, over both frames of a pair."""

GLM_PIXELS: Final = 9_633_792
"""``longest_edge`` of the published GLM-4.1V and GLM-4.5V preprocessors."""

_LARGEST_ASPECT: Final = 200


def largest_image(vision: Config, pixels: int) -> tuple[int, int]:
    """Tokens of the image that becomes most of them, and the patches they are merged from.

    The largest number of merged patches within ``pixels`` that two factors of an aspect ratio of
    at most 200 can make up. Source: vLLM 0.33 ``qwen2_vl.py``.
    """
    merge = vision.integer("spatial_merge_size")
    unit = side(vision, "patch_size")[0] * merge
    tokens = most_tokens(pixels // unit**2)
    return tokens, tokens * merge**2


def most_tokens(limit: int) -> int:
    """The largest number of merged patches up to ``limit`` that some image can be cut into."""
    for tokens in range(limit, 0, -1):
        short = next(size for size in range(math.isqrt(tokens), 0, -1) if tokens % size == 0)
        if tokens // short <= _LARGEST_ASPECT * short:
            return tokens
    return 1


def pixel_sentence(pixels: int) -> str:
    """What the token count of the largest image assumes."""
    return (
        f"images were taken to have at most {pixels:,} pixels after scaling, as the published "
        "preprocessor says; the configuration does not carry the limit"
    )


def _sizes(vision: Config) -> tuple[int, int, int]:
    depth = vision.integer("depth", "num_hidden_layers", maximum=4096)
    return depth, vision.integer("hidden_size"), vision.integer("intermediate_size")


def _tower(
    vision: Config,
    weights: tuple[Weight, ...],
    pixels: int,
    *,
    clip: Clip | None = None,
    hidden_size: int | None = None,
    intermediate_size: int | None = None,
) -> Tower:
    tokens, seen = largest_image(vision, pixels)
    tower = vision_tower(
        vision,
        weights,
        tokens=tokens,
        encoder_tokens=seen,
        num_layers=vision.integer("depth", "num_hidden_layers"),
        num_heads=vision.integer("num_heads", "num_attention_heads"),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
    )
    return replace(tower, clip=clip, rotary=True)


def _qwen2_clip(vision: Config) -> Clip:
    """Seven pairs of frames as large as images, or as many as the longest sequence holds.

    Source: vLLM 0.11 to 0.33 ``qwen2_vl.py`` (``_MAX_FRAMES_PER_VIDEO`` 14,
    ``get_num_frames_with_most_features``).
    """
    tokens, seen = largest_image(vision, QWEN2_PIXELS)
    return Clip(tokens=tokens, encoder_tokens=seen, groups=7, within_context=True)


def _qwen3_clip(vision: Config) -> Clip:
    """One pair of frames that takes all pixels a video may have.

    Source: vLLM 0.19 to 0.33 ``qwen3_vl.py`` (``get_max_video_tokens``).
    """
    tokens, seen = largest_image(vision, QWEN3_VIDEO_PIXELS // 2)
    return Clip(tokens=tokens, encoder_tokens=seen, groups=1)


def _text(config: Config, name: str, text_type: str) -> ModelSpec:
    """The language model; older files keep its fields beside ``vision_config``."""
    if config.has("text_config"):
        return language_model(config, name, fixed=text_type)
    from tokenroom.models.architectures import builder_for

    return builder_for(text_type)(config.viewed_as(text_type), name)


def _merged_tie(config: Config, spec: ModelSpec) -> ModelSpec:
    return with_tie(spec, ties(config, spec, either=True))


FUSED: Final = ("qkv", "qkv", "qkv")


def qwen2_vl(config: Config, name: str) -> ModelSpec:
    """Qwen2-VL."""
    spec = _text(config, name, "qwen2_vl_text")
    vision = config.sub("vision_config", "qwen2_vl_vision", fixed=True)
    width = vision.integer("embed_dim")
    inner = scaled(vision, "mlp_ratio", width)
    merge = vision.integer("spatial_merge_size") ** 2
    block = "model.visual.blocks.*"
    out = vision.integer("hidden_size")
    weights = (
        _patches(vision, width, bias=False),
        *repeat(
            vision.integer("depth"),
            (
                *attention(f"{block}.attn", width, qkv=FUSED, out="proj"),
                *mlp(f"{block}.mlp", width, inner),
                *norms(width, f"{block}.norm1", f"{block}.norm2"),
            ),
        ),
        *norms(width, "model.visual.merger.ln_q"),
        column("model.visual.merger.mlp.0", width * merge, width * merge),
        row("model.visual.merger.mlp.2", out, width * merge),
    )
    tower = _tower(
        vision,
        weights,
        QWEN2_PIXELS,
        clip=_qwen2_clip(vision),
        hidden_size=width,
        intermediate_size=inner,
    )
    spec = _merged_tie(config, spec)
    return wrap(spec, [tower], assumptions=(pixel_sentence(QWEN2_PIXELS),))


def _patches(vision: Config, width: int, *, bias: bool) -> Weight:
    temporal = side(vision, "temporal_patch_size")[0]
    return patch_embedding(
        vision, "model.visual.patch_embed.proj", width, bias=bias, temporal=temporal
    )


def qwen2_5_encoder(vision: Config, prefix: str, *, fused: bool) -> tuple[Weight, ...]:
    """The encoder of Qwen2.5-VL and Qwen2.5-Omni: gated FFN, RMS norms, windowed attention."""
    depth, width, inner = _sizes(vision)
    merge = vision.integer("spatial_merge_size") ** 2
    block = f"{prefix}.blocks.*"
    names = FUSED if fused else ("q", "k", "v")
    temporal = side(vision, "temporal_patch_size")[0]
    return (
        patch_embedding(vision, f"{prefix}.patch_embed.proj", width, bias=False, temporal=temporal),
        *repeat(
            depth,
            (
                *attention(f"{block}.attn", width, qkv=names, out="proj"),
                *mlp(f"{block}.mlp", width, inner, names=GATED),
                *norms(width, f"{block}.norm1", f"{block}.norm2", bias=False),
            ),
        ),
        *norms(width, f"{prefix}.merger.ln_q", bias=False),
        column(f"{prefix}.merger.mlp.0", width * merge, width * merge),
        row(f"{prefix}.merger.mlp.2", vision.integer("out_hidden_size"), width * merge),
    )


def qwen2_5_vl(config: Config, name: str) -> ModelSpec:
    """Qwen2.5-VL."""
    spec = _text(config, name, "qwen2_5_vl_text")
    vision = config.sub("vision_config", "qwen2_5_vl_vision", fixed=True)
    weights = qwen2_5_encoder(vision, "model.visual", fused=True)
    tower = _tower(vision, weights, QWEN2_PIXELS, clip=_qwen2_clip(vision))
    spec = _merged_tie(config, spec)
    return wrap(spec, [tower], assumptions=(pixel_sentence(QWEN2_PIXELS),))


def _merger(
    prefix: str, width: int, merge: int, out: int, *, post: bool, names: tuple[str, str, str]
) -> tuple[Weight, ...]:
    first, second, norm_name = names
    return (
        *norms(width * merge if post else width, f"{prefix}.{norm_name}"),
        column(f"{prefix}.{first}", width * merge, width * merge),
        row(f"{prefix}.{second}", out, width * merge),
    )


_QWEN3_MERGER: Final = ("linear_fc1", "linear_fc2", "norm")
OMNI_MERGER: Final = ("mlp.0", "mlp.2", "ln_q")


def qwen3_encoder(
    vision: Config,
    prefix: str,
    *,
    deepstack: str | None,
    merger: tuple[str, str, str] = _QWEN3_MERGER,
) -> tuple[Weight, ...]:
    """The encoder of Qwen3-VL, Qwen3.5 and Qwen3-Omni.

    Args:
        vision: Its configuration.
        prefix: Its module path.
        deepstack: Module name of the mergers that feed early language-model layers, None for none.
        merger: Names of a merger's two projections and norm.
    """
    depth, width, inner = _sizes(vision)
    merge = vision.integer("spatial_merge_size") ** 2
    out = vision.integer("out_hidden_size")
    block = f"{prefix}.blocks.*"
    temporal = side(vision, "temporal_patch_size")[0]
    weights = (
        patch_embedding(vision, f"{prefix}.patch_embed.proj", width, temporal=temporal),
        vector(f"{prefix}.pos_embed", vision.integer("num_position_embeddings"), width),
        *repeat(
            depth,
            (
                *attention(f"{block}.attn", width, qkv=FUSED, out="proj"),
                *mlp(f"{block}.mlp", width, inner, names=("linear_fc1", "linear_fc2")),
                *norms(width, f"{block}.norm1", f"{block}.norm2"),
            ),
        ),
        *_merger(f"{prefix}.merger", width, merge, out, post=False, names=merger),
    )
    if deepstack is not None:
        count = len(vision.integers("deepstack_visual_indexes") or ())
        extra = _merger(f"{prefix}.{deepstack}.*", width, merge, out, post=True, names=merger)
        weights += repeat(count, extra)
    return weights


def _qwen3(
    config: Config, name: str, *, text_type: str, vision_type: str, deepstack: str | None, tie: bool
) -> ModelSpec:
    spec = language_model(config, name, fixed=text_type)
    vision = config.sub("vision_config", vision_type, fixed=True)
    weights = qwen3_encoder(vision, "model.visual", deepstack=deepstack)
    tower = _tower(vision, weights, QWEN3_PIXELS, clip=_qwen3_clip(vision))
    tied = ties(config, spec) if tie else False
    return wrap(spec, [tower], tied=tied, assumptions=(pixel_sentence(QWEN3_PIXELS),))


def qwen3_vl(config: Config, name: str) -> ModelSpec:
    """Qwen3-VL."""
    return _qwen3(
        config,
        name,
        text_type="qwen3_vl_text",
        vision_type="qwen3_vl_vision",
        deepstack="deepstack_merger_list",
        tie=True,
    )


def qwen3_vl_moe(config: Config, name: str) -> ModelSpec:
    """Qwen3-VL with mixtures of experts."""
    return _qwen3(
        config,
        name,
        text_type="qwen3_vl_moe_text",
        vision_type="qwen3_vl_moe_vision",
        deepstack="deepstack_merger_list",
        tie=True,
    )


def qwen3_5(config: Config, name: str) -> ModelSpec:
    """Qwen3.5."""
    return _qwen3(
        config,
        name,
        text_type="qwen3_5_text",
        vision_type="qwen3_5_vision",
        deepstack=None,
        tie=True,
    )


def qwen3_5_moe(config: Config, name: str) -> ModelSpec:
    """Qwen3.5 with mixtures of experts."""
    return _qwen3(
        config,
        name,
        text_type="qwen3_5_moe_text",
        vision_type="qwen3_5_moe_vision",
        deepstack=None,
        tie=True,
    )


def _glm(
    config: Config,
    name: str,
    *,
    text_type: str,
    vision_type: str,
    ocr: bool = False,
) -> ModelSpec:
    """GLM-4V's shape: a gated encoder, a strided convolution, a gated merger."""
    spec = language_model(config, name, fixed=text_type)
    vision = config.sub("vision_config", vision_type, fixed=True)
    depth, width, inner = _sizes(vision)
    out = vision.integer("out_hidden_size")
    merge = vision.integer("spatial_merge_size")
    bias = vision.flag("attention_bias")
    block = "model.visual.blocks.*"
    part = (
        *attention(f"{block}.attn", width, qkv=FUSED, out="proj", bias=bias, out_bias=ocr and bias),
        *mlp(f"{block}.mlp", width, inner if ocr else out, names=GATED, bias=ocr and bias),
        *norms(width, f"{block}.norm1", f"{block}.norm2", bias=False),
    )
    context = inner
    if ocr:
        head_dim = width // vision.integer("num_heads")
        part += norms(head_dim, f"{block}.attn.q_norm", f"{block}.attn.k_norm", bias=False)
        context = out * vision.integer("in_channels")
    weights: tuple[Weight, ...] = (
        _patches(vision, width, bias=True),
        *repeat(depth, part),
        *norms(width, "model.visual.post_layernorm", bias=False),
        kernel("model.visual.downsample", out, width, merge, merge, bias=True),
        linear("model.visual.merger.proj", out, out),
        *norms(out, "model.visual.merger.post_projection_norm"),
        *mlp("model.visual.merger", out, context, names=GATED, bias=False),
    )
    if not ocr:
        weights += (
            vector("model.visual.embeddings.position_embedding", patches(vision), width),
            *norms(width, "model.visual.post_conv_layernorm", bias=False),
        )
    tower = _tower(vision, weights, GLM_PIXELS)
    tied = ties(config, spec, either=config.model_type != "glm46v")
    return wrap(spec, [tower], tied=tied, assumptions=(pixel_sentence(GLM_PIXELS),))


def glm4v(config: Config, name: str) -> ModelSpec:
    """GLM-4.1V and GLM-4.6V-Flash."""
    return _glm(config, name, text_type="glm4v_text", vision_type="glm4v_vision")


def glm4v_moe(config: Config, name: str) -> ModelSpec:
    """GLM-4.5V and GLM-4.6V."""
    return _glm(config, name, text_type="glm4v_moe_text", vision_type="glm4v_moe_vision")


def glm_ocr(config: Config, name: str) -> ModelSpec:
    """GLM-OCR."""
    return _glm(config, name, text_type="glm_ocr_text", vision_type="glm_ocr_vision", ocr=True)


BUILDERS: Mapping[str, Builder] = {
    "glm46v": glm4v,
    "glm4v": glm4v,
    "glm4v_moe": glm4v_moe,
    "glm_ocr": glm_ocr,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_vl": qwen2_vl,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl_moe,
}
