"""Vision-language models with encoders of their own: Kimi K2.5, MiniCPM-V, Step 3.7, MiniMax M3.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the largest item
as vLLM 0.33's processing classes compute them (``model_executor/models/<type>.py``), from the
published preprocessor files where config.json does not carry the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from tokenroom.models.architectures import Builder, builder_for
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import language_model, ties, vision_tower, wrap
from tokenroom.models.architectures.multimodal_qwen import largest_image
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
    siglip,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight

PROJECTOR: Final = "model.multi_modal_projector"


TOWER: Final = "model.vision_tower"


def kimi_k25(config: Config, name: str) -> ModelSpec:
    """Kimi K2.5: MoonViT, merged patches, DeepSeek V3's language model."""
    text = config.sub("text_config")
    builder = builder_for("deepseek_v3") if text.model_type == "kimi_k2" else None
    spec = language_model(
        config, name, fixed="deepseek_v3" if text.model_type == "kimi_k2" else None, builder=builder
    )
    vision = config.sub("vision_config", "kimi_k25_vision", fixed=True)
    width = vision.integer("vt_hidden_size", "hidden_size")
    inner = vision.integer("vt_intermediate_size", "intermediate_size")
    layers = vision.integer("vt_num_hidden_layers", "num_hidden_layers")
    merge = prod(vision.integers("merge_kernel_size", minimum=1) or (2, 2))
    grid = (
        vision.integer("init_pos_emb_height", "pos_emb_height"),
        vision.integer("init_pos_emb_width", "pos_emb_width"),
    )
    block = f"{TOWER}.layers.*"
    inputs = width * merge
    weights = (
        patch_embedding(vision, f"{TOWER}.patch_embed.proj", width),
        vector(f"{TOWER}.patch_embed.pos_emb.position_embeddings", *grid, width),
        *repeat(
            layers,
            (
                *attention(f"{block}.attn", width, out="proj"),
                *mlp(f"{block}.mlp", width, inner),
                *norms(width, f"{block}.norm1", f"{block}.norm2"),
            ),
        ),
        *norms(width, f"{TOWER}.final_layernorm"),
        *norms(
            config.optional_integer("projection_hidden_size") or width,
            "model.mm_projector.pre_norm",
        ),
        linear("model.mm_projector.in_proj", inputs, inputs, bias=True),
        linear("model.mm_projector.out_proj", spec.hidden_size, inputs, bias=True),
    )
    tower = vision_tower(
        vision,
        weights,
        tokens=_KIMI_PATCHES // merge,
        encoder_tokens=_KIMI_PATCHES,
        num_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        num_heads=vision.integer("vt_num_attention_heads", "num_attention_heads"),
    )
    sentence = (
        f"an image was taken to have at most {_KIMI_PATCHES:,} patches, as the published "
        "preprocessor says (in_patch_limit)"
    )
    return wrap(spec, [tower], tied=ties(config, spec), assumptions=(sentence,))


_KIMI_PATCHES: Final = 16_384


