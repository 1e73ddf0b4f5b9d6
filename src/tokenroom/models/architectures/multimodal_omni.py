"""Qwen's omni models, of which engines serve the thinker, and Qwen3-ASR.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens as vLLM 0.33 counts
them (``qwen2_5_omni_thinker.py``, ``qwen3_omni_moe_thinker.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_audio import (
    AUDIO,
    CLIP_FRAMES,
    CLIP_TOKENS,
    PROJECTOR,
    audio_tower,
)
from tokenroom.models.architectures.multimodal_base import language_model, ties, vision_tower, wrap
from tokenroom.models.architectures.multimodal_qwen import (
    OMNI_MERGER,
    QWEN2_PIXELS,
    largest_image,
    pixel_sentence,
    qwen2_5_encoder,
    qwen3_encoder,
)
from tokenroom.models.architectures.towers import kernel, norms, whisper_blocks, whisper_encoder
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight


def _qwen2_5_omni(config: Config, name: str) -> ModelSpec:
    spec = language_model(config, name, fixed="qwen2_5_omni_text")
    vision = config.sub("vision_config", "qwen2_5_omni_vision_encoder", fixed=True)
    audio = config.sub("audio_config", "qwen2_5_omni_audio_encoder", fixed=True)
    out = audio.integer("output_dim")
    audio_weights = (
        *whisper_encoder(audio, AUDIO, last_norm="ln_post", positions=False),
        vector(f"{AUDIO}.audio_bos_eos_token", 2, out),
        linear(f"{AUDIO}.proj", out, audio.integer("d_model"), bias=True),
    )
    tokens, seen = largest_image(vision, QWEN2_PIXELS)
    towers = [
        vision_tower(
            vision,
            qwen2_5_encoder(vision, "model.visual", fused=False),
            tokens=tokens,
            encoder_tokens=seen,
            num_layers=vision.integer("depth"),
            num_heads=vision.integer("num_heads"),
        ),
        audio_tower(audio, audio_weights, tokens=CLIP_TOKENS, frames=CLIP_FRAMES),
    ]
    tied = ties(config, spec)
    return wrap(spec, towers, tied=tied, assumptions=(pixel_sentence(QWEN2_PIXELS),))


_THINKER_ONLY: Final = (
    "only the thinker is counted: engines serve text from it, and leave the talker and the "
    "waveform decoder out"
)


def _thinker(config: Config, name: str, model_type: str) -> ModelSpec:
    thinker = config.sub("thinker_config", model_type, fixed=True)
    config.mark_read("talker_config", "token2wav_config", "code2wav_config", "enable_audio_output")
    spec = BUILDERS[model_type](thinker, name)
    return wrap(spec, spec.towers, prefix="thinker.model", assumptions=(_THINKER_ONLY,))


def qwen2_5_omni(config: Config, name: str) -> ModelSpec:
    """Qwen2.5-Omni's thinker, as vLLM serves it."""
    return _thinker(config, name, "qwen2_5_omni_thinker")


def qwen3_omni(config: Config, name: str) -> ModelSpec:
    """Qwen3-Omni's thinker, as vLLM serves it."""
    return _thinker(config, name, "qwen3_omni_moe_thinker")


def conv_stem(audio: Config) -> tuple[Weight, ...]:
    """Three strided convolutions over mel frames and a projection of what is left of the bands."""
    channels = audio.integer("downsample_hidden_size")
    width = audio.integer("d_model")
    bands = audio.integer("num_mel_bins")
    for _ in range(3):
        bands = (bands + 1) // 2
    return (
        kernel(f"{AUDIO}.conv2d1", channels, 1, 3, 3, bias=True),
        kernel(f"{AUDIO}.conv2d2", channels, channels, 3, 3, bias=True),
        kernel(f"{AUDIO}.conv2d3", channels, channels, 3, 3, bias=True),
        linear(f"{AUDIO}.conv_out", width, channels * bands),
        *whisper_blocks(
            f"{AUDIO}.layers.*",
            audio.integer("encoder_layers"),
            width,
            audio.integer("encoder_ffn_dim"),
            key_bias=True,
        ),
        *norms(width, f"{AUDIO}.ln_post"),
    )


def _qwen3_omni(config: Config, name: str) -> ModelSpec:
    spec = language_model(config, name, fixed="qwen3_omni_moe_text")
    vision = config.sub("vision_config", "qwen3_omni_moe_vision_encoder", fixed=True)
    audio = config.sub("audio_config", "qwen3_omni_moe_audio_encoder", fixed=True)
    width = audio.integer("d_model")
    audio_weights = (
        *conv_stem(audio),
        linear(f"{AUDIO}.proj1", width, width, bias=True),
        linear(f"{AUDIO}.proj2", audio.integer("output_dim"), width, bias=True),
    )
    tokens, seen = largest_image(vision, QWEN2_PIXELS)
    towers = [
        vision_tower(
            vision,
            qwen3_encoder(vision, "model.visual", deepstack="merger_list", merger=OMNI_MERGER),
            tokens=tokens,
            encoder_tokens=seen,
            num_layers=vision.integer("depth"),
            num_heads=vision.integer("num_heads"),
        ),
        audio_tower(audio, audio_weights, tokens=CLIP_TOKENS, frames=CLIP_TOKENS),
    ]
    tied = ties(config, spec)
    return wrap(spec, towers, tied=tied, assumptions=(pixel_sentence(QWEN2_PIXELS),))


def qwen3_asr(config: Config, name: str) -> ModelSpec:
    """Qwen3-ASR: Qwen3-Omni's audio encoder before a Qwen3."""
    spec = language_model(config, name)
    audio = config.sub("audio_config")
    width = audio.integer("d_model")
    weights = (
        *conv_stem(audio),
        linear(f"{PROJECTOR}.linear_1", width, width, bias=True),
        linear(f"{PROJECTOR}.linear_2", audio.integer("output_dim"), width, bias=True),
    )
    tower = audio_tower(audio, weights, tokens=CLIP_TOKENS, frames=CLIP_TOKENS)
    return wrap(spec, [tower], tied=ties(config, spec))


BUILDERS: Final[Mapping[str, Builder]] = {
    "qwen2_5_omni": qwen2_5_omni,
    "qwen2_5_omni_thinker": _qwen2_5_omni,
    "qwen3_asr": qwen3_asr,
    "qwen3_omni_moe": qwen3_omni,
    "qwen3_omni_moe_thinker": _qwen3_omni,
}
