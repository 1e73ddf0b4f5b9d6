"""Audio-language models, and those that see as well.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the longest clip as
vLLM 0.33's processing classes count them (``model_executor/models/<type>.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder, builder_for
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import (
    language_model,
    ties,
    vision_tower,
    wrap,
)
from tokenroom.models.architectures.multimodal_qwen import (
    OMNI_MERGER,
    QWEN2_PIXELS,
    largest_image,
    pixel_sentence,
    qwen2_5_encoder,
    qwen3_encoder,
)
from tokenroom.models.architectures.towers import (
    attention,
    kernel,
    mlp,
    norms,
    patches,
    repeat,
    siglip,
    whisper_blocks,
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


def _audio_tower(
    audio: Config, weights: tuple[Weight, ...], *, tokens: int | None, frames: int | None
) -> Tower:
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
    tower = _audio_tower(audio, weights, tokens=CLIP_TOKENS, frames=CLIP_FRAMES)
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
    tower = _audio_tower(audio, weights, tokens=None, frames=None)
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
    tower = _audio_tower(audio, weights, tokens=CLIP_TOKENS, frames=CLIP_FRAMES)
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
    tower = _audio_tower(audio, weights, tokens=CLIP_FRAMES // 4, frames=CLIP_FRAMES)
    return wrap(spec, [tower], tied=ties(config, spec))


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
        _audio_tower(audio, audio_weights, tokens=CLIP_TOKENS, frames=CLIP_FRAMES),
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


def _conv_stem(audio: Config) -> tuple[Weight, ...]:
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
        *_conv_stem(audio),
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
        _audio_tower(audio, audio_weights, tokens=CLIP_TOKENS, frames=CLIP_TOKENS),
    ]
    tied = ties(config, spec)
    return wrap(spec, towers, tied=tied, assumptions=(pixel_sentence(QWEN2_PIXELS),))


def qwen3_asr(config: Config, name: str) -> ModelSpec:
    """Qwen3-ASR: Qwen3-Omni's audio encoder before a Qwen3."""
    spec = language_model(config, name)
    audio = config.sub("audio_config")
    width = audio.integer("d_model")
    weights = (
        *_conv_stem(audio),
        linear(f"{PROJECTOR}.linear_1", width, width, bias=True),
        linear(f"{PROJECTOR}.linear_2", audio.integer("output_dim"), width, bias=True),
    )
    tower = _audio_tower(audio, weights, tokens=CLIP_TOKENS, frames=CLIP_TOKENS)
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
    from tokenroom.models.architectures.towers import clip

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
    "audioflamingo3": audio_flamingo3,
    "glmasr": glm_asr,
    "granite_speech": granite_speech,
    "phi3_v": phi3_v,
    "phi4_multimodal": phi4_multimodal,
    "qwen2_5_omni": qwen2_5_omni,
    "qwen2_5_omni_thinker": _qwen2_5_omni,
    "qwen2_audio": qwen2_audio,
    "qwen3_asr": qwen3_asr,
    "qwen3_omni_moe": qwen3_omni,
    "qwen3_omni_moe_thinker": _qwen3_omni,
    "voxtral": voxtral,
}
