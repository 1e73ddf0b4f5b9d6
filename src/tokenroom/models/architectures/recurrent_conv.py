"""LFM2 and LFM3: gated short convolutions with attention at some blocks.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.blocks import ffn_weights, linear, moe_weights, norm
from tokenroom.models.architectures.recurrent_blocks import (
    Part,
    check_layer_types,
    layer_types,
    short_conv,
    stack,
)
from tokenroom.models.architectures.recurrent_delta import FULL, FfnPart, attention_part
from tokenroom.models.config import MAX_INTEGER, Config
from tokenroom.models.spec import Attention, DenseFFN, Layer, ModelSpec, MoEFFN, Shard, Weight

CONV = "conv"


SLIDING = "sliding_attention"


def _lfm2_inner(config: Config) -> int:
    """Width of the feed-forward block (``Lfm2MLP``): two thirds, scaled, rounded up."""
    inner = config.integer("block_ff_dim", "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim"):
        return inner
    inner = int(2 * inner / 3)
    multiplier = config.optional_number("block_ffn_dim_multiplier", default=1.0)
    if multiplier is None:
        return inner
    multiple = config.integer("block_multiple_of")
    scaled = multiplier * inner
    if not 1 <= scaled <= MAX_INTEGER:
        config.refuse("block_ffn_dim_multiplier", f"a number that times {inner} is a width")
    return -(-int(scaled) // multiple) * multiple


def _lfm_ffn(config: Config, inner: int) -> FfnPart:
    weights = ffn_weights(
        hidden_size=config.integer("hidden_size"),
        intermediate_size=inner,
        prefix="feed_forward",
        gate="w1",
        up="w3",
        down="w2",
    )
    return DenseFFN(intermediate_size=inner), weights


def _lfm_experts(config: Config) -> FfnPart:
    experts = config.integer("num_experts")
    inner = config.integer("moe_intermediate_size")
    ffn = MoEFFN(
        num_experts=experts,
        experts_per_token=config.integer("num_experts_per_tok"),
        intermediate_size=inner,
    )
    weights = moe_weights(
        hidden_size=config.integer("hidden_size"),
        num_experts=experts,
        intermediate_size=inner,
        prefix="feed_forward",
        gate="w1",
        up="w3",
        down="w2",
    )
    return ffn, weights


def _lfm(
    config: Config,
    name: str,
    *,
    kinds: tuple[str, ...],
    sparse: tuple[bool, ...],
    attention: Part,
    norms: tuple[Weight, ...],
    inner: int,
) -> ModelSpec:
    hidden = config.integer("hidden_size")
    check_layer_types(config, kinds, (CONV, FULL, SLIDING))
    convolution = short_conv(
        hidden_size=hidden, kernel=config.integer("conv_L_cache"), bias=config.flag("conv_bias")
    )
    full = attention[0]
    assert isinstance(full, Attention)
    mixers = {
        FULL: attention,
        SLIDING: (replace(full, window=config.optional_integer("sliding_window")), attention[1]),
        CONV: convolution,
    }

    def make(kind: tuple[str, bool]) -> Layer:
        mixer, weights = mixers[kind[0]]
        ffn, block = _lfm_experts(config) if kind[1] else _lfm_ffn(config, inner)
        return Layer(mixers=(mixer,), ffn=ffn, weights=(*weights, *block, *norms))

    return decoder(
        config,
        name,
        layers=stack(zip(kinds, sparse, strict=True), make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_embedding", "tie_word_embeddings", default=True),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.embedding_norm", hidden),
    )


def _lfm2_norms(config: Config) -> tuple[Weight, ...]:
    hidden = config.integer("hidden_size")
    return norm("operator_norm", hidden), norm("ffn_norm", hidden)


def lfm2(config: Config, name: str) -> ModelSpec:
    """LFM2: short convolutions with attention at some blocks."""
    kinds = layer_types(config)
    if kinds is None:
        count = num_layers(config)
        full = config.integers("full_attn_idxs")
        kinds = tuple(FULL if full is None or i in full else CONV for i in range(count))
    config.mark_read("full_attn_idxs", "num_hidden_layers")
    return _lfm(
        config,
        name,
        kinds=kinds,
        sparse=(False,) * len(kinds),
        attention=attention_part(
            config, head_norms=("q_layernorm", "k_layernorm"), output="out_proj"
        ),
        norms=_lfm2_norms(config),
        inner=_lfm2_inner(config),
    )


def lfm2_moe(config: Config, name: str) -> ModelSpec:
    """LFM2 with mixtures of experts after the first dense blocks."""
    kinds = layer_types(config)
    if kinds is None:
        config.refuse("layer_types", "a list of conv and full_attention")
    dense = config.integer("num_dense_layers", minimum=0)
    return _lfm(
        config,
        name,
        kinds=kinds,
        sparse=tuple(index >= dense for index in range(len(kinds))),
        attention=attention_part(
            config, head_norms=("q_layernorm", "k_layernorm"), output="out_proj"
        ),
        norms=_lfm2_norms(config),
        inner=config.integer("intermediate_size"),
    )


def lfm3(config: Config, name: str) -> ModelSpec:
    """LFM3: short convolutions, sliding and full attention with an output gate a head."""
    hidden = config.integer("hidden_size")
    kinds = layer_types(config)
    if kinds is None:
        kinds = tuple(
            FULL if index % 4 == 2 else SLIDING if index % 4 == 0 and index else CONV
            for index in range(num_layers(config))
        )
    mixer, weights = attention_part(
        config, bias=config.flag("attention_bias"), head_norms=("q_norm", "k_norm")
    )
    if config.flag("use_attention_gate"):
        heads = config.integer("num_attention_heads")
        weights += (linear("self_attn.g_proj", heads, hidden, shard=Shard.COLUMN),)
    norms = _lfm2_norms(config)
    if config.flag("use_sandwich_norm"):
        norms += (norm("post_operator_norm", hidden), norm("post_ffn_norm", hidden))
    return _lfm(
        config,
        name,
        kinds=kinds,
        sparse=(False,) * len(kinds),
        attention=(mixer, weights),
        norms=norms,
        inner=config.integer("intermediate_size"),
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "lfm3": lfm3,
}
