"""DeepSeek-VL at high resolution: a SAM encoder beside SigLIP.

Parameters as transformers 5.24 builds them (``modeling_deepseek_vl_hybrid.py`` and
``modeling_sam.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import (
    language_model,
    ties,
    vision_tower,
    wrap,
)
from tokenroom.models.architectures.multimodal_llava import encoder
from tokenroom.models.architectures.towers import (
    attention,
    kernel,
    mlp,
    norms,
    patch_embedding,
    patches,
    repeat,
    scaled,
    side,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight

_FUSED: Final = ("qkv", "qkv", "qkv")


def _neck(name: str, width: int, out: int) -> tuple[Weight, ...]:
    return (
        kernel(f"{name}.conv1", out, width, 1, 1),
        kernel(f"{name}.conv2", out, out, 3, 3),
        *norms(out, f"{name}.layer_norm1", f"{name}.layer_norm2"),
    )


def sam(config: Config, prefix: str) -> tuple[Weight, ...]:
    """A SAM image encoder: windowed attention with relative positions, a few layers global."""
    width = config.integer("hidden_size")
    inner = config.optional_integer("mlp_dim") or scaled(config, "mlp_ratio", width)
    layers = config.integer("num_hidden_layers", maximum=4096)
    head_dim = width // config.integer("num_attention_heads")
    grid = side(config, "image_size")[0] // side(config, "patch_size")[0]
    window = config.integer("window_size", minimum=0)
    whole = len({*(config.integers("global_attn_indexes") or ())} & set(range(layers)))
    block = f"{prefix}.layers.*"
    part = (
        *attention(
            f"{block}.attn",
            width,
            qkv=_FUSED,
            out="proj",
            bias=config.flag("qkv_bias"),
            out_bias=True,
            parallel=False,
        ),
        *mlp(f"{block}.mlp", width, inner, names=("lin1", "lin2"), parallel=False),
        *norms(width, f"{block}.layer_norm1", f"{block}.layer_norm2"),
    )
    weights: tuple[Weight, ...] = (
        patch_embedding(config, f"{prefix}.patch_embed.projection", width),
        *repeat(layers, part),
        *_neck(f"{prefix}.neck", width, config.integer("output_channels")),
    )
    if config.flag("use_abs_pos"):
        weights += (vector(f"{prefix}.pos_embed", grid, grid, width),)
    if config.flag("use_rel_pos"):
        for count, reach in ((whole, grid), (layers - whole, window or grid)):
            table = (
                vector(f"{block}.attn.rel_pos_h", 2 * reach - 1, head_dim),
                vector(f"{block}.attn.rel_pos_w", 2 * reach - 1, head_dim),
            )
            weights += repeat(count, table)
    return weights


def deepseek_vl_hybrid(config: Config, name: str) -> ModelSpec:
    """DeepSeek-VL 7B: SigLIP at low and SAM at high resolution, joined by an aligner."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    fine = config.sub("high_res_vision_config")
    hidden = spec.hidden_size
    channels = fine.integer("output_channels")
    width = fine.integer("hidden_size")
    weights = (
        *encoder(vision, "model.vision_model"),
        *sam(fine, "model.high_res_vision_model.vision_encoder"),
        *_neck("model.high_res_vision_neck", width, channels),
        kernel("model.high_res_vision_proj.conv1", 2 * channels, channels, 3, 3),
        kernel("model.high_res_vision_proj.conv2", 4 * channels, 2 * channels, 3, 3),
        vector("model.high_res_vision_alpha", 1),
        linear("model.aligner.vision_proj", hidden // 2, vision.integer("hidden_size"), bias=True),
        linear("model.aligner.high_res_vision_proj", hidden // 2, 4 * channels, bias=True),
        linear("model.aligner.proj", hidden, hidden, bias=True),
    )
    tower = vision_tower(
        vision, weights, tokens=patches(vision), encoder_tokens=patches(vision) + patches(fine)
    )
    return wrap(spec, [tower], tied=ties(config, spec))


BUILDERS: Final[Mapping[str, Builder]] = {"deepseek_vl_hybrid": deepseek_vl_hybrid}
