"""Parameters that one SGLang rank holds after loading.

Layers descend from vLLM's, so the tensors of a module are those of
:mod:`tokenroom.memory.layer_tensors`; what differs is how ranks share them: attention is divided
over ``tp / attn_dp`` ranks, dense blocks over ``moe_dense_tp_size`` or ``tp``, experts over
``tp / ep`` and dealt to ``ep`` (``layers/dp_attention.py``, ``models/deepseek_v2.py``,
``layers/moe/fused_moe_triton/layer.py``, ``layers/vocab_parallel_embedding.py``; 0.5.23).
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tokenroom.engines.sglang.storage import AS_STORED, Storage, fp4_expert_tensors
from tokenroom.errors import DeploymentError
from tokenroom.memory.caching_allocator import allocated_bytes
from tokenroom.memory.kept_types import is_created_plain, kept_type, router_tensors, value_twin
from tokenroom.memory.layer_tensors import (
    Tensor,
    expert_tensors,
    fused_name,
    linear_tensors,
    merges,
    plain_tensors,
)
from tokenroom.memory.weights import Component, component_of, kv_heads_of, local_weight
from tokenroom.models.quantization import dtype_bytes, schemes
from tokenroom.models.spec import (
    LatentAttention,
    Layer,
    ModelSpec,
    Role,
    Rotary,
    Scheme,
    Shard,
    Weight,
)

Parts: TypeAlias = list[tuple[Component, Tensor]]
_Merge: TypeAlias = tuple[Component, str, str, Scheme | None, int]

_TABLE_BYTES: Final = 4
"""Rotary tables stay in float32 on CUDA (``layers/rotary_embedding.py``)."""

_WITHOUT_TABLES: Final = frozenset({"gemma3_text"})
"""Model types that rotate by frequencies and keep no table (``models/gemma3_causal.py``)."""

_SELECTOR: Final = ".indexer."
_OUTPUT_A: Final = "self_attn.o_a_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLayout:
    """How ranks share a model.

    Attributes:
        tp: Tensor-parallel ranks.
        pp: Pipeline stages.
        pp_rank: Which stage.
        attention_tp: Ranks that attention is divided over.
        dense_tp: Ranks that dense feed-forward blocks and shared experts are divided over.
        expert_tp: Ranks that one routed expert is divided over.
        ep: Ranks that experts are dealt to.
        head_tp: Ranks that the output head is divided over.
        embedding_tp: Ranks that the token embedding is divided over (1 under DP attention).
        layer_partition: Blocks of each stage (``SGLANG_PP_LAYER_PARTITION``), None for the rule.
    """

    tp: int = 1
    pp: int = 1
    pp_rank: int = 0
    attention_tp: int = 1
    dense_tp: int = 1
    expert_tp: int = 1
    ep: int = 1
    head_tp: int = 1
    embedding_tp: int = 1
    layer_partition: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Parameters of one rank.

    Attributes:
        components: Bytes by component, absent ones left out; ``"positions"`` are rotary tables
            and ``"rounding"`` what the allocator adds.
        allocated_bytes: Their sum: the figure of ``mem usage`` in "Load weight end".
        offloaded_bytes: Parameters kept in host memory instead (``--cpu-offload-gb``).
    """

    components: Mapping[str, int]
    allocated_bytes: int
    offloaded_bytes: int


def stage_layers(num_layers: int, layout: RankLayout) -> range:
    """Blocks of a pipeline stage: the last ``num_layers % pp`` stages have one more.

    ``distributed/utils.py`` ``get_pp_indices``.

    Raises:
        DeploymentError: ``layer_partition`` does not fit the stages or the blocks.
    """
    pp, rank = layout.pp, layout.pp_rank
    if layout.layer_partition is not None:
        sizes = list(layout.layer_partition)
        if len(sizes) != pp or sum(sizes) != num_layers:
            raise DeploymentError(
                f"SGLANG_PP_LAYER_PARTITION is {','.join(map(str, sizes))}; it must hold {pp} "
                f"counts that add up to {num_layers} blocks"
            )
    else:
        base, rest = divmod(num_layers, pp)
        sizes = [base + (stage >= pp - rest) for stage in range(pp)]
    start = sum(sizes[:rank])
    return range(start, start + sizes[rank])


