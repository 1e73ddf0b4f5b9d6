"""Audio-language models: a speech encoder and a projector before any language model.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the longest clip as
vLLM 0.33's processing classes count them (``model_executor/models/<type>.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import language_model, ties, vision_tower, wrap
from tokenroom.models.architectures.towers import (
    attention,
    kernel,
    mlp,
    norms,
    repeat,
    whisper_encoder,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Tower, Weight

AUDIO: Final = "model.audio_tower"


PROJECTOR: Final = "model.multi_modal_projector"


CLIP_FRAMES: Final = 1500
"""Positions of a Whisper encoder for 30 seconds: 3000 mel frames, halved."""


CLIP_TOKENS: Final = 750
"""Tokens of a 30 second clip: the encoder's positions, pooled by two (``qwen2_audio.py``)."""


def audio_tower(
    audio: Config, weights: tuple[Weight, ...], *, tokens: int | None, frames: int | None
) -> Tower:
    """An audio encoder with its projector, sizes read from Whisper's field names."""
    return vision_tower(
        audio,
        weights,
        tokens=tokens,
        encoder_tokens=frames,
        name="audio",
        num_layers=audio.integer("encoder_layers", "num_hidden_layers"),
        hidden_size=audio.integer("d_model", "hidden_size"),
        intermediate_size=audio.integer("encoder_ffn_dim", "intermediate_size"),
        num_heads=audio.integer("encoder_attention_heads", "num_attention_heads"),
    )


def qwen2_audio(config: Config, name: str) -> ModelSpec:
    """Qwen2-Audio: a Whisper encoder pooled by two, one linear projection."""
    spec = language_model(config, name)
    audio = config.sub("audio_config")
    weights = (
        *whisper_encoder(audio, AUDIO),
        linear(f"{PROJECTOR}.linear", spec.hidden_size, audio.integer("d_model"), bias=True),
    )
    tower = audio_tower(audio, weights, tokens=CLIP_TOKENS, frames=CLIP_FRAMES)
    return wrap(spec, [tower], tied=ties(config, spec))


def voxtral(config: Config, name: str) -> ModelSpec:
    """Voxtral: a Whisper encoder, four positions joined, two projections; clips of any length."""
    spec = language_model(config, name)
    audio = config.sub("audio_config")
    joined = audio.integer("intermediate_size")
    weights = (
        *whisper_encoder(audio, AUDIO),
        linear(f"{PROJECTOR}.linear_1", spec.hidden_size, joined),
        linear(f"{PROJECTOR}.linear_2", spec.hidden_size, spec.hidden_size),
    )
    tower = audio_tower(audio, weights, tokens=None, frames=None)
    return wrap(spec, [tower], tied=ties(config, spec))


def audio_flamingo3(config: Config, name: str) -> ModelSpec:
    """Audio Flamingo 3: a Whisper encoder, two projections."""
    spec = language_model(config, name)
    audio = config.sub("audio_config")
    bias = config.flag("projector_bias")
    weights = (
        *whisper_encoder(audio, AUDIO),
        linear(f"{PROJECTOR}.linear_1", spec.hidden_size, audio.integer("hidden_size"), bias=bias),
        linear(f"{PROJECTOR}.linear_2", spec.hidden_size, spec.hidden_size, bias=bias),
    )
    tower = audio_tower(audio, weights, tokens=CLIP_TOKENS, frames=CLIP_FRAMES)
    return wrap(spec, [tower], tied=ties(config, spec))


