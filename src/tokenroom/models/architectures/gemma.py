"""Gemma 3n and Gemma 4: per-layer embeddings, caches shared between layers, two head widths.

Read from ``modeling_gemma3n.py`` and ``modeling_gemma4.py`` of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.decoders import dense_part, heads_of, join
from tokenroom.models.architectures.family import Family, FeedForwardPart, Heads, MixerPart
from tokenroom.models.config import Config
from tokenroom.models.spec import Attention, ModelSpec, MoEFFN, Role, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder

_PLAIN: Final = Family()
_SANDWICH: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def _layer_types(config: Config, count: int, period: int) -> tuple[str, ...]:
    """One type a layer: the file's, or every ``period``-th full."""
    return windows.listed(config, count) or tuple(
        windows.SLIDING if (index + 1) % period else "full_attention" for index in range(count)
    )


def _cache_owners(config: Config, layer_types: Sequence[str]) -> tuple[int | None, ...]:
    """For each layer the earlier layer whose cache it reads, None when it has its own.

    The last ``num_kv_shared_layers`` read the cache of the last layer of their type before them.

    Raises:
        ModelError: Too many layers share, or a sharing type has no layer that owns a cache.
    """
    count = len(layer_types)
    shared = config.integer("num_kv_shared_layers", default=0, minimum=0)
    if shared == 0:
        return (None,) * count
    first = count - shared
    owner = {kind: index for index, kind in enumerate(layer_types[: max(first, 0)])}
    if set(layer_types) - set(owner):
        config.refuse("num_kv_shared_layers", "fewer layers: each layer type must own one cache")
    return tuple(None if index < first else owner[kind] for index, kind in enumerate(layer_types))


def _attention(
    hidden_size: int,
    heads: Heads,
    *,
    window: int | None,
    owner: int | None,
    bias: bool,
    values: bool = True,
) -> MixerPart:
    """Attention with query and key norms; a layer that shares a cache has only queries."""
    weights = blocks.attention_weights(
        hidden_size=hidden_size,
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        q_bias=bias,
        k_bias=bias,
        v_bias=bias,
        o_bias=bias,
        owns_kv=owner is None,
        has_value=values,
    )
    weights += (blocks.norm("self_attn.q_norm", heads.head_dim),)
    if owner is None:
        weights += (blocks.norm("self_attn.k_norm", heads.head_dim),)
    mixer = Attention(
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        value_head_dim=heads.head_dim,
        window=window,
        shares_kv_of=owner,
    )
    return MixerPart(mixer=mixer, weights=weights)


def _per_layer_gates(hidden_size: int, width: int) -> tuple[Weight, ...]:
    """What mixes a layer's own embedding into the residual stream."""
    return (
        blocks.linear("per_layer_input_gate", width, hidden_size),
        blocks.linear("per_layer_projection", hidden_size, width),
        blocks.norm("post_per_layer_input_norm", hidden_size),
    )


def _per_layer_embedding(
    vocab_size: int, hidden_size: int, width: int, count: int
) -> tuple[Weight, ...]:
    """The embedding of all layers together, and the projection of the usual one beside it."""
    return (
        blocks.embedding(vocab_size, count * width, "model.embed_tokens_per_layer"),
        blocks.linear("model.per_layer_model_projection", count * width, hidden_size),
        blocks.norm("model.per_layer_projection_norm", width),
    )


def _altup(inputs: int, hidden_size: int, name: str) -> tuple[Weight, ...]:
    """A square projection for each AltUp stream but the first."""
    if inputs < 2:
        return ()
    return (replace(blocks.linear(name, hidden_size, hidden_size), count=inputs - 1),)


def _gemma3n(config: Config, name: str) -> ModelSpec:
    """Gemma 3n's text model, with its AltUp predictors and Laurel blocks."""
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    count = num_layers(config)
    layer_types = _layer_types(config, count, 5)
    owners = _cache_owners(config, layer_types)
    window = windows.window_of(config)
    heads = heads_of(config, hidden_size)
    bias = config.flag("attention_bias")
    mixers: dict[tuple[str, int | None], MixerPart] = {}
    for kind, owner in zip(layer_types, owners, strict=True):
        mixers[kind, owner] = mixers.get((kind, owner)) or _attention(
            hidden_size,
            heads,
            window=window if kind == windows.SLIDING else None,
            owner=owner,
            bias=bias,
        )
    if isinstance(config.get("intermediate_size"), list):
        widths = config.integers("intermediate_size", minimum=1) or ()
        if len(widths) != count:
            config.refuse("intermediate_size", f"one width for each of the {count} layers")
    else:
        widths = (config.integer("intermediate_size"),) * count
    ffns = {width: dense_part(config, _PLAIN, hidden_size, width) for width in set(widths)}
    inputs = config.integer("altup_num_inputs")
    rank = config.integer("laurel_rank")
    per_layer = config.integer("hidden_size_per_layer_input")
    common = (
        *(blocks.norm(path, hidden_size) for path in _SANDWICH),
        blocks.vector("altup.correct_output_scale", hidden_size),
        blocks.linear("altup.correction_coefs", inputs, inputs, role=Role.OTHER),
        blocks.linear("altup.prediction_coefs", inputs**2, inputs, role=Role.OTHER),
        blocks.linear("altup.modality_router", inputs, hidden_size, role=Role.ROUTER),
        blocks.norm("altup.router_norm", hidden_size),
        blocks.linear("laurel.linear_left", rank, hidden_size),
        blocks.linear("laurel.linear_right", hidden_size, rank),
        blocks.norm("laurel.post_laurel_norm", hidden_size),
        *_per_layer_gates(hidden_size, per_layer),
    )
    layers = join(
        [mixers[key] for key in zip(layer_types, owners, strict=True)],
        [ffns[width] for width in widths],
        common,
    )
    return decoder(
        config,
        name,
        layers=layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=blocks.norm("model.norm", hidden_size),
        input_weights=(
            blocks.embedding(vocab_size, hidden_size),
            *_per_layer_embedding(
                config.integer("vocab_size_per_layer_input"), hidden_size, per_layer, count
            ),
            *_altup(inputs, hidden_size, "model.altup_projections.*"),
        ),
        output_weights=_altup(inputs, hidden_size, "model.altup_unembed_projections.*"),
        logits_softcap=config.optional_number("final_logit_softcapping") is not None,
    )


