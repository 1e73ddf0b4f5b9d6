"""Decoders with multi-head latent attention (DeepSeek V2, V3, V3.2 and their kin).

Down projections of queries and of keys and values are whole on every rank; what expands them is
divided by heads (vLLM 0.33 ``model_executor/models/deepseek_v2.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.decoders import builders
from tokenroom.models.architectures.family import Experts, Family, MixerPart
from tokenroom.models.architectures.moe import (
    after_dense,
    every_after_dense,
    first_dense,
    listed_sparse,
    shared_count,
)
from tokenroom.models.architectures.mtp import deepseek_mtp
from tokenroom.models.config import Config
from tokenroom.models.spec import Indexer, LatentAttention, Shard, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder


def latent_of(config: Config, hidden_size: int) -> LatentAttention:
    """The sizes of latent attention; a null ``v_head_dim`` is the even share of the hidden size.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    num_heads = config.integer("num_attention_heads")
    return LatentAttention(
        num_heads=num_heads,
        q_lora_rank=config.optional_integer("q_lora_rank"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        qk_nope_head_dim=config.integer("qk_nope_head_dim"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.optional_integer("v_head_dim") or max(1, hidden_size // num_heads),
    )


def latent_weights(
    sizes: LatentAttention, hidden_size: int, *, bias: bool = False, prefix: str = "self_attn"
) -> tuple[Weight, ...]:
    """Projections and norms of latent attention.

    Args:
        sizes: Its sizes.
        hidden_size: Width of the residual stream.
        bias: Bias on the down projections and the output projection.
        prefix: Module path below the block.
    """
    qk_head_dim = sizes.qk_nope_head_dim + sizes.qk_rope_head_dim
    queries = sizes.num_heads * qk_head_dim
    column = Shard.COLUMN
    weights: list[Weight] = []
    if sizes.q_lora_rank is None:
        weights.append(blocks.linear(f"{prefix}.q_proj", queries, hidden_size, shard=column))
    else:
        rank = sizes.q_lora_rank
        weights += [
            blocks.linear(f"{prefix}.q_a_proj", rank, hidden_size, bias=bias),
            blocks.norm(f"{prefix}.q_a_layernorm", rank),
            blocks.linear(f"{prefix}.q_b_proj", queries, rank, shard=column),
        ]
    cached = sizes.kv_lora_rank + sizes.qk_rope_head_dim
    expanded = sizes.num_heads * (sizes.qk_nope_head_dim + sizes.v_head_dim)
    values = sizes.num_heads * sizes.v_head_dim
    weights += [
        blocks.linear(f"{prefix}.kv_a_proj_with_mqa", cached, hidden_size, bias=bias),
        blocks.norm(f"{prefix}.kv_a_layernorm", sizes.kv_lora_rank),
        blocks.linear(f"{prefix}.kv_b_proj", expanded, sizes.kv_lora_rank, shard=column),
        blocks.linear(f"{prefix}.o_proj", hidden_size, values, bias=bias, shard=Shard.ROW),
    ]
    return tuple(weights)


def indexer_weights(
    indexer: Indexer, hidden_size: int, q_lora_rank: int, prefix: str = "self_attn.indexer"
) -> tuple[Weight, ...]:
    """The key selector of DeepSeek sparse attention; whole on every rank."""
    return (
        blocks.linear(f"{prefix}.wq_b", indexer.num_heads * indexer.head_dim, q_lora_rank),
        blocks.linear(f"{prefix}.wk", indexer.head_dim, hidden_size),
        blocks.norm(f"{prefix}.k_norm", indexer.head_dim, bias=True),
        blocks.linear(f"{prefix}.weights_proj", indexer.num_heads, hidden_size),
    )


def latent_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Dense latent attention, the same in every layer.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    sizes = latent_of(config, hidden_size)
    config.mark_read("num_key_value_heads", "head_dim", "qk_head_dim")
    weights = latent_weights(sizes, hidden_size, bias=config.flag("attention_bias"))
    return (MixerPart(mixer=sizes, weights=weights),) * count


def _indexer_runs(
    config: Config, count: int, default_runs: Callable[[int], bool] | None
) -> Sequence[bool]:
    """Which layers run their own indexer (GLM-5; in DeepSeek V3.2 all do)."""
    types = windows.listed(config, count, "indexer_types")
    if types is not None:
        return tuple(kind == "full" for kind in types)
    pattern = config.get("index_topk_pattern")
    if isinstance(pattern, str):
        if len(pattern) < count:
            config.refuse("index_topk_pattern", f"one letter for each of the {count} layers")
        return tuple(letter == "F" for letter in pattern[:count])
    if default_runs is not None:
        return tuple(default_runs(index) for index in range(count))
    frequency = max(config.integer("index_topk_freq", default=1, minimum=0), 1)
    offset = config.integer("index_skip_topk_offset", default=2, minimum=0)
    return tuple(max(index - offset + 1, 0) % frequency == 0 for index in range(count))


def sparse_latent_attention(
    config: Config,
    family: Family,
    hidden_size: int,
    count: int,
    *,
    default_runs: Callable[[int], bool] | None = None,
) -> Sequence[MixerPart]:
    """Latent attention whose keys an indexer selects; a layer may reuse an earlier selection.

    Args:
        config: The text configuration.
        family: Its family.
        hidden_size: Width of the residual stream.
        count: Number of layers.
        default_runs: Which layers select when the file lists none; None for GLM-5's schedule.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    sizes = latent_of(config, hidden_size)
    if sizes.q_lora_rank is None:
        config.refuse("q_lora_rank", "a whole number: the indexer reads compressed queries")
    config.mark_read("num_key_value_heads", "head_dim", "qk_head_dim", "layer_types")
    weights = latent_weights(sizes, hidden_size, bias=config.flag("attention_bias"))
    indexer = Indexer(
        num_heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk"),
    )
    selecting = MixerPart(
        mixer=replace(sizes, indexer=indexer),
        weights=weights + indexer_weights(indexer, hidden_size, sizes.q_lora_rank),
    )
    reusing = MixerPart(mixer=sizes, weights=weights)
    return tuple(
        selecting if runs else reusing for runs in _indexer_runs(config, count, default_runs)
    )


_EXPERTS: Final = Experts(
    num_experts="n_routed_experts",
    shared=shared_count("n_shared_experts"),
    sparse=after_dense(),
)
_DEEPSEEK_V3: Final = Family(attention=latent_attention, experts=_EXPERTS, mtp=deepseek_mtp)
_DEEPSEEK_V32: Final = Family(
    attention=sparse_latent_attention,
    experts=replace(_EXPERTS, sparse=listed_sparse(after_dense())),
    mtp=deepseek_mtp,
)

_FAMILIES: Final[Mapping[str, Family]] = {
    "axk1": Family(
        attention=latent_attention,
        experts=replace(
            _EXPERTS,
            sparse=listed_sparse(every_after_dense),
            extra=lambda config, num_experts: (
                blocks.norm("mlp.post_mlp_layernorm", config.integer("hidden_size")),
            ),
        ),
    ),
    "deepseek_v2": Family(attention=latent_attention, in_bias="mlp_bias", experts=_EXPERTS),
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V32,
    "glm4_moe_lite": replace(
        _DEEPSEEK_V3, experts=replace(_EXPERTS, sparse=listed_sparse(first_dense(1)))
    ),
    "glm_moe_dsa": _DEEPSEEK_V32,
    "kimi_k2": _DEEPSEEK_V3,
    "minicpm3": Family(attention=latent_attention, in_bias="mlp_bias"),
    "sarvam_mla": _DEEPSEEK_V3,
    "youtu": Family(attention=latent_attention),
}

BUILDERS: Final[Mapping[str, Builder]] = builders(_FAMILIES)
