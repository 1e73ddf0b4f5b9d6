"""Expert models whose layers differ in ways no trait covers.

Llama 4, MiMo-V2-Flash, Laguna, MiniMax-M3 and Cohere 2 MoE, from ``modeling_*.py`` of
transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.decoders import (
    attention_weights_of,
    builders,
    grouped_attention,
    heads_of,
)
from tokenroom.models.architectures.family import (
    Experts,
    Family,
    Heads,
    MixerPart,
    Names,
    QKNorm,
)
from tokenroom.models.architectures.moe import (
    after_dense,
    first_dense,
    listed_sparse,
    shared_count,
    shared_width,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    Attention,
    Indexer,
    Shard,
    Weight,
)

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder


def _llama4_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Layers with rotary positions attend within chunks; ``no_rope_layers`` names them by 1."""
    (plain,) = set(grouped_attention(config, family, hidden_size, count))
    chunk = config.optional_integer("attention_chunk_size")
    layer_types = windows.listed(config, count)
    if layer_types is None:
        rope = config.integers("no_rope_layers")
        interval = config.integer("no_rope_layer_interval", default=4)
        if rope and len(rope) < count:
            config.refuse("no_rope_layers", f"one 0 or 1 for each of the {count} layers")
        chunked = [
            bool(rope[index]) if rope else (index + 1) % interval != 0 for index in range(count)
        ]
    else:
        chunked = [kind == "chunked_attention" for kind in layer_types]
    assert isinstance(plain.mixer, Attention)
    local = MixerPart(mixer=replace(plain.mixer, chunk=chunk), weights=plain.weights)
    return tuple(local if in_chunks and chunk else plain for in_chunks in chunked)


def _llama4_sparse(config: Config, count: int) -> Sequence[bool]:
    """``moe_layers`` names them; without it each ``interleave_moe_layer_step``-th."""
    named = config.integers("moe_layers")
    step = config.integer("interleave_moe_layer_step")
    if named is not None:
        return tuple(index in named for index in range(count))
    return tuple((index + 1) % step == 0 for index in range(count))


def _mimo_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """MiMo-V2-Flash: sliding layers have twice the KV heads, and sinks; values are narrower.

    Field names of the published checkpoint (``hybrid_layer_pattern``, ``swa_*``) come first.
    """
    heads = heads_of(config, hidden_size)
    value_dim = config.integer("v_head_dim")
    window = config.optional_integer("sliding_window_size")
    window = window + 1 if window is not None else windows.window_of(config)
    layer_types = windows.listed(config, count)
    pattern = config.integers("hybrid_layer_pattern")
    if layer_types is not None:
        slides = [kind == windows.SLIDING for kind in layer_types]
    elif pattern is not None and len(pattern) >= count:
        slides = [bool(flag) for flag in pattern[:count]]
    else:
        slides = [index > 0 and (index + 1) % 6 != 0 for index in range(count)]
    bias = config.flag("attention_bias")

    def part(sliding: bool) -> MixerPart:
        kv_heads = heads.num_kv_heads * (2 if sliding else 1)
        if heads.num_heads % kv_heads:
            config.refuse("num_key_value_heads", f"half a divisor of {heads.num_heads} heads")
        weights = blocks.attention_weights(
            hidden_size=hidden_size,
            num_heads=heads.num_heads,
            num_kv_heads=kv_heads,
            head_dim=heads.head_dim,
            value_head_dim=value_dim,
            q_bias=bias,
            k_bias=bias,
            v_bias=bias,
        )
        if sliding:
            weights += (blocks.sinks("self_attn.sinks", heads.num_heads),)
        mixer = Attention(
            num_heads=heads.num_heads,
            num_kv_heads=kv_heads,
            head_dim=heads.head_dim,
            value_head_dim=value_dim,
            window=window if sliding else None,
            sinks=sliding,
        )
        return MixerPart(mixer=mixer, weights=weights)

    parts = {sliding: part(sliding) for sliding in set(slides)}
    return tuple(parts[sliding] for sliding in slides)


def _laguna_gate(config: Config, hidden_size: int, heads: Heads) -> tuple[Weight, ...]:
    """A gate on the attention's output, one a head or as wide as the queries."""
    gating = config.get("gating", default=True)
    per_head = gating is True or gating == "per-head"
    width = heads.num_heads * (1 if per_head else heads.head_dim)
    return (blocks.linear("self_attn.g_proj", width, hidden_size, shard=Shard.COLUMN),)


def _laguna_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """The number of query heads may differ from layer to layer."""
    usual = heads_of(config, hidden_size)
    per_layer = config.integers("num_attention_heads_per_layer", minimum=1)
    if per_layer is None:
        per_layer = (usual.num_heads,) * count
    if len(per_layer) < count:
        config.refuse("num_attention_heads_per_layer", f"one count for each of {count} layers")
    layer_windows = windows.listed_or(lambda index, _: False)(config, count)
    parts: dict[tuple[int, int | None], MixerPart] = {}
    chosen: list[MixerPart] = []
    for num_heads, window in zip(per_layer, layer_windows, strict=False):
        if num_heads % usual.num_kv_heads:
            config.refuse(
                "num_attention_heads_per_layer", f"multiples of {usual.num_kv_heads} KV heads"
            )
        if (num_heads, window) not in parts:
            heads = replace(usual, num_heads=num_heads)
            mixer = Attention(
                num_heads=num_heads,
                num_kv_heads=heads.num_kv_heads,
                head_dim=heads.head_dim,
                value_head_dim=heads.head_dim,
                window=window,
            )
            weights = attention_weights_of(config, family, hidden_size, heads)
            parts[num_heads, window] = MixerPart(mixer=mixer, weights=weights)
        chosen.append(parts[num_heads, window])
    return chosen


