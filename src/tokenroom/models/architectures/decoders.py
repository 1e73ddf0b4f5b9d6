"""Building models out of families of traits (:mod:`tokenroom.models.architectures.family`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tokenroom.models.architectures import blocks
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.family import (
    Family,
    FeedForwardPart,
    Heads,
    MixerPart,
    Norm,
    QKNorm,
    Trait,
)
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    Attention,
    DenseFFN,
    Layer,
    ModelSpec,
    MoEFFN,
    Shard,
    Weight,
)

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder


def holds(config: Config, trait: Trait) -> bool:
    """Whether a trait holds for this configuration.

    Raises:
        ModelError: The field that decides holds neither true nor false.
    """
    return config.flag(trait) if isinstance(trait, str) else trait


def block_norm(kind: Norm, name: str, size: int) -> tuple[Weight, ...]:
    """A norm of that kind: one weight, or nothing when it stores nothing."""
    if kind is Norm.NOTHING:
        return ()
    return (blocks.norm(name, size, bias=kind is Norm.SCALE_AND_SHIFT),)


def heads_of(config: Config, hidden_size: int, *, even: bool = False) -> Heads:
    """Head sizes with Hugging Face's usual fall-backs.

    Null KV heads mean as many as query heads; a null head width the even share.

    Args:
        config: The text configuration.
        hidden_size: Width of the residual stream.
        even: Ignore ``head_dim``: the width is always the even share.

    Raises:
        ModelError: A field is missing or the KV heads do not divide the query heads.
    """
    num_heads = config.integer("num_attention_heads")
    num_kv_heads = config.optional_integer("num_key_value_heads") or num_heads
    explicit = None if even else config.optional_integer("head_dim")
    head_dim = explicit or hidden_size // num_heads
    if num_heads % num_kv_heads:
        config.refuse("num_key_value_heads", f"a divisor of the {num_heads} attention heads")
    if head_dim < 1:
        config.refuse("num_attention_heads", f"at most the hidden size ({hidden_size})")
    return Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)


def attention_weights_of(
    config: Config, family: Family, hidden_size: int, heads: Heads
) -> tuple[Weight, ...]:
    """Projections, query/key norms, sinks and extras of one attention.

    Raises:
        ModelError: A field that decides on a bias holds neither true nor false.
    """
    names = family.names
    q_bias = holds(config, family.q_bias)
    weights = blocks.attention_weights(
        hidden_size=hidden_size,
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        q_bias=q_bias,
        k_bias=q_bias if family.k_bias is None else holds(config, family.k_bias),
        v_bias=q_bias if family.v_bias is None else holds(config, family.v_bias),
        o_bias=holds(config, family.o_bias),
        prefix=names.attention,
        q=names.q,
        k=names.k,
        v=names.v,
        o=names.o,
    )
    if family.qk_norm is not QKNorm.NONE and (
        family.qk_norm_if is None or config.flag(family.qk_norm_if)
    ):
        whole = family.qk_norm is QKNorm.FULL
        shift = family.norm is Norm.SCALE_AND_SHIFT
        for name, count, shard in (
            (names.q_norm, heads.num_heads, Shard.COLUMN),
            (names.k_norm, heads.num_kv_heads, Shard.KV_COLUMN),
        ):
            size = heads.head_dim * (count if whole else 1)
            weight = blocks.norm(f"{names.attention}.{name}", size, bias=shift)
            weights += (replace(weight, shard=shard) if family.qk_norm_divided else weight,)
    if family.sinks:
        weights += (blocks.sinks(f"{names.attention}.sinks", heads.num_heads),)
    if family.attention_extra is not None:
        weights += family.attention_extra(config, hidden_size, heads)
    return weights


def grouped_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Multi-head attention with (possibly fewer) KV heads, alike but for windows.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    heads = heads_of(config, hidden_size, even=family.even_heads)
    weights = attention_weights_of(config, family, hidden_size, heads)

    def part(window: int | None) -> MixerPart:
        mixer = Attention(
            num_heads=heads.num_heads,
            num_kv_heads=heads.num_kv_heads,
            head_dim=heads.head_dim,
            value_head_dim=heads.head_dim,
            window=window,
            sinks=family.sinks,
        )
        return MixerPart(mixer=mixer, weights=weights)

    layer_windows = family.windows(config, count)
    parts = {window: part(window) for window in set(layer_windows)}
    return tuple(parts[window] for window in layer_windows)


def dense_part(
    config: Config, family: Family, hidden_size: int, intermediate_size: int
) -> FeedForwardPart:
    """The family's dense feed-forward block of the given width.

    Raises:
        ModelError: The field that decides on a bias holds neither true nor false.
    """
    in_bias = holds(config, family.in_bias)
    names = family.names
    weights = blocks.ffn_weights(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        gated=family.gated,
        in_bias=in_bias,
        out_bias=in_bias if family.out_bias is None else holds(config, family.out_bias),
        prefix=names.mlp,
        gate=names.gate,
        up=names.up,
        down=names.down,
    )
    ffn = DenseFFN(intermediate_size=intermediate_size, gated=family.gated)
    return FeedForwardPart(ffn=ffn, weights=weights)


def sparse_part(config: Config, family: Family, hidden_size: int) -> FeedForwardPart:
    """The family's mixture of experts.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    traits = family.experts
    assert traits is not None
    num_experts = config.integer(traits.num_experts)
    per_token = config.integer(traits.per_token, maximum=num_experts)
    intermediate_size = config.integer(traits.intermediate)
    shared_size = traits.shared(config)
    bias = holds(config, traits.bias)
    weights = blocks.moe_weights(
        hidden_size=hidden_size,
        num_experts=num_experts,
        intermediate_size=intermediate_size,
        shared_intermediate_size=shared_size,
        shared_gate=traits.shared_gate and shared_size > 0,
        router_bias=holds(config, traits.router_bias),
        gated=family.gated,
        in_bias=bias,
        out_bias=bias,
        shared_bias=holds(config, family.in_bias),
        prefix=traits.prefix,
        router_name=traits.router,
        experts=traits.experts,
        shared=traits.shared_name,
        gate=traits.gate,
        up=traits.up,
        down=traits.down,
    )
    if traits.extra is not None:
        weights += traits.extra(config, num_experts)
    ffn = MoEFFN(
        num_experts=num_experts,
        experts_per_token=per_token,
        intermediate_size=intermediate_size,
        shared_intermediate_size=shared_size,
        gated=family.gated,
    )
    return FeedForwardPart(ffn=ffn, weights=weights)


