"""How ggml divides a graph over backends, and the compute buffer that each of them needs.

A port of ``ggml_backend_sched_split_graph`` (``ggml/src/ggml-backend.cpp`` of llama.cpp
0c1e57098): operations run where their weights are, the rest follows its neighbours, and what lies
on another backend is copied at the start of a split. Copies and everything in between come from
the graph allocator; their peak is what llama.cpp prints as "compute buffer size".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tokenroom.engines.llama_cpp.graph_alloc import allocate
from tokenroom.engines.llama_cpp.placement import CPU, Backend
from tokenroom.engines.llama_cpp.tensor_graph import VIEWS, Graph, Tensor

#: Tokens from which on products with host weights move to an accelerator, weights and all
#: (``GGML_OP_OFFLOAD_MIN_BATCH``, ``ggml-cuda.cu``).
_OFFLOAD_BATCH: Final = 32
#: Copies of every input with pipeline parallelism (``GGML_SCHED_MAX_COPIES``).
PIPELINE_COPIES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRules:
    """What the scheduler goes by.

    Attributes:
        backends: Accelerators in order of priority; the CPU comes last by itself.
        op_offload: Large products with host weights run on the first accelerator.
        copies: Copies of inputs: 4 with pipeline parallelism, else 1.
        type_k: ggml type of keys, which some kernels convert to half precision.
        type_v: ggml type of values.
    """

    backends: tuple[Backend, ...]
    op_offload: bool = True
    copies: int = 1
    type_k: str = "f16"
    type_v: str = "f16"


def compute_buffers(
    graph: Graph, pinned: Sequence[tuple[Tensor, int]], rules: ScheduleRules
) -> list[int]:
    """Bytes of the compute buffer of each accelerator, then of the host."""
    host = len(rules.backends)
    for tensor, device in pinned:
        tensor.backend = device
    if host:
        _assign(graph, rules)
        nodes, leafs = _split(graph, rules)
    else:
        nodes = [(node, 0) for node in graph.nodes]
        leafs = [(leaf, 0) for leaf in graph.leafs]
    backends = (*rules.backends, replace(CPU))
    sizes = allocate(
        nodes,
        leafs,
        [backend.alignment for backend in backends],
        lambda place, tensor: _alloc_bytes(backends[place], tensor),
    )
    return sizes


def _alloc_bytes(backend: Backend, tensor: Tensor) -> int:
    """Bytes a tensor takes in a compute buffer, with what its kernel keeps behind it."""
    size = tensor.nbytes
    if tensor.op == "flash_attn" and backend.family != "cpu":
        return _flash_attention_bytes(backend, tensor)
    if backend.family == "metal":
        if tensor.op == "argsort":
            return 2 * size
        if tensor.op == "mul_mat_id":
            experts, ids = tensor.src[0].ne[2], tensor.src[2]
            return size + 4 * experts + 4 * experts * ids.ne[1]
        return size
    return backend.tensor_bytes(tensor.kind, tensor.ne[0], size)


def _flash_attention_bytes(backend: Backend, tensor: Tensor) -> int:
    """Output of flash attention with the scratch that its kernels need behind it.

    CUDA converts quantised keys and values to half precision (``fattn-common.cuh``
    ``ggml_cuda_flash_attn_ext_get_f16_extra_data``) where the matrix kernels run: every batch of
    more than two tokens. Metal also keeps partial results and block masks
    (``ggml_metal_op_flash_attn_ext_extra_*``).
    """
    query, key, value = tensor.src[:3]
    size = tensor.nbytes
    same = key.view_of is value.view_of
    if backend.family in ("cuda", "rocm"):
        vector = query.ne[1] <= 2 and query.ne[0] <= 256 and query.ne[0] % 64 == 0
        for source in (key, value):
            if source.kind == "f16" or (source is value and same) or vector:
                continue
            elements = source.ne[0] * source.ne[1] * source.ne[2] * source.ne[3]
            size = -(-size // 128) * 128 + 2 * elements
        return size
    if backend.family == "metal":
        cells, rows = key.ne[1], min(query.ne[1], 32)
        partial = 4 * rows * query.ne[2] * query.ne[3] * 32 * (value.ne[0] + 2)
        mask = tensor.src[3]
        blocks = -(-mask.ne[1] // 8) * -(-cells // 64) * mask.ne[3]
        halves = 2 * key.ne[0] * cells * key.ne[2] * key.ne[3]
        if not same:
            halves += 2 * value.ne[0] * cells * value.ne[2] * value.ne[3]
        return size + partial + blocks + halves
    return size


def _assign(graph: Graph, rules: ScheduleRules) -> None:
    """Passes 1 to 4: give every tensor a backend."""
    host = len(rules.backends)
    for leaf in graph.leafs:
        if leaf.backend < 0:
            leaf.backend = leaf.place if leaf.place is not None else host if leaf.is_input else -1
    for node in graph.nodes:
        if node.backend < 0:
            node.backend = _own_backend(node, rules, host)
    computed = [node for node in graph.nodes if node.op not in VIEWS]
    for order in (computed, computed[::-1]):  # accelerators spread down, then up
        current = -1
        for node in order:
            if node.backend >= 0:
                current = -1 if node.backend == host else node.backend
            elif current >= 0:
                node.backend = current
    for order in (computed, computed[::-1]):  # then the rest
        current = -1
        for node in order:
            if node.backend >= 0:
                current = node.backend
            elif current >= 0:
                node.backend = current
    for node in graph.nodes:
        if node.view_of is not None and node.backend < 0:
            node.backend = node.view_of.backend
        for source in node.src:
            if source.backend < 0:
                base = source.view_of
                source.backend = base.backend if base is not None else node.backend
        if node.backend < 0:
            node.backend = 0


def _own_backend(node: Tensor, rules: ScheduleRules, host: int) -> int:
    """``ggml_backend_sched_backend_id_from_cur``."""
    if node.place is not None:
        return node.place
    if node.is_input:
        return host
    if node.op in ("rope", "flash_attn"):  # their small weights do not decide
        return -1
    for source in node.src:
        if source.is_weight and source.place is not None:
            offloads = node.op in ("mul_mat", "mul_mat_id") and node.batch >= _OFFLOAD_BATCH
            if source.place == host and rules.op_offload and offloads:
                return 0
            return source.place
    return -1


def _split(
    graph: Graph, rules: ScheduleRules
) -> tuple[list[tuple[Tensor, int]], list[tuple[Tensor, int]]]:
    """Pass 5: cut the graph where the backend changes and copy what lies elsewhere."""
    nodes: list[tuple[Tensor, int]] = []
    copies: dict[tuple[int, int], Tensor] = {}
    further: list[tuple[Tensor, int]] = []  # copies for batches in flight
    dependencies = _kept_for_fusion(graph)
    current = next((node.backend for node in graph.nodes if node.op not in VIEWS), 0)
    pending: list[tuple[Tensor, int]] = []
    inputs: list[tuple[Tensor, Tensor]] = []

    def close(backend: int) -> None:
        for source, made in inputs:
            kept = Tensor(
                "none", source.kind, source.ne, (source,), view_of=source.view_of or source
            )
            nodes.append((kept, source.backend))
            nodes.append((made, backend))
        nodes.extend(pending)
        pending.clear()
        inputs.clear()

    for node in graph.nodes:
        if node.op in VIEWS:
            pending.append((node, node.backend))
            continue
        moved_weight = bool(inputs) and any(
            source.is_weight and source.place != current for source in node.src
        )
        if node.backend != current or moved_weight:
            close(current)
            current = node.backend
        sources = list(node.src)
        for at, source in enumerate(sources):
            where = _where(source)
            if where == current:
                continue
            key = (id(source), current)
            made = copies.get(key)
            if made is None:
                made = Tensor("none", source.kind, source.ne, strides=source.strides)
                made.backend = current
                copies[key] = made
                inputs.append((source, made))
                if rules.copies > 1:
                    made.is_input = made.is_output = True
                    further += [(_spare(source, current), current) for _ in range(rules.copies - 1)]
            sources[at] = made
        node.src = tuple(sources)
        pending.append((node, node.backend))
        if node in dependencies and rules.backends[current : current + 1]:
            kept_tensors = dependencies[node]
            keep = Tensor("none", "f32", node.ne, tuple(kept_tensors), view_of=kept_tensors[0])
            pending.append((keep, current))
    close(current)
    leafs = [(leaf, leaf.backend) for leaf in graph.leafs if leaf.is_input]
    if rules.copies > 1:
        spares = []
        for leaf, place in leafs:
            leaf.is_output = True
            spares += [(_spare(leaf, place), place) for _ in range(rules.copies - 1)]
        own = [(made, made.backend) for made in copies.values()]
        leafs = leafs + spares + own + further
    return nodes, leafs


def _where(tensor: Tensor) -> int:
    """Backend whose buffers hold a tensor."""
    base = tensor.view_of or tensor
    return base.place if base.place is not None else tensor.backend


def _spare(source: Tensor, backend: int) -> Tensor:
    made = Tensor("none", source.kind, source.ne, strides=source.strides)
    made.is_input = made.is_output = True
    made.backend = backend
    return made


def _kept_for_fusion(graph: Graph) -> dict[Tensor, list[Tensor]]:
    """Tensors that CUDA keeps for a fused sum of experts (``ggml_cuda_match_moe_...``).

    The experts' outputs and their weights live until the last addition.
    """
    kept: dict[Tensor, list[Tensor]] = {}
    nodes = graph.nodes
    for at, node in enumerate(nodes):
        if node.name != "weighted_experts":
            continue
        used = node.ne[1]
        last = at + 2 * used - 1
        if used >= 2 and last < len(nodes) and nodes[last].op == "add":
            kept[nodes[last]] = [node.src[0], node.src[1]]
    return kept
