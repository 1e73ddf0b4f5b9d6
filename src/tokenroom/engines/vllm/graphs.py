"""Memory of vLLM's CUDA graphs: what it estimates before it sizes the KV cache, and what it takes.

Piecewise graphs (between attention layers, any batch) and full graphs (whole decode steps) are
captured from the largest size down into one memory pool. The first of each mode makes the pool
grow by the step's tensors; each further one adds what the driver keeps for its nodes. The
estimate of ``profile_cudagraph_memory`` (v1/worker/gpu_model_runner.py, from 0.18 on) captures
the two largest of each mode: the larger first capture, plus for each mode its second one (1 MiB
at least) times the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Final

from tokenroom.engines.vllm.activation import attention_workspace_bytes
from tokenroom.engines.vllm.collectives import fused_all_reduce_bytes
from tokenroom.engines.vllm.graph_pool import LayerTensors, Pool, replay
from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.engines.vllm.runner import runs_second_runner
from tokenroom.memory.cuda_graphs import CAPTURE_BYTES, GRAPH_OBJECT_BYTES, NODE_BYTES
from tokenroom.models.spec import (
    DTYPE_BITS,
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
    Role,
)
from tokenroom.units import KIB, MIB

SPLIT_KV_PARTS: Final = 32
"""``flash_attn_max_num_splits_for_cuda_graph`` (config/attention.py): FlashAttention 3 keeps this
many float32 partial outputs of every query inside a full graph."""

_DRIVER_CHUNK_BYTES: Final = 2 * MIB
# Like what the driver keeps for nodes and graphs (memory/cuda_graphs.py), measured over the 48
# captures of vLLM 0.19.0 on H100 80GB that were logged: 7.2 % mean error on the estimate.

_INDEXED_OUTPUT_BYTES: Final = 20 * MIB
"""Segment of the default pool for the last tokens' states, taken beside every capture."""
_SMALL_BUFFERS_BYTES: Final = 2 * MIB
_CUBLAS_WORKSPACE_BYTES: Final = 32 * MIB
"""A second cuBLAS workspace, for the stream that captures (one a handle and stream)."""

# Kernels between two attention layers of a dense model: four products, two fused norms, the
# activation and the rotation. Attention adds the cache write, the kernel and its combination.
_PIECE_NODES: Final = 8.0
_ATTENTION_NODES: Final = 3.0
_EXTRA_NORM_NODES: Final = 0.5  # half of them fuse with the residual add
_MISSING_NORM_NODES: Final = 1.0
_EXPERT_NODES: Final = 5.0  # router, top-k, two of alignment, second product's reduction
_SHARED_EXPERT_NODES: Final = 8.0  # three kernels, sum, input scaling, a second stream's events
_PRODUCT_NODES: Final = {"plain": 0.0, "weight_only": 1.5, "float": 1.0, "integer": 2.5}
_UNFUSED_ALL_REDUCE_NODES: Final = 0.5

# Residuals of the same captures, 5th and 95th percentile as shares of the prediction. The
# estimate can double where the second capture happens to need another 20 MiB segment.
_ESTIMATE_RESIDUALS: Final = (-0.25, 0.40)
_ACTUAL_RESIDUALS: Final = (-0.08, 0.12)
_RESIDUALS_ELSEWHERE: Final = (-0.40, 0.60)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphMode:
    """Captures of one mode.

    Attributes:
        name: ``"PIECEWISE"`` or ``"FULL"``.
        count: Graphs.
        first_bytes: What the first capture takes.
        second_bytes: What the second one takes; the estimate uses it for all others.
        mean_bytes: What a further one takes on average.
        terms: The parts of the first capture.
    """

    name: str
    count: int
    first_bytes: int
    second_bytes: int
    mean_bytes: int
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEstimate:
    """Graph memory of one rank.

    Attributes:
        modes: What each mode captures, empty without graphs.
        estimated_bytes: The engine's own estimate ("Estimated CUDA graph memory"), 0 where the
            version or runner makes none.
        charged_bytes: The part of it that is taken from the KV cache.
        actual_bytes: What capturing takes ("Graph capturing finished").
        low_bytes: Lower end of the range of ``actual_bytes``.
        high_bytes: Upper end of that range.
        estimated_low_bytes: Lower end of the range of ``estimated_bytes``.
        estimated_high_bytes: Upper end of that range.
        source: Where the formula was read and the constants measured.
    """

    modes: tuple[GraphMode, ...]
    estimated_bytes: int
    charged_bytes: int
    actual_bytes: int
    low_bytes: int
    high_bytes: int
    estimated_low_bytes: int
    estimated_high_bytes: int
    source: str


