"""Idefics, SmolVLM and Aria: SigLIP encoders, read by a projection or by learned queries.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); tokens of the largest item
as vLLM 0.33's processing classes compute them (``model_executor/models/<type>.py``), from the
published preprocessor files where config.json does not carry the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.blocks import linear, vector
from tokenroom.models.architectures.multimodal_base import language_model, ties, vision_tower, wrap
from tokenroom.models.architectures.multimodal_llava import PROJECTOR, TOWER
from tokenroom.models.architectures.towers import (
    GATED,
    attention,
    mlp,
    norms,
    patches,
    repeat,
    side,
    siglip,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec, Weight


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


BUILDERS: Final[Mapping[str, Builder]] = {
    "aria": aria,
    "idefics2": idefics2,
    "idefics3": idefics3,
    "smolvlm": smolvlm,
}
