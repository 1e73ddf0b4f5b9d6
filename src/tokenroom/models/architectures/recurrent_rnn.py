"""Recurrent networks beside or instead of attention: RecurrentGemma and RWKV.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``). vLLM 0.33 has none of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.blocks import (
    attention_weights,
    ffn_weights,
    linear,
    norm,
    vector,
)
from tokenroom.models.architectures.recurrent_blocks import FLOAT32, convolution, stack
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    Attention,
    DenseFFN,
    Layer,
    ModelSpec,
    Recurrence,
    Recurrent,
    Shard,
    Weight,
)


def recurrent_gemma(config: Config, name: str) -> ModelSpec:
    """RecurrentGemma (Griffin): gated linear recurrences with sliding attention between."""
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    head_dim = hidden // heads
    width = config.optional_integer("lru_width") or hidden
    kernel = config.integer("conv1d_width")
    # The configuration gives gate and up projection together.
    inner = config.integer("intermediate_size") // 2
    bias = config.flag("attention_bias")
    attention = Attention(
        num_heads=heads,
        num_kv_heads=config.optional_integer("num_key_value_heads") or heads,
        head_dim=head_dim,
        value_head_dim=head_dim,
        window=config.integer("attention_window_size", "sliding_window"),
    )
    recurrence = Recurrent(
        kind=Recurrence.RG_LRU,
        conv_dim=width,
        conv_kernel=kernel,
        state_shape=(width,),
        state_dtype=FLOAT32,
    )
    block = width // heads
    lru = "temporal_block.rg_lru"
    recurrent_weights: tuple[Weight, ...] = (
        linear("temporal_block.linear_y", width, hidden, bias=True, shard=Shard.COLUMN),
        linear("temporal_block.linear_x", width, hidden, bias=True, shard=Shard.COLUMN),
        linear("temporal_block.linear_out", hidden, width, bias=True, shard=Shard.ROW),
        convolution("temporal_block.conv_1d", width, kernel, bias=True),
        vector(f"{lru}.recurrent_param", width, shard=Shard.COLUMN),
        vector(f"{lru}.input_gate_weight", heads, block, block, shard=Shard.COLUMN),
        vector(f"{lru}.input_gate_bias", heads, block, shard=Shard.COLUMN),
        vector(f"{lru}.recurrent_gate_weight", heads, block, block, shard=Shard.COLUMN),
        vector(f"{lru}.recurrent_gate_bias", heads, block, shard=Shard.COLUMN),
    )
    attention_weight = attention_weights(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=head_dim,
        q_bias=bias,
        k_bias=bias,
        v_bias=bias,
        o_bias=True,
        prefix="temporal_block",
    )
    shared = (
        norm("temporal_pre_norm", hidden),
        norm("channel_pre_norm", hidden),
        *ffn_weights(
            hidden_size=hidden,
            intermediate_size=inner,
            in_bias=True,
            out_bias=True,
            prefix="mlp_block",
        ),
    )
    kinds = config.texts("block_types", "_block_types") or ("recurrent", "recurrent", "attention")
    if not set(kinds) <= {"recurrent", "attention"}:
        config.refuse("block_types", "a list of recurrent and attention")
    ffn = DenseFFN(intermediate_size=inner)

    def make(kind: str) -> Layer:
        if kind == "attention":
            return Layer(mixers=(attention,), ffn=ffn, weights=(*attention_weight, *shared))
        return Layer(mixers=(recurrence,), ffn=ffn, weights=(*recurrent_weights, *shared))

    count = num_layers(config)
    return decoder(
        config,
        name,
        layers=stack((kinds[index % len(kinds)] for index in range(count)), make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=None,
        final_norm=norm("model.final_norm", hidden),
        logits_softcap=config.optional_number("logits_soft_cap", default=30.0) is not None,
    )


def rwkv(config: Config, name: str) -> ModelSpec:
    """RWKV-4: a token shift before each half of a block, and three running sums a channel.

    The shift keeps the last token's input of both halves (a convolution of two taps); numerator,
    denominator and largest exponent are float32 (``RwkvModel.forward``).
    """
    hidden = config.integer("hidden_size")
    width = config.optional_integer("attention_hidden_size") or hidden
    inner = config.optional_integer("intermediate_size") or 4 * hidden
    mixer = Recurrent(
        kind=Recurrence.RWKV,
        conv_dim=2 * hidden,
        conv_kernel=2,
        state_shape=(3, width),
        state_dtype=FLOAT32,
    )
    weights = (
        norm("ln1", hidden, bias=True),
        norm("ln2", hidden, bias=True),
        vector("attention.time_decay", width, shard=Shard.COLUMN),
        vector("attention.time_first", width, shard=Shard.COLUMN),
        vector("attention.time_mix_key", hidden),
        vector("attention.time_mix_value", hidden),
        vector("attention.time_mix_receptance", hidden),
        linear("attention.key", width, hidden, shard=Shard.COLUMN),
        linear("attention.value", width, hidden, shard=Shard.COLUMN),
        linear("attention.receptance", width, hidden, shard=Shard.COLUMN),
        linear("attention.output", hidden, width, shard=Shard.ROW),
        vector("feed_forward.time_mix_key", hidden),
        vector("feed_forward.time_mix_receptance", hidden),
        linear("feed_forward.key", inner, hidden, shard=Shard.COLUMN),
        linear("feed_forward.receptance", hidden, hidden),
        linear("feed_forward.value", hidden, inner, shard=Shard.ROW),
    )
    ffn = DenseFFN(intermediate_size=inner, gated=False)
    first = Layer(mixers=(mixer,), ffn=ffn, weights=(norm("pre_ln", hidden, bias=True), *weights))
    rest = Layer(mixers=(mixer,), ffn=ffn, weights=weights)
    return decoder(
        config,
        name,
        layers=(first, *(rest,) * (num_layers(config) - 1)),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=None,
        final_norm=norm("rwkv.ln_out", hidden, bias=True),
        layer_prefix="rwkv.blocks",
        embedding_name="rwkv.embeddings",
        head_name="head",
    )


BUILDERS: Mapping[str, Builder] = {"recurrent_gemma": recurrent_gemma, "rwkv": rwkv}