def _minimax_m3_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """MiniMax-M3: some layers select blocks of keys by an indexer with a key cache of its own."""
    sparse = config.mapping("sparse_attention_config")
    legacy = Config(sparse or {}, "", config.field("sparse_attention_config"))
    (plain,) = set(grouped_attention(config, family, hidden_size, count))
    layer_types = windows.listed(config, count)
    frequencies = legacy.integers("sparse_attention_freq")
    if layer_types is not None:
        selects = [kind == "minimax_m3_sparse" for kind in layer_types]
    elif frequencies is not None and len(frequencies) >= count:
        selects = [bool(flag) for flag in frequencies[:count]]
    else:
        selects = [False] * count
    heads = legacy.optional_integer("sparse_num_index_heads") or config.integer("index_n_heads")
    width = legacy.optional_integer("sparse_index_dim") or config.integer("index_head_dim")
    block = legacy.optional_integer("sparse_block_size") or config.integer("index_block_size")
    top = legacy.optional_integer("sparse_topk_blocks") or config.integer("index_topk_blocks")
    prefix = "self_attn.indexer"
    extra = (
        # vLLM 0.33 divides index queries as keys and values are, and repeats the one index key.
        blocks.linear(f"{prefix}.q_proj", heads * width, hidden_size, shard=Shard.KV_COLUMN),
        blocks.linear(f"{prefix}.k_proj", width, hidden_size),
        blocks.norm(f"{prefix}.q_norm", width),
        blocks.norm(f"{prefix}.k_norm", width),
    )
    assert isinstance(plain.mixer, Attention)
    indexer = Indexer(num_heads=heads, head_dim=width, top_k=top * block)
    selecting = MixerPart(
        mixer=replace(plain.mixer, indexer=indexer), weights=plain.weights + extra
    )
    return tuple(selecting if flag else plain for flag in selects)


def _minimax_m3_sparse(config: Config, count: int) -> Sequence[bool]:
    """``moe_layer_freq`` says so by 1, unless ``mlp_layer_types`` is there."""
    flags = config.integers("moe_layer_freq")
    types = windows.listed(config, count, "mlp_layer_types")
    if types is not None:
        return tuple(kind == "sparse" for kind in types)
    if flags is not None and len(flags) >= count:
        return tuple(bool(flag) for flag in flags[:count])
    return (True,) * count


def _cohere2_moe_windows(config: Config, count: int) -> windows.Windows:
    """The leading dense layers follow a period of their own."""
    dense = config.integer("first_k_dense_replace", default=0, minimum=0)
    prefix = config.integer("prefix_dense_sliding_window_pattern")
    period = config.integer("sliding_window_pattern")

    def slides(index: int, _: int) -> bool:
        if index < dense:
            return (index + 1) % prefix != 0
        return (index - dense + 1) % period != 0

    return windows.listed_or(slides)(config, count)


_BIASED: Final = Family(q_bias="attention_bias", o_bias="attention_bias")
_MINIMAX_M3: Final = Family(
    attention=_minimax_m3_attention,
    qk_norm=QKNorm.HEAD,
    intermediate="dense_intermediate_size",
    experts=Experts(
        num_experts="num_local_experts",
        intermediate="intermediate_size",
        shared=shared_width("shared_intermediate_size"),
        sparse=_minimax_m3_sparse,
    ),
)

_FAMILIES: Final[Mapping[str, Family]] = {
    "cohere2_moe": replace(
        _BIASED,
        norms=("input_layernorm",),
        windows=_cohere2_moe_windows,
        intermediate="prefix_dense_intermediate_size",
        experts=Experts(
            intermediate="intermediate_size",
            shared=shared_count("num_shared_experts", "intermediate_size"),
            sparse=listed_sparse(after_dense()),
        ),
    ),
    "laguna": replace(
        _BIASED,
        qk_norm=QKNorm.HEAD,
        attention=_laguna_attention,
        attention_extra=_laguna_gate,
        experts=Experts(
            shared=shared_width("shared_expert_intermediate_size"),
            sparse=listed_sparse(first_dense(1)),
            extra=lambda config, num_experts: (
                blocks.vector("mlp.gate.e_score_correction_bias", num_experts),
            ),
        ),
    ),
    "llama4_text": replace(
        _BIASED,
        attention=_llama4_attention,
        intermediate="intermediate_size_mlp",
        experts=Experts(
            num_experts="num_local_experts",
            intermediate="intermediate_size",
            shared=shared_width("intermediate_size"),
            sparse=_llama4_sparse,
            prefix="feed_forward",
            router="router",
            shared_name="shared_expert",
        ),
        names=Names(mlp="feed_forward"),
    ),
    "mimo_v2_flash": Family(
        attention=_mimo_attention,
        experts=Experts(num_experts="n_routed_experts", sparse=listed_sparse(first_dense(1))),
    ),
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl_text": _MINIMAX_M3,
}

BUILDERS: Final[Mapping[str, Builder]] = builders(_FAMILIES)