def _gemma4_experts(config: Config, dense: FeedForwardPart, hidden_size: int) -> FeedForwardPart:
    """Experts beside the dense block, which acts as the shared expert."""
    num_experts = config.integer("num_experts")
    width = config.integer("moe_intermediate_size")
    per_token = config.integer("top_k_experts", maximum=num_experts)
    weights = (
        *dense.weights,
        blocks.router(hidden_size, num_experts, name="router.proj"),
        blocks.vector("router.scale", hidden_size),
        blocks.vector("router.per_expert_scale", num_experts),
        *blocks.expert_weights(
            num_experts=num_experts,
            hidden_size=hidden_size,
            intermediate_size=width,
            prefix="experts.*",
        ),
        blocks.norm("post_feedforward_layernorm_1", hidden_size),
        blocks.norm("post_feedforward_layernorm_2", hidden_size),
        blocks.norm("pre_feedforward_layernorm_2", hidden_size),
    )
    ffn = MoEFFN(
        num_experts=num_experts,
        experts_per_token=per_token,
        intermediate_size=width,
        shared_intermediate_size=dense.ffn.intermediate_size,
    )
    return FeedForwardPart(ffn=ffn, weights=weights)


def _full_heads(config: Config, heads: Heads) -> Heads:
    """Gemma 4's full-attention layers have wider heads, and fewer KV heads when K is also V."""
    kv_heads = heads.num_kv_heads
    if config.flag("attention_k_eq_v"):
        kv_heads = config.optional_integer("num_global_key_value_heads") or kv_heads
    if heads.num_heads % kv_heads:
        config.refuse("num_global_key_value_heads", f"a divisor of {heads.num_heads} heads")
    return Heads(
        num_heads=heads.num_heads,
        num_kv_heads=kv_heads,
        head_dim=config.integer("global_head_dim", default=512),
    )


def _gemma4(config: Config, name: str) -> ModelSpec:
    """Gemma 4's text model."""
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    count = num_layers(config)
    layer_types = (*_layer_types(config, count, 6)[:-1], "full_attention")
    owners = _cache_owners(config, layer_types)
    window = windows.window_of(config)
    if config.text("use_bidirectional_attention") == "all" and window is not None:
        window = window // 2 + 1
    sliding_heads = heads_of(config, hidden_size)
    full_heads = _full_heads(config, sliding_heads)
    bias = config.flag("attention_bias")
    keys_are_values = config.flag("attention_k_eq_v")
    width = config.integer("intermediate_size")
    doubled = 2 if config.flag("use_double_wide_mlp") else 1
    experts = config.flag("enable_moe_block")
    mixers: dict[tuple[str, int | None], MixerPart] = {}
    ffns: dict[bool, FeedForwardPart] = {}
    for kind, owner in zip(layer_types, owners, strict=True):
        sliding = kind == windows.SLIDING
        if (kind, owner) not in mixers:
            mixers[kind, owner] = _attention(
                hidden_size,
                sliding_heads if sliding else full_heads,
                window=window if sliding else None,
                owner=owner,
                bias=bias,
                values=sliding or not keys_are_values,
            )
        shares = owner is not None
        if shares not in ffns:
            dense = dense_part(config, _PLAIN, hidden_size, width * (doubled if shares else 1))
            ffns[shares] = _gemma4_experts(config, dense, hidden_size) if experts else dense
    per_layer = config.optional_integer("hidden_size_per_layer_input", minimum=0) or 0
    common = tuple(blocks.norm(path, hidden_size) for path in _SANDWICH)
    inputs: tuple[Weight, ...] = (blocks.embedding(vocab_size, hidden_size),)
    if per_layer:
        common += _per_layer_gates(hidden_size, per_layer)
        inputs += _per_layer_embedding(
            config.integer("vocab_size_per_layer_input", default=vocab_size),
            hidden_size,
            per_layer,
            count,
        )
    layers = join(
        [mixers[key] for key in zip(layer_types, owners, strict=True)],
        [ffns[owner is not None] for owner in owners],
        common,
    )
    return decoder(
        config,
        name,
        layers=layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=blocks.norm("model.norm", hidden_size),
        input_weights=inputs,
        logits_softcap=config.optional_number("final_logit_softcapping") is not None,
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
    "gemma4_unified_text": _gemma4,
}