class _Builder:
    """Lists the tensors of one rank."""

    def __init__(self, spec: ModelSpec, layout: RankLayout, dtype: str, storage: Storage) -> None:
        self.spec = spec
        self.layout = layout
        self.dtype = dtype
        self.storage = storage

    def local(self, weight: Weight, component: Component, kv_heads: int) -> Weight:
        layout = self.layout
        if weight.expert:
            return local_weight(weight, tp=layout.tp, expert_tp=layout.expert_tp, ep=layout.ep)
        ranks = {
            Component.ATTENTION: layout.attention_tp,
            Component.NORMS: layout.attention_tp,
            Component.FFN: layout.dense_tp,
            Component.SHARED_EXPERTS: layout.dense_tp,
            Component.HEAD: layout.head_tp,
            Component.EMBEDDING: layout.embedding_tp,
        }.get(component, layout.tp)
        return local_weight(weight, tp=ranks, kv_heads=kv_heads)

    def section(self, name: str, weights: Sequence[Weight], kv_heads: int = 1) -> Parts:
        """Tensors of a group of weights, merged as the engine merges them."""
        merged: dict[_Merge, list[Weight]] = {}
        for number, weight in enumerate(weights):
            component = component_of(name, weight)
            inside = component_of("layers", weight) if name == "mtp" else component
            piece = self.local(weight, inside, kv_heads)
            key: _Merge
            if weight.expert:
                key = (component, "experts", "", None, 0)
            elif self.is_plain(weight):
                apart = -1 if merges(weight) else number
                kept = kept_type(self.spec, weight, self.dtype)
                key = (component, fused_name(weight), kept, None, apart)
            else:
                key = (component, fused_name(weight), "", weight.scheme, -1)
            merged.setdefault(key, []).append(piece)
        found: Parts = []
        for (component, module, kept, scheme, _), pieces in merged.items():
            if module == "experts" and pieces[0].expert:
                tensors = self.experts(pieces)
            elif scheme is None:
                tensors = plain_tensors(pieces, kept)
            else:
                tensors = linear_tensors(pieces, self.dtype)
            found += [(component, tensor) for tensor in tensors]
        return found

    def is_plain(self, weight: Weight) -> bool:
        """Whether a weight is kept in a plain type."""
        if weight.scheme is None or is_created_plain(self.spec, weight):
            return True
        return self.storage.plain_output and weight.name.endswith(_OUTPUT_A)

    def experts(self, pieces: Sequence[Weight]) -> list[Tensor]:
        """The routed experts of a layer."""
        scheme, scales = pieces[0].scheme, self.storage.fp4_scales
        if scales is None or scheme is None or schemes.family(scheme) != schemes.MXFP4:
            return expert_tensors(pieces, self.dtype, self.storage.padding)
        return fp4_expert_tensors(pieces, scales)

    def layer(self, layer: Layer, section: str = "layers") -> Parts:
        """Tensors of one block, with the halves of ``kv_b_proj`` that latent attention keeps.

        ``deepseek_weight_loader.py`` ``post_load_weights``: ``w_kc`` and ``w_vc`` beside the
        layer's own ``kv_b_proj``; block-wise FP8 is turned back into the model's type for them.
        """
        twin = value_twin(self.spec, layer)
        weights = layer.weights if twin is None else (*layer.weights, twin)
        found = self.section(section, weights, kv_heads_of(layer))
        for mixer in layer.mixers:
            if not isinstance(mixer, LatentAttention):
                continue
            for weight in layer.weights:
                if weight.name.endswith("kv_b_proj"):
                    heads = mixer.num_heads // self.layout.attention_tp
                    width = heads * mixer.kv_lora_rank * dtype_bytes(self.dtype)
                    for part in (mixer.qk_nope_head_dim, mixer.v_head_dim):
                        found.append((Component.ATTENTION, Tensor(self.dtype, width * part)))
        return found


def unused_selector(spec: ModelSpec, layer: Layer) -> tuple[Weight, ...]:
    """The weights of a selector in a layer that reuses another's selection (GLM-5.2)."""
    latent = [mixer for mixer in layer.mixers if isinstance(mixer, LatentAttention)]
    if not latent or any(mixer.indexer is not None for mixer in latent):
        return ()
    for other in spec.layers:
        if any(getattr(mixer, "indexer", None) is not None for mixer in other.mixers):
            return tuple(weight for weight in other.weights if _SELECTOR in weight.name)
    return ()


def table_bytes(table: Rotary) -> int:
    """Bytes of one table of rotary positions."""
    positions = table.positions
    if table.kind == "longrope":
        positions += table.original_positions or positions
    elif table.kind in ("linear", "dynamic"):
        positions = int(positions * table.factor)
    elif table.kind in ("yarn", "deepseek_yarn", "deepseek_llama_scaling"):
        positions = int((table.original_positions or positions) * table.factor)
    return positions * table.width * _TABLE_BYTES


