"""Decoders with experts and softmax attention, one row a model type (transformers 5.24)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.decoders import builders
from tokenroom.models.architectures.family import (
    Experts,
    Family,
    Heads,
    Names,
    Norm,
    QKNorm,
    SparseRule,
)
from tokenroom.models.architectures.mtp import deepseek_mtp
from tokenroom.models.config import Config
from tokenroom.models.spec import Shard, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder


def listed_sparse(default: Callable[[Config, int], Sequence[bool]]) -> SparseRule:
    """``mlp_layer_types`` decides; without it ``default`` does."""

    def rule(config: Config, count: int) -> Sequence[bool]:
        types = windows.listed(config, count, "mlp_layer_types")
        if types is not None:
            config.mark_read("first_k_dense_replace")
            return tuple(kind == "sparse" for kind in types)
        return default(config, count)

    return rule


def first_dense(dense: int) -> SparseRule:
    """All but the first so many layers."""
    return lambda config, count: tuple(index >= dense for index in range(count))


def after_dense(key: str = "first_k_dense_replace", *, default: int = 0) -> SparseRule:
    """All layers from the one that ``key`` counts on."""

    def rule(config: Config, count: int) -> Sequence[bool]:
        dense = config.optional_integer(key, default=default, minimum=0) or 0
        return tuple(index >= dense for index in range(count))

    return rule


def sparse_steps(config: Config, count: int) -> Sequence[bool]:
    """Qwen: each ``decoder_sparse_step``-th layer that ``mlp_only_layers`` does not name."""
    step = config.integer("decoder_sparse_step")
    dense = frozenset(config.integers("mlp_only_layers") or ())
    has_experts = config.integer("num_experts", minimum=0) > 0
    return tuple(
        has_experts and index not in dense and (index + 1) % step == 0 for index in range(count)
    )


def flint_sparse(config: Config, count: int) -> Sequence[bool]:
    """Flint: as Qwen, but the first two layers are dense when ``mlp_only_layers`` is null."""
    step = config.integer("decoder_sparse_step")
    dense = config.integers("mlp_only_layers")
    named = frozenset((0, 1) if dense is None else dense)
    return tuple(index not in named and (index + 1) % step == 0 for index in range(count))


def every_after_dense(config: Config, count: int) -> Sequence[bool]:
    """Every ``moe_layer_freq``-th layer from ``first_k_dense_replace`` (1 if absent) on."""
    dense = config.integer("first_k_dense_replace", default=1, minimum=0)
    frequency = config.integer("moe_layer_freq", default=1)
    return tuple(index >= dense and index % frequency == 0 for index in range(count))


def ernie_sparse(config: Config, count: int) -> Sequence[bool]:
    """ERNIE 4.5: every ``moe_layer_interval``-th layer between start and end."""
    interval = config.integer("moe_layer_interval")
    start = config.integer("moe_layer_start_index", minimum=0)
    end = config.integer("moe_layer_end_index", minimum=-1)
    last = count - 1 if end == -1 else end
    return tuple((index + 1) % interval == 0 and start <= index <= last for index in range(count))


def shared_count(
    count: str, intermediate: str = "moe_intermediate_size"
) -> Callable[[Config], int]:
    """So many shared experts of the routed experts' width."""
    return lambda config: (
        (config.optional_integer(count, minimum=0) or 0) * config.integer(intermediate)
    )


def shared_width(key: str) -> Callable[[Config], int]:
    """The total width of the shared experts stands in a field; null and 0 mean none."""
    return lambda config: config.optional_integer(key, minimum=0) or 0


def _correction_bias(path: str) -> Callable[[Config, int], tuple[Weight, ...]]:
    """A bias of one element an expert that transformers holds as a parameter."""
    return lambda config, num_experts: (blocks.vector(path, num_experts),)


def _cohere_norms(config: Config) -> tuple[str, ...]:
    return ("input_layernorm",)


