"""Gemma 3n: MobileNet-V5 for images and a Conformer for audio beside its language model.

The image encoder is ``mobilenetv5_300m_enc`` of timm 1.0, the only one there is; its stages are the
table below. The rest is as transformers 5.24 builds it (``modeling_gemma3n.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import embedding, linear, vector
from tokenroom.models.architectures.multimodal_base import (
    language_model,
    ties,
    vision_tower,
    wrap,
)
from tokenroom.models.architectures.towers import kernel, norms, repeat
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Tower, Weight

_IMAGE_TOKENS: Final = 256
_IMAGE_PATCHES: Final = 2304
"""A 768x768 image leaves the last stage as 48x48 positions and is pooled to 16x16 tokens."""

_AUDIO_TOKENS: Final = 188
"""Thirty seconds of audio at 160 ms a token (vLLM 0.33 ``gemma3n_mm.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """An inverted bottleneck: depthwise, expansion, depthwise, projection; 0 taps for none."""

    inputs: int
    expanded: int
    outputs: int
    start: int = 0
    middle: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attending:
    """Multi-query attention over positions, keys and values perhaps strided by a convolution."""

    width: int
    queries: int
    head_dim: int
    strided: bool
    count: int


_EDGES: Final = ((64, 256), (128, 512), (128, 512))
"""(inputs, expanded) of the first stage's blocks, each of 128 outputs."""

_STAGES: Final[tuple[Bottleneck | Attending, ...]] = (
    Bottleneck(inputs=128, expanded=768, outputs=256, start=3, middle=5),
    Bottleneck(inputs=256, expanded=1024, outputs=256, start=5, count=2),
    Bottleneck(inputs=256, expanded=1024, outputs=256, start=3, count=2),
    Bottleneck(inputs=256, expanded=1536, outputs=640, start=5, middle=5),
    Bottleneck(inputs=640, expanded=2560, outputs=640, start=5, count=7),
    Bottleneck(inputs=640, expanded=640, outputs=640),
    Attending(width=640, queries=768, head_dim=64, strided=True, count=14),
    Bottleneck(inputs=640, expanded=1280, outputs=640, count=14),
    Bottleneck(inputs=640, expanded=3840, outputs=1280, start=5, middle=5),
    Attending(width=1280, queries=1536, head_dim=96, strided=False, count=19),
    Bottleneck(inputs=1280, expanded=2560, outputs=1280, count=19),
)


def _normed(name: str, *shape: int) -> tuple[Weight, ...]:
    return (kernel(f"{name}.conv", *shape), *norms(shape[0], f"{name}.bn", bias=False))


def _bottleneck(part: Bottleneck, name: str) -> tuple[Weight, ...]:
    weights: tuple[Weight, ...] = ()
    if part.start:
        weights += _normed(f"{name}.dw_start", part.inputs, 1, part.start, part.start)
    weights += _normed(f"{name}.pw_exp", part.expanded, part.inputs, 1, 1)
    if part.middle:
        weights += _normed(f"{name}.dw_mid", part.expanded, 1, part.middle, part.middle)
    weights += _normed(f"{name}.pw_proj", part.outputs, part.expanded, 1, 1)
    return repeat(part.count, (*weights, vector(f"{name}.layer_scale.gamma", part.outputs)))


def _attending(part: Attending, name: str) -> tuple[Weight, ...]:
    weights: tuple[Weight, ...] = (
        *norms(part.width, f"{name}.norm", bias=False),
        kernel(f"{name}.attn.query.proj", part.queries, part.width, 1, 1),
        kernel(f"{name}.attn.output.proj", part.width, part.queries, 1, 1),
        vector(f"{name}.layer_scale.gamma", part.width),
    )
    for side in ("key", "value"):
        if part.strided:
            weights += (
                kernel(f"{name}.attn.{side}.down_conv", part.width, 1, 3, 3),
                *norms(part.width, f"{name}.attn.{side}.norm", bias=False),
            )
        weights += (kernel(f"{name}.attn.{side}.proj", part.head_dim, part.width, 1, 1),)
    return repeat(part.count, weights)


def mobilenet(prefix: str) -> tuple[Weight, ...]:
    """The parameters of ``mobilenetv5_300m_enc`` (294,126,912 of them)."""
    weights: list[Weight] = [
        kernel(f"{prefix}.conv_stem.conv", 64, 3, 3, 3, bias=True),
        *norms(64, f"{prefix}.conv_stem.bn", bias=False),
    ]
    for inputs, expanded in _EDGES:
        weights += (
            kernel(f"{prefix}.blocks.0.*.conv_exp", expanded, inputs, 3, 3),
            *norms(expanded, f"{prefix}.blocks.0.*.bn1", bias=False),
            kernel(f"{prefix}.blocks.0.*.conv_pwl", 128, expanded, 1, 1),
            *norms(128, f"{prefix}.blocks.0.*.bn2", bias=False),
        )
    for part in _STAGES:
        name = f"{prefix}.blocks.*.*"
        weights += (
            _attending(part, name) if isinstance(part, Attending) else _bottleneck(part, name)
        )
    weights += (
        *_normed(f"{prefix}.msfa.ffn.pw_exp", 3840, 640 + 1280, 1, 1),
        *_normed(f"{prefix}.msfa.ffn.pw_proj", 2048, 3840, 1, 1),
        *norms(2048, f"{prefix}.msfa.norm", bias=False),
    )
    return tuple(weights)


def _embedder(name: str, config: Config, hidden: int) -> tuple[Weight, ...]:
    width = config.integer("hidden_size")
    return (
        embedding(config.integer("vocab_size"), width, f"{name}.embedding"),
        *norms(width, f"{name}.hard_embedding_norm", f"{name}.soft_embedding_norm", bias=False),
        linear(f"{name}.embedding_projection", hidden, width),
    )


def _vision(config: Config, hidden: int) -> Tower:
    vision = config.sub("vision_config", "gemma3n_vision", fixed=True)
    name = vision.text("architecture", default="mobilenetv5_300m_enc")
    if name != "mobilenetv5_300m_enc":
        vision.refuse("architecture", "mobilenetv5_300m_enc")
    return vision_tower(
        vision,
        (
            *mobilenet("model.vision_tower.timm_model"),
            *_embedder("model.embed_vision", vision, hidden),
        ),
        tokens=_IMAGE_TOKENS,
        encoder_tokens=_IMAGE_PATCHES,
        num_layers=sum(part.count for part in _STAGES) + len(_EDGES),
        intermediate_size=max(part.expanded for part in _STAGES if isinstance(part, Bottleneck)),
        num_heads=16,
    )


def _audio(config: Config, hidden: int) -> Tower:
    audio = config.sub("audio_config", "gemma3n_audio", fixed=True)
    width = audio.integer("hidden_size")
    heads = audio.integer("conf_num_attention_heads")
    first, second = (audio.integers("sscp_conv_channel_size", minimum=1) or (128, 32))[:2]
    bands = audio.integer("input_feat_size")
    for _ in range(2):
        bands = (bands + 2 - 3) // 2 + 1  # three taps, stride two, one padded at either end
    stem = "model.audio_tower.subsample_conv_projection"
    block = "model.audio_tower.conformer.*"

    def half(name: str) -> tuple[Weight, ...]:
        return (
            *norms(width, f"{name}.pre_layer_norm", f"{name}.post_layer_norm", bias=False),
            linear(f"{name}.ffw_layer_1", 4 * width, width),
            linear(f"{name}.ffw_layer_2", width, 4 * width),
        )

    part = (
        *half(f"{block}.ffw_layer_start"),
        *half(f"{block}.ffw_layer_end"),
        *(
            linear(f"{block}.attention.attn.{name}", width, width)
            for name in ("q_proj", "k_proj", "v_proj", "relative_position_embedding.pos_proj")
        ),
        vector(f"{block}.attention.attn.per_dim_scale", width // heads),
        linear(f"{block}.attention.post", width, width),
        linear(f"{block}.lconv1d.linear_start", 2 * width, width),
        linear(f"{block}.lconv1d.linear_end", width, width),
        kernel(
            f"{block}.lconv1d.depthwise_conv1d", width, 1, audio.integer("conf_conv_kernel_size")
        ),
        *norms(
            width,
            f"{block}.attention.pre_attn_norm",
            f"{block}.attention.post_norm",
            f"{block}.lconv1d.pre_layer_norm",
            f"{block}.lconv1d.conv_norm",
            f"{block}.norm",
            bias=False,
        ),
    )
    weights = (
        kernel(f"{stem}.conv_0.conv", first, 1, 3, 3),
        *norms(first, f"{stem}.conv_0.norm", bias=False),
        kernel(f"{stem}.conv_1.conv", second, first, 3, 3),
        *norms(second, f"{stem}.conv_1.norm", bias=False),
        linear(f"{stem}.input_proj_linear", width, second * bands),
        *repeat(audio.integer("conf_num_hidden_layers"), part),
        *_embedder("model.embed_audio", audio, hidden),
    )
    return vision_tower(
        audio,
        weights,
        tokens=_AUDIO_TOKENS,
        encoder_tokens=_AUDIO_TOKENS * audio.integer("conf_reduction_factor"),
        name="audio",
        num_layers=audio.integer("conf_num_hidden_layers"),
        intermediate_size=4 * width,
        num_heads=heads,
    )


def gemma3n(config: Config, name: str) -> ModelSpec:
    """Gemma 3n with images and audio."""
    spec = language_model(config, name, fixed="gemma3n_text")
    towers = [_vision(config, spec.hidden_size), _audio(config, spec.hidden_size)]
    return wrap(spec, towers, tied=ties(config, spec))


BUILDERS: Final[Mapping[str, Builder]] = {"gemma3n": gemma3n}
