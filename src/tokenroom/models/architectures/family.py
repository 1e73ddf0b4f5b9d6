"""The traits in which decoders of Llama's shape differ.

A :class:`Family` is a row of facts about a ``modeling_*.py`` file of transformers 5.24. A trait
that a configuration field decides holds that field's name instead of True or False. What no trait
covers is a function in its place (``attention``, ``feed_forward``, ``extra``).
:mod:`tokenroom.models.architectures.decoders` builds models out of families.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from tokenroom.models.architectures import windows
from tokenroom.models.config import Config
from tokenroom.models.spec import FFN, Layer, Mixer, Weight

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
        attention: Builds the mixers, one a layer; None for grouped attention.
        feed_forward: Builds the feed-forward blocks, one a layer; None for dense or sparse ones.
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
    attention: AttentionRule | None = None
    feed_forward: FeedForwardRule | None = None
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
