"""Vision-language models of LLaVA's shape: an image encoder, a projector, any language model.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``). The tokens of the largest
image follow the processing classes of vLLM 0.33 (``model_executor/models/<type>.py``); what these
read from a preprocessor file is that of the published checkpoints, and said in ``assumptions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tokenroom.models.architectures import Builder, dense
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import (
    language_model,
    ties,
    vision_tower,
    with_tie,
    wrap,
)
from tokenroom.models.architectures.towers import (
    GATED,
    attention,
    clip,
    internvit,
    mlp,
    norms,
    patch_embedding,
    patches,
    pixtral,
    repeat,
    shrink,
    side,
    siglip,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight

PROJECTOR: Final = "model.multi_modal_projector"
TOWER: Final = "model.vision_tower"


def encoder(vision: Config, prefix: str) -> tuple[Weight, ...]:
    """The image encoder of the configuration's own type.

    Raises:
        ModelError: The type is none of CLIP, SigLIP, Pixtral and InternViT.
    """
    kind = vision.model_type
    if kind == "clip_vision_model":
        return clip(vision, prefix)
    if kind in ("siglip_vision_model", "siglip2_vision_model"):
        return siglip(
            vision,
            prefix,
            head=vision.flag("vision_use_head"),
            flat_patches=kind == "siglip2_vision_model",
            positions=vision.optional_integer("num_patches"),
        )
    if kind == "pixtral":
        return pixtral(vision, prefix)
    if kind == "internvl_vision":
        return internvit(vision, prefix)
    vision.refuse("model_type", "clip_vision_model, siglip_vision_model or pixtral")


def feature_layers(config: Config) -> int:
    """How many of the encoder's layers feed the projector."""
    value = config.get("vision_feature_layer")
    return len(value) if isinstance(value, list | tuple) else 1


def features(config: Config, vision: Config) -> int:
    """Positions of one image that reach the projector (``vision_feature_select_strategy``)."""
    count = patches(vision)
    whole = config.text("vision_feature_select_strategy", default="default") == "full"
    return count + 1 if whole and vision.model_type == "clip_vision_model" else count


def positions(vision: Config) -> int:
    """Positions the encoder itself processes for one image."""
    return patches(vision) + (vision.model_type in ("clip_vision_model", "internvl_vision"))


def two_layer_projector(
    prefix: str, inputs: int, hidden: int, *, bias: bool, inner: int | None = None
) -> tuple[Weight, ...]:
    """``linear_1``, an activation, ``linear_2``; whole on every rank.

    vLLM divides LLaVA's own projector over ranks; its size makes no difference worth a rule.
    """
    width = hidden if inner is None else inner
    return (
        linear(f"{prefix}.linear_1", width, inputs, bias=bias),
        linear(f"{prefix}.linear_2", hidden, width, bias=bias),
    )


def _llava_parts(config: Config, name: str) -> tuple[ModelSpec, Config, tuple[Weight, ...]]:
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    inputs = vision.integer("hidden_size") * feature_layers(config)
    weights = (
        *encoder(vision, TOWER),
        *two_layer_projector(
            PROJECTOR, inputs, spec.hidden_size, bias=config.flag("multimodal_projector_bias")
        ),
    )
    return spec, vision, weights


def llava(config: Config, name: str) -> ModelSpec:
    """LLaVA 1.5 and checkpoints in its form (Pixtral 12B)."""
    spec, vision, weights = _llava_parts(config, name)
    if vision.model_type == "pixtral":
        tokens, seen = _pixtral_tokens(vision, merge=1)
    else:
        tokens, seen = features(config, vision), positions(vision)
    tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(spec, [tower], tied=ties(config, spec, either=True))


