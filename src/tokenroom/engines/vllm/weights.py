"""Bytes of parameters that one vLLM rank holds.

Two stages are told apart. As *created*, parameters have the shapes that ``create_weights`` gives
them before a checkpoint is read: what vLLM's own code reports for a model built without weights.
As *loaded*, kernels have repacked them, placeholders are gone and the copies that latent attention
keeps have been made: what a GPU holds and "Model loading took" prints, with the position tables.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tokenroom.engines.vllm.buffers import position_table_sizes
from tokenroom.engines.vllm.weight_types import as_divided, every_stage
from tokenroom.errors import DeploymentError
from tokenroom.memory.caching_allocator import allocated_bytes
from tokenroom.memory.kept_types import is_created_plain, kept_type, router_tensors, value_twin
from tokenroom.memory.layer_tensors import (
    NO_PADDING,
    ExpertPadding,
    Tensor,
    Tensors,
    expert_tensors,
    fused_name,
    linear_tensors,
    merges,
    plain_tensors,
)
from tokenroom.memory.weights import Component, component_of, kv_heads_of, local_weight
from tokenroom.models.quantization.size import dtype_bytes
from tokenroom.models.spec import (
    Attention,
    LatentAttention,
    Layer,
    ModelSpec,
    Role,
    Scheme,
    Weight,
)

Parts: TypeAlias = list[tuple[Component, Tensor]]

NEWEST_VERSION: Final = (0, 33, 0)
"""The newest vLLM version whose sources were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBreakdown:
    """Parameters of one rank.

    Attributes:
        components: Bytes by component, absent ones left out.
        by_dtype: The same bytes by PyTorch type.
        total_bytes: Their sum.
        buffer_bytes: Position tables kept beside the parameters (0 as created).
        allocated_bytes: What PyTorch's allocator charges for both, rounding included: the figure
            of "Model loading took".
        offloaded_bytes: Parameters kept in host memory instead (``--cpu-offload-gb``), not counted
            in any other figure.
        first_layer: Index of the rank's first block.
        num_layers: How many blocks it has.
    """

    components: Mapping[Component, int]
    by_dtype: Mapping[str, int]
    total_bytes: int
    buffer_bytes: int
    allocated_bytes: int
    offloaded_bytes: int
    first_layer: int
    num_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Where a rank stands.

    Attributes:
        tp: Tensor-parallel ranks.
        pp: Pipeline stages.
        pp_rank: Which stage.
        dp: Data-parallel ranks: they share the routed experts.
        pcp: Prefill-context-parallel ranks, likewise.
        expert_parallel: Experts are dealt to ranks whole instead of each being divided.
        ep_rank: Which expert-parallel rank.
        layer_partition: Blocks of each stage (``VLLM_PP_LAYER_PARTITION``), None for vLLM's own.
    """

    tp: int = 1
    pp: int = 1
    pp_rank: int = 0
    dp: int = 1
    pcp: int = 1
    expert_parallel: bool = False
    ep_rank: int = 0
    layer_partition: tuple[int, ...] | None = None

    @property
    def expert_ranks(self) -> int:
        """Ranks over which routed experts are spread (``FusedMoEParallelConfig.make``)."""
        return self.tp * self.dp * self.pcp


ONE_RANK: Final = Ranks()
"""A single GPU."""


def stage_layers(
    num_layers: int, pp: int, pp_rank: int, partition: Sequence[int] | None = None
) -> range:
    """Blocks of a pipeline stage: vLLM 0.33 ``distributed/utils.py`` ``get_pp_indices``.

    Raises:
        DeploymentError: ``partition`` does not fit the stages or the blocks.
    """
    if partition is None:
        sizes = [num_layers // pp] * pp
        for place in range(2, num_layers % pp + 2):
            sizes[-place] += 1
    else:
        sizes = list(partition)
        if len(sizes) != pp or sum(sizes) != num_layers:
            raise DeploymentError(
                f"VLLM_PP_LAYER_PARTITION is {','.join(map(str, sizes))}; it must hold {pp} counts "
                f"that add up to {num_layers} blocks"
            )
    start = sum(sizes[:pp_rank])
    return range(start, start + sizes[pp_rank])


class _Builder:
    """Lists the tensors of one rank."""

    def __init__(
        self,
        spec: ModelSpec,
        ranks: Ranks,
        dtype: str,
        loaded: bool,
        version: tuple[int, ...],
        padding: ExpertPadding,
    ) -> None:
        self.spec = spec
        self.ranks = ranks
        self.dtype = dtype
        self.loaded = loaded
        self.version = version
        self.padding = padding

    def local(self, weight: Weight, kv_heads: int) -> Weight:
        ranks, weight = self.ranks, as_divided(self.spec, weight, self.version)
        if ranks.expert_parallel and weight.expert:
            return local_weight(
                weight,
                tp=ranks.tp,
                kv_heads=kv_heads,
                expert_tp=1,
                ep=ranks.expert_ranks,
                ep_rank=ranks.ep_rank,
            )
        return local_weight(weight, tp=ranks.tp, kv_heads=kv_heads, expert_tp=ranks.expert_ranks)

    def section(self, name: str, weights: Sequence[Weight], kv_heads: int = 1) -> Parts:
        """Tensors of a group of weights, merged as vLLM merges them, in their order."""
        merged: dict[_Merge, list[Weight]] = {}
        for number, weight in enumerate(weights):
            piece = self.local(weight, kv_heads)
            component = component_of(name, weight)
            key: _Merge
            if weight.expert:
                key = (component, "experts", "", None, 0)
            elif weight.scheme is None or is_created_plain(self.spec, weight):
                kept = kept_type(self.spec, weight, self.dtype)
                apart = -1 if merges(weight) else number
                key = (component, fused_name(weight), kept, None, apart)
            else:
                key = (component, fused_name(weight), "", weight.scheme, -1)
            merged.setdefault(key, []).append(piece)
        found: Parts = []
        for (component, module, kept, scheme, _), pieces in merged.items():
            if module == "experts" and pieces[0].expert:
                tensors = expert_tensors(pieces, self.dtype, self.padding)
            elif scheme is None:
                tensors = plain_tensors(pieces, kept)
            else:
                tensors = linear_tensors(pieces, self.dtype)
            found += [(component, tensor) for tensor in tensors]
        return found

    def layer(self, layer: Layer) -> Parts:
        """Tensors of one block."""
        twin = value_twin(self.spec, layer)
        weights = layer.weights if twin is None else (*layer.weights, twin)
        found = self.section("layers", weights, kv_heads_of(layer))
        extra = self._latent_copies(layer) if self.loaded else self._scale_placeholders(layer)
        found += [(Component.ATTENTION, tensor) for tensor in extra if tensor.num_bytes]
        return found

    def _latent_copies(self, layer: Layer) -> Tensors:
        """The two halves of ``kv_b_proj`` that latent attention keeps unquantised for decoding.

        ``mla_attention.py`` ``process_weights_after_loading``: W_UK_T and W_UV, beside the layer's
        own ``kv_b_proj``, which prefill uses.
        """
        found: Tensors = []
        for mixer in layer.mixers:
            if not isinstance(mixer, LatentAttention):
                continue
            for weight in layer.weights:
                if weight.name.endswith("kv_b_proj"):
                    piece = self.local(weight, 1)
                    heads = mixer.num_heads // self.ranks.tp
                    element = dtype_bytes(self.dtype) * heads * piece.shape[-1]
                    found.append(Tensor(self.dtype, element * mixer.qk_nope_head_dim))
                    found.append(Tensor(self.dtype, element * mixer.v_head_dim))
        return found

    def _scale_placeholders(self, layer: Layer) -> Tensors:
        """Scales of the KV cache that a quantised model creates and drops after loading.

        ``kv_cache.py`` ``BaseKVCacheMethod``: query, key, value and probability scales, in the
        model's type. ``compressed_tensors.py`` ``CompressedTensorsKVCacheMethod``: three scales in
        float32 and three zero points in the model's type.
        """
        method = self.spec.quantization
        element = dtype_bytes(self.dtype)
        softmax = sum(isinstance(mixer, Attention) for mixer in layer.mixers)
        latent = sum(isinstance(mixer, LatentAttention) for mixer in layer.mixers)
        if method == "compressed-tensors":
            return [
                Tensor("float32", 12 * softmax),
                Tensor(self.dtype, 3 * element * softmax),
            ]
        if method in ("fp8", "quark", "fbgemm_fp8"):
            return [Tensor(self.dtype, 4 * element * softmax)]
        if method in ("modelopt", "modelopt_fp4", "modelopt_mxfp8"):
            return [Tensor(self.dtype, 4 * element * (softmax + latent))]
        if method == "modelopt_mixed" and self.spec.kv_cache_dtype is not None:
            return [Tensor(self.dtype, 4 * element * softmax)]
        return []


_Merge: TypeAlias = tuple[Component, str, str, Scheme | None, int]


def rank_weights(
    spec: ModelSpec,
    *,
    ranks: Ranks = ONE_RANK,
    dtype: str | None = None,
    towers: bool = True,
    mtp: bool = False,
    loaded: bool = True,
    version: tuple[int, ...] = NEWEST_VERSION,
    padding: ExpertPadding = NO_PADDING,
    cpu_offload_bytes: int = 0,
) -> WeightBreakdown:
    """Parameters that one rank holds.

    Results are remembered for as long as ``spec`` lives; a repeated call costs a look-up.

    Args:
        spec: The model.
        ranks: Where the rank stands.
        dtype: ``--dtype`` resolved, None for the checkpoint's own (float32 becomes bfloat16, as
            ``--dtype auto`` does).
        towers: Whether vision and audio encoders are loaded (``--language-model-only`` leaves them
            out).
        mtp: Whether multi-token-prediction blocks are loaded to draft.
        loaded: After loading on a GPU; False for parameters as created.
        version: vLLM's version.
        padding: What the MXFP4 kernel of the GPU rounds the experts' dimensions up to; see
            :func:`tokenroom.engines.vllm.expert_padding.expert_padding`.
        cpu_offload_bytes: ``--cpu-offload-gb`` in bytes: parameters of the blocks are kept in host
            memory, first block first, until that many are (``offloader/uva.py``).

    Raises:
        DeploymentError: A dimension does not divide over the ranks.
        QuantizationError: A weight has a type that is not known.
    """
    key = (ranks, dtype, towers, mtp, loaded, version, padding, cpu_offload_bytes)
    known = _CACHE.get(id(spec))
    if known is None:
        known = _CACHE[id(spec)] = {}
        weakref.finalize(spec, _CACHE.pop, id(spec), None)
    result = known.get(key)
    if result is None:
        result = known[key] = _rank_weights(spec, *key)
    return result


_Key: TypeAlias = tuple[Ranks, str | None, bool, bool, bool, tuple[int, ...], ExpertPadding, int]
_CACHE: Final[dict[int, dict[_Key, WeightBreakdown]]] = {}


def _rank_weights(
    spec: ModelSpec,
    ranks: Ranks,
    dtype: str | None,
    towers: bool,
    mtp: bool,
    loaded: bool,
    version: tuple[int, ...],
    padding: ExpertPadding,
    cpu_offload_bytes: int,
) -> WeightBreakdown:
    model_dtype = dtype or ("bfloat16" if spec.dtype == "float32" else spec.dtype)
    builder = _Builder(spec, ranks, model_dtype, loaded, version, padding)
    stage = stage_layers(spec.num_layers, ranks.pp, ranks.pp_rank, ranks.layer_partition)
    kinds: dict[int, Parts] = {}
    blocks: list[Parts] = []
    for number in stage:
        layer = spec.layers[number]
        if id(layer) not in kinds:
            kinds[id(layer)] = builder.layer(layer)
        beside = router_tensors(spec, number, layer)
        blocks.append(kinds[id(layer)] + [(Component.ROUTER, tensor) for tensor in beside])
    tables = position_table_sizes(spec, model_dtype, version) if loaded else []
    sections = [_before(builder, towers, version), *blocks, _after(builder, mtp, version)]
    components: Counter[Component] = Counter()
    by_dtype: Counter[str] = Counter()
    sizes: list[int] = []
    offloaded = 0
    for number, section in enumerate(sections):
        in_blocks = 0 < number < len(sections) - 1
        for component, tensor in section:
            if in_blocks and offloaded < cpu_offload_bytes:
                offloaded += tensor.num_bytes * tensor.times
                continue
            num_bytes = tensor.num_bytes * tensor.times
            components[component] += num_bytes
            by_dtype[tensor.dtype] += num_bytes
            sizes += [tensor.num_bytes] * tensor.times
        if number == 0:
            sizes += tables
    return WeightBreakdown(
        components=dict(components),
        by_dtype=dict(by_dtype),
        total_bytes=components.total(),
        buffer_bytes=sum(tables),
        allocated_bytes=allocated_bytes(sizes),
        offloaded_bytes=offloaded,
        first_layer=stage.start,
        num_layers=len(stage),
    )


def _before(builder: _Builder, towers: bool, version: tuple[int, ...]) -> Parts:
    """What a stage has before its blocks."""
    spec, ranks = builder.spec, builder.ranks
    if ranks.pp_rank > 0:
        last = ranks.pp_rank == ranks.pp - 1
        if "embedding" not in every_stage(spec, version) and not (last and spec.tied_embeddings):
            return []
        tables = [weight for weight in spec.input_weights if weight.role is Role.EMBEDDING]
        return builder.section("embedding", tables)
    found: Parts = []
    if towers:
        for tower in spec.towers:
            found += builder.section(tower.name, tower.weights)
    found += builder.section("embedding", spec.input_weights)
    for layer in spec.encoder_layers:
        found += builder.section("encoder", layer.weights, kv_heads_of(layer))
    return found


def _after(builder: _Builder, mtp: bool, version: tuple[int, ...]) -> Parts:
    """What a stage has after its blocks."""
    spec, ranks = builder.spec, builder.ranks
    if ranks.pp_rank < ranks.pp - 1:
        everywhere = every_stage(spec, version)
        kept = [
            weight
            for weight in spec.output_weights
            if ("norm" if weight.role is Role.NORM else "head") in everywhere
        ]
        return builder.section("head", kept)
    found = builder.section("head", spec.output_weights)
    if mtp:
        for layer in spec.mtp_layers:
            # Copies of the embedding and the head give way to the model's own
            # (v1/spec_decode/eagle.py ``load_model``).
            own = [w for w in layer.weights if w.role not in (Role.EMBEDDING, Role.LM_HEAD)]
            found += builder.section("mtp", own, kv_heads_of(layer))
    return found
