"""Phi-3-vision and Phi-4-multimodal: Phi-3's decoder with encoders in its embedding.

Parameters as transformers 5.24 builds them (``modeling_phi4_multimodal.py``) and, for the remote
code of Phi-3-vision, vLLM 0.33 (``phi3v.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder, builder_for
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import vision_tower, wrap
from tokenroom.models.architectures.towers import (
    attention,
    clip,
    kernel,
    norms,
    patches,
    repeat,
    siglip,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Tower

_PHI4_CROPS: Final = 36


_PHI4_CLIP_TOKENS: Final = 375


def phi4_multimodal(config: Config, name: str) -> ModelSpec:
    """Phi-4-multimodal: Phi-3's decoder with SigLIP and a Conformer in its embedding."""
    spec = builder_for("phi3")(config, name)
    vision = config.sub("vision_config", "phi4_multimodal_vision", fixed=True)
    audio = config.sub("audio_config", "phi4_multimodal_audio", fixed=True)
    hidden = spec.hidden_size
    root = "model.embed_tokens_extend"
    width = vision.integer("hidden_size")
    image = f"{root}.image_embed"
    crop = patches(vision)
    vision_weights = (
        *siglip(vision, f"{image}.img_processor", head=True, parallel=False),
        linear(f"{image}.img_projection_up", hidden, width, bias=True),
        linear(f"{image}.img_projection_down", hidden, hidden, bias=True),
        vector(f"{image}.global_img_feature_extensor", width),
        vector(f"{image}.sub_img_feature_extensor", width),
    )
    half = int(crop**0.5) // 2
    across = int(_PHI4_CROPS**0.5)
    towers = [
        vision_tower(
            vision,
            vision_weights,
            tokens=_PHI4_CROPS * half**2 + across * half + half**2 + half + 1,
            encoder_tokens=(_PHI4_CROPS + 1) * crop,
        ),
        _phi4_audio(audio, f"{root}.audio_embed", hidden),
    ]
    sentence = (
        f"an image was taken to be cut into at most {_PHI4_CROPS} crops, as the published "
        "preprocessor does, and a clip to last at most 30 seconds"
    )
    return wrap(spec, towers, prefix="model", assumptions=(sentence,))


def _phi4_audio(audio: Config, prefix: str, hidden: int) -> Tower:
    width = audio.integer("hidden_size")
    inner = audio.integer("intermediate_size")
    heads = audio.integer("num_attention_heads")
    channels = audio.integer("nemo_conv_channels")
    factor = audio.integer("time_reduction")
    stages = factor.bit_length() - 1
    bands = audio.integer("input_size")
    for _ in range(stages):
        bands = (bands + 1) // 2
    inside = audio.integer("depthwise_separable_out_channel")
    mixed = audio.integer("ext_pw_out_channel")
    depth = audio.integer("depthwise_multiplier", default=1) * width
    root = f"{prefix}.encoder"
    block = f"{root}.encoders.*"
    stem = [kernel(f"{root}.embed.conv.0", channels, 1, 3, 3, bias=True)]
    for _ in range(stages - 1):
        stem += [
            kernel(f"{root}.embed.conv.*", channels, 1, 3, 3, bias=True),
            kernel(f"{root}.embed.conv.*", channels, channels, 1, 1, bias=True),
        ]
    symmetric = audio.flag("bias_symmetric")
    distance = audio.integer("bias_max_distance")
    part = (
        *(
            weight
            for name in ("feed_forward_in", "feed_forward_out")
            for weight in (
                *norms(width, f"{block}.{name}.layer_norm"),
                linear(f"{block}.{name}.gate_up_proj", 2 * inner, width, bias=True),
                linear(f"{block}.{name}.down_proj", width, inner, bias=True),
            )
        ),
        *attention(f"{block}.self_attn", width, out="o_proj", parallel=False),
        *norms(width, f"{block}.conv.layer_norm", f"{block}.layer_norm_att", f"{block}.layer_norm"),
        vector(f"{block}.conv.glu.b1", mixed),
        vector(f"{block}.conv.glu.b2", mixed),
        kernel(f"{block}.conv.glu.ext_pw_conv_1d", 2 * mixed, width, 1, bias=True),
        kernel(
            f"{block}.conv.dw_sep_conv_1d.dw_conv",
            depth,
            1,
            audio.integer("kernel_size"),
            bias=True,
        ),
        kernel(f"{block}.conv.dw_sep_conv_1d.pw_conv", inside, depth, 1, bias=True),
        kernel(f"{block}.conv.ext_pw_conv_1d", mixed, width, 1, bias=True),
    )
    projections = tuple(
        weight
        for kind in ("speech", "vision_speech")
        for weight in (
            linear(
                f"{prefix}.up_proj_for_{kind}",
                hidden,
                width * audio.integer("downsample_rate"),
                bias=True,
            ),
            linear(f"{prefix}.down_proj_for_{kind}", hidden, hidden, bias=True),
        )
    )
    weights = (
        *stem,
        linear(f"{root}.embed.out", width, channels * bands, bias=True),
        vector(
            f"{root}.relative_attention_bias_layer.bias_values",
            distance if symmetric else 2 * distance,
            heads,
        ),
        *repeat(audio.integer("num_blocks"), part),
        *projections,
    )
    return vision_tower(
        audio,
        weights,
        tokens=_PHI4_CLIP_TOKENS,
        encoder_tokens=_PHI4_CLIP_TOKENS,
        name="audio",
        num_layers=audio.integer("num_blocks"),
    )


_CLIP_LARGE: Final[Mapping[str, object]] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
"""CLIP ViT-L/14 at 336 pixels, which Phi-3-vision names (``openai/clip-vit-large-patch14-336``)."""


def phi3_v(config: Config, name: str) -> ModelSpec:
    """Phi-3-vision and Phi-3.5-vision (remote code): Phi-3 with CLIP ViT-L/14.

    Source: vLLM 0.33 ``phi3v.py`` (``Phi3HDImageEmbedding``).
    """
    spec = builder_for("phi3")(config.viewed_as("phi3"), name)
    config.mark_read("embd_layer", "img_processor")
    vision = Config(_CLIP_LARGE, "clip_vision_model", "img_processor")
    hidden = spec.hidden_size
    width = 4 * vision.integer("hidden_size")
    root = "model.vision_embed_tokens"
    weights = (
        *clip(vision, f"{root}.img_processor.vision_model"),
        vector(f"{root}.glb_GN", width),
        vector(f"{root}.sub_GN", width),
        linear(f"{root}.img_projection.0", hidden, width, bias=True),
        linear(f"{root}.img_projection.2", hidden, hidden, bias=True),
    )
    # Sixteen crops (``num_crops`` at most 16) and the whole, 12x12 tokens each, newlines between.
    crops, per_side = 16, 12
    tower = vision_tower(
        vision,
        weights,
        tokens=(crops + 1) * per_side**2 + 1 + (4 + 1) * per_side,
        encoder_tokens=(crops + 1) * (patches(vision) + 1),
    )
    sentence = "an image was taken to be cut into at most 16 crops of 336x336 pixels"
    return wrap(spec, [tower], prefix="model", assumptions=(sentence,))


BUILDERS: Final[Mapping[str, Builder]] = {
    "phi3_v": phi3_v,
    "phi4_multimodal": phi4_multimodal,
}