def glm_asr(config: Config, name: str) -> ModelSpec:
    """GLM-ASR: a rotary Whisper encoder, four positions joined, two projections."""
    spec = language_model(config, name)
    audio = config.sub("audio_config")
    width = audio.integer("hidden_size")
    inner = audio.integer("intermediate_size")
    kv_heads = audio.optional_integer("num_key_value_heads")
    head_dim = width // audio.integer("num_attention_heads")
    block = f"{AUDIO}.layers.*"
    weights = (
        kernel(f"{AUDIO}.conv1", width, audio.integer("num_mel_bins"), 3, bias=True),
        kernel(f"{AUDIO}.conv2", width, width, 3, bias=True),
        *repeat(
            audio.integer("num_hidden_layers"),
            (
                *attention(
                    f"{block}.self_attn",
                    width,
                    kv_width=None if kv_heads is None else kv_heads * head_dim,
                    out="o_proj",
                    key_bias=False,
                ),
                *mlp(f"{block}.mlp", width, inner),
                *norms(width, f"{block}.input_layernorm", f"{block}.post_attention_layernorm"),
            ),
        ),
        *norms(width, f"{AUDIO}.norm"),
        linear(f"{PROJECTOR}.linear_1", 2 * spec.hidden_size, inner, bias=True),
        linear(f"{PROJECTOR}.linear_2", spec.hidden_size, 2 * spec.hidden_size, bias=True),
    )
    tower = audio_tower(audio, weights, tokens=CLIP_FRAMES // 4, frames=CLIP_FRAMES)
    return wrap(spec, [tower], tied=ties(config, spec))


_GRANITE_TOKENS: Final = 5001
"""Tokens vLLM reserves for a clip of 500 seconds (``granite_speech.py``)."""


def granite_speech(config: Config, name: str) -> ModelSpec:
    """Granite Speech: a Conformer and a window-wise query transformer; adapters left out.

    The adapter that checkpoints carry for speech is not part of the class's parameters.
    """
    spec = language_model(config, name)
    encoder = config.sub("encoder_config", "granite_speech_encoder", fixed=True)
    projector = config.sub("projector_config", "blip_2_qformer")
    width = encoder.integer("hidden_dim")
    inner = width * encoder.integer("feedforward_mult")
    heads = encoder.integer("num_heads")
    head_dim = encoder.optional_integer("dim_head") or width // heads
    mixed = width * encoder.integer("conv_expansion_factor")
    out = encoder.integer("output_dim")
    block = "model.encoder.layers.*"
    halves = tuple(
        weight
        for half in ("ff1", "ff2")
        for weight in (
            *norms(width, f"{block}.{half}.pre_norm"),
            linear(f"{block}.{half}.up_proj", inner, width, bias=True),
            linear(f"{block}.{half}.down_proj", width, inner, bias=True),
        )
    )
    conformer = (
        *halves,
        *norms(width, f"{block}.attn.pre_norm", f"{block}.conv.norm", f"{block}.post_norm"),
        linear(f"{block}.attn.to_q", heads * head_dim, width),
        linear(f"{block}.attn.to_kv", 2 * heads * head_dim, width),
        linear(f"{block}.attn.to_out", width, heads * head_dim, bias=True),
        vector(f"{block}.attn.rel_pos_emb", 2 * encoder.integer("max_pos_emb") + 1, head_dim),
        kernel(f"{block}.conv.up_conv", 2 * mixed, width, 1, bias=True),
        kernel(f"{block}.conv.depth_conv.conv", mixed, 1, encoder.integer("conv_kernel_size")),
        *norms(mixed, f"{block}.conv.batch_norm"),
        kernel(f"{block}.conv.down_conv", width, mixed, 1, bias=True),
    )
    query = projector.integer("hidden_size")
    queries = config.integer("window_size") // config.integer("downsample_rate")
    weights = (
        linear("model.encoder.input_linear", width, encoder.integer("input_dim"), bias=True),
        *repeat(encoder.integer("num_layers"), conformer),
        linear("model.encoder.out", out, width, bias=True),
        linear("model.encoder.out_mid", width, out, bias=True),
        vector("model.projector.query", queries, query),
        *_qformer(projector, "model.projector.qformer"),
        linear("model.projector.linear", spec.hidden_size, query, bias=True),
    )
    tower = vision_tower(
        encoder,
        weights,
        tokens=_GRANITE_TOKENS,
        encoder_tokens=_GRANITE_TOKENS * config.integer("downsample_rate"),
        name="audio",
        num_layers=encoder.integer("num_layers"),
        hidden_size=width,
        intermediate_size=inner,
        num_heads=heads,
    )
    return wrap(spec, [tower], tied=ties(config, spec))


def _qformer(config: Config, prefix: str) -> tuple[Weight, ...]:
    """BLIP-2's query transformer: every few layers cross attention to the encoder."""
    width = config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    layers = config.integer("num_hidden_layers")
    every = config.integer("cross_attention_frequency")
    source = config.integer("encoder_hidden_size")
    block = f"{prefix}.encoder.layer.*"

    def attend(name: str, context: int) -> tuple[Weight, ...]:
        return (
            *attention(
                f"{block}.{name}",
                width,
                context_size=context,
                qkv=("attention.query", "attention.key", "attention.value"),
                out="output.dense",
                parallel=False,
            ),
            *norms(width, f"{block}.{name}.output.LayerNorm"),
        )

    own = (
        *attend("attention", width),
        linear(f"{block}.intermediate_query.dense", inner, width, bias=True),
        linear(f"{block}.output_query.dense", width, inner, bias=True),
        *norms(width, f"{block}.output_query.LayerNorm"),
    )
    if config.flag("use_qformer_text_input"):
        own += (
            linear(f"{block}.intermediate.dense", inner, width, bias=True),
            linear(f"{block}.output.dense", width, inner, bias=True),
            *norms(width, f"{block}.output.LayerNorm"),
        )
    return (
        *norms(width, f"{prefix}.layernorm"),
        *repeat(layers, own),
        *repeat(-(-layers // every), attend("crossattention", source)),
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "audioflamingo3": audio_flamingo3,
    "glmasr": glm_asr,
    "granite_speech": granite_speech,
    "qwen2_audio": qwen2_audio,
    "voxtral": voxtral,
}
