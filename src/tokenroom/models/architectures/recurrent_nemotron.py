"""Nemotron-H and Nemotron 3: one mixer or one feed-forward part a block, in a listed order.

Parameters as transformers 5.24 builds them (``modeling_nemotron_h.py``); the prediction blocks
(MTP) as vLLM 0.33 loads them (``nemotron_h_mtp.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import decoder
from tokenroom.models.architectures.blocks import (
    attention_weights,
    expert_weights,
    ffn_weights,
    linear,
    norm,
    router,
)
from tokenroom.models.architectures.recurrent_blocks import (
    check_layer_types,
    layer_types,
    mamba2,
    stack,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import Attention, DenseFFN, Layer, ModelSpec, MoEFFN, Shard

_LETTERS: Mapping[str, str] = {
    "M": "linear_attention",
    "E": "moe",
    "*": "full_attention",
    "-": "mlp",
}
_KINDS = ("linear_attention", "full_attention", "moe", "mlp")
_DEFAULT_STATE_DTYPE = "float32"


def _pattern(config: Config, list_key: str, pattern_key: str) -> tuple[str, ...] | None:
    """The kinds of blocks, from a list or from letters such as ``"MEM*E"``."""
    kinds = layer_types(config, list_key)
    if kinds is None:
        letters = config.text(pattern_key)
        if not letters:
            return None
        if not set(letters) <= set(_LETTERS):
            config.refuse(pattern_key, "letters M (Mamba), E (experts), * (attention) and - (MLP)")
        kinds = tuple(_LETTERS[letter] for letter in letters)
    check_layer_types(config, kinds, _KINDS)
    return kinds


def _attention(config: Config, hidden: int) -> Layer:
    heads = config.integer("num_attention_heads")
    head_dim = config.integer("head_dim")
    attention = Attention(
        num_heads=heads,
        num_kv_heads=config.optional_integer("num_key_value_heads") or heads,
        head_dim=head_dim,
        value_head_dim=head_dim,
    )
    weights = attention_weights(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=head_dim,
        prefix="mixer",
    )
    return Layer(mixers=(attention,), ffn=None, weights=(norm("norm", hidden), *weights))


def _mamba(config: Config, hidden: int) -> Layer:
    mixer, weights = mamba2(
        hidden_size=hidden,
        num_heads=config.integer("mamba_num_heads"),
        head_dim=config.integer("mamba_head_dim"),
        num_groups=config.integer("mamba_n_groups", "n_groups"),
        state_size=config.integer("ssm_state_size"),
        kernel=config.integer("mamba_d_conv", "conv_kernel"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("mamba_conv_bias", "use_conv_bias"),
        state_dtype=config.text("mamba_ssm_cache_dtype", default=_DEFAULT_STATE_DTYPE),
    )
    return Layer(mixers=(mixer,), ffn=None, weights=(norm("norm", hidden), *weights))


def _dense(config: Config, hidden: int) -> Layer:
    inner = config.integer("intermediate_size")
    bias = config.flag("mlp_bias")
    weights = ffn_weights(
        hidden_size=hidden,
        intermediate_size=inner,
        gated=False,
        in_bias=bias,
        out_bias=bias,
        prefix="mixer",
    )
    return Layer(
        mixers=(),
        ffn=DenseFFN(intermediate_size=inner, gated=False),
        weights=(norm("norm", hidden), *weights),
    )


def _experts(config: Config, hidden: int) -> Layer:
    """Ungated experts, working in a narrower latent space where the model has one."""
    num_experts = config.integer("n_routed_experts", "num_local_experts")
    inner = config.integer("moe_intermediate_size")
    shared = config.integer("moe_shared_expert_intermediate_size")
    bias = config.flag("mlp_bias")
    latent = config.optional_integer("moe_latent_size")
    weights = (
        norm("norm", hidden),
        router(hidden, num_experts, name="mixer.gate"),
        *expert_weights(
            num_experts=num_experts,
            hidden_size=hidden if latent is None else latent,
            intermediate_size=inner,
            gated=False,
            prefix="mixer.experts.*",
        ),
        *ffn_weights(
            hidden_size=hidden,
            intermediate_size=shared,
            gated=False,
            in_bias=bias,
            out_bias=bias,
            prefix="mixer.shared_experts",
        ),
    )
    if latent is not None:
        weights += (
            linear("mixer.fc1_latent_proj", latent, hidden, bias=bias),
            linear("mixer.fc2_latent_proj", hidden, latent, bias=bias),
        )
    ffn = MoEFFN(
        num_experts=num_experts,
        experts_per_token=config.integer("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=shared,
        gated=False,
    )
    return Layer(mixers=(), ffn=ffn, weights=weights)


def _predictor(config: Config, hidden: int, kinds: tuple[str, ...]) -> tuple[Layer, ...]:
    """One multi-token-prediction step: its blocks, with the joining projection and last norm."""
    layers = [_LAYERS[kind](config, hidden) for kind in kinds]
    joining = (
        norm("enorm", hidden),
        norm("hnorm", hidden),
        linear("eh_proj", hidden, 2 * hidden, shard=Shard.COLUMN),
    )
    layers[0] = replace(layers[0], weights=(*joining, *layers[0].weights))
    layers[-1] = replace(layers[-1], weights=(*layers[-1].weights, norm("final_layernorm", hidden)))
    return tuple(layers)


_LAYERS = {
    "linear_attention": _mamba,
    "full_attention": _attention,
    "moe": _experts,
    "mlp": _dense,
}


def nemotron_h(config: Config, name: str) -> ModelSpec:
    """Nemotron-H, Nemotron Nano 2 and Nemotron 3 Nano, Super and Ultra."""
    hidden = config.integer("hidden_size")
    config.mark_read("num_hidden_layers", "hybrid_override_pattern", "tie_word_embeddings")
    kinds = _pattern(config, "layers_block_type", "hybrid_override_pattern")
    if kinds is None:
        kinds = ("linear_attention", "moe", "full_attention", "mlp")
    predicted = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    predictors: tuple[Layer, ...] = ()
    if predicted:
        steps = _pattern(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
        predictors = _predictor(config, hidden, steps or ("full_attention", "moe")) * predicted
    return decoder(
        config,
        name,
        layers=stack(kinds, lambda kind: _LAYERS[kind](config, hidden)),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=False,  # the class ties nothing, whatever tie_word_embeddings says
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("backbone.norm_f", hidden),
        mtp_layers=predictors,
        layer_prefix="backbone.layers",
        embedding_name="backbone.embeddings",
    )


BUILDERS: Mapping[str, Builder] = {"nemotron_h": nemotron_h}
