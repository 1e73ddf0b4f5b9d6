"""Expert models that share little with the others: DBRX, JetMoE and Doge (transformers 5.24)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.decoders import (
    attention_weights_of,
    build,
    builders,
    dense_part,
)
from tokenroom.models.architectures.family import (
    Family,
    FeedForwardPart,
    Heads,
    MixerPart,
    Names,
    QKNorm,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    Attention,
    Layer,
    ModelSpec,
    MoEFFN,
    Role,
    Shard,
    Weight,
)

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder


def _dbrx(config: Config, name: str) -> ModelSpec:
    """DBRX, whose attention and feed-forward fields lie in nested configurations."""
    attention = config.sub("attn_config", "dbrx_attention")
    ffn = config.sub("ffn_config", "dbrx_ffn")
    num_kv_heads = attention.integer("kv_n_heads", default=1)
    num_experts = ffn.integer("moe_num_experts", default=4)
    width = ffn.integer("ffn_hidden_size", default=3584)
    per_token = ffn.integer("moe_top_k", default=1, maximum=num_experts)

    def mixers(config: Config, family: Family, hidden_size: int, count: int) -> Sequence[MixerPart]:
        num_heads = config.integer("num_attention_heads")
        heads = Heads(
            num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=hidden_size // num_heads
        )
        mixer = Attention(
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=heads.head_dim,
            value_head_dim=heads.head_dim,
        )
        weights = attention_weights_of(config, family, hidden_size, heads)
        return (MixerPart(mixer=mixer, weights=weights),) * count

    def experts(
        config: Config, family: Family, hidden_size: int, count: int
    ) -> Sequence[FeedForwardPart]:
        weights = blocks.moe_weights(
            hidden_size=hidden_size,
            num_experts=num_experts,
            intermediate_size=width,
            prefix="ffn",
            router_name="router.layer",
            experts="experts.mlp.*",
            gate="w1",
            up="v1",
            down="w2",
        )
        moe = MoEFFN(num_experts=num_experts, experts_per_token=per_token, intermediate_size=width)
        return (FeedForwardPart(ffn=moe, weights=weights),) * count

    return build(config, name, replace(_DBRX, attention=mixers, feed_forward=experts))


def _jetmoe(config: Config, name: str) -> ModelSpec:
    """JetMoE, whose query and output projections are experts too."""
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    num_kv_heads = config.integer("num_key_value_heads")
    head_dim = config.integer("kv_channels")
    num_experts = config.integer("num_local_experts")
    per_token = config.integer("num_experts_per_tok", maximum=num_experts)
    width = config.integer("intermediate_size")
    kv_width = num_kv_heads * head_dim

    def expert(name: str, out_features: int, in_features: int, shard: Shard) -> Weight:
        weight = blocks.linear(name, out_features, in_features, shard=shard)
        return replace(weight, count=num_experts, expert=True)

    attention = "self_attention"
    weights = (
        expert(f"{attention}.experts.input_linear", kv_width, hidden_size, Shard.COLUMN),
        expert(f"{attention}.experts.output_linear", hidden_size, kv_width, Shard.ROW),
        blocks.vector(f"{attention}.experts.bias", hidden_size),
        blocks.router(hidden_size, num_experts, name=f"{attention}.experts.router.layer"),
        blocks.linear(f"{attention}.kv_proj", kv_width, hidden_size, shard=Shard.KV_COLUMN),
        blocks.linear(f"{attention}.kv_proj", kv_width, hidden_size, shard=Shard.KV_COLUMN),
        expert("mlp.input_linear", 2 * width, hidden_size, Shard.COLUMN),
        expert("mlp.output_linear", hidden_size, width, Shard.ROW),
        blocks.vector("mlp.bias", hidden_size),
        blocks.router(hidden_size, num_experts, name="mlp.router.layer"),
        blocks.norm("input_layernorm", hidden_size),
        blocks.norm("post_attention_layernorm", hidden_size),
    )
    mixer = Attention(
        num_heads=num_kv_heads * per_token,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        value_head_dim=head_dim,
    )
    moe = MoEFFN(num_experts=num_experts, experts_per_token=per_token, intermediate_size=width)
    layer = Layer(mixers=(mixer,), ffn=moe, weights=weights)
    return decoder(
        config,
        name,
        layers=(layer,) * num_layers(config),
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=blocks.norm("model.norm", hidden_size),
    )


def _doge_mask(config: Config, hidden_size: int, heads: Heads) -> tuple[Weight, ...]:
    """Doge's learned mask over values: one gate and one scalar a KV head."""
    kv_width = heads.num_kv_heads * heads.head_dim
    bias = config.flag("attention_bias")
    return (
        blocks.vector("self_attn.A", heads.num_kv_heads),
        blocks.linear("self_attn.dt_proj", heads.num_kv_heads, kv_width, bias=bias),
    )


def _doge_feed_forward(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[FeedForwardPart]:
    """A dense block; with ``is_moe`` also tables of one-neuron experts that it retrieves."""
    width = config.integer("intermediate_size")
    part = dense_part(config, family, hidden_size, width)
    if config.flag("is_moe"):
        num_experts = config.integer("num_experts")
        per_token = config.integer("num_experts_per_tok", maximum=num_experts)
        keys = 2 * math.isqrt(num_experts)
        tables = tuple(
            Weight(
                name=f"mlp.{table}",
                shape=(1, hidden_size),
                role=Role.OTHER,
                count=num_experts,
                expert=True,
            )
            for table in ("down_embed", "up_embed")
        )
        ffn = MoEFFN(
            num_experts=num_experts,
            experts_per_token=per_token,
            intermediate_size=1,
            shared_intermediate_size=width,
            gated=False,
        )
        gate = blocks.router(hidden_size, keys, name="mlp.router_gate")
        part = FeedForwardPart(ffn=ffn, weights=(*part.weights, gate, *tables))
    return (part,) * count


_BIASED: Final = Family(q_bias="attention_bias", o_bias="attention_bias")
_DBRX: Final = Family(
    norms=("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
    max_positions="max_seq_len",
    names=Names(
        attention="norm_attn_norm.attn",
        q="Wqkv",
        k="Wqkv",
        v="Wqkv",
        o="out_proj",
        layers="transformer.blocks",
        embedding="transformer.wte",
        final_norm="transformer.norm_f",
    ),
)


_FAMILIES: Final[Mapping[str, Family]] = {
    "doge": replace(
        _BIASED,
        in_bias="mlp_bias",
        qk_norm=QKNorm.HEAD,
        even_heads=True,
        windows=windows.every_layer,
        attention_extra=_doge_mask,
        feed_forward=_doge_feed_forward,
        extra=lambda config, hidden_size: (
            blocks.vector("input_residual", hidden_size),
            blocks.vector("post_attention_residual", hidden_size),
        ),
    ),
}

BUILDERS: Final[Mapping[str, Builder]] = {
    **builders(_FAMILIES),
    "dbrx": _dbrx,
    "jetmoe": _jetmoe,
}
