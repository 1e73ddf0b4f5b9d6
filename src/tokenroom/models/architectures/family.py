"""The traits in which decoders of Llama's shape differ, and the one builder that reads them.

A :class:`Family` is a row of facts about a ``modeling_*.py`` file of transformers 5.24. A trait
that a configuration field decides holds that field's name instead of True or False. What no trait
covers is a function in its place (``attention``, ``feed_forward``, ``extra``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    FFN,
    Attention,
    DenseFFN,
    Layer,
    Mixer,
    ModelSpec,
    MoEFFN,
    Shard,
    Weight,
)

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder

Trait: TypeAlias = bool | str
"""True, False, or the name of the configuration field that decides."""


class Norm(StrEnum):
    """Kinds of normalisation, by what they store."""

    SCALE = "scale"  # RMSNorm, LayerNorm without bias
    SCALE_AND_SHIFT = "scale_and_shift"  # LayerNorm
    NOTHING = "nothing"  # OLMo's non-parametric LayerNorm


class QKNorm(StrEnum):
    """Norms on queries and keys, by what one covers."""

    NONE = "none"
    HEAD = "head"  # one of head_dim, shared by the heads
    FULL = "full"  # one over all heads together


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Checkpoint paths, below the block and of the ends; equal names stand for fused modules."""

    attention: str = "self_attn"
    q: str = "q_proj"
    k: str = "k_proj"
    v: str = "v_proj"
    o: str = "o_proj"
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    mlp: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    final_norm: str = "model.norm"
    head: str = "lm_head"


LLAMA_NAMES: Final = Names()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixerPart:
    """One layer's mixer with its weights; alike layers share one part."""

    mixer: Mixer
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardPart:
    """One layer's feed-forward block with its weights; alike layers share one part."""

    ffn: FFN
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Sizes of a softmax attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


SparseRule: TypeAlias = Callable[[Config, int], Sequence[bool]]
"""Which of so many layers hold experts."""

Extra: TypeAlias = Callable[[Config, int], tuple[Weight, ...]]
"""Weights beside the usual ones, from the configuration and the hidden size."""


def all_sparse(config: Config, count: int) -> Sequence[bool]:
    """Every layer holds experts."""
    return (True,) * count


def no_shared(config: Config) -> int:
    """No shared experts."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The traits of a mixture of experts.

    Attributes:
        num_experts: Field of the number of routed experts.
        per_token: Field of the experts a token passes through.
        intermediate: Field of a routed expert's width.
        shared: Total width of the shared experts.
        shared_gate: A scalar gate scales the shared experts.
        sparse: Which layers hold experts.
        router_bias: Bias on the router's projection.
        bias: Bias on the experts' projections.
        extra: Further weights of the block, from configuration and number of experts.
        prefix: Module path of the block.
        router: Module name of the router.
        experts: Module name of the experts.
        shared_name: Module name of the shared experts.
        gate: Module name of an expert's gate projection; likewise ``up`` and ``down``.
        up: See ``gate``.
        down: See ``gate``.
    """

    num_experts: str = "num_experts"
    per_token: str = "num_experts_per_tok"
    intermediate: str = "moe_intermediate_size"
    shared: Callable[[Config], int] = no_shared
    shared_gate: bool = False
    sparse: SparseRule = all_sparse
    router_bias: Trait = False
    bias: Trait = False
    extra: Extra | None = None
    prefix: str = "mlp"
    router: str = "gate"
    experts: str = "experts.*"
    shared_name: str = "shared_experts"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one model type differs from Llama.

    Attributes:
        q_bias: Bias on the query projection; ``k_bias`` and ``v_bias`` follow it when None.
        k_bias: Bias on the key projection.
        v_bias: Bias on the value projection.
        o_bias: Bias on the output projection.
        in_bias: Bias on the gate and up projections of dense blocks, and on shared experts;
            ``out_bias`` follows it when None.
        out_bias: Bias on the dense down projection.
        gated: Whether the feed-forward block has a gate projection.
        even_heads: The head width is always hidden size over heads, whatever ``head_dim`` says.
        norm: Kind of the block norms and the final norm.
        norms: Block norms over the residual stream by module name, or a function that names them.
        final_norm: Whether a norm follows the last block.
        qk_norm: Norms on queries and keys.
        qk_norm_if: Field that turns them on, None for always.
        qk_norm_divided: vLLM divides these norms with the heads instead of keeping them whole.
        head_bias: Bias on the output projection.
        windows: Rule for sliding windows.
        sinks: Every head has a learned sink.
        intermediate: Width of the dense feed-forward block: a field, or a function.
        max_positions: Field of the longest context.
        experts: Traits of the experts, None for a dense model.
        attention: Builds the mixers, one a layer.
        feed_forward: Builds the feed-forward blocks, one a layer.
        attention_extra: Further attention weights from the configuration and head sizes.
        extra: Further weights of every block.
        input_extra: Further weights before the first block.
        output_extra: Further weights after the last block.
        tied: Whether the head is the embedding when ``tie_word_embeddings`` is nowhere given.
        softcap: Field of the final tanh cap, None for none.
        mtp: Builds the multi-token-prediction blocks from the last block.
        names: Checkpoint paths.
    """

    q_bias: Trait = False
    k_bias: Trait | None = None
    v_bias: Trait | None = None
    o_bias: Trait = False
    in_bias: Trait = False
    out_bias: Trait | None = None
    gated: bool = True
    even_heads: bool = False
    norm: Norm = Norm.SCALE
    norms: tuple[str, ...] | Callable[[Config], tuple[str, ...]] = (
        "input_layernorm",
        "post_attention_layernorm",
    )
    final_norm: bool = True
    qk_norm: QKNorm = QKNorm.NONE
    qk_norm_if: str | None = None
    qk_norm_divided: bool = False
    head_bias: Trait = False
    windows: windows.WindowRule = windows.full
    sinks: bool = False
    intermediate: str | Callable[[Config], int] = "intermediate_size"
    max_positions: str = "max_position_embeddings"
    experts: Experts | None = None
    attention: AttentionRule = field(default_factory=lambda: grouped_attention)
    feed_forward: FeedForwardRule = field(default_factory=lambda: feed_forward)
    attention_extra: Callable[[Config, int, Heads], tuple[Weight, ...]] | None = None
    extra: Extra | None = None
    input_extra: Extra | None = None
    output_extra: Extra | None = None
    tied: bool = True
    softcap: str | None = None
    mtp: MTPRule | None = None
    names: Names = LLAMA_NAMES


AttentionRule: TypeAlias = Callable[[Config, Family, int, int], Sequence[MixerPart]]
"""(configuration, family, hidden size, number of layers) -> one mixer a layer."""

FeedForwardRule: TypeAlias = Callable[[Config, Family, int, int], Sequence[FeedForwardPart]]
"""(configuration, family, hidden size, number of layers) -> one feed-forward block a layer."""

MTPRule: TypeAlias = Callable[[Config, int, Layer], Sequence[Layer]]
"""(configuration, hidden size, last block) -> multi-token-prediction blocks."""


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
    mixers = family.attention(config, family, hidden_size, count)
    layers = join(mixers, family.feed_forward(config, family, hidden_size, count), common)
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