def rank_weights(
    spec: ModelSpec,
    layout: RankLayout,
    *,
    dtype: str,
    towers: bool = True,
    mtp: bool = False,
    storage: Storage = AS_STORED,
    cpu_offload_bytes: int = 0,
    shared_ends: bool = False,
) -> RankWeights:
    """Parameters that one rank holds; remembered for as long as ``spec`` lives.

    Args:
        spec: The model.
        layout: Where the rank stands.
        dtype: ``--dtype`` resolved.
        towers: Vision and audio encoders are loaded.
        mtp: Only the multi-token-prediction blocks: the draft that shares the rest.
        storage: How the kernels want them kept.
        cpu_offload_bytes: Parameters of blocks kept in host memory, first block first.
        shared_ends: Embedding and head are those of the target model (a draft's).

    Raises:
        DeploymentError: A dimension does not divide over the ranks.
        QuantizationError: A weight has a type that is not known.
    """
    key = (layout, dtype, towers, mtp, storage, cpu_offload_bytes, shared_ends)
    known = _CACHE.get(id(spec))
    if known is None:
        known = _CACHE[id(spec)] = {}
        weakref.finalize(spec, _CACHE.pop, id(spec), None)
    result = known.get(key)
    if result is None:
        result = known[key] = _rank_weights(spec, *key)
    return result


_Key: TypeAlias = tuple[RankLayout, str, bool, bool, Storage, int, bool]
_CACHE: Final[dict[int, dict[_Key, RankWeights]]] = {}


def _rank_weights(
    spec: ModelSpec,
    layout: RankLayout,
    dtype: str,
    towers: bool,
    mtp: bool,
    storage: Storage,
    cpu_offload_bytes: int,
    shared_ends: bool,
) -> RankWeights:
    builder = _Builder(spec, layout, dtype, storage)
    components: Counter[str] = Counter()
    sizes: list[int] = []
    offloaded = 0
    kinds: dict[int, Parts] = {}
    sections: list[tuple[bool, Parts]] = []
    if mtp:
        sections += [(False, builder.layer(layer, "mtp")) for layer in spec.mtp_layers]
    else:
        sections.append((False, _before(builder, towers=towers, shared=shared_ends)))
        for number in stage_layers(spec.num_layers, layout):
            layer = spec.layers[number]
            if id(layer) not in kinds:
                kinds[id(layer)] = builder.layer(layer)
            beside: Parts = [
                (Component.ROUTER, tensor) for tensor in router_tensors(spec, number, layer)
            ]
            if storage.selectors_everywhere:
                beside += builder.section("layers", unused_selector(spec, layer))
            sections.append((True, kinds[id(layer)] + beside))
        sections.append((False, _after(builder, shared=shared_ends)))
    for movable, section in sections:
        for component, tensor in section:
            num_bytes = tensor.num_bytes * tensor.times
            if movable and offloaded < cpu_offload_bytes:
                offloaded += num_bytes
                continue
            components[component.value] += num_bytes
            sizes += [tensor.num_bytes] * tensor.times
    bare = mtp or spec.model_type in _WITHOUT_TABLES
    tables = [] if bare else [table_bytes(table) for table in spec.rotary] * storage.tables
    if storage.layer_tables:
        tables *= 1 + len(stage_layers(spec.num_layers, layout))
    total = components.total() + sum(tables)
    allocated = allocated_bytes(sizes + tables)
    if tables:
        components["positions"] = sum(tables)
    if allocated > total:
        components["rounding"] = allocated - total
    return RankWeights(
        components=dict(components), allocated_bytes=allocated, offloaded_bytes=offloaded
    )


def _before(builder: _Builder, *, towers: bool, shared: bool) -> Parts:
    spec, layout = builder.spec, builder.layout
    embedding = [weight for weight in spec.input_weights if not shared or _is_norm(weight)]
    if layout.pp_rank > 0:
        last = layout.pp_rank == layout.pp - 1
        tied = [weight for weight in embedding if weight.role is Role.EMBEDDING]
        return builder.section("embedding", tied) if last and spec.tied_embeddings else []
    found: Parts = []
    if towers:
        for tower in spec.towers:
            found += builder.section(tower.name, tower.weights)
    found += builder.section("embedding", embedding)
    for layer in spec.encoder_layers:
        found += builder.section("encoder", layer.weights, kv_heads_of(layer))
    return found


def _after(builder: _Builder, *, shared: bool) -> Parts:
    spec, layout = builder.spec, builder.layout
    if layout.pp_rank < layout.pp - 1:
        return []
    kept = [weight for weight in spec.output_weights if not shared or _is_norm(weight)]
    return builder.section("head", kept)


def _is_norm(weight: Weight) -> bool:
    return weight.role not in (Role.EMBEDDING, Role.LM_HEAD) and weight.shard is not Shard.VOCAB