def gate_of_query_width(name: str) -> Callable[[Config, int, Heads], tuple[Weight, ...]]:
    """A projection as wide as the queries that gates the attention's output."""

    def extra(config: Config, hidden_size: int, heads: Heads) -> tuple[Weight, ...]:
        width = heads.num_heads * heads.head_dim
        return (blocks.linear(f"self_attn.{name}", width, hidden_size, shard=Shard.COLUMN),)

    return extra


def _beam_gate(config: Config, hidden_size: int, heads: Heads) -> tuple[Weight, ...]:
    bias = blocks.vector("self_attn.gate_bias", heads.num_heads, shard=Shard.COLUMN)
    return (*gate_of_query_width("gate_proj")(config, hidden_size, heads), bias)


_BIASED: Final = Family(q_bias="attention_bias", o_bias="attention_bias")
_Q_BIASED: Final = Family(q_bias="attention_bias")
_SANDWICH: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_DEEPSEEK: Final = Experts(
    num_experts="n_routed_experts",
    shared=shared_count("n_shared_experts"),
    sparse=after_dense(),
)
_GLM4_MOE: Final = replace(
    _Q_BIASED,
    qk_norm=QKNorm.HEAD,
    qk_norm_if="use_qk_norm",
    experts=_DEEPSEEK,
    mtp=deepseek_mtp,
)
_GRANITE_MOE: Final = replace(
    _BIASED,
    experts=Experts(
        num_experts="num_local_experts",
        intermediate="intermediate_size",
        prefix="",
        router="block_sparse_moe.router",
        experts="block_sparse_moe.experts.*",
    ),
)
_GRANITE_MOE_SHARED: Final = replace(
    _GRANITE_MOE,
    experts=Experts(
        num_experts="num_local_experts",
        intermediate="intermediate_size",
        shared=shared_width("shared_intermediate_size"),
        shared_name="shared_mlp",
        prefix="",
        router="block_sparse_moe.router",
        experts="block_sparse_moe.experts.*",
    ),
)
_MIXTRAL: Final = Experts(
    num_experts="num_local_experts",
    intermediate="intermediate_size",
    prefix="block_sparse_moe",
    gate="w1",
    up="w3",
    down="w2",
)

