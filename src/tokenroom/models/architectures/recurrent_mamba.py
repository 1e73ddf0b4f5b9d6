"""Models of Mamba layers, alone or between attention layers.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.blocks import attention_weights, ffn_weights, moe_weights, norm
from tokenroom.models.architectures.recurrent_blocks import (
    Part,
    check_layer_types,
    layer_types,
    mamba1,
    mamba2,
    plain_attention,
    stack,
)
from tokenroom.models.architectures.towers import scaled
from tokenroom.models.config import Config
from tokenroom.models.spec import FFN, DenseFFN, Layer, ModelSpec, MoEFFN, Weight

LINEAR = "linear_attention"


FULL = "full_attention"


def time_step_rank(config: Config, key: str, hidden_size: int) -> int:
    """Width of the time step projection: ``"auto"`` is a sixteenth of the hidden size."""
    if config.get(key, default="auto") == "auto":
        return math.ceil(hidden_size / 16)
    return config.integer(key)


def mamba(config: Config, name: str) -> ModelSpec:
    """Mamba and Falcon Mamba: nothing but selective state space layers."""
    hidden = config.integer("hidden_size")
    vocab = config.integer("vocab_size")
    inner = config.optional_integer("intermediate_size") or scaled(config, "expand", hidden)
    mixer, weights = mamba1(
        hidden_size=hidden,
        inner_size=inner,
        state_size=config.integer("state_size"),
        kernel=config.integer("conv_kernel"),
        rank=time_step_rank(config, "time_step_rank", hidden),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
    )
    layer = Layer(mixers=(mixer,), ffn=None, weights=(norm("norm", hidden), *weights))
    return decoder(
        config,
        name,
        layers=(layer,) * num_layers(config),
        hidden_size=hidden,
        vocab_size=vocab,
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=None,
        final_norm=norm("backbone.norm_f", hidden),
        layer_prefix="backbone.layers",
        embedding_name="backbone.embeddings",
    )


def mamba_2(config: Config, name: str) -> ModelSpec:
    """Mamba-2: nothing but state space duality layers."""
    hidden = config.integer("hidden_size")
    vocab = config.integer("vocab_size")
    mixer, weights = mamba2(
        hidden_size=hidden,
        num_heads=config.integer("num_heads"),
        head_dim=config.integer("head_dim"),
        num_groups=config.integer("n_groups"),
        state_size=config.integer("state_size"),
        kernel=config.integer("conv_kernel"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
    )
    layer = Layer(mixers=(mixer,), ffn=None, weights=(norm("norm", hidden), *weights))
    return decoder(
        config,
        name,
        layers=(layer,) * num_layers(config),
        hidden_size=hidden,
        vocab_size=vocab,
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=None,
        final_norm=norm("backbone.norm_f", hidden),
        layer_prefix="backbone.layers",
        embedding_name="backbone.embeddings",
    )


def _attention(config: Config, *, bias: bool = False, prefix: str = "self_attn") -> Part:
    attention = plain_attention(config)
    weights = attention_weights(
        hidden_size=config.integer("hidden_size"),
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        q_bias=bias,
        k_bias=bias,
        v_bias=bias,
        o_bias=bias,
        prefix=prefix,
    )
    return attention, weights


def jamba(config: Config, name: str) -> ModelSpec:
    """Jamba: Mamba layers, every few an attention layer, every other FFN a mixture of experts."""
    hidden = config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    experts = config.integer("num_experts", "num_local_experts")
    attention_period = config.integer("attn_layer_period")
    attention_offset = config.integer("attn_layer_offset", minimum=0)
    expert_period = config.integer("expert_layer_period")
    expert_offset = config.integer("expert_layer_offset", minimum=0)
    state_space = mamba1(
        hidden_size=hidden,
        inner_size=config.integer("mamba_expand") * hidden,
        state_size=config.integer("mamba_d_state"),
        kernel=config.integer("mamba_d_conv"),
        rank=time_step_rank(config, "mamba_dt_rank", hidden),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias"),
        state_norms=True,
        prefix="mamba",
    )
    attention = _attention(config)
    norms = (norm("input_layernorm", hidden), norm("pre_ff_layernorm", hidden))

    def make(kind: tuple[bool, bool]) -> Layer:
        attends, sparse = kind
        mixer, weights = attention if attends else state_space
        if sparse:
            ffn: FFN = MoEFFN(
                num_experts=experts,
                experts_per_token=config.integer("num_experts_per_tok"),
                intermediate_size=inner,
            )
            block = moe_weights(
                hidden_size=hidden,
                num_experts=experts,
                intermediate_size=inner,
                prefix="feed_forward",
                router_name="router",
            )
        else:
            ffn = DenseFFN(intermediate_size=inner)
            block = ffn_weights(hidden_size=hidden, intermediate_size=inner, prefix="feed_forward")
        return Layer(mixers=(mixer,), ffn=ffn, weights=(*weights, *block, *norms))

    layers = stack(
        (
            (
                index % attention_period == attention_offset,
                experts > 1 and index % expert_period == expert_offset,
            )
            for index in range(num_layers(config))
        ),
        make,
    )
    return decoder(
        config,
        name,
        layers=layers,
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.final_layernorm", hidden),
    )


def _hybrid_mamba2(
    config: Config, *, gated_norm: bool = True, out_bias: bool | None = None
) -> Part:
    """The Mamba-2 layer of Bamba, Falcon-H1 and Granite 4 (``mamba_*`` fields)."""
    hidden = config.integer("hidden_size")
    heads = config.integer("mamba_n_heads")
    inner = config.optional_integer("mamba_d_ssm") or config.integer("mamba_expand") * hidden
    automatic = config.get("mamba_d_head") == "auto"
    return mamba2(
        hidden_size=hidden,
        num_heads=heads,
        head_dim=inner // heads if automatic else config.integer("mamba_d_head"),
        num_groups=config.integer("mamba_n_groups"),
        state_size=config.integer("mamba_d_state"),
        kernel=config.integer("mamba_d_conv"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias"),
        out_bias=out_bias,
        inner_size=inner,
        gated_norm=gated_norm,
        prefix="mamba",
    )


def _dense_ffn(config: Config) -> tuple[DenseFFN, tuple[Weight, ...]]:
    inner = config.integer("intermediate_size")
    bias = config.flag("mlp_bias")
    weights = ffn_weights(
        hidden_size=config.integer("hidden_size"),
        intermediate_size=inner,
        in_bias=bias,
        out_bias=bias,
        prefix="feed_forward",
    )
    return DenseFFN(intermediate_size=inner), weights


def bamba(config: Config, name: str) -> ModelSpec:
    """Bamba: Mamba-2 layers with attention at listed indices."""
    hidden = config.integer("hidden_size")
    attends = frozenset(config.integers("attn_layer_indices") or ())
    attention = _attention(config, bias=config.flag("attention_bias"))
    state_space = _hybrid_mamba2(config)
    ffn, block = _dense_ffn(config)
    norms = (norm("input_layernorm", hidden), norm("pre_ff_layernorm", hidden))

    def make(is_attention: bool) -> Layer:
        mixer, weights = attention if is_attention else state_space
        return Layer(mixers=(mixer,), ffn=ffn, weights=(*weights, *block, *norms))

    return decoder(
        config,
        name,
        layers=stack((index in attends for index in range(num_layers(config))), make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.final_layernorm", hidden),
    )


def falcon_h1(config: Config, name: str) -> ModelSpec:
    """Falcon-H1: attention and Mamba-2 side by side in every block."""
    hidden = config.integer("hidden_size")
    attention, attention_weight = _attention(config, bias=config.flag("attention_bias"))
    state_space, state_weights = _hybrid_mamba2(
        config,
        gated_norm=config.flag("mamba_rms_norm"),
        out_bias=config.flag("projectors_bias"),
    )
    ffn, block = _dense_ffn(config)
    layer = Layer(
        mixers=(state_space, attention),
        ffn=ffn,
        weights=(
            *state_weights,
            *attention_weight,
            *block,
            norm("input_layernorm", hidden),
            norm("pre_ff_layernorm", hidden),
        ),
    )
    return decoder(
        config,
        name,
        layers=(layer,) * num_layers(config),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.final_layernorm", hidden),
    )


def granite_hybrid(config: Config, name: str) -> ModelSpec:
    """Granite 4: Mamba-2 or attention, then shared and (unless there are none) routed experts."""
    hidden = config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    shared = config.integer("shared_intermediate_size")
    experts = config.integer("num_local_experts", minimum=0)
    kinds = layer_types(config, "layer_types", "layers_block_type")
    if kinds is None:
        kinds = (LINEAR,) * num_layers(config)
    check_layer_types(config, kinds, (LINEAR, FULL))
    attention = _attention(config, bias=config.flag("attention_bias"))
    state_space = _hybrid_mamba2(config) if LINEAR in kinds else None
    block = ffn_weights(
        hidden_size=hidden,
        intermediate_size=shared,
        prefix="shared_mlp",
        gate="input_linear",
        up="input_linear",
        down="output_linear",
    )
    ffn: FFN = DenseFFN(intermediate_size=shared)
    if experts:
        ffn = MoEFFN(
            num_experts=experts,
            experts_per_token=config.integer("num_experts_per_tok"),
            intermediate_size=inner,
            shared_intermediate_size=shared,
        )
        block += moe_weights(
            hidden_size=hidden,
            num_experts=experts,
            intermediate_size=inner,
            prefix="block_sparse_moe",
            router_name="router",
        )
    norms = (norm("input_layernorm", hidden), norm("post_attention_layernorm", hidden))

    def make(kind: str) -> Layer:
        mixer, weights = attention if kind == FULL or state_space is None else state_space
        return Layer(mixers=(mixer,), ffn=ffn, weights=(*weights, *block, *norms))

    return decoder(
        config,
        name,
        layers=stack(kinds, make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.norm", hidden),
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "falcon_mamba": mamba,
    "granitemoehybrid": granite_hybrid,
    "jamba": jamba,
    "mamba": mamba,
    "mamba2": mamba_2,
}