_SOURCE: Final = (
    "vLLM v1/worker/gpu_model_runner.py profile_cudagraph_memory; "
    "driver memory a node measured on 48 captures of 0.19.0 (H100)"
)
_NONE: Final = GraphEstimate(
    modes=(),
    estimated_bytes=0,
    charged_bytes=0,
    actual_bytes=0,
    low_bytes=0,
    high_bytes=0,
    estimated_low_bytes=0,
    estimated_high_bytes=0,
    source=_SOURCE,
)


def cuda_graph_memory(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> GraphEstimate:
    """What capturing graphs takes and what the engine reserves for it.

    Source: see the module. 0 when nothing is captured (``enforce_eager``, no capture sizes).
    """
    if inputs.enforce_eager or not inputs.capture_sizes:
        return _NONE
    measured = _measured(spec, inputs, rules)
    if not measured.modes:
        return _NONE
    second = runs_second_runner(spec, inputs, rules)
    estimated = 0
    if _estimates(inputs, rules, second=second):
        estimated = measured.half_sampled_bytes if second else measured.sampled_bytes
    elsewhere = second or inputs.accelerator.architecture != "hopper"
    low, high = _RESIDUALS_ELSEWHERE if elsewhere else _ACTUAL_RESIDUALS
    estimated_low, estimated_high = _RESIDUALS_ELSEWHERE if elsewhere else _ESTIMATE_RESIDUALS
    return GraphEstimate(
        modes=measured.modes,
        estimated_bytes=estimated,
        charged_bytes=estimated if rules.subtracts_graph_estimate else 0,
        actual_bytes=measured.total_bytes,
        low_bytes=round(measured.total_bytes * (1 + low)),
        high_bytes=round(measured.total_bytes * (1 + high)),
        estimated_low_bytes=round(estimated * (1 + estimated_low)),
        estimated_high_bytes=round(estimated * (1 + estimated_high)),
        source=_SOURCE,
    )


def retained_graph_bytes(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> int:
    """Driver memory of the graphs captured for the estimate, which it keeps for later ones."""
    if inputs.enforce_eager or not inputs.capture_sizes:
        return 0
    if not _estimates(inputs, rules, second=runs_second_runner(spec, inputs, rules)):
        return 0
    return 2 * sum(mode.mean_bytes for mode in _measured(spec, inputs, rules).modes)


def _estimates(inputs: ProfileInputs, rules: VersionRules, *, second: bool) -> bool:
    """Whether graphs are captured to estimate before the KV cache is sized."""
    if second and not rules.second_runner_estimates_graphs:
        return False
    vendor = inputs.accelerator.vendor
    if vendor == "amd":
        return rules.estimates_graphs_on_amd
    return rules.estimates_graphs and vendor == "nvidia"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capture:
    """What determines graph memory, small enough to remember answers by."""

    tensors: LayerTensors
    layers: int
    piece_nodes: float
    kinds: int
    sizes: tuple[int, ...]
    full_sizes: tuple[int, ...]
    piecewise: bool
    full: bool
    fixed_bytes: int
    attention_bytes: int

    @classmethod
    def of(cls, spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> _Capture:
        layer = max(spec.layer_kinds, key=lambda kind: kind[1])[0]
        query_tokens = 1 + inputs.speculative_tokens
        largest_decode = inputs.max_num_seqs * query_tokens
        sizes = tuple(sorted(inputs.capture_sizes, reverse=True))
        full_sizes = tuple(size for size in sizes if query_tokens <= size <= largest_decode)
        single_tokens = inputs.attention_backend == "FLASHINFER" and not _decodes_uniformly(inputs)
        fixed = _SMALL_BUFFERS_BYTES
        if _products(layer) in ("plain", "weight_only"):  # others are multiplied by CUTLASS
            fixed += _CUBLAS_WORKSPACE_BYTES
        if inputs.is_last_stage:
            fixed += _INDEXED_OUTPUT_BYTES
        return cls(
            tensors=_layer_tensors(spec, layer, inputs, rules),
            layers=-(-spec.num_layers // inputs.pipeline_parallel_size),
            piece_nodes=_piece_nodes(layer, inputs, rules),
            kinds=2 if inputs.max_loras else 1,  # with and without adapters
            sizes=sizes,
            full_sizes=full_sizes,
            piecewise=inputs.piecewise_graphs,
            full=inputs.full_graphs
            and bool(full_sizes)
            and not (single_tokens and inputs.speculative_tokens)
            and not _attends_in_chunks(spec),
            fixed_bytes=fixed,
            attention_bytes=attention_workspace_bytes(inputs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What captures come to.

    Attributes:
        modes: The captures.
        sampled_bytes: The first runner's estimate: two captures of each mode.
        half_sampled_bytes: The second runner's estimate (v1/worker/gpu/cudagraph_utils.py): every
            piecewise capture, two full ones.
        total_bytes: All captures.
    """

    modes: tuple[GraphMode, ...]
    sampled_bytes: int
    half_sampled_bytes: int
    total_bytes: int


_captures: Final[Remembered[_Measured]] = Remembered()


def _measured(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> _Measured:
    key = (
        inputs.capture_sizes,
        inputs.dtype,
        inputs.tensor_parallel_size,
        inputs.pipeline_parallel_size,
        inputs.data_parallel_size,
        inputs.is_last_stage,
        inputs.max_num_seqs,
        inputs.speculative_tokens,
        inputs.piecewise_graphs,
        inputs.full_graphs,
        inputs.attention_backend,
        inputs.max_loras,
        inputs.accelerator.key,
        inputs.accelerator.architecture,
        rules.fuses_all_reduce,
    )
    return _captures.get(spec, key, lambda: _measure(_Capture.of(spec, inputs, rules)))


@lru_cache(maxsize=8192)
def _measure(capture: _Capture) -> _Measured:
    """Replay the two largest captures of each mode and add the driver's part."""
    pool = Pool()
    piece_graph, full_graph = _graph_bytes(capture)
    held = 0.0  # by the driver so far
    fixed = capture.fixed_bytes
    modes = []
    for name, graph, sizes, wanted in (
        ("PIECEWISE", piece_graph, capture.sizes, capture.piecewise),
        ("FULL", full_graph, capture.full_sizes, capture.full),
    ):
        if not wanted:
            continue
        grown = []
        for size in sizes[:2]:
            before, chunks = pool.num_bytes, _chunks(held)
            replay(pool, capture.tensors, size, capture.layers, full=name == "FULL")
            held += graph
            grown.append((pool.num_bytes - before, _chunks(held) - chunks))
        tensors, nodes = grown[0]
        attention = capture.attention_bytes if name == "FULL" else 0
        second = sum(grown[1]) if len(grown) > 1 else 0
        modes.append(
            GraphMode(
                name=name,
                count=len(sizes) * capture.kinds,
                first_bytes=fixed + attention + tensors + nodes,
                second_bytes=second,
                mean_bytes=round(graph),
                terms=(
                    ("workspaces", fixed + attention),
                    ("tensors", tensors),
                    ("graph_nodes", nodes),
                ),
            )
        )
        fixed = 0
    if not modes:
        return _Measured(modes=(), sampled_bytes=0, half_sampled_bytes=0, total_bytes=0)
    rests = {mode.name: max(mode.second_bytes, MIB) * (mode.count - 1) for mode in modes}
    total = pool.num_bytes + capture.fixed_bytes + (capture.attention_bytes if capture.full else 0)
    total += sum(mode.mean_bytes * mode.count for mode in modes)
    full = [mode for mode in modes if mode.name == "FULL"]
    return _Measured(
        modes=tuple(modes),
        sampled_bytes=max(mode.first_bytes for mode in modes) + sum(rests.values()),
        half_sampled_bytes=total
        + sum(rests[mode.name] - mode.mean_bytes * (mode.count - 1) for mode in full),
        total_bytes=total,
    )


def _attends_in_chunks(spec: ModelSpec) -> bool:
    """Whether a layer attends within chunks, which leaves the model with piecewise graphs.

    Source: model_executor/layers/attention/chunked_local_attention.py
    ``get_cudagraph_support`` (0.11 to 0.33).
    """
    return any(
        isinstance(mixer, Attention) and mixer.chunk is not None
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
    )


def _decodes_uniformly(inputs: ProfileInputs) -> bool:
    """Whether FlashInfer captures decode steps of several tokens a request.

    Its TRT-LLM kernels do, on datacentre Blackwell; else speculative decoding leaves it with
    piecewise graphs (v1/attention/backends/flashinfer.py ``get_cudagraph_support``).
    """
    return (inputs.accelerator.compute_capability or (0, 0))[0] == 10


def _graph_bytes(capture: _Capture) -> tuple[float, float]:
    """Driver memory of one capture, piecewise and full."""
    layers, nodes = capture.layers, capture.piece_nodes
    piece = NODE_BYTES * nodes * layers + GRAPH_OBJECT_BYTES * (layers + 1) + CAPTURE_BYTES
    full = NODE_BYTES * (nodes + _ATTENTION_NODES) * layers + CAPTURE_BYTES
    return piece, full


def _chunks(num_bytes: float) -> int:
    return ceil(num_bytes / _DRIVER_CHUNK_BYTES) * _DRIVER_CHUNK_BYTES


def _products(layer: Layer) -> str:
    """How a layer's matrix products take their inputs.

    ``"plain"``; ``"weight_only"`` for compressed weights alone; ``"float"`` for 8- or 4-bit
    floating-point inputs, which Inductor writes straight away; ``"integer"`` for 8-bit integers,
    which an operator of their own writes.
    """
    for weight in layer.weights:
        if weight.scheme is not None and not weight.expert:
            if weight.scheme.activation_bits == 16:
                return "weight_only"
            return "integer" if "int8" in weight.scheme.name else "float"
    return "plain"


def _piece_nodes(layer: Layer, inputs: ProfileInputs, rules: VersionRules) -> float:
    """Kernels of one layer outside attention."""
    nodes = _PIECE_NODES + _PRODUCT_NODES[_products(layer)]
    norms = sum(
        1
        for weight in layer.weights
        if weight.role is Role.NORM and not weight.name.startswith("self_attn")
    )
    nodes += _EXTRA_NORM_NODES * max(0, norms - 2)
    nodes -= _MISSING_NORM_NODES * (norms == 1)  # attention and feed-forward side by side
    if isinstance(layer.ffn, MoEFFN):
        nodes += _EXPERT_NODES
        if layer.ffn.shared_intermediate_size:
            nodes += _SHARED_EXPERT_NODES
    ranks = inputs.tensor_parallel_size
    if ranks > 1 and fused_all_reduce_bytes(inputs, rules) < max(inputs.capture_sizes) * 2 * KIB:
        nodes += _UNFUSED_ALL_REDUCE_NODES
    return nodes


def _layer_tensors(
    spec: ModelSpec, layer: Layer, inputs: ProfileInputs, rules: VersionRules
) -> LayerTensors:
    ranks = inputs.tensor_parallel_size
    width = DTYPE_BITS[inputs.dtype] // 8
    products = _products(layer)
    hidden = spec.hidden_size * width
    queries, keys = _attention_widths(layer, ranks)
    gate_up = activated = router = 0
    ffn = layer.ffn
    if isinstance(ffn, MoEFFN):
        router = ffn.num_experts * width
    elif isinstance(ffn, DenseFFN):
        inner = -(-ffn.intermediate_size // ranks)
        gate_up = inner * (2 if ffn.gated else 1) * width
        activated = inner * width
    halved = products == "float"
    return LayerTensors(
        hidden=hidden,
        queries=queries * width,
        keys=keys * width,
        gate_up=gate_up,
        activated=activated // 2 if halved else activated,
        normed=hidden // 2 if halved else hidden,
        quantized=products == "integer",
        router=router,
        in_place_residual=spec.model_type not in ("granite", "granitemoe"),
        all_reduce_above=fused_all_reduce_bytes(inputs, rules) if ranks > 1 else None,
        accumulators=_accumulators(layer, inputs),
    )


def _attention_widths(layer: Layer, ranks: int) -> tuple[int, int]:
    """Elements of a token's queries and keys on one rank."""
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            heads = max(1, mixer.num_heads // ranks)
            kv_heads = max(1, mixer.num_kv_heads // ranks)
            return heads * mixer.head_dim, kv_heads * mixer.head_dim
        if isinstance(mixer, LatentAttention):
            heads = max(1, mixer.num_heads // ranks)
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            return heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim), latent
        return max(mixer.conv_dim, 1) // ranks, 0
    return 0, 0


def _accumulators(layer: Layer, inputs: ProfileInputs) -> int:
    """Partial outputs of split-KV attention a token (v1/attention/backends/flash_attn.py).

    Only FlashAttention 3, that is on Hopper, schedules a fixed number of parts ahead.
    """
    if inputs.accelerator.architecture != "hopper":
        return 0
    for mixer in layer.mixers:
        if isinstance(mixer, Attention) and inputs.attention_backend == "FLASH_ATTN":
            heads = max(1, mixer.num_heads // inputs.tensor_parallel_size)
            return SPLIT_KV_PARTS * heads * mixer.value_head_dim * 4
        if isinstance(mixer, LatentAttention) and inputs.attention_backend == "FLASH_ATTN_MLA":
            heads = max(1, mixer.num_heads // inputs.tensor_parallel_size)
            return SPLIT_KV_PARTS * heads * mixer.kv_lora_rank * 4
    return 0
