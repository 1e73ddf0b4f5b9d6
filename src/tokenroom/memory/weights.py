"""Bytes of a model's weights, whole and divided, without any one engine's habits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tokenroom.errors import DeploymentError
from tokenroom.models.quantization.size import stored_bytes
from tokenroom.models.spec import Attention, LatentAttention, Layer, ModelSpec, Role, Shard, Weight

VOCAB_MULTIPLE: Final = 64
"""Rows of the vocabulary are padded to a multiple of this before they are divided (vLLM 0.33
``vocab_parallel_embedding.py`` ``DEFAULT_VOCAB_PADDING_SIZE``; SGLang 0.5.23 has the same)."""


class Component(StrEnum):
    """Parts of a model that people ask about."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"  # softmax, latent and linear attention, state-space mixers
    FFN = "ffn"  # dense feed-forward blocks
    ROUTER = "router"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    NORMS = "norms"
    HEAD = "head"
    ENCODER = "encoder"
    VISION = "vision"
    AUDIO = "audio"
    MTP = "mtp"


_FFN_MODULES: Final = frozenset(
    {"mlp", "ffn", "feed_forward", "moe", "block_sparse_moe", "experts", "ffn_block"}
)
_FFN_LEAVES: Final = frozenset(
    {"fc1", "fc2", "w1", "w2", "w3", "gate_proj", "up_proj", "down_proj", "gate_up_proj"}
)


def component_of(section: str, weight: Weight) -> Component:
    """Which component a weight counts for.

    Args:
        section: As :meth:`ModelSpec.all_weights` names it: ``"embedding"``, ``"layers"``,
            ``"head"``, ``"encoder"``, a tower's name, or ``"mtp"``.
        weight: The parameter.
    """
    if section == "encoder":
        return Component.ENCODER
    if section == "mtp":
        return Component.MTP
    if section in ("vision", "audio"):
        return Component(section)
    if section not in ("embedding", "layers", "head"):
        return Component.VISION
    if weight.role is Role.NORM:
        return Component.NORMS
    if section == "embedding":
        return Component.EMBEDDING
    if section == "head":
        return Component.HEAD
    return _of_block(weight)


def _of_block(weight: Weight) -> Component:
    if weight.role is Role.ROUTER:
        return Component.ROUTER
    if weight.expert:
        return Component.EXPERTS
    parts = weight.name.split(".")
    if any(part.startswith("shared_expert") or part == "shared_mlp" for part in parts):
        return Component.SHARED_EXPERTS
    if parts[-1] == "e_score_correction_bias":
        return Component.ROUTER
    if parts[0].startswith("ffn_"):  # GGUF names: ffn_up, ffn_up_shexp
        return Component.SHARED_EXPERTS if parts[0].endswith("_shexp") else Component.FFN
    if not _FFN_MODULES.isdisjoint(parts) or parts[-1] in _FFN_LEAVES:
        return Component.FFN
    return Component.ATTENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWeights:
    """Bytes of a checkpoint.

    Attributes:
        components: Bytes by component, absent ones left out.
        total_bytes: Their sum: the language model, its towers and its MTP blocks.
        mtp_bytes: The share of multi-token-prediction blocks, which engines load only to draft.
    """

    components: Mapping[Component, int]
    total_bytes: int
    mtp_bytes: int


@lru_cache(maxsize=256)  # by identity: a description never changes
def checkpoint_weights(spec: ModelSpec) -> CheckpointWeights:
    """Bytes of the checkpoint as stored, by component.

    Raises:
        QuantizationError: A weight has a type that is not known.
    """
    components: dict[Component, int] = {}
    for section, weight, times in spec.all_weights():
        component = component_of(section, weight)
        num_bytes = times * stored_bytes(weight, spec.dtype)
        components[component] = components.get(component, 0) + num_bytes
    mtp_bytes = sum(
        stored_bytes(weight, spec.dtype) for layer in spec.mtp_layers for weight in layer.weights
    )
    if mtp_bytes:
        components[Component.MTP] = mtp_bytes
    return CheckpointWeights(
        components=components, total_bytes=sum(components.values()), mtp_bytes=mtp_bytes
    )