def feed_forward(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[FeedForwardPart]:
    """Dense blocks, experts, or a mixture of both by the family's rule.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    sparse = (False,) * count if family.experts is None else family.experts.sparse(config, count)
    parts: dict[bool, FeedForwardPart] = {}
    if any(sparse):
        parts[True] = sparse_part(config, family, hidden_size)
    if not all(sparse):
        width = family.intermediate
        size = width(config) if callable(width) else config.integer(width)
        parts[False] = dense_part(config, family, hidden_size, size)
    return tuple(parts[bool(holds_experts)] for holds_experts in sparse)


def join(
    mixers: Sequence[MixerPart], ffns: Sequence[FeedForwardPart], common: tuple[Weight, ...]
) -> tuple[Layer, ...]:
    """Blocks out of mixers and feed-forward blocks; alike ones are the same object."""
    kinds: dict[tuple[int, int], Layer] = {}
    layers: list[Layer] = []
    for mixer, ffn in zip(mixers, ffns, strict=True):
        key = (id(mixer), id(ffn))
        if key not in kinds:
            kinds[key] = Layer(
                mixers=(mixer.mixer,), ffn=ffn.ffn, weights=mixer.weights + ffn.weights + common
            )
        layers.append(kinds[key])
    return tuple(layers)


def build(config: Config, name: str, family: Family) -> ModelSpec:
    """The model of a configuration of this family.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    count = num_layers(config)
    names = family.names
    norms = family.norms(config) if callable(family.norms) else family.norms
    common = tuple(
        weight for path in norms for weight in block_norm(family.norm, path, hidden_size)
    )
    if family.extra is not None:
        common += family.extra(config, hidden_size)
    mixers = (family.attention or grouped_attention)(config, family, hidden_size, count)
    ffns = (family.feed_forward or feed_forward)(config, family, hidden_size, count)
    layers = join(mixers, ffns, common)
    inputs: tuple[Weight, ...] = (blocks.embedding(vocab_size, hidden_size, names.embedding),)
    if family.input_extra is not None:
        inputs += family.input_extra(config, hidden_size)
    final = block_norm(family.norm, names.final_norm, hidden_size) if family.final_norm else ()
    return decoder(
        config,
        name,
        layers=layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=config.flag("tie_word_embeddings", default=family.tied),
        max_position_embeddings=config.optional_integer(family.max_positions),
        final_norm=final[0] if final else None,
        input_weights=inputs,
        output_weights=family.output_extra(config, hidden_size) if family.output_extra else (),
        head_bias=holds(config, family.head_bias),
        mtp_layers=family.mtp(config, hidden_size, layers[-1]) if family.mtp else (),
        layer_prefix=names.layers,
        embedding_name=names.embedding,
        head_name=names.head,
        logits_softcap=family.softcap is not None
        and config.optional_number(family.softcap) is not None,
    )


def builders(families: Mapping[str, Family]) -> dict[str, Builder]:
    """One builder a family."""

    def builder(family: Family) -> Builder:
        return lambda config, name: build(config, name, family)

    return {model_type: builder(family) for model_type, family in families.items()}
