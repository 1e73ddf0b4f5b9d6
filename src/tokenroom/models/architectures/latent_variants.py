"""DeepSeek V4 and LongCat-Flash: latent attention that no trait covers (transformers 5.24)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.decoders import builders
from tokenroom.models.architectures.family import Experts, Family, MixerPart
from tokenroom.models.architectures.latent import (
    latent_of,
    latent_weights,
    sparse_latent_attention,
)
from tokenroom.models.architectures.moe import (
    first_dense,
    listed_sparse,
    shared_count,
    shared_width,
)
from tokenroom.models.architectures.mtp import deepseek_mtp
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    Indexer,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
    Role,
    Shard,
    Weight,
)

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder

_SPARSE: Final = "compressed_sparse_attention"
_HEAVY: Final = "heavily_compressed_attention"
_V4_ROTARY_SHARE: Final = 64 / 512
_TYPE_OF_RATIO: Final[Mapping[int, str]] = {0: windows.SLIDING, 4: _SPARSE, 128: _HEAVY}


def _v4_layer_types(config: Config, count: int) -> Sequence[str]:
    """``layer_types``, else ``compress_ratios`` (0, 4 or 128), else the class's interleaving."""
    listed = windows.listed(config, count)
    ratios = config.integers("compress_ratios")
    if listed is not None:
        if set(listed) - {windows.SLIDING, _SPARSE, _HEAVY}:
            config.refuse("layer_types", f"{windows.SLIDING}, {_SPARSE} or {_HEAVY}")
        return listed
    if ratios is not None:
        if len(ratios) < count or set(ratios) - set(_TYPE_OF_RATIO):
            config.refuse("compress_ratios", f"0, 4 or 128 for each of the {count} layers")
        return tuple(_TYPE_OF_RATIO[ratio] for ratio in ratios[:count])
    return tuple(_HEAVY if index < 2 or index % 2 == 0 else _SPARSE for index in range(count))


def _v4_rates(config: Config) -> tuple[int, int]:
    """Tokens a stored state stands for in sparse and in heavily compressed layers."""
    rates = Config(config.mapping("compress_rates") or {}, "", config.field("compress_rates"))
    sparse = config.optional_integer("compress_rate_csa") or rates.integer(_SPARSE, default=4)
    heavy = config.optional_integer("compress_rate_hca") or rates.integer(_HEAVY, default=128)
    return sparse, heavy


def _compressor(
    prefix: str, rate: int, width: int, head_dim: int, hidden_size: int
) -> tuple[Weight, ...]:
    """What pools the keys and values of ``rate`` tokens into one state; whole on every rank."""
    return (
        blocks.vector(f"{prefix}.position_bias", rate, width),
        blocks.linear(f"{prefix}.kv_proj", width, hidden_size),
        blocks.linear(f"{prefix}.gate_proj", width, hidden_size),
        blocks.norm(f"{prefix}.kv_norm", head_dim),
    )


def _v4_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """One shared key-value head, a sliding window, and compressed states of what lies before."""
    num_heads = config.integer("num_attention_heads")
    head_dim = config.integer("head_dim")
    share = config.optional_number("partial_rotary_factor") or _V4_ROTARY_SHARE
    rope_dim = config.integer("qk_rope_head_dim", default=max(1, int(head_dim * share)))
    if rope_dim >= head_dim:
        config.refuse("qk_rope_head_dim", f"less than the head width ({head_dim})")
    q_rank = config.integer("q_lora_rank")
    groups = config.integer("o_groups")
    if num_heads * head_dim % groups:
        config.refuse("o_groups", f"a divisor of the query width ({num_heads * head_dim})")
    grouped_rank = groups * config.integer("o_lora_rank")
    indexer = Indexer(
        num_heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk"),
    )
    sparse_rate, heavy_rate = _v4_rates(config)
    config.mark_read("num_key_value_heads")
    prefix = "self_attn"
    weights = (
        blocks.linear(f"{prefix}.q_a_proj", q_rank, hidden_size),
        blocks.norm(f"{prefix}.q_a_norm", q_rank),
        blocks.linear(f"{prefix}.q_b_proj", num_heads * head_dim, q_rank, shard=Shard.COLUMN),
        blocks.linear(f"{prefix}.kv_proj", head_dim, hidden_size),
        blocks.norm(f"{prefix}.kv_norm", head_dim),
        blocks.linear(
            f"{prefix}.o_a_proj",
            grouped_rank,
            num_heads * head_dim // groups,
            shard=Shard.COLUMN,
        ),
        blocks.linear(f"{prefix}.o_b_proj", hidden_size, grouped_rank, shard=Shard.ROW),
        blocks.sinks(f"{prefix}.sinks", num_heads),
    )
    sliding = LatentAttention(
        num_heads=num_heads,
        q_lora_rank=q_rank,
        kv_lora_rank=head_dim - rope_dim,
        qk_nope_head_dim=head_dim - rope_dim,
        qk_rope_head_dim=rope_dim,
        v_head_dim=head_dim,
        window=windows.window_of(config),
    )
    pool = f"{prefix}.compressor"
    select = f"{pool}.indexer"
    select_width = 2 * indexer.head_dim
    parts = {
        windows.SLIDING: MixerPart(mixer=sliding, weights=weights),
        _HEAVY: MixerPart(
            mixer=replace(sliding, compress_ratio=heavy_rate),
            weights=weights + _compressor(pool, heavy_rate, head_dim, head_dim, hidden_size),
        ),
        _SPARSE: MixerPart(
            mixer=replace(sliding, compress_ratio=sparse_rate, indexer=indexer),
            weights=(
                *weights,
                *_compressor(pool, sparse_rate, 2 * head_dim, head_dim, hidden_size),
                *_compressor(select, sparse_rate, select_width, indexer.head_dim, hidden_size),
                blocks.linear(f"{select}.q_b_proj", indexer.num_heads * indexer.head_dim, q_rank),
                blocks.linear(f"{select}.scorer.weights_proj", indexer.num_heads, hidden_size),
            ),
        ),
    }
    return tuple(parts[kind] for kind in _v4_layer_types(config, count))


