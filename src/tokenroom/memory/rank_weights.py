"""Parameters that one rank holds when a checkpoint is kept as it is stored.

Engines that merge, pad or repack (vLLM, SGLang) have their own account; this one is for those that
load each tensor as it is, or its share of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.memory.weights import Component, component_of, kv_heads_of, local_weight
from tokenroom.models.quantization.size import dtype_bytes, stored_bytes
from tokenroom.models.spec import LatentAttention, Layer, ModelSpec, Role, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rank stands.

    Attributes:
        tp: Ranks that share each layer.
        expert_tp: Ranks that share one expert.
        ep: Ranks that the experts are dealt to.
        ep_rank: Which of them.
        layers: Indices of its blocks, None for all.
    """

    tp: int = 1
    expert_tp: int = 1
    ep: int = 1
    ep_rank: int = 0
    layers: range | None = None


WHOLE: Final = Place()
"""One rank that holds everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Bytes of one rank.

    Attributes:
        components: Bytes by component, absent ones left out.
        sizes: Bytes of each tensor in loading order.
    """

    components: Mapping[Component, int]
    sizes: Sequence[int]

    @property
    def total_bytes(self) -> int:
        """All parameters."""
        return sum(self.sizes)


def split_layers(num_layers: int, stages: int, stage: int) -> range:
    """Blocks of a pipeline stage when the first stages take what does not divide.

    As ``torch.tensor_split`` does, which TensorRT-LLM uses (``tensorrt_llm/mapping.py``
    ``pp_layers``).
    """
    share, rest = divmod(num_layers, stages)
    start = stage * share + min(stage, rest)
    return range(start, start + share + (1 if stage < rest else 0))


def rank_weights(
    spec: ModelSpec,
    place: Place = WHOLE,
    *,
    dtype: str | None = None,
    towers: bool = True,
    mtp: bool = False,
    vocab_multiple: int = 1,
    latent_copies: bool = False,
) -> RankWeights:
    """Parameters of one rank.

    Args:
        spec: The model.
        place: Where the rank stands.
        dtype: Type of plain parameters; the checkpoint's own when None.
        towers: Whether vision and audio encoders are loaded, whole on every rank of the first
            stage: TensorRT-LLM builds most of them from transformers' own modules
            (``_torch/models/modeling_qwen2vl.py``, ``modeling_llava_next.py``).
        mtp: Whether multi-token-prediction blocks are loaded to draft.
        vocab_multiple: Rows of the vocabulary are padded to a multiple of this and ``place.tp``.
        latent_copies: Latent attention keeps both halves of ``kv_b_proj`` again for decoding.

    Raises:
        DeploymentError: A dimension does not divide.
        QuantizationError: A weight has a type that is not known.
    """
    kept = dtype or spec.dtype
    layers = range(spec.num_layers) if place.layers is None else place.layers
    components: Counter[Component] = Counter()
    sizes: list[int] = []

    def add(
        section: str, weights: Sequence[Weight], kv_heads: int = 1, ranks: int = place.tp
    ) -> None:
        for weight in weights:
            piece = local_weight(
                weight,
                tp=ranks,
                kv_heads=kv_heads,
                expert_tp=place.expert_tp,
                ep=place.ep,
                ep_rank=place.ep_rank,
                vocab_multiple=max(vocab_multiple, place.tp),
            )
            num_bytes = stored_bytes(piece, kept)
            components[component_of(section, weight)] += num_bytes
            sizes.append(num_bytes)

    first, last = 0 in layers, spec.num_layers - 1 in layers
    if first:
        if towers:
            for tower in spec.towers:
                add(tower.name, tower.weights, ranks=1)
        add("embedding", spec.input_weights)
        for layer in spec.encoder_layers:
            add("encoder", layer.weights, kv_heads_of(layer))
    for index in layers:
        layer = spec.layers[index]
        add("layers", layer.weights, kv_heads_of(layer))
        if latent_copies:
            for num_bytes in _latent_copies(layer, place.tp, kept):
                components[Component.ATTENTION] += num_bytes
                sizes.append(num_bytes)
    if last:
        if spec.tied_embeddings and not first:  # a stage of its own needs the table again
            tables = [weight for weight in spec.input_weights if weight.role is Role.EMBEDDING]
            add("embedding", tables)
        add("head", spec.output_weights)
        if mtp:
            for layer in spec.mtp_layers:
                add("mtp", layer.weights, kv_heads_of(layer))
    return RankWeights(components=dict(components), sizes=tuple(sizes))


def _latent_copies(layer: Layer, ranks: int, dtype: str) -> list[int]:
    """The halves of ``kv_b_proj`` unquantised: heads x (key or value width) x latent width."""
    found = []
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            element = dtype_bytes(dtype) * (mixer.num_heads // ranks) * mixer.kv_lora_rank
            found += [element * mixer.qk_nope_head_dim, element * mixer.v_head_dim]
    return found
