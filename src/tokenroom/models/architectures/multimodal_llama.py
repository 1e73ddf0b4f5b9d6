"""Llama 4 and Llama 3.2 Vision.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the largest item
as vLLM 0.33's processing classes compute them (``model_executor/models/<type>.py``), from the
published preprocessor files where config.json does not carry the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import language_model, vision_tower, wrap
from tokenroom.models.architectures.multimodal_native import PROJECTOR
from tokenroom.models.architectures.towers import (
    attention,
    mlp,
    norms,
    patch_embedding,
    patches,
    repeat,
    shrink,
    side,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight


def llama4(config: Config, name: str) -> ModelSpec:
    """Llama 4: a tile encoder, pixel shuffle, a two-layer adapter, one projection."""
    spec = language_model(config, name, fixed="llama4_text")
    vision = config.sub("vision_config", "llama4_vision_model", fixed=True)
    width = vision.integer("hidden_size")
    inner = vision.integer("intermediate_size")
    factor = shrink(vision, "pixel_shuffle_ratio")
    out = vision.integer("projector_output_dim")
    block = "vision_model.model.layers.*"
    area = vision.integer("num_channels") * prod(side(vision, "patch_size"))
    count = patches(vision)
    weights = (
        vector("vision_model.class_embedding", width),
        vector("vision_model.positional_embedding_vlm", count + 1, width),
        linear("vision_model.patch_embedding.linear", width, area),
        *norms(width, "vision_model.layernorm_pre", "vision_model.layernorm_post"),
        *repeat(
            vision.integer("num_hidden_layers"),
            (
                *attention(f"{block}.self_attn", width, out="o_proj"),
                *mlp(f"{block}.mlp", width, inner),
                *norms(width, f"{block}.input_layernorm", f"{block}.post_attention_layernorm"),
            ),
        ),
        linear("vision_model.vision_adapter.mlp.fc1", vision.integer("projector_input_dim"), inner),
        linear("vision_model.vision_adapter.mlp.fc2", out, out),
        linear(
            "multi_modal_projector.linear_1", spec.hidden_size, vision.integer("vision_output_dim")
        ),
    )
    tiles = _LLAMA4_TILES + 1
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (count // factor**2) + tiles + 3,
        encoder_tokens=tiles * (count + 1),
    )
    sentence = (
        f"an image was taken to be cut into at most {_LLAMA4_TILES} tiles and a thumbnail, as the "
        "published preprocessor does"
    )
    # The language model inside keeps its own head: its own configuration says whether it is tied.
    return wrap(spec, [tower], prefix="language_model.model", assumptions=(sentence,))


_LLAMA4_TILES: Final = 16


def mllama(config: Config, name: str) -> ModelSpec:
    """Llama 3.2 Vision: tiles through a local and a gated global encoder; no tokens of its own."""
    spec = language_model(config, name, fixed="mllama_text_model")
    vision = config.sub("vision_config", "mllama_vision_model", fixed=True)
    width = vision.integer("hidden_size")
    inner = vision.integer("intermediate_size")
    tiles = vision.integer("max_num_tiles")
    ratios = vision.sequence("supported_aspect_ratios")
    rows = 1 + (8 if ratios is None else len(ratios))
    count = patches(vision) + 1
    root = "model.vision_model"

    def blocks(prefix: str, layers: int, gated: bool) -> tuple[Weight, ...]:
        part = (
            *attention(f"{prefix}.self_attn", width, out="o_proj", bias=False),
            *mlp(f"{prefix}.mlp", width, inner),
            *norms(width, f"{prefix}.input_layernorm", f"{prefix}.post_attention_layernorm"),
        )
        if gated:
            part += (vector(f"{prefix}.gate_attn", 1), vector(f"{prefix}.gate_ffn", 1))
        return repeat(layers, part)

    tile_positions: list[Weight] = []
    for place in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        tile_positions += (
            vector(f"{root}.{place}.gate", 1),
            vector(f"{root}.{place}.embedding", rows, tiles * width),
        )
    layers = vision.integer("num_hidden_layers")
    global_layers = vision.integer("num_global_layers")
    weights = (
        vector(f"{root}.class_embedding", width),
        patch_embedding(vision, f"{root}.patch_embedding", width, bias=False),
        vector(f"{root}.gated_positional_embedding.gate", 1),
        vector(f"{root}.gated_positional_embedding.embedding", count, width),
        vector(f"{root}.gated_positional_embedding.tile_embedding", rows, tiles * count * width),
        *tile_positions,
        *norms(width, f"{root}.layernorm_pre", f"{root}.layernorm_post"),
        *blocks(f"{root}.transformer.layers.*", layers, gated=False),
        *blocks(f"{root}.global_transformer.layers.*", global_layers, gated=True),
        linear(PROJECTOR, spec.hidden_size, vision.integer("vision_output_dim"), bias=True),
    )
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * count,  # of the cross-attention cache; the text holds one placeholder
        encoder_tokens=tiles * count,
        num_layers=layers + global_layers,
        num_heads=vision.integer("attention_heads", "num_attention_heads"),
    )
    # ``MllamaForConditionalGeneration`` ties nothing, whatever the configuration says.
    return wrap(spec, [tower], tied=False)


BUILDERS: Final[Mapping[str, Builder]] = {
    "llama4": llama4,
    "mllama": mllama,
}
