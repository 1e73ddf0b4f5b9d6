"""Models that mix linear attention with softmax attention: Qwen3-Next, Qwen3.5, OLMo, MiniMax-01.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.blocks import (
    attention_weights,
    ffn_weights,
    linear,
    moe_weights,
    norm,
)
from tokenroom.models.architectures.recurrent_blocks import (
    Part,
    check_layer_types,
    gated_delta,
    gated_delta_unfused,
    layer_types,
    lightning,
    plain_attention,
    stack,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import FFN, Attention, DenseFFN, Layer, ModelSpec, MoEFFN, Shard, Weight

LINEAR = "linear_attention"


FULL = "full_attention"


FfnPart = tuple[FFN, tuple[Weight, ...]]


def attention_part(
    config: Config,
    *,
    bias: bool = False,
    gate: bool = False,
    head_norms: tuple[str, str] | None = None,
    wide_norms: bool = False,
    output: str = "o_proj",
) -> Part:
    """Grouped-query attention with its parameters.

    Args:
        config: The text configuration.
        bias: Bias on all four projections.
        gate: The query projection also makes an output gate as wide as the queries.
        head_norms: Names of the query and key norms, None for none.
        wide_norms: Whether those norms span all heads instead of one.
        output: Module name of the output projection.
    """
    mixer = plain_attention(config)
    hidden = config.integer("hidden_size")
    weights = attention_weights(
        hidden_size=hidden,
        num_heads=mixer.num_heads,
        num_kv_heads=mixer.num_kv_heads,
        head_dim=mixer.head_dim,
        q_bias=bias,
        k_bias=bias,
        v_bias=bias,
        o_bias=bias,
        o=output,
    )
    if gate:
        weights += (
            linear(
                "self_attn.q_proj",
                mixer.num_heads * mixer.head_dim,
                hidden,
                bias=bias,
                shard=Shard.COLUMN,
            ),
        )
    if head_norms is not None:
        query, key = head_norms
        query_width = mixer.num_heads * mixer.head_dim if wide_norms else mixer.head_dim
        key_width = mixer.num_kv_heads * mixer.head_dim if wide_norms else mixer.head_dim
        weights += (norm(f"self_attn.{query}", query_width), norm(f"self_attn.{key}", key_width))
    return mixer, weights


def delta_part(config: Config, *, fused: bool) -> Part:
    """The gated delta rule that ``linear_*`` fields describe."""
    return gated_delta(
        hidden_size=config.integer("hidden_size"),
        key_heads=config.integer("linear_num_key_heads"),
        value_heads=config.integer("linear_num_value_heads"),
        key_head_dim=config.integer("linear_key_head_dim"),
        value_head_dim=config.integer("linear_value_head_dim"),
        kernel=config.integer("linear_conv_kernel_dim"),
        fused=fused,
        state_dtype=config.text("mamba_ssm_dtype") or None,
    )


def dense_part(config: Config, inner: int | None = None) -> FfnPart:
    """A gated feed-forward block of ``intermediate_size`` unless another is given."""
    width = config.integer("intermediate_size") if inner is None else inner
    return DenseFFN(intermediate_size=width), ffn_weights(
        hidden_size=config.integer("hidden_size"), intermediate_size=width
    )


def gated_experts_part(config: Config) -> FfnPart:
    """Qwen's mixture: routed experts beside one shared expert with a scalar gate."""
    experts = config.integer("num_experts")
    inner = config.integer("moe_intermediate_size")
    shared = config.integer("shared_expert_intermediate_size")
    ffn = MoEFFN(
        num_experts=experts,
        experts_per_token=config.integer("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=shared,
    )
    weights = moe_weights(
        hidden_size=config.integer("hidden_size"),
        num_experts=experts,
        intermediate_size=inner,
        shared_intermediate_size=shared,
        shared_gate=True,
        shared="shared_expert",
    )
    return ffn, weights


def block_norms(config: Config) -> tuple[Weight, ...]:
    """The two norms before attention and before the feed-forward block."""
    hidden = config.integer("hidden_size")
    return norm("input_layernorm", hidden), norm("post_attention_layernorm", hidden)


def _interval_kinds(config: Config) -> tuple[str, ...]:
    """Listed kinds, else attention every ``full_attention_interval`` blocks (4 by default)."""
    kinds = layer_types(config)
    if kinds is None:
        interval = config.integer("full_attention_interval", default=4)
        kinds = tuple(
            LINEAR if (index + 1) % interval else FULL for index in range(num_layers(config))
        )
    config.mark_read("full_attention_interval", "num_hidden_layers")
    check_layer_types(config, kinds, (LINEAR, FULL))
    return kinds


def _predictors(config: Config, count: int, layer: Layer) -> tuple[Layer, ...]:
    """Multi-token-prediction blocks: source vLLM 0.33 ``qwen3_next_mtp.py``, ``qwen3_5_mtp.py``."""
    if not count:
        return ()
    hidden = config.integer("hidden_size")
    first = replace(
        layer,
        weights=(
            linear("fc", hidden, 2 * hidden, shard=Shard.COLUMN),
            norm("pre_fc_norm_hidden", hidden),
            norm("pre_fc_norm_embedding", hidden),
            norm("norm", hidden),
            *layer.weights,
        ),
    )
    return (first, *(layer,) * (count - 1))


def _qwen(config: Config, name: str, *, fused: bool, experts: bool, predicted: int) -> ModelSpec:
    hidden = config.integer("hidden_size")
    attention = attention_part(
        config,
        bias=config.flag("attention_bias"),
        gate=True,
        head_norms=("q_norm", "k_norm"),
    )
    delta = delta_part(config, fused=fused)
    step = config.integer("decoder_sparse_step", default=1)
    dense = frozenset(config.integers("mlp_only_layers") or ())
    kinds = _interval_kinds(config)
    sparse = tuple(
        experts and index not in dense and (index + 1) % step == 0 for index in range(len(kinds))
    )
    norms = block_norms(config)

    def make(kind: tuple[str, bool]) -> Layer:
        mixer, weights = attention if kind[0] == FULL else delta
        ffn, block = gated_experts_part(config) if kind[1] else dense_part(config)
        return Layer(mixers=(mixer,), ffn=ffn, weights=(*weights, *block, *norms))

    return decoder(
        config,
        name,
        layers=stack(zip(kinds, sparse, strict=True), make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.norm", hidden),
        mtp_layers=_predictors(config, predicted, make((FULL, experts))) if predicted else (),
    )


def qwen3_next(config: Config, name: str) -> ModelSpec:
    """Qwen3-Next: gated delta rule, every fourth block gated attention, mixtures of experts."""
    experts = config.integer("num_experts", minimum=0) > 0
    predicted = config.integer("num_nextn_predict_layers", default=1, minimum=0, maximum=64)
    return _qwen(config, name, fused=True, experts=experts, predicted=predicted)


def qwen3_5(config: Config, name: str) -> ModelSpec:
    """Qwen3.5's dense language model."""
    predicted = config.integer("mtp_num_hidden_layers", default=0, minimum=0, maximum=64)
    return _qwen(config, name, fused=False, experts=False, predicted=predicted)


def qwen3_5_moe(config: Config, name: str) -> ModelSpec:
    """Qwen3.5's mixture-of-experts language model."""
    predicted = config.integer("mtp_num_hidden_layers", default=0, minimum=0, maximum=64)
    return _qwen(config, name, fused=False, experts=True, predicted=predicted)


def olmo_hybrid(config: Config, name: str) -> ModelSpec:
    """OLMo Hybrid: gated delta rule, every fourth block attention with norms after it."""
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    kinds = layer_types(config)
    if kinds is None:
        count = num_layers(config)
        default = [FULL if index % 4 == 3 else LINEAR for index in range(count)]
        if FULL not in default:
            default[-1] = FULL
        kinds = tuple(default)
    check_layer_types(config, kinds, (LINEAR, FULL))
    key_heads = config.optional_integer("linear_num_key_heads") or heads
    key_dim = config.optional_integer("linear_key_head_dim") or int(0.75 * hidden / key_heads)
    delta, delta_weights = gated_delta_unfused(
        hidden_size=hidden,
        key_heads=key_heads,
        value_heads=config.optional_integer("linear_num_value_heads") or heads,
        key_head_dim=key_dim,
        value_head_dim=config.optional_integer("linear_value_head_dim") or 2 * key_dim,
        kernel=config.integer("linear_conv_kernel_dim"),
    )
    attention, attention_weight = attention_part(
        config,
        bias=config.flag("attention_bias"),
        head_norms=("q_norm", "k_norm"),
        wide_norms=True,
    )
    ffn, block = dense_part(config)
    after = norm("post_attention_layernorm", hidden)

    def make(kind: str) -> Layer:
        if kind == FULL:
            weights = (*attention_weight, *block, after, norm("post_feedforward_layernorm", hidden))
            return Layer(mixers=(attention,), ffn=ffn, weights=weights)
        weights = (*delta_weights, *block, norm("input_layernorm", hidden), after)
        return Layer(mixers=(delta,), ffn=ffn, weights=weights)

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


def minimax(config: Config, name: str) -> ModelSpec:
    """MiniMax-01: lightning attention between softmax attention, all blocks sparse."""
    hidden = config.integer("hidden_size")
    kinds = layer_types(config)
    if kinds is None:
        kinds = tuple(LINEAR if index % 2 else FULL for index in range(num_layers(config)))
        listed = config.integers("attn_type_list")
        if listed is not None:
            kinds = tuple(FULL if kind else LINEAR for kind in listed)
    check_layer_types(config, kinds, (LINEAR, FULL))
    attention = attention_part(config)
    mixer = attention[0]
    assert isinstance(mixer, Attention)
    linear_attention = lightning(
        hidden_size=hidden, num_heads=mixer.num_heads, head_dim=mixer.head_dim
    )
    experts = config.integer("num_local_experts")
    inner = config.integer("intermediate_size")
    ffn = MoEFFN(
        num_experts=experts,
        experts_per_token=config.integer("num_experts_per_tok"),
        intermediate_size=inner,
    )
    block = moe_weights(hidden_size=hidden, num_experts=experts, intermediate_size=inner)
    norms = block_norms(config)

    def make(kind: str) -> Layer:
        mixer, weights = attention if kind == FULL else linear_attention
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
    "minimax": minimax,
    "olmo_hybrid": olmo_hybrid,
    "qwen3_5_moe_text": qwen3_5_moe,
    "qwen3_5_text": qwen3_5,
    "qwen3_next": qwen3_next,
}