def kv_heads_of(layer: Layer) -> int:
    """Heads that a KV_COLUMN weight of the layer is divided by, unless the weight says otherwise.

    Latent attention caches one shared head; a layer without attention counts as one as well.
    """
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            return mixer.num_kv_heads
        if isinstance(mixer, LatentAttention):
            return 1
    return 1


def divided(total: int, ways: int, what: str) -> int:
    """``total`` divided evenly.

    Raises:
        DeploymentError: It does not divide.
    """
    if total % ways:
        raise DeploymentError(
            f"tensor parallelism of {ways} does not divide {what} ({total}); "
            f"choose a size that divides {total}"
        )
    return total // ways


def local_weight(
    weight: Weight,
    *,
    tp: int,
    kv_heads: int = 1,
    expert_tp: int | None = None,
    ep: int = 1,
    ep_rank: int = 0,
    vocab_multiple: int = VOCAB_MULTIPLE,
) -> Weight:
    """The piece of a weight that one rank holds, as a weight of its own.

    Rules: vLLM 0.33 ``linear.py`` (``ColumnParallelLinear``, ``RowParallelLinear``,
    ``QKVParallelLinear``), ``vocab_parallel_embedding.py``, and ``fused_moe/expert_map_manager.py``
    for how a remainder of experts goes to the first ranks.

    Args:
        weight: The whole weight.
        tp: Ranks that the layer is divided over.
        kv_heads: Heads of a KV_COLUMN weight; its own ``heads`` wins.
        expert_tp: Ranks that one expert is divided over, None for ``tp``.
        ep: Ranks that the experts are dealt to.
        ep_rank: Which of them.
        vocab_multiple: Rows of the vocabulary are padded to a multiple of this.

    Raises:
        DeploymentError: A dimension does not divide.
    """
    ways = tp
    count = weight.count
    if weight.expert:
        ways = tp if expert_tp is None else expert_tp
        if ep > 1:
            count = weight.count // ep + (1 if ep_rank < weight.count % ep else 0)
    shape, bias = weight.shape, weight.bias
    if weight.shard is Shard.VOCAB:
        rows = divided(
            -(-shape[0] // vocab_multiple) * vocab_multiple, ways, f"the vocabulary ({shape[0]})"
        )
        return replace(weight, shape=(rows, *shape[1:]), bias=rows if bias else 0, count=count)
    if ways > 1:
        if weight.shard is Shard.COLUMN:
            shape = (divided(shape[0], ways, f"the outputs of {weight.name}"), *shape[1:])
            bias = bias // ways
        elif weight.shard is Shard.ROW:
            shape = (*shape[:-1], divided(shape[-1], ways, f"the inputs of {weight.name}"))
        elif weight.shard is Shard.KV_COLUMN:
            heads = weight.heads or kv_heads
            if ways < heads:
                share = divided(heads, ways, f"the KV heads of {weight.name}")
            elif ways % heads:
                raise DeploymentError(
                    f"tensor parallelism of {ways} is no multiple of the {heads} KV heads of "
                    f"{weight.name}; choose a multiple or a divisor of {heads}"
                )
            else:
                share = 1
            shape = (shape[0] // heads * share, *shape[1:])
            bias = bias // heads * share
    if shape == weight.shape and count == weight.count and bias == weight.bias:
        return weight
    return replace(weight, shape=shape, bias=bias, count=count, stored_bytes=None)


def local_bytes(
    weight: Weight,
    dtype: str,
    *,
    tp: int,
    kv_heads: int = 1,
    expert_tp: int | None = None,
    ep: int = 1,
) -> int:
    """Bytes of the piece of a weight that the first rank holds, in the checkpoint's layout.

    Raises:
        DeploymentError: A dimension does not divide.
        QuantizationError: The type is not known.
    """
    return stored_bytes(
        local_weight(weight, tp=tp, kv_heads=kv_heads, expert_tp=expert_tp, ep=ep), dtype
    )
