"""The traits in which Llama-like decoders differ, and the one builder that reads them.

A :class:`Family` is a row of facts about a ``modeling_*.py`` file. A trait that a configuration
field decides holds that field's name instead of True or False.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.config import Config
from tokenroom.models.spec import FFN, Attention, DenseFFN, Layer, ModelSpec, Weight

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
    PER_HEAD = "per_head"  # one of head_dim for each head


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


LLAMA_NAMES = Names()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one model type differs from Llama.

    Attributes:
        q_bias: Bias on the query projection; ``k_bias``, ``v_bias`` follow it when None.
        k_bias: Bias on the key projection.
        v_bias: Bias on the value projection.
        o_bias: Bias on the output projection.
        mlp_bias: Bias on the feed-forward projections.
        gated: Whether the feed-forward block has a gate projection.
        norm: Kind of the block norms and the final norm.
        norms: Block norms over the residual stream, by module name.
        qk_norm: Norms on queries and keys.
        qk_norm_if: Field that turns them on, None for always.
        head_bias: Bias on the output projection.
        windows: Rule for sliding windows.
        intermediate: Field of the feed-forward width.
        names: Checkpoint paths.
        softcap: Field of the final tanh cap, None for none.
    """

    q_bias: Trait = False
    k_bias: Trait | None = None
    v_bias: Trait | None = None
    o_bias: Trait = False
    mlp_bias: Trait = False
    gated: bool = True
    norm: Norm = Norm.SCALE
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    qk_norm: QKNorm = QKNorm.NONE
    qk_norm_if: str | None = None
    head_bias: Trait = False
    windows: windows.WindowRule = windows.full
    intermediate: str = "intermediate_size"
    names: Names = LLAMA_NAMES
    softcap: str | None = None


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


def heads_of(config: Config, hidden_size: int) -> tuple[int, int, int]:
    """(query heads, KV heads, head width) with Hugging Face's usual fall-backs.

    Null KV heads mean as many as query heads; a null head width the even share.

    Raises:
        ModelError: A field is missing or the KV heads do not divide the query heads.
    """
    num_heads = config.integer("num_attention_heads")
    num_kv_heads = config.optional_integer("num_key_value_heads", default=num_heads) or num_heads
    head_dim = config.optional_integer("head_dim") or hidden_size // num_heads
    if num_heads % num_kv_heads:
        config.refuse("num_key_value_heads", f"a divisor of the {num_heads} attention heads")
    if head_dim < 1:
        config.refuse("num_attention_heads", f"at most the hidden size ({hidden_size})")
    return num_heads, num_kv_heads, head_dim


def attention_part(
    config: Config, family: Family, hidden_size: int
) -> tuple[Callable[[int | None], Attention], tuple[Weight, ...]]:
    """The family's attention: a function from window to mixer, and the weights.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    num_heads, num_kv_heads, head_dim = heads_of(config, hidden_size)
    names = family.names
    q_bias = holds(config, family.q_bias)
    weights = blocks.attention_weights(
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
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
    if family.qk_norm_if is None or config.flag(family.qk_norm_if):
        shift = family.norm is Norm.SCALE_AND_SHIFT
        for name, heads in ((names.q_norm, num_heads), (names.k_norm, num_kv_heads)):
            copies = 1 if family.qk_norm is QKNorm.HEAD else heads
            if family.qk_norm is not QKNorm.NONE:
                path = f"{names.attention}.{name}"
                weights += (blocks.norm(path, copies * head_dim, bias=shift),)

    def mixer(window: int | None) -> Attention:
        return Attention(
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            value_head_dim=head_dim,
            window=window,
        )

    return mixer, weights


def dense_ffn_part(
    config: Config, family: Family, hidden_size: int, intermediate_size: int
) -> tuple[FFN, tuple[Weight, ...]]:
    """The family's dense feed-forward block of the given width.

    Raises:
        ModelError: The field that decides on a bias holds neither true nor false.
    """
    bias = holds(config, family.mlp_bias)
    names = family.names
    weights = blocks.ffn_weights(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        gated=family.gated,
        in_bias=bias,
        out_bias=bias,
        prefix=names.mlp,
        gate=names.gate,
        up=names.up,
        down=names.down,
    )
    return DenseFFN(intermediate_size=intermediate_size, gated=family.gated), weights


def build(config: Config, name: str, family: Family) -> ModelSpec:
    """The model of a Llama-like configuration.

    Raises:
        ModelError: A field is missing or holds what it cannot.
    """
    hidden_size = config.integer("hidden_size")
    count = num_layers(config)
    mixer, attention = attention_part(config, family, hidden_size)
    ffn, ffn_weights = dense_ffn_part(
        config, family, hidden_size, config.integer(family.intermediate)
    )
    norms = tuple(
        weight for path in family.norms for weight in block_norm(family.norm, path, hidden_size)
    )
    kinds: dict[int | None, Layer] = {}
    layers: list[Layer] = []
    for window in family.windows(config, count):
        if window not in kinds:
            kinds[window] = Layer(
                mixers=(mixer(window),), ffn=ffn, weights=attention + ffn_weights + norms
            )
        layers.append(kinds[window])
    names = family.names
    final = block_norm(family.norm, names.final_norm, hidden_size)
    return decoder(
        config,
        name,
        layers=layers,
        hidden_size=hidden_size,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=final[0] if final else None,
        head_bias=holds(config, family.head_bias),
        layer_prefix=names.layers,
        embedding_name=names.embedding,
        head_name=names.head,
        logits_softcap=family.softcap is not None
        and config.optional_number(family.softcap) is not None,
    )


def builders(families: Mapping[str, Family]) -> dict[str, Callable[[Config, str], ModelSpec]]:
    """One builder a family."""

    def builder(family: Family) -> Callable[[Config, str], ModelSpec]:
        return lambda config, name: build(config, name, family)

    return {model_type: builder(family) for model_type, family in families.items()}