def _pinpoints(config: Config, default: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The (height, width) grids that an image may be cut to."""
    listed = config.sequence("image_grid_pinpoints")
    if listed is None:
        return tuple(default)
    pairs: list[tuple[int, int]] = []
    for item in listed:
        if (
            not isinstance(item, list | tuple)
            or len(item) != 2
            or not all(isinstance(size, int) and size > 0 for size in item)
        ):
            config.refuse("image_grid_pinpoints", "a list of [height, width]")
        pairs.append((item[0], item[1]))
    return tuple(pairs)


_NEXT_PINPOINTS: Final = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


def _tiled_tokens(
    config: Config, vision: Config, pinpoints: Sequence[tuple[int, int]], limit: int | None
) -> tuple[int, int]:
    """Most tokens, and encoder positions, over the grids an image may be cut to.

    A grid of tiles gives its patches with one newline a row, and the whole image once more. With a
    ``limit`` of tiles (``anyres_max_9``) larger grids are shrunk to about that many tiles' patches.
    Source: vLLM 0.33 ``llava_next.py`` and ``llava_onevision.py`` (``_get_num_unpadded_features``).
    """
    height, _ = side(vision, "image_size")
    patch, _ = side(vision, "patch_size")
    grid = height // patch
    base, seen = features(config, vision), positions(vision)
    most, encoded = 0, 0
    for tall, wide in pinpoints:
        rows, columns = tall // height * grid, wide // height * grid
        if limit is not None:
            ratio = (rows * columns / (limit * grid**2)) ** 0.5
            if ratio > 1.1:
                rows, columns = int(rows // ratio), int(columns // ratio)
        tokens = rows * columns + rows + base
        if tokens > most:
            most, encoded = tokens, seen * (tall // height * (wide // height) + 1)
    return most, encoded


def llava_next(config: Config, name: str) -> ModelSpec:
    """LLaVA 1.6: images cut into tiles, a learned newline between rows."""
    spec, vision, weights = _llava_parts(config, name)
    weights += (vector("model.image_newline", spec.hidden_size),)
    tokens, seen = _tiled_tokens(config, vision, _pinpoints(config, _NEXT_PINPOINTS), None)
    tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(
        spec, [tower], tied=ties(config, spec, either=config.model_type == "llava_next_video")
    )


def llava_onevision(config: Config, name: str) -> ModelSpec:
    """LLaVA-OneVision: SigLIP on tiles, with a learned newline."""
    spec, vision, weights = _llava_parts(config, name)
    weights += (vector("model.image_newline", spec.hidden_size),)
    sizes = tuple(384 * step for step in range(1, 7))
    pinpoints = _pinpoints(config, [(tall, wide) for tall in sizes for wide in sizes])
    ratio = config.text("vision_aspect_ratio", default="anyres_max_9")
    digits = ratio.removeprefix("anyres_max_")
    tokens, seen = _tiled_tokens(
        config, vision, pinpoints, int(digits) if digits.isdigit() and int(digits) else None
    )
    tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(spec, [tower], tied=ties(config, spec, either=True))


def vipllava(config: Config, name: str) -> ModelSpec:
    """ViP-LLaVA: several encoder layers, normalised, feed the projector."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    layers = config.get("vision_feature_layer")
    count = len(layers) if isinstance(layers, list | tuple) else 1
    inputs = vision.integer("hidden_size") * count
    weights = (
        *encoder(vision, TOWER),
        *norms(inputs, f"{PROJECTOR}.projector_layernorm"),
        *two_layer_projector(PROJECTOR, inputs, spec.hidden_size, bias=True),
    )
    tower = vision_tower(vision, weights, tokens=patches(vision), encoder_tokens=positions(vision))
    return wrap(spec, [tower], tied=ties(config, spec))


def _pixtral_tokens(vision: Config, merge: int) -> tuple[int, int]:
    """Tokens of the largest image: merged patches, a break after each row, an end.

    Source: vLLM 0.33 ``pixtral.py`` (``PixtralHFEncoderInfo``) and ``mistral3.py``.
    """
    height, width = side(vision, "image_size")
    patch_height, patch_width = side(vision, "patch_size")
    rows = -(-height // (patch_height * merge))
    columns = -(-width // (patch_width * merge))
    return (columns + 1) * rows, rows * columns * merge**2


def _merged_pixtral(
    config: Config, name: str, *, tower: str, projector: str, bias: bool
) -> ModelSpec:
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    merge = config.integer("spatial_merge_size")
    width = vision.integer("hidden_size")
    weights = (
        *encoder(vision, tower),
        *norms(width, f"{projector}.norm", bias=False),
        linear(f"{projector}.patch_merger.merging_layer", width, width * merge**2),
        *two_layer_projector(
            projector, width * feature_layers(config), spec.hidden_size, bias=bias
        ),
    )
    tokens, seen = _pixtral_tokens(vision, merge)
    encoder_tower = vision_tower(vision, weights, tokens=tokens, encoder_tokens=seen)
    return wrap(spec, [encoder_tower], tied=ties(config, spec))


def mistral3(config: Config, name: str) -> ModelSpec:
    """Mistral Small 3.1, Ministral 3, Devstral 2: Pixtral with merged patches.

    Where the whole does not say, its language model decides whether the head is tied, as in vLLM
    (``mistral3.py``): Mistral Small 3.1 says nothing and has a head of its own.
    """
    spec = _merged_pixtral(
        config,
        name,
        tower=TOWER,
        projector=PROJECTOR,
        bias=config.flag("multimodal_projector_bias"),
    )
    if config.has("tie_word_embeddings"):
        return spec
    return with_tie(spec, language_model(config, name).tied_embeddings)


def lighton_ocr(config: Config, name: str) -> ModelSpec:
    """LightOnOCR: Pixtral with merged patches before a Qwen3."""
    return _merged_pixtral(
        config, name, tower="model.vision_encoder", projector="model.vision_projection", bias=False
    )


def ministral3(config: Config, name: str) -> ModelSpec:
    """Ministral 3: the language model, or (with ``text_config``) the whole that holds it."""
    if config.has("text_config"):
        return mistral3(config.viewed_as("mistral3"), name)
    return dense.BUILDERS["ministral3"](config, name)


_MOST_TILES: Final = 12


def internvl(config: Config, name: str) -> ModelSpec:
    """InternVL 3: InternViT on tiles, patches shuffled into fewer tokens."""
    spec = language_model(config, name)
    vision = config.sub("vision_config", "internvl_vision", fixed=True)
    factor = shrink(config, "downsample_ratio", default=0.5)
    inputs = vision.integer("hidden_size") * factor**2
    weights = (
        *encoder(vision, TOWER),
        *norms(inputs, f"{PROJECTOR}.layer_norm"),
        *two_layer_projector(PROJECTOR, inputs, spec.hidden_size, bias=True),
    )
    tiles = _MOST_TILES + 1
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (patches(vision) // factor**2),
        encoder_tokens=tiles * positions(vision),
    )
    sentence = (
        f"an image was taken to be cut into at most {_MOST_TILES} tiles and a thumbnail, as the "
        "published InternVL preprocessors do"
    )
    return wrap(spec, [tower], tied=ties(config, spec), assumptions=(sentence,))


def paligemma(config: Config, name: str) -> ModelSpec:
    """PaliGemma: SigLIP, one linear projection."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    width = config.integer("projection_dim")
    weights = (
        *encoder(vision, TOWER),
        linear(f"{PROJECTOR}.linear", width, vision.integer("hidden_size"), bias=True),
    )
    tower = vision_tower(vision, weights, tokens=patches(vision), encoder_tokens=patches(vision))
    return wrap(spec, [tower], tied=ties(config, spec))


def gemma3(config: Config, name: str) -> ModelSpec:
    """Gemma 3: SigLIP, patches averaged to ``mm_tokens_per_image`` tokens."""
    spec = language_model(config, name, fixed="gemma3_text")
    vision = config.sub("vision_config")
    width = vision.integer("hidden_size")
    weights = (
        *encoder(vision, TOWER),
        vector(f"{PROJECTOR}.mm_input_projection_weight", width, spec.hidden_size),
        *norms(width, f"{PROJECTOR}.mm_soft_emb_norm", bias=False),
    )
    tower = vision_tower(
        vision,
        weights,
        tokens=config.integer("mm_tokens_per_image"),
        encoder_tokens=patches(vision),
    )
    return wrap(spec, [tower], tied=ties(config, spec))


def cohere2_vision(config: Config, name: str) -> ModelSpec:
    """Command A Vision: SigLIP, shuffled patches, a gated projector."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    factor = config.integer("downsample_factor")
    inner = config.integer("alignment_intermediate_size")
    weights = (
        *encoder(vision, TOWER),
        linear(
            f"{PROJECTOR}.linear_1", inner, vision.integer("hidden_size") * factor**2, bias=True
        ),
        linear(f"{PROJECTOR}.linear_2", spec.hidden_size, inner // 2, bias=True),
    )
    tiles = _MOST_TILES + 1
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (patches(vision) // factor**2),
        encoder_tokens=tiles * patches(vision),
    )
    sentence = (
        f"an image was taken to be cut into at most {_MOST_TILES} tiles and a thumbnail, as the "
        "published Command A Vision preprocessor does"
    )
    return wrap(spec, [tower], tied=ties(config, spec), assumptions=(sentence,))


def deepseek_vl(config: Config, name: str) -> ModelSpec:
    """DeepSeek-VL: SigLIP and a two-layer aligner."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    width = vision.integer("hidden_size")
    weights = (
        *encoder(vision, "model.vision_model"),
        linear("model.aligner.linear1", spec.hidden_size, width, bias=True),
        linear("model.aligner.linear2", spec.hidden_size, spec.hidden_size, bias=True),
    )
    tower = vision_tower(vision, weights, tokens=patches(vision), encoder_tokens=patches(vision))
    return wrap(spec, [tower], tied=ties(config, spec))


def lfm2_vl(config: Config, name: str) -> ModelSpec:
    """LFM2-VL: SigLIP 2 at native resolution, shuffled patches."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    factor = config.integer("downsample_factor")
    inputs = vision.integer("hidden_size") * factor**2
    inner = config.integer("projector_hidden_size")
    weights = encoder(vision, TOWER)
    if config.flag("projector_use_layernorm"):
        weights += norms(inputs, f"{PROJECTOR}.layer_norm")
    weights += two_layer_projector(
        PROJECTOR, inputs, spec.hidden_size, bias=config.flag("projector_bias"), inner=inner
    )
    tower = vision_tower(vision, weights, tokens=None, encoder_tokens=None)
    return wrap(spec, [tower], tied=ties(config, spec))


def _idefics_encoder(vision: Config) -> tuple[Weight, ...]:
    return siglip(vision, "model.vision_model", norm_names=("layer_norm1", "layer_norm2"))


def _idefics3(config: Config, name: str, *, vision_type: str, longest_edge: int) -> ModelSpec:
    spec = language_model(config, name)
    vision = config.sub("vision_config", vision_type, fixed=True)
    factor = config.integer("scale_factor")
    weights = (
        *_idefics_encoder(vision),
        linear(
            "model.connector.modality_projection.proj",
            spec.hidden_size,
            vision.integer("hidden_size") * factor**2,
        ),
    )
    tile, _ = side(vision, "image_size")
    across = max(1, longest_edge // tile)
    tiles = across**2 + 1
    count = patches(vision)
    # Each tile is framed by a begin and a position token and rows end in a newline.
    framing = 2 * tiles + across + 1
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (count // factor**2) + framing,
        encoder_tokens=tiles * count,
    )
    sentence = (
        f"images were taken to be scaled to a longest edge of {longest_edge} pixels, as the "
        "published preprocessor does"
    )
    tied = ties(config, spec)
    return wrap(spec, [tower], tied=tied, prefix="model.text_model", assumptions=(sentence,))


def idefics3(config: Config, name: str) -> ModelSpec:
    """Idefics 3: SigLIP on tiles, one linear projection of shuffled patches."""
    return _idefics3(config, name, vision_type="idefics3_vision", longest_edge=1456)


def smolvlm(config: Config, name: str) -> ModelSpec:
    """SmolVLM: as Idefics 3, on larger tiles."""
    return _idefics3(config, name, vision_type="smolvlm_vision", longest_edge=2048)


def idefics2(config: Config, name: str) -> ModelSpec:
    """Idefics 2: SigLIP, a gated projection, a perceiver that resamples to a few latents."""
    spec = language_model(config, name)
    vision = config.sub("vision_config", "idefics2_vision", fixed=True)
    perceiver = config.sub("perceiver_config", "idefics2_perceiver", fixed=True)
    hidden = spec.hidden_size
    latents = perceiver.integer("resampler_n_latents")
    width = perceiver.integer("resampler_n_heads") * perceiver.integer("resampler_head_dim")
    kv_width = perceiver.integer("num_key_value_heads") * perceiver.integer("resampler_head_dim")
    block = "model.connector.perceiver_resampler.layers.*"
    text = config.sub("text_config")
    connector = "model.connector.modality_projection"
    weights = (
        *_idefics_encoder(vision),
        linear(
            f"{connector}.gate_proj",
            text.integer("intermediate_size"),
            vision.integer("hidden_size"),
        ),
        linear(
            f"{connector}.up_proj", text.integer("intermediate_size"), vision.integer("hidden_size")
        ),
        linear(f"{connector}.down_proj", hidden, text.integer("intermediate_size")),
        vector("model.connector.perceiver_resampler.latents", latents, hidden),
        *norms(hidden, "model.connector.perceiver_resampler.norm", bias=False),
        *repeat(
            perceiver.integer("resampler_depth"),
            (
                *attention(
                    f"{block}.self_attn",
                    hidden,
                    width=width,
                    kv_width=kv_width,
                    out="o_proj",
                    bias=False,
                ),
                *mlp(f"{block}.mlp", hidden, 4 * hidden, names=GATED, bias=False),
                *norms(
                    hidden,
                    f"{block}.input_latents_norm",
                    f"{block}.input_context_norm",
                    f"{block}.post_attention_layernorm",
                    bias=False,
                ),
            ),
        ),
    )
    # A large image is cut into four parts beside the whole (``do_image_splitting``).
    tower = vision_tower(
        vision, weights, tokens=5 * (latents + 2), encoder_tokens=5 * patches(vision)
    )
    return wrap(spec, [tower], tied=ties(config, spec), prefix="model.text_model")


def aria(config: Config, name: str) -> ModelSpec:
    """Aria: an Idefics 3 encoder and queries that read its patches."""
    spec = language_model(config, name)
    vision = config.sub("vision_config")
    width = vision.integer("hidden_size")
    queries = {int(key): int(value) for key, value in _query_table(config).items()}
    hidden = spec.hidden_size
    cross = f"{PROJECTOR}.cross_attn"
    weights = (
        *siglip(vision, TOWER),
        vector(f"{PROJECTOR}.query", max(queries.values()), width),
        *(linear(f"{cross}.{part}_proj", width, width) for part in "qkv"),
        linear(f"{cross}.multihead_attn.in_proj", 3 * width, width, bias=True),
        linear(f"{cross}.multihead_attn.out_proj", width, width, bias=True),
        linear(f"{cross}.linear", width, width, bias=True),
        *norms(width, f"{cross}.layer_norm", f"{cross}.layer_norm_kv", f"{PROJECTOR}.layer_norm"),
        linear(f"{PROJECTOR}.feed_forward.linear_in", hidden, width),
        linear(f"{PROJECTOR}.feed_forward.linear_out", hidden, hidden),
    )
    tower = vision_tower(
        vision, weights, tokens=max(queries.values()), encoder_tokens=patches(vision)
    )
    return wrap(spec, [tower], tied=ties(config, spec))


def _query_table(config: Config) -> Mapping[str, int]:
    key = "projector_patch_to_query_dict"
    table = config.mapping(key)
    if table is None:
        return {"1225": 128, "4900": 256}
    if not table or not all(
        key.isdigit() and isinstance(value, int) and value > 0 for key, value in table.items()
    ):
        config.refuse(key, "an object from patch counts to query counts")
    return {name: value for name, value in table.items() if isinstance(value, int)}


def ovis2(config: Config, name: str) -> ModelSpec:
    """Ovis 2: AIMv2, patches turned into mixtures over a table of visual tokens."""
    spec = language_model(config, name)
    vision = config.sub("vision_config", "ovis2_vision", fixed=True)
    hidden = vision.integer("hidden_size")
    inner = vision.integer("intermediate_size")
    vocab = vision.integer("vocab_size")
    visual = vocab - vision.integer("num_visual_indicator_tokens")
    stride = vision.integer("hidden_stride")
    prefix = f"{TOWER}.transformer"
    block = f"{prefix}.encoder.layers.*"
    weights = (
        *_aimv2_embeddings(vision, prefix, hidden),
        *repeat(
            vision.integer("num_hidden_layers"),
            (
                *attention(f"{block}.attention", hidden, bias=vision.flag("qkv_bias")),
                *mlp(f"{block}.ffn", hidden, inner, names=GATED, bias=vision.flag("mlp_bias")),
                *norms(hidden, f"{block}.rms_norm1", f"{block}.rms_norm2", bias=False),
            ),
        ),
        linear(f"{TOWER}.head_linear", visual, hidden * stride**2),
        *norms(visual, f"{TOWER}.head_norm"),
        vector("model.visual_embeddings_table", vocab, config.integer("hidden_size")),
    )
    tiles = 10
    tower = vision_tower(
        vision,
        weights,
        tokens=tiles * (patches(vision) // stride**2),
        encoder_tokens=tiles * patches(vision),
    )
    sentence = "an image was taken to be cut into at most 9 tiles and a thumbnail"
    # The head of the whole has the outer configuration's vocabulary.
    spec = replace(with_tie(spec, True), vocab_size=config.integer("vocab_size"))
    return wrap(spec, [tower], tied=config.flag("tie_word_embeddings"), assumptions=(sentence,))


def _aimv2_embeddings(vision: Config, prefix: str, hidden: int) -> tuple[Weight, ...]:
    return (
        patch_embedding(vision, f"{prefix}.embeddings.patch_embedding", hidden),
        vector(f"{prefix}.embeddings.position_embedding", patches(vision), hidden),
        *norms(hidden, f"{prefix}.embeddings.rms_norm", f"{prefix}.rms_norm", bias=False),
    )


BUILDERS: Mapping[str, Builder] = {
    "aria": aria,
    "cohere2_vision": cohere2_vision,
    "deepseek_vl": deepseek_vl,
    "gemma3": gemma3,
    "idefics2": idefics2,
    "idefics3": idefics3,
    "internvl": internvl,
    "lfm2_vl": lfm2_vl,
    "lighton_ocr": lighton_ocr,
    "llava": llava,
    "llava_next": llava_next,
    "llava_next_video": llava_next,
    "llava_onevision": llava_onevision,
    "ministral3": ministral3,
    "mistral3": mistral3,
    "ovis2": ovis2,
    "paligemma": paligemma,
    "smolvlm": smolvlm,
    "vipllava": vipllava,
}