_FAMILIES: Final[Mapping[str, Family]] = {
    "afmoe": replace(
        _Q_BIASED,
        o_bias="attention_bias",
        qk_norm=QKNorm.HEAD,
        norms=(
            "input_layernorm",
            "post_attention_layernorm",
            "pre_mlp_layernorm",
            "post_mlp_layernorm",
        ),
        windows=windows.every_nth_full(4, key="global_attn_every_n_layers"),
        attention_extra=gate_of_query_width("gate_proj"),
        experts=Experts(
            shared=shared_count("num_shared_experts"),
            sparse=after_dense("num_dense_layers"),
            router="router.gate",
            extra=_correction_bias("mlp.expert_bias"),
        ),
    ),
    "aria_text": replace(
        _BIASED,
        in_bias="mlp_bias",
        experts=Experts(
            num_experts="moe_num_experts",
            per_token="moe_topk",
            intermediate="intermediate_size",
            shared=shared_count("moe_num_shared_experts", "intermediate_size"),
            router="router",
        ),
    ),
    "beam": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        norms=_SANDWICH,
        attention_extra=_beam_gate,
        windows=windows.listed_or(lambda index, count: (index + 1) % 6 != 0 and index != count - 1),
        experts=Experts(sparse=listed_sparse(first_dense(3))),
        softcap="final_logit_softcapping",
    ),
    "dots1": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        experts=_DEEPSEEK,
        windows=lambda config, count: windows.listed_or(
            lambda index, _: index >= config.integer("max_window_layers", minimum=0)
        )(config, count),
    ),
    "ernie4_5_moe": replace(
        _BIASED,
        q_bias="use_bias",
        o_bias="use_bias",
        in_bias="use_bias",
        head_bias="use_bias",
        experts=Experts(
            num_experts="moe_num_experts",
            per_token="moe_k",
            shared=shared_count("moe_num_shared_experts"),
            sparse=ernie_sparse,
            extra=_correction_bias("mlp.gate.moe_statics.e_score_correction_bias"),
        ),
    ),
    "exaone_moe": Family(
        qk_norm=QKNorm.HEAD,
        windows=windows.every_nth_full(4, key="sliding_window_pattern"),
        experts=Experts(
            shared=shared_count("num_shared_experts"),
            sparse=listed_sparse(after_dense()),
        ),
    ),
    "flex_olmo": replace(
        _BIASED,
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        qk_norm=QKNorm.FULL,
        experts=Experts(intermediate="intermediate_size"),
    ),
    "flint": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        sinks=True,
        windows=windows.listed_or(
            lambda index, count: not (index < 2 or index % 4 == 1 or index == count - 1)
        ),
        experts=Experts(
            shared=shared_width("shared_expert_intermediate_size"),
            shared_name="shared_expert",
            sparse=flint_sparse,
        ),
    ),
    "glm4_moe": _GLM4_MOE,
    "gpt_oss": replace(
        _BIASED,
        sinks=True,
        windows=windows.every_nth_full(2),
        experts=Experts(
            num_experts="num_local_experts",
            intermediate="intermediate_size",
            router="router",
            router_bias=True,
            bias=True,
        ),
    ),
    "granitemoe": _GRANITE_MOE,
    "granitemoe_swa": replace(
        _GRANITE_MOE_SHARED, sinks=True, windows=windows.listed_or(lambda index, _: index % 4 != 0)
    ),
    "granitemoeshared": _GRANITE_MOE_SHARED,
    "hunyuan_v1_moe": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        names=Names(q_norm="query_layernorm", k_norm="key_layernorm"),
        experts=Experts(
            per_token="moe_topk",
            intermediate="intermediate_size",
            shared=shared_width("intermediate_size"),
            shared_name="shared_mlp",
            router="gate.wg",
        ),
    ),
    "hy_v3": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        in_bias="mlp_bias",
        experts=Experts(
            shared=shared_count("num_shared_experts"), sparse=listed_sparse(first_dense(1))
        ),
    ),
    "kolibri1": Family(
        qk_norm=QKNorm.HEAD,
        norms=(
            "input_layernorm",
            "post_attention_layernorm",
            "post_self_attn_layernorm",
            "post_mlp_layernorm",
        ),
        windows=windows.every_nth_full(5),
        experts=Experts(shared=shared_width("shared_expert_intermediate_size")),
    ),
    "mellum": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        windows=windows.listed_or(lambda index, _: False),
        experts=Experts(sparse=listed_sparse(first_dense(0))),
    ),
    "minimax_m2": Family(
        qk_norm=QKNorm.FULL,
        qk_norm_divided=True,
        experts=_MIXTRAL,
    ),
    "mixtral": Family(windows=windows.every_layer, experts=_MIXTRAL),
    "olmoe": replace(
        _BIASED, qk_norm=QKNorm.FULL, experts=Experts(intermediate="intermediate_size")
    ),
    "phimoe": replace(
        _BIASED,
        norm=Norm.SCALE_AND_SHIFT,
        head_bias="lm_head_bias",
        windows=windows.every_layer,
        experts=_MIXTRAL,
    ),
    "qwen2_moe": Family(
        q_bias="qkv_bias",
        windows=windows.alternate_below_max_window_layers,
        experts=Experts(
            shared=shared_width("shared_expert_intermediate_size"),
            shared_gate=True,
            shared_name="shared_expert",
            sparse=sparse_steps,
        ),
    ),
    "qwen3_moe": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        windows=windows.when_used,
        experts=Experts(sparse=sparse_steps),
    ),
    "sarvam_moe": _GLM4_MOE,
    "solar_open": replace(_Q_BIASED, experts=replace(_DEEPSEEK, sparse=first_dense(0))),
}

BUILDERS: Final[Mapping[str, Builder]] = builders(_FAMILIES)
