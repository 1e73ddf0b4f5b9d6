"""Vision-language models that pool or shuffle patches into fewer tokens before the projector.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the largest item
as vLLM 0.33's processing classes compute them (``model_executor/models/<type>.py``), from the
published preprocessor files where config.json does not carry the limits.
"""

from __future__ import annotations

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
from tokenroom.models.architectures.multimodal_llava import (
    PROJECTOR,
    TOWER,
    encoder,
    positions,
    two_layer_projector,
)
from tokenroom.models.architectures.towers import (
    GATED,
    attention,
    mlp,
    norms,
    patch_embedding,
    patches,
    repeat,
    shrink,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight

_MOST_TILES: Final = 12


def internvl(config: Config, name: str) -> ModelSpec:
    """InternVL 3: InternViT on tiles, patches shuffled into fewer tokens."""
    spec = language_model(config, name)
    vision = config.sub("vision_config", "internvl_vision", fixed=True)
    factor = shrink(config, "downsample_ratio", default=0.5)
    inputs = vision.integer("hidden_size") * factor**2
    weights = (
        *encoder(vision, TOWER),
        *norms(inputs, f"{PROJECTOR}.layer_norm"),
        *two_layer_projector(PROJECTOR, inputs, spec.hidden_size, bias=True),
    )
    tiles = _MOST_TILES + 1
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (patches(vision) // factor**2),
        encoder_tokens=tiles * positions(vision),
    )
    sentence = (
        f"an image was taken to be cut into at most {_MOST_TILES} tiles and a thumbnail, as the "
        "published InternVL preprocessors do"
    )
    return wrap(spec, [tower], tied=ties(config, spec), assumptions=(sentence,))


def paligemma(config: Config, name: str) -> ModelSpec:
    """PaliGemma: SigLIP, one linear projection."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    width = config.integer("projection_dim")
    weights = (
        *encoder(vision, TOWER),
        linear(f"{PROJECTOR}.linear", width, vision.integer("hidden_size"), bias=True),
    )
    tower = vision_tower(vision, weights, tokens=patches(vision), encoder_tokens=patches(vision))
    return wrap(spec, [tower], tied=ties(config, spec))


def gemma3(config: Config, name: str) -> ModelSpec:
    """Gemma 3: SigLIP, patches averaged to ``mm_tokens_per_image`` tokens."""
    spec = language_model(config, name, fixed="gemma3_text")
    vision = config.sub("vision_config")
    width = vision.integer("hidden_size")
    weights = (
        *encoder(vision, TOWER),
        vector(f"{PROJECTOR}.mm_input_projection_weight", width, spec.hidden_size),
        *norms(width, f"{PROJECTOR}.mm_soft_emb_norm", bias=False),
    )
    tower = vision_tower(
        vision,
        weights,
        tokens=config.integer("mm_tokens_per_image"),
        encoder_tokens=patches(vision),
    )
    return wrap(spec, [tower], tied=ties(config, spec))


def cohere2_vision(config: Config, name: str) -> ModelSpec:
    """Command A Vision: SigLIP, shuffled patches, a gated projector."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    factor = config.integer("downsample_factor")
    inner = config.integer("alignment_intermediate_size")
    weights = (
        *encoder(vision, TOWER),
        linear(
            f"{PROJECTOR}.linear_1", inner, vision.integer("hidden_size") * factor**2, bias=True
        ),
        linear(f"{PROJECTOR}.linear_2", spec.hidden_size, inner // 2, bias=True),
    )
    tiles = _MOST_TILES + 1
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (patches(vision) // factor**2),
        encoder_tokens=tiles * patches(vision),
    )
    sentence = (
        f"an image was taken to be cut into at most {_MOST_TILES} tiles and a thumbnail, as the "
        "published Command A Vision preprocessor does"
    )
    return wrap(spec, [tower], tied=ties(config, spec), assumptions=(sentence,))


def deepseek_vl(config: Config, name: str) -> ModelSpec:
    """DeepSeek-VL: SigLIP and a two-layer aligner."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    width = vision.integer("hidden_size")
    weights = (
        *encoder(vision, "model.vision_model"),
        linear("model.aligner.linear1", spec.hidden_size, width, bias=True),
        linear("model.aligner.linear2", spec.hidden_size, spec.hidden_size, bias=True),
    )
    tower = vision_tower(vision, weights, tokens=patches(vision), encoder_tokens=patches(vision))
    return wrap(spec, [tower], tied=ties(config, spec))


def lfm2_vl(config: Config, name: str) -> ModelSpec:
    """LFM2-VL: SigLIP 2 at native resolution, shuffled patches."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    factor = config.integer("downsample_factor")
    inputs = vision.integer("hidden_size") * factor**2
    inner = config.integer("projector_hidden_size")
    weights = encoder(vision, TOWER)
    if config.flag("projector_use_layernorm"):
        weights += norms(inputs, f"{PROJECTOR}.layer_norm")
    weights += two_layer_projector(
        PROJECTOR, inputs, spec.hidden_size, bias=config.flag("projector_bias"), inner=inner
    )
    tower = vision_tower(vision, weights, tokens=None, encoder_tokens=None)
    return wrap(spec, [tower], tied=ties(config, spec))


def ovis2(config: Config, name: str) -> ModelSpec:
    """Ovis 2: AIMv2, patches turned into mixtures over a table of visual tokens."""
    spec = language_model(config, name)
    vision = config.sub("vision_config", "ovis2_vision", fixed=True)
    hidden = vision.integer("hidden_size")
    inner = vision.integer("intermediate_size")
    vocab = vision.integer("vocab_size")
    visual = vocab - vision.integer("num_visual_indicator_tokens")
    stride = vision.integer("hidden_stride")
    prefix = f"{TOWER}.transformer"
    block = f"{prefix}.encoder.layers.*"
    weights = (
        *_aimv2_embeddings(vision, prefix, hidden),
        *repeat(
            vision.integer("num_hidden_layers"),
            (
                *attention(f"{block}.attention", hidden, bias=vision.flag("qkv_bias")),
                *mlp(f"{block}.ffn", hidden, inner, names=GATED, bias=vision.flag("mlp_bias")),
                *norms(hidden, f"{block}.rms_norm1", f"{block}.rms_norm2", bias=False),
            ),
        ),
        linear(f"{TOWER}.head_linear", visual, hidden * stride**2),
        *norms(visual, f"{TOWER}.head_norm"),
        vector("model.visual_embeddings_table", vocab, config.integer("hidden_size")),
    )
    tiles = 10
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (patches(vision) // stride**2),
        encoder_tokens=tiles * patches(vision),
    )
    sentence = "an image was taken to be cut into at most 9 tiles and a thumbnail"
    # The head of the whole has the outer configuration's vocabulary.
    spec = replace(with_tie(spec, True), vocab_size=config.integer("vocab_size"))
    return wrap(spec, [tower], tied=config.flag("tie_word_embeddings"), assumptions=(sentence,))


def _aimv2_embeddings(vision: Config, prefix: str, hidden: int) -> tuple[Weight, ...]:
    return (
        patch_embedding(vision, f"{prefix}.embeddings.patch_embedding", hidden),
        vector(f"{prefix}.embeddings.position_embedding", patches(vision), hidden),
        *norms(hidden, f"{prefix}.embeddings.rms_norm", f"{prefix}.rms_norm", bias=False),
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "cohere2_vision": cohere2_vision,
    "deepseek_vl": deepseek_vl,
    "gemma3": gemma3,
    "internvl": internvl,
    "lfm2_vl": lfm2_vl,
    "ovis2": ovis2,
    "paligemma": paligemma,
}
