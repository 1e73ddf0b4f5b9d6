"""Vision-language models with encoders of their own: Llama, Gemma 4, Kimi, MiniCPM, Step, MiniMax.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the largest image as
vLLM 0.33's processing classes compute them (``model_executor/models/<type>.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Final

from tokenroom.models.architectures import Builder, builder_for
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import (
    language_model,
    ties,
    vision_tower,
    wrap,
)
from tokenroom.models.architectures.multimodal_qwen import largest_image
from tokenroom.models.architectures.towers import (
    GATED,
    attention,
    kernel,
    mlp,
    norms,
    patch_embedding,
    patches,
    repeat,
    scaled,
    shrink,
    side,
    siglip,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import Clip, ModelSpec, Tower, Weight

PROJECTOR: Final = "model.multi_modal_projector"
TOWER: Final = "model.vision_tower"


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


_M3_PIXELS: Final = 2016 * 2016


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


BUILDERS: Mapping[str, Builder] = {
    "gemma4": gemma4,
    "kimi_k25": kimi_k25,
    "llama4": llama4,
    "minicpmv4_6": minicpmv,
    "minicpmv4_7": minicpmv,
    "minimax_m3_vl": minimax_m3_vl,
    "mllama": mllama,
    "step3p7": step3p7,
}