def minicpmv(config: Config, name: str) -> ModelSpec:
    """MiniCPM-V 4.6: SigLIP with a window-attention merger inside, then merging MLPs."""
    spec = language_model(config, name)
    vision = config.sub("vision_config", f"{config.model_type}_vision", fixed=True)
    width = vision.integer("hidden_size")
    window = prod(vision.integers("window_kernel_size", minimum=1) or (2, 2))
    merger = f"{TOWER}.vit_merger"
    times = config.integer("merger_times", maximum=64)
    inputs = 4 * width
    mixed = width * window
    inside = vision.optional_integer("window_intermediate_size") or (
        vision.integer("intermediate_size") * window
    )
    joins: list[Weight] = []
    for step in range(times):
        out = spec.hidden_size if step == times - 1 else width
        joins += (
            *norms(inputs, f"model.merger.mlp.{step}.pre_norm"),
            linear(f"model.merger.mlp.{step}.linear_1", inputs, inputs, bias=True),
            linear(f"model.merger.mlp.{step}.linear_2", out, inputs, bias=True),
        )
    weights = (
        *siglip(vision, TOWER),
        *attention(f"{merger}.self_attn", width),
        *norms(width, f"{merger}.layer_norm1"),
        *norms(mixed, f"{merger}.pre_norm"),
        linear(f"{merger}.linear_1", inside, mixed, bias=True),
        linear(f"{merger}.linear_2", width, inside, bias=True),
        *joins,
    )
    # Nine slices and the whole image, each of at most 448x448 pixels (``max_slice_nums``).
    per_slice = (448 // side(vision, "patch_size")[0]) ** 2
    tower = vision_tower(
        vision,
        weights,
        tokens=10 * (per_slice // (window * 4**times) + 2),
        encoder_tokens=10 * per_slice,
    )
    sentence = (
        "an image was taken to be cut into at most 9 slices of 448x448 pixels beside the whole, as "
        "the published preprocessor does"
    )
    return wrap(spec, [tower], tied=ties(config, spec), assumptions=(sentence,))


def step3p7(config: Config, name: str) -> ModelSpec:
    """Step 3.7: a rotary encoder with scaled residuals and two strided convolutions.

    A file without ``text_config`` keeps the language model's fields flat; transformers overlooks
    these and builds its class defaults.
    """
    if config.has("text_config"):
        spec = language_model(config, name, fixed="step3p5")
    else:
        spec = builder_for("step3p5")(config.viewed_as("step3p5"), name)
    vision = config.sub("vision_config", "step3p5_vision", fixed=True)
    width = vision.integer("width", "hidden_size")
    inner = scaled(vision, "mlp_ratio", width)
    layers = vision.integer("layers", "num_hidden_layers")
    root = "model.vision_model"
    block = f"{root}.layers.*"
    count = patches(vision)
    weights = (
        patch_embedding(vision, f"{root}.embeddings.patch_embedding", width, bias=False),
        vector(f"{root}.embeddings.position_embedding", count, width),
        *norms(width, f"{root}.pre_layernorm"),
        *repeat(
            layers,
            (
                *attention(f"{block}.self_attn", width),
                *mlp(f"{block}.mlp", width, inner),
                *norms(width, f"{block}.layernorm_before", f"{block}.layernorm_after"),
                vector(f"{block}.lambda_1", width),
                vector(f"{block}.lambda_2", width),
            ),
        ),
        kernel(f"{root}.downsampler1", 2 * width, width, 3, 3, bias=True),
        kernel(f"{root}.downsampler2", 4 * width, 2 * width, 3, 3, bias=True),
        linear(PROJECTOR, spec.hidden_size, 4 * width, bias=config.flag("projector_bias")),
    )
    tower = vision_tower(
        vision,
        weights,
        tokens=count // 16,
        encoder_tokens=count,
        num_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        num_heads=vision.integer("heads", "num_attention_heads"),
    )
    return wrap(spec, [tower], tied=config.flag("tie_word_embeddings"))


def minimax_m3_vl(config: Config, name: str) -> ModelSpec:
    """MiniMax M3: a rotary encoder on spatio-temporal patches, two two-layer projectors."""
    spec = language_model(config, name, fixed="minimax_m3_vl_text")
    vision = config.sub("vision_config", "minimax_m3_vl_vision", fixed=True)
    width = vision.integer("hidden_size")
    inner = vision.integer("intermediate_size")
    merge = vision.integer("spatial_merge_size")
    hidden = spec.hidden_size
    middle = config.integer("projector_hidden_size")
    block = f"{TOWER}.layers.*"
    temporal = side(vision, "temporal_patch_size")[0]
    weights = (
        patch_embedding(vision, f"{TOWER}.embeddings.proj", width, bias=False, temporal=temporal),
        *norms(width, f"{TOWER}.pre_layrnorm"),
        *repeat(
            vision.integer("num_hidden_layers"),
            (
                *attention(f"{block}.self_attn", width),
                *mlp(f"{block}.mlp", width, inner),
                *norms(width, f"{block}.layer_norm1", f"{block}.layer_norm2"),
            ),
        ),
        linear(f"{PROJECTOR}.linear_1", middle, width, bias=True),
        linear(f"{PROJECTOR}.linear_2", hidden, middle, bias=True),
        linear(f"{PROJECTOR}.merge_linear_1", middle, hidden * merge**2, bias=True),
        linear(f"{PROJECTOR}.merge_linear_2", hidden, middle, bias=True),
    )
    tokens, seen = largest_image(vision, prod(side(vision, "image_size")))
    tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(spec, [tower], tied=ties(config, spec, either=True))


BUILDERS: Final[Mapping[str, Builder]] = {
    "kimi_k25": kimi_k25,
    "minicpmv4_6": minicpmv,
    "minicpmv4_7": minicpmv,
    "minimax_m3_vl": minimax_m3_vl,
    "step3p7": step3p7,
}
