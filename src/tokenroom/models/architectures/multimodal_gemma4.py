"""Gemma 4: an image encoder on patches with two-axis positions, and a Conformer for audio.

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
from tokenroom.models.architectures.multimodal_base import language_model, ties, vision_tower, wrap
from tokenroom.models.architectures.multimodal_native import TOWER
from tokenroom.models.architectures.towers import GATED, attention, kernel, mlp, norms, repeat
from tokenroom.models.config import Config
from tokenroom.models.spec import Clip, ModelSpec, Tower, Weight


def gemma4(config: Config, name: str) -> ModelSpec:
    """Gemma 4: an encoder on patches with two-axis positions, and a Conformer for audio."""
    spec = language_model(config, name, fixed="gemma4_text")
    towers = [_gemma4_vision(config, spec), _gemma4_audio(config, spec)]
    return wrap(spec, towers, tied=ties(config, spec))


def _gemma4_vision(config: Config, spec: ModelSpec) -> Tower | None:
    if config.mapping("vision_config") is None:
        return None
    vision = config.sub("vision_config", "gemma4_vision", fixed=True)
    width = vision.integer("hidden_size")
    inner = vision.integer("intermediate_size")
    head_dim = vision.integer("head_dim")
    area = 3 * vision.integer("patch_size") ** 2
    block = f"{TOWER}.encoder.layers.*"
    pool = vision.integer("pooling_kernel_size")
    weights: tuple[Weight, ...] = (
        vector(
            f"{TOWER}.patch_embedder.position_embedding_table",
            2,
            vision.integer("position_embedding_size"),
            width,
        ),
        linear(f"{TOWER}.patch_embedder.input_proj", width, area),
        *repeat(
            vision.integer("num_hidden_layers"),
            (
                *attention(
                    f"{block}.self_attn",
                    width,
                    width=vision.integer("num_attention_heads") * head_dim,
                    kv_width=vision.integer("num_key_value_heads") * head_dim,
                    out="o_proj",
                    bias=False,
                    parallel=False,
                ),
                *mlp(f"{block}.mlp", width, inner, names=GATED, bias=False, parallel=False),
                *norms(
                    head_dim, f"{block}.self_attn.q_norm", f"{block}.self_attn.k_norm", bias=False
                ),
                *norms(
                    width,
                    f"{block}.input_layernorm",
                    f"{block}.post_attention_layernorm",
                    f"{block}.pre_feedforward_layernorm",
                    f"{block}.post_feedforward_layernorm",
                    bias=False,
                ),
            ),
        ),
        linear("model.embed_vision.embedding_projection", spec.hidden_size, width),
    )
    image = vision.integer("default_output_length", default=_GEMMA4_IMAGE_TOKENS)
    tower = vision_tower(vision, weights, tokens=image, encoder_tokens=image * pool**2)
    clip = Clip(
        tokens=_GEMMA4_FRAME_TOKENS + 8,
        encoder_tokens=_GEMMA4_FRAME_TOKENS * pool**2,
        groups=_GEMMA4_FRAMES,
    )
    return replace(tower, clip=clip, rotary=True, items_apart=True)


_GEMMA4_IMAGE_TOKENS: Final = 280


_GEMMA4_FRAMES: Final = 32


_GEMMA4_FRAME_TOKENS: Final = 70
# A video has at most 32 frames of 70 tokens, each with 8 more around it; it becomes more tokens
# than an image does. Source: vLLM 0.33 ``gemma4_mm.py`` (``get_mm_max_tokens_per_item``); frames
# pass the encoder one by one in 0.19 and 0.21, in bounded batches since.


_GEMMA4_AUDIO_TOKENS: Final = 750
"""Thirty seconds of audio at 40 ms a token (vLLM 0.33 ``gemma4_mm.py``)."""


def _gemma4_audio(config: Config, spec: ModelSpec) -> Tower | None:
    if config.mapping("audio_config") is None:
        return None
    audio = config.sub("audio_config", "gemma4_audio", fixed=True)
    width = audio.integer("hidden_size")
    heads = audio.integer("num_attention_heads")
    channels = audio.integers("subsampling_conv_channels", minimum=1) or (128, 32)
    out = audio.integer("output_proj_dims")
    root = "model.audio_tower"
    stem = f"{root}.subsample_conv_projection"
    block = f"{root}.layers.*"

    def plain(name: str, rows: int, columns: int) -> Weight:
        return linear(f"{block}.{name}", rows, columns)

    part = (
        *(
            weight
            for half in ("feed_forward1", "feed_forward2")
            for weight in (
                plain(f"{half}.ffw_layer_1", 4 * width, width),
                plain(f"{half}.ffw_layer_2", width, 4 * width),
            )
        ),
        *(
            plain(f"self_attn.{name}", width, width)
            for name in ("q_proj", "k_proj", "v_proj", "post", "relative_k_proj")
        ),
        vector(f"{block}.self_attn.per_dim_scale", width // heads),
        plain("lconv1d.linear_start", 2 * width, width),
        plain("lconv1d.linear_end", width, width),
        kernel(f"{block}.lconv1d.depthwise_conv1d", width, 1, audio.integer("conv_kernel_size")),
        *norms(
            width,
            *(
                f"{block}.{name}"
                for name in (
                    "feed_forward1.pre_layer_norm",
                    "feed_forward1.post_layer_norm",
                    "feed_forward2.pre_layer_norm",
                    "feed_forward2.post_layer_norm",
                    "lconv1d.pre_layer_norm",
                    "lconv1d.conv_norm",
                    "norm_pre_attn",
                    "norm_post_attn",
                    "norm_out",
                )
            ),
            bias=False,
        ),
    )
    first, second = channels[0], channels[1]
    # 128 mel bands are halved twice by the strided convolutions.
    flat = second * (128 // 4)
    weights = (
        kernel(f"{stem}.layer0.conv", first, 1, 3, 3),
        *norms(first, f"{stem}.layer0.norm", bias=False),
        kernel(f"{stem}.layer1.conv", second, first, 3, 3),
        *norms(second, f"{stem}.layer1.norm", bias=False),
        linear(f"{stem}.input_proj_linear", width, flat),
        *repeat(audio.integer("num_hidden_layers"), part),
        linear(f"{root}.output_proj", out, width, bias=True),
        linear("model.embed_audio.embedding_projection", spec.hidden_size, out),
    )
    return vision_tower(
        audio,
        weights,
        tokens=_GEMMA4_AUDIO_TOKENS,
        encoder_tokens=_GEMMA4_AUDIO_TOKENS,
        name="audio",
        intermediate_size=4 * width,
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "gemma4": gemma4,
}
