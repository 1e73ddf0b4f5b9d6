"""Vision-language models whose code lies with their checkpoints: InternVL's own form and Kimi-VL.

transformers 5.24 has no class for them. Parameters as vLLM 0.33 builds them: ``internvl.py`` with
``intern_vit.py``, and ``kimi_vl.py`` with ``moonvit.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import language_model, vision_tower, wrap
from tokenroom.models.architectures.towers import (
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

_FUSED: Final = ("qkv", "qkv", "qkv")


def internvl_chat(config: Config, name: str) -> ModelSpec:
    """InternVL 1.5 to 3.5 in their own form (``llm_config``, ``InternVLChatModel``)."""
    spec = language_model(config, name, key="llm_config")
    vision = config.sub("vision_config", "intern_vit_6b", fixed=True)
    width = vision.integer("hidden_size")
    inner = vision.integer("intermediate_size")
    factor = shrink(config, "downsample_ratio", default=0.5)
    shift = vision.text("norm_type", default="rms_norm") == "layer_norm"
    layers = vision.integer("num_hidden_layers")
    last = config.integer("select_layer", minimum=-layers, maximum=layers - 1, default=-1)
    built = last + 1 if last >= 0 else layers + last + 1
    block = "vision_model.encoder.layers.*"
    count = patches(vision)
    part: tuple[Weight, ...] = (
        *attention(
            f"{block}.attn",
            width,
            qkv=_FUSED,
            out="proj",
            bias=vision.flag("qkv_bias"),
            out_bias=True,
        ),
        *mlp(f"{block}.mlp", width, inner),
        *norms(width, f"{block}.norm1", f"{block}.norm2", bias=shift),
        vector(f"{block}.ls1", width),
        vector(f"{block}.ls2", width),
    )
    if vision.flag("qk_normalization"):
        part += norms(width, f"{block}.attn.q_norm", f"{block}.attn.k_norm", bias=False)
    inputs = width * factor**2
    weights = (
        vector("vision_model.embeddings.class_embedding", width),
        patch_embedding(vision, "vision_model.embeddings.patch_embedding", width),
        vector("vision_model.embeddings.position_embedding", count + 1, width),
        *repeat(built, part),
        *norms(inputs, "mlp1.0"),
        linear("mlp1.1", spec.hidden_size, inputs, bias=True),
        linear("mlp1.3", spec.hidden_size, spec.hidden_size, bias=True),
    )
    most = config.integer("max_dynamic_patch", default=12)
    tiles = most + 1 if config.flag("use_thumbnail", default=True) and most > 1 else most
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (count // factor**2),
        encoder_tokens=tiles * (count + 1),
    )
    return wrap(spec, [tower], prefix="language_model.model")


_KIMI_VL_PATCHES: Final = 4096


def kimi_vl(config: Config, name: str) -> ModelSpec:
    """Kimi-VL: MoonViT, merged patches, DeepSeek V3's language model."""
    spec = language_model(config, name, fixed="deepseek_v3")
    vision = config.sub("vision_config", "moonvit", fixed=True)
    width = vision.integer("hidden_size", default=1152)
    inner = vision.integer("intermediate_size", default=4304)
    layers = vision.integer("num_hidden_layers", default=27)
    merge = prod(vision.integers("merge_kernel_size", minimum=1) or (2, 2))
    grid = (
        vision.integer("init_pos_emb_height", default=64),
        vision.integer("init_pos_emb_width", default=64),
    )
    patch = Config({"patch_size": vision.integer("patch_size", default=14)}, "", vision.path)
    block = "vision_tower.encoder.blocks.*"
    inputs = width * merge
    weights = (
        patch_embedding(patch, "vision_tower.patch_embed.proj", width),
        vector("vision_tower.patch_embed.pos_emb", *grid, width),
        *repeat(
            layers,
            (
                *attention(block, width, qkv=("wqkv", "wqkv", "wqkv"), out="wo"),
                *mlp(f"{block}.mlp", width, inner, names=("fc0", "fc1")),
                *norms(width, f"{block}.norm0", f"{block}.norm1"),
            ),
        ),
        *norms(width, "vision_tower.encoder.final_layernorm"),
        *norms(width, "multi_modal_projector.pre_norm"),
        linear("multi_modal_projector.linear_1", inputs, inputs, bias=True),
        linear("multi_modal_projector.linear_2", spec.hidden_size, inputs, bias=True),
    )
    tower = vision_tower(
        vision,
        weights,
        tokens=_KIMI_VL_PATCHES // merge,
        encoder_tokens=_KIMI_VL_PATCHES,
        num_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        num_heads=vision.integer("num_attention_heads", default=16),
    )
    sentence = (
        f"an image was taken to have at most {_KIMI_VL_PATCHES:,} patches, as the published "
        "preprocessor says (in_token_limit)"
    )
    return wrap(spec, [tower], prefix="language_model.model", assumptions=(sentence,))


BUILDERS: Final[Mapping[str, Builder]] = {"internvl_chat": internvl_chat, "kimi_vl": kimi_vl}