def _hyper_connections(config: Config, hidden_size: int) -> tuple[Weight, ...]:
    """What mixes the parallel residual streams before attention and before the experts."""
    streams = config.integer("hc_mult")
    mixes = (2 + streams) * streams
    return tuple(
        weight
        for site in ("attn_hc", "ffn_hc")
        for weight in (
            blocks.linear(f"{site}.fn", mixes, streams * hidden_size, role=Role.OTHER),
            blocks.vector(f"{site}.base", mixes),
            blocks.vector(f"{site}.scale", 3),
        )
    )


def _hyper_head(config: Config, hidden_size: int) -> tuple[Weight, ...]:
    """What merges the residual streams after the last block."""
    streams = config.integer("hc_mult")
    return (
        blocks.linear("model.hc_head.hc_fn", streams, streams * hidden_size, role=Role.OTHER),
        blocks.vector("model.hc_head.hc_base", streams),
        blocks.vector("model.hc_head.hc_scale", 1),
    )


def _longcat(config: Config, name: str) -> ModelSpec:
    """LongCat-Flash: each block has two attentions, two dense blocks and one set of experts."""
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    count = num_layers(config, "num_layers")
    dense_width = config.integer("ffn_hidden_size")
    width = config.integer("expert_ffn_hidden_size")
    num_experts = config.integer("n_routed_experts")
    idle = config.integer("zero_expert_num", default=0, minimum=0)
    per_token = config.integer("moe_topk", maximum=num_experts + idle)
    sizes = latent_of(config, hidden_size)
    config.mark_read("num_key_value_heads", "head_dim", "qk_head_dim", "num_hidden_layers")
    bias = config.flag("attention_bias")
    weights: list[Weight] = []
    for half in (0, 1):
        weights += latent_weights(sizes, hidden_size, bias=bias, prefix=f"self_attn.{half}")
        weights += blocks.ffn_weights(
            hidden_size=hidden_size, intermediate_size=dense_width, prefix=f"mlps.{half}"
        )
        weights.append(blocks.norm(f"input_layernorm.{half}", hidden_size))
        weights.append(blocks.norm(f"post_attention_layernorm.{half}", hidden_size))
    router_bias = config.flag("router_bias")
    weights.append(
        blocks.router(
            hidden_size, num_experts + idle, bias=router_bias, name="mlp.router.classifier"
        )
    )
    weights += blocks.expert_weights(
        num_experts=num_experts, hidden_size=hidden_size, intermediate_size=width
    )
    moe = MoEFFN(
        num_experts=num_experts,
        experts_per_token=min(per_token, num_experts),
        intermediate_size=width,
        shared_intermediate_size=2 * dense_width,
    )
    layer = Layer(mixers=(sizes, sizes), ffn=moe, weights=tuple(weights))
    return decoder(
        config,
        name,
        layers=(layer,) * count,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=config.flag("tie_word_embeddings", default=False),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=blocks.norm("model.norm", hidden_size),
    )


def _hy_v4_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Hunyuan V4: sparse latent attention with sinks and a gate as wide as the values."""
    plain = sparse_latent_attention(
        config, family, hidden_size, count, default_runs=lambda index: index == 0 or index % 4 == 1
    )
    sizes = latent_of(config, hidden_size)
    values = sizes.num_heads * sizes.v_head_dim
    extra = (
        blocks.linear("self_attn.gate_proj", values, hidden_size, shard=Shard.COLUMN),
        blocks.sinks("self_attn.sinks", sizes.num_heads),
    )
    parts = {id(part): replace(part, weights=part.weights + extra) for part in plain}
    return tuple(parts[id(part)] for part in plain)


def _hy_v4_connections(config: Config, hidden_size: int) -> tuple[Weight, ...]:
    """Hunyuan V4 mixes its residual streams by two weights a stream."""
    streams = config.integer("hc_mult")
    return tuple(
        weight
        for site in ("attn_hc", "ffn_hc")
        for weight in (
            blocks.linear(f"{site}.fn", 2 * streams, streams * hidden_size, role=Role.OTHER),
            blocks.vector(f"{site}.base", 2 * streams),
            blocks.vector(f"{site}.scale", 2),
        )
    )


_V4: Final = Family(
    attention=_v4_attention,
    in_bias="mlp_bias",
    experts=Experts(num_experts="n_routed_experts", shared=shared_width("moe_intermediate_size")),
    extra=_hyper_connections,
    output_extra=_hyper_head,
    mtp=deepseek_mtp,
)

_HY_V4: Final = Family(
    attention=_hy_v4_attention,
    experts=Experts(
        num_experts="n_routed_experts",
        shared=shared_count("n_shared_experts"),
        sparse=listed_sparse(first_dense(1)),
    ),
    extra=_hy_v4_connections,
    output_extra=_hyper_head,
)

_FAMILIES: Final[Mapping[str, Family]] = {"deepseek_ref": _V4, "deepseek_v4": _V4, "hy_v4": _HY_V4}

BUILDERS: Final[Mapping[str, Builder]] = {**builders(_FAMILIES), "longcat_flash": _longcat}
