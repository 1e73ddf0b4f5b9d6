"""Zamba and Zamba2: Mamba layers, some preceded by an attention block that many places share.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``); a shared block is counted
where it first occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.blocks import ffn_weights, linear, norm
from tokenroom.models.architectures.recurrent_blocks import (
    Part,
    check_layer_types,
    layer_types,
    mamba1,
    mamba2,
    stack,
)
from tokenroom.models.architectures.recurrent_mamba import LINEAR, time_step_rank
from tokenroom.models.architectures.towers import scaled
from tokenroom.models.config import Config
from tokenroom.models.spec import Attention, DenseFFN, Layer, ModelSpec, Role, Shard, Weight


def _hybrid_kinds(config: Config, default: tuple[str, ...]) -> tuple[str, ...]:
    kinds = layer_types(config, "layers_block_type", "layer_types") or default
    check_layer_types(config, kinds, (LINEAR, "hybrid"))
    return kinds


def _shared_attention(config: Config, attention_size: int, head_dim: int) -> Part:
    """The wide attention of Zamba, which reads the hidden state beside the embedding."""
    heads = config.integer("num_attention_heads")
    kv_heads = config.optional_integer("num_key_value_heads") or heads
    hidden = config.integer("hidden_size")
    mixer = Attention(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, value_head_dim=head_dim
    )
    prefix = "shared_transformer.self_attn"
    weights = (
        linear(f"{prefix}.q_proj", heads * head_dim, attention_size, shard=Shard.COLUMN),
        linear(f"{prefix}.k_proj", kv_heads * head_dim, attention_size, shard=Shard.KV_COLUMN),
        linear(f"{prefix}.v_proj", kv_heads * head_dim, attention_size, shard=Shard.KV_COLUMN),
        linear(f"{prefix}.o_proj", hidden, heads * head_dim, shard=Shard.ROW),
        norm("shared_transformer.input_layernorm", attention_size),
        norm("shared_transformer.pre_ff_layernorm", hidden),
    )
    return mixer, weights


def zamba(config: Config, name: str) -> ModelSpec:
    """Zamba: Mamba layers, some preceded by one attention block that all of them share."""
    hidden = config.integer("hidden_size")
    inner = config.integer("mamba_expand") * hidden
    state_size = config.integer("mamba_d_state")
    kernel = config.integer("mamba_d_conv")
    heads = config.integer("n_mamba_heads")
    rank = time_step_rank(config, "mamba_dt_rank", hidden)
    bias = config.flag("mamba_proj_bias")
    period, offset = (
        config.integer("attn_layer_period"),
        config.integer("attn_layer_offset", minimum=0),
    )
    repeated = (
        "hybrid" if index % period == offset else LINEAR for index in range(num_layers(config) - 3)
    )
    default = (LINEAR, LINEAR, "hybrid", *repeated)
    kinds = _hybrid_kinds(config, default)
    state_space, weights = mamba1(
        hidden_size=hidden,
        inner_size=inner,
        state_size=state_size,
        kernel=kernel,
        rank=rank,
        bias=bias,
        conv_bias=config.flag("mamba_conv_bias"),
        prefix="mamba",
    )
    # Each Mamba head has its own projection of time step, B and C over its own channels.
    weights = tuple(
        Weight(
            name="mamba.x_proj_weight",
            shape=(heads, rank + 2 * state_size, inner // heads),
            role=Role.LINEAR,
            shard=Shard.COLUMN,
        )
        if weight.name == "mamba.x_proj"
        else weight
        for weight in weights
    )
    attention_size = config.optional_integer("attention_hidden_size") or 2 * hidden
    head_dim = config.optional_integer("attention_head_dim", "head_dim")
    if head_dim is None:
        head_dim = 2 * hidden // config.integer("num_attention_heads")
    attention, shared = _shared_attention(config, attention_size, head_dim)
    shared += ffn_weights(
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        prefix="shared_transformer.feed_forward",
    )
    ffn = DenseFFN(intermediate_size=config.integer("intermediate_size"))
    plain = (*weights, norm("input_layernorm", hidden))
    join = linear("linear", hidden, hidden)
    first = kinds.index("hybrid") if "hybrid" in kinds else -1

    def make(kind: tuple[str, bool]) -> Layer:
        if kind[0] == LINEAR:
            return Layer(mixers=(state_space,), ffn=None, weights=plain)
        own = shared if kind[1] else ()
        return Layer(mixers=(attention, state_space), ffn=ffn, weights=(*own, join, *plain))

    return decoder(
        config,
        name,
        layers=stack(((kind, index == first) for index, kind in enumerate(kinds)), make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.final_layernorm", hidden),
    )


_ZAMBA2_KINDS = (
    LINEAR,
    *((LINEAR,) * 5 + ("hybrid",)) * 7,
    *(LINEAR,) * 4,
    "hybrid",
    *(LINEAR,) * 3,
    "hybrid",
    *(LINEAR,) * 2,
)


def zamba2(config: Config, name: str) -> ModelSpec:
    """Zamba2: Mamba-2 layers, some preceded by one of a few shared attention blocks.

    A shared block has low-rank adapters of its own for every place where it stands.
    """
    hidden = config.integer("hidden_size")
    inner = scaled(config, "mamba_expand", hidden)
    mamba_heads = config.integer("n_mamba_heads")
    bias = config.flag("add_bias_linear")
    ffn_size = config.optional_integer("intermediate_size") or 4 * hidden
    blocks = config.integer("num_mem_blocks")
    rank = config.integer("adapter_rank")
    heads = config.integer("num_attention_heads")
    kinds = _hybrid_kinds(config, _ZAMBA2_KINDS)
    state_space, weights = mamba2(
        hidden_size=hidden,
        num_heads=mamba_heads,
        head_dim=inner // mamba_heads,
        num_groups=config.integer("mamba_ngroups"),
        state_size=config.integer("mamba_d_state"),
        kernel=config.integer("mamba_d_conv"),
        bias=bias,
        conv_bias=True,
        inner_size=inner,
        prefix="mamba",
    )
    attention, shared = _shared_attention(config, 2 * hidden, 2 * hidden // heads)
    ffn_prefix = "shared_transformer.feed_forward"
    shared += ffn_weights(
        hidden_size=hidden,
        intermediate_size=ffn_size,
        in_bias=bias,
        out_bias=bias,
        prefix=ffn_prefix,
        gate="gate_up_proj",
        up="gate_up_proj",
    )
    adapters: tuple[Weight, ...] = (
        linear(f"{ffn_prefix}.gate_up_proj_adapter_list.*.0", rank, hidden),
        linear(
            f"{ffn_prefix}.gate_up_proj_adapter_list.*.1", 2 * ffn_size, rank, shard=Shard.COLUMN
        ),
    )
    if config.flag("use_shared_attention_adapter"):
        for part in "qkv":
            path = f"shared_transformer.self_attn.linear_{part}_adapter_list.*"
            adapters += (
                linear(f"{path}.0", rank, 2 * hidden),
                linear(f"{path}.1", 2 * hidden, rank, shard=Shard.COLUMN),
            )
    plain = (*weights, norm("input_layernorm", hidden))
    join = linear("linear", hidden, hidden)
    ffn = DenseFFN(intermediate_size=ffn_size)

    def make(kind: tuple[str, bool]) -> Layer:
        if kind[0] == LINEAR:
            return Layer(mixers=(state_space,), ffn=None, weights=plain)
        own = (*shared, *adapters) if kind[1] else adapters
        return Layer(mixers=(attention, state_space), ffn=ffn, weights=(*own, join, *plain))

    places = [index for index, kind in enumerate(kinds) if kind == "hybrid"][:blocks]
    long = config.flag("use_long_context")
    return decoder(
        config,
        name,
        layers=stack(((kind, index in places) for index, kind in enumerate(kinds)), make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=(
            16384 if long else config.optional_integer("max_position_embeddings")
        ),
        final_norm=norm("model.final_layernorm", hidden),
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "zamba": zamba,
    "zamba2": zamba2,
}
