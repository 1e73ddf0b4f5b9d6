"""The operators of one step on one rank, with their FLOPs, bytes and messages.

Everything that depends on the model and its division alone is counted once and kept
(:func:`model_plan`); a step then only multiplies by its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import log, sqrt
from typing import Final

from tokenroom.errors import DeploymentError
from tokenroom.memory.weights import VOCAB_MULTIPLE
from tokenroom.models.spec import DenseFFN, Layer, Mixer, ModelSpec, MoEFFN, Role, Shard
from tokenroom.performance.attention_work import ACTIVATION_BYTES, mixer_operators
from tokenroom.performance.host_part import divided, on_host
from tokenroom.performance.matrices import (
    Experts,
    Matrix,
    head_matrix,
    layer_experts,
    layer_matrices,
)
from tokenroom.performance.work import (
    BEFORE_BLOCKS,
    BETWEEN_STAGES,
    Kind,
    Layout,
    Operator,
    StepWork,
)

_SAMPLER_PASSES: Final = 3
"""Times the float32 logits cross memory: conversion writes them, softmax or argmax reads them,
the choice reads them again (vLLM 0.33 v1/sample/sampler.py)."""

_FLOAT32_BYTES: Final = 4

_INNER_NORMS: Final = frozenset({"q_norm", "k_norm", "norm", "q_a_layernorm", "kv_a_layernorm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """What one kind of block needs on one rank.

    Attributes:
        times: Blocks of this kind.
        matrices: Matrices every token passes.
        mixers: Attention and recurrent layers.
        experts: Routed experts, None without.
        norms: Normalisations over the residual stream, each fused with the residual's addition.
        inner_norms: Normalisations of queries, keys, latents or gates inside the mixers.
        norm_reductions: Sums over the tensor-parallel ranks that norms over divided widths need
            (MiniMax-M2: one for the variances of queries and keys, vLLM 0.19
            ``MiniMaxText01RMSNormTP.forward_qk``).
        activation_width: Inputs of the FFN's activation function on this rank, 0 for none.
        reductions: Sums over the tensor-parallel ranks of attention and dense FFN.
    """

    times: int
    matrices: tuple[Matrix, ...]
    mixers: tuple[Mixer, ...]
    experts: Experts | None
    norms: int
    inner_norms: int
    norm_reductions: int
    activation_width: int
    reductions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """What a model needs on the ranks of all its stages together, before tokens are known.

    Attributes:
        hidden_size: Width of the residual stream.
        vocab_size: Rows of logits over all ranks, padded.
        layers: Its kinds of blocks.
        head: The output projection.
        stages: Blocks of each kind in each stage.
    """

    hidden_size: int
    vocab_size: int
    layers: tuple[LayerPlan, ...]
    head: Matrix | None
    stages: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=64)
def model_plan(spec: ModelSpec, layout: Layout) -> ModelPlan:
    """Count what depends on the model and its division alone.

    Raises:
        DeploymentError: The layout does not divide the model, or it has an encoder.
    """
    if spec.encoder_layers:
        raise DeploymentError(
            f"{spec.name} has an encoder, whose speed is not modelled; choose a decoder-only model"
        )
    tp = layout.tensor_parallel_size
    head = next((weight for weight in spec.output_weights if weight.role is Role.LM_HEAD), None)
    if head is None and spec.tied_embeddings:
        head = next((w for w in spec.input_weights if w.role is Role.EMBEDDING), None)
    rows = head.shape[0] if head is not None else spec.vocab_size
    return ModelPlan(
        hidden_size=spec.hidden_size,
        vocab_size=-(-rows // VOCAB_MULTIPLE) * VOCAB_MULTIPLE,
        layers=tuple(_layer_plan(spec, layer, times, layout) for layer, times in spec.layer_kinds),
        head=None if head is None else head_matrix(head, spec.dtype, tp),
        stages=_stages(spec, layout),
    )


def _stages(spec: ModelSpec, layout: Layout) -> tuple[tuple[int, ...], ...]:
    """How many blocks of each kind every stage has."""
    count = layout.pipeline_parallel_size
    each, rest = divmod(spec.num_layers, count)
    sizes = layout.stage_layers or tuple(each + (stage < rest) for stage in range(count))
    if sum(sizes) != spec.num_layers:
        raise DeploymentError(
            f"stage_layers adds up to {sum(sizes)} blocks; {spec.name} has {spec.num_layers}"
        )
    kinds = [id(layer) for layer, _ in spec.layer_kinds]
    found, first = [], 0
    for size in sizes:
        blocks = [id(layer) for layer in spec.layers[first : first + size]]
        found.append(tuple(blocks.count(kind) for kind in kinds))
        first += size
    return tuple(found)


def _layer_plan(spec: ModelSpec, layer: Layer, times: int, layout: Layout) -> LayerPlan:
    tp = layout.tensor_parallel_size
    matrices = layer_matrices(layer, spec.dtype, tp)
    width = 0
    if isinstance(layer.ffn, DenseFFN):
        width = layer.ffn.intermediate_size * (2 if layer.ffn.gated else 1) // tp
    elif isinstance(layer.ffn, MoEFFN):
        width = layer.ffn.shared_intermediate_size * (2 if layer.ffn.gated else 1) // tp
    every_norm = [weight for weight in layer.weights if weight.role is Role.NORM]
    inside = [weight for weight in every_norm if weight.name.split(".")[-1] in _INNER_NORMS]
    norms = len(every_norm) - len(inside)
    divided = any(weight.shard is not Shard.REPLICATED for weight in inside)
    dense_reductions = 0
    if tp > 1:
        dense_reductions = bool(layer.mixers) + isinstance(layer.ffn, DenseFFN)
        if norms == 1 and dense_reductions == 2:  # attention and FFN side by side are summed once
            dense_reductions = 1
    return LayerPlan(
        times=times,
        matrices=matrices,
        mixers=layer.mixers,
        experts=layer_experts(layer, spec.dtype, layout),
        norms=norms,
        inner_norms=len(inside),
        norm_reductions=int(tp > 1 and divided),
        activation_width=width,
        reductions=dense_reductions,
    )


def busiest_share(pairs: float, ranks: int) -> float:
    """Token-expert pairs on the busiest of ``ranks`` when each pair falls on one at random.

    The largest of n counts with mean m lies near m + sqrt(2 m ln n) (normal approximation).
    """
    mean = pairs / ranks
    return min(pairs, mean + sqrt(2 * mean * log(ranks))) if ranks > 1 else mean


def matrix_operator(matrix: Matrix, rows: int, times: int) -> Operator:
    """A matrix product of ``rows`` tokens: 2 M N K FLOPs; weights, inputs and outputs move."""
    outputs, inputs = matrix.outputs, matrix.inputs
    return Operator(
        name=matrix.name,
        kind=Kind.GEMM,
        arithmetic=matrix.arithmetic,
        times=times,
        flops=2 * rows * outputs * inputs,
        num_bytes=matrix.weight_bytes
        + rows
        * (inputs * (1 if matrix.quantizes else ACTIVATION_BYTES) + outputs * ACTIVATION_BYTES),
        shape=(rows, outputs, inputs, outputs),
    )


def experts_operator(experts: Experts, tokens: int, times: int) -> Operator:
    """Routed experts of ``tokens`` tokens (of all data-parallel ranks) on the busiest rank."""
    pairs = busiest_share(tokens * experts.per_token, experts.total // experts.local)
    touched = min(experts.touched(tokens), pairs)
    width = experts.intermediate_size
    moved = (
        pairs * ACTIVATION_BYTES * (2 * experts.hidden_size + (3 if experts.gated else 2) * width)
    )
    return Operator(
        name="experts",
        kind=Kind.GROUPED_GEMM,
        arithmetic=experts.arithmetic,
        times=times,
        flops=2 * pairs * experts.elements,
        num_bytes=touched * experts.expert_bytes + moved,
        shape=(pairs / touched, width, experts.hidden_size, width * touched),
    )


def step_operators(
    spec: ModelSpec, layout: Layout, work: StepWork, *, kv_dtype: str | None = None
) -> tuple[Operator, ...]:
    """Every operator that one step runs one after another, on the rank that has most to do.

    Stages of pipeline parallelism follow each other, so their operators are all here.

    Args:
        spec: The model, as it is loaded.
        layout: How it is divided.
        work: Requests of the step on one data-parallel rank.
        kv_dtype: Type of the cache, None for the checkpoint's.

    Raises:
        DeploymentError: The layout does not divide the model, or the model has parts whose speed
            is not modelled.
    """
    if not work.tokens:
        return ()
    plan = model_plan(spec, layout)
    cache = kv_dtype or spec.kv_cache_dtype or spec.dtype
    found = [_embedding(plan, work)]
    share = host_share(plan, layout)
    for kind, layer in enumerate(plan.layers):
        block = _block(plan, layer, layout, work, cache)
        if share:
            block.append(_host_read(layer, layout, work, share))
        if layout.host is not None:
            away = layout.host.layers[kind], layout.host.experts[kind]
            block = list(divided(block, layer, layout.host, *away, work))
        found += _placed(block, kind, layout)
    output = [_final_norm(plan, work), *_output(plan, layout, work.outputs)]
    if layout.host is not None and layout.host.output and plan.head is not None:
        output = list(on_host(output, plan.head, layout.host, work))
    found += output  # after the blocks, as operators are by default
    return (*found, *_sends(plan, layout, work))


def token_operators(spec: ModelSpec, layout: Layout, work: StepWork) -> Iterator[Operator]:
    """Those of :func:`step_operators` that depend on how many tokens a step has, and on no more.

    With :func:`mixing_operators` and :func:`output_operators` they are all of a step, unless
    the processor computes some of it (``Layout.host``).
    """
    plan = model_plan(spec, layout)
    yield _embedding(plan, work)
    share = host_share(plan, layout)
    for kind, layer in enumerate(plan.layers):
        block = [*_matrices(layer, work), *_around(plan, layer, layout, work)]
        if share:
            block.append(_host_read(layer, layout, work, share))
        yield from _placed(block, kind, layout)
    yield _final_norm(plan, work)
    yield from _sends(plan, layout, work)


def mixing_operators(
    spec: ModelSpec, layout: Layout, work: StepWork, *, kv_dtype: str | None = None
) -> Iterator[Operator]:
    """Those that depend on the contexts of its requests: attention and recurrent layers.

    Of prompts and of decoding requests they are operators of their own, so those of a step are
    those of its prompts and those of the others.
    """
    cache = kv_dtype or spec.kv_cache_dtype or spec.dtype
    for kind, layer in enumerate(model_plan(spec, layout).layers):
        yield from _placed(_mixing(layer, layout, work, cache), kind, layout)


def output_operators(spec: ModelSpec, layout: Layout, outputs: int) -> Iterator[Operator]:
    """Those that depend on how many rows of logits are wanted."""
    yield from _output(model_plan(spec, layout), layout, outputs)


def _placed(block: Iterable[Operator], kind: int, layout: Layout) -> Iterable[Operator]:
    """Operators of a kind of block; in a pipeline they say of which, for its stages."""
    if layout.pipeline_parallel_size == 1:
        return block
    return [operator._replace(block=kind) for operator in block]


def _embedding(plan: ModelPlan, work: StepWork) -> Operator:
    moved = 2 * work.tokens * plan.hidden_size * ACTIVATION_BYTES
    return _memory("embedding", 1, moved)._replace(block=BEFORE_BLOCKS)


def _sends(plan: ModelPlan, layout: Layout, work: StepWork) -> Iterator[Operator]:
    """Hidden states from each stage to the next: inside a host, and over the network."""
    message = work.tokens * plan.hidden_size * ACTIVATION_BYTES
    boundaries = layout.pipeline_parallel_size - 1
    outside = boundaries - sum(
        stage * layout.expert_ranks // layout.per_node
        == (stage + 1) * layout.expert_ranks // layout.per_node
        for stage in range(boundaries)
    )
    for times, ranks in ((boundaries - outside, 2), (outside, 2 * layout.per_node)):
        if times:
            yield _message(Kind.SEND, times, message, ranks)._replace(block=BETWEEN_STAGES)


def host_share(plan: ModelPlan, layout: Layout) -> float:
    """Share of the blocks' weights on a rank that stays in the host's memory."""
    if not layout.host_weight_bytes:
        return 0.0
    weights = sum(layer.times * _block_bytes(layer) for layer in plan.layers)
    return min(1.0, layout.host_weight_bytes * layout.pipeline_parallel_size / weights)


def _block_bytes(layer: LayerPlan) -> float:
    experts = layer.experts
    routed = 0.0 if experts is None else experts.local * experts.expert_bytes
    return routed + sum(matrix.weight_bytes for matrix in layer.matrices)


def _host_read(layer: LayerPlan, layout: Layout, work: StepWork, share: float) -> Operator:
    """What a block's kernels read over the link to the host, or what is copied before them.

    vLLM since 0.8.3 lets kernels read pinned host memory (offloader/uva.py): of experts only those
    that tokens chose. Before, and in SGLang (utils/offloader.py ``OffloaderV1``), every parameter
    is copied on the stream that then computes, so nothing is hidden.
    """
    moved = float(sum(matrix.weight_bytes for matrix in layer.matrices))
    experts = layer.experts
    if experts is not None:
        count: float = experts.local
        if not layout.copies_host_weights:
            count = experts.touched(work.tokens + work.other_tokens)
        moved += count * experts.expert_bytes
    return Operator(
        name="host_weights",
        kind=Kind.HOST_READ,
        arithmetic="bf16",
        times=layer.times,
        flops=0,
        num_bytes=share * moved,
    )


def _memory(name: str, times: int, num_bytes: float) -> Operator:
    return Operator(
        name=name,
        kind=Kind.MEMORY,
        arithmetic="bf16",
        times=times,
        flops=0,
        num_bytes=num_bytes,
    )


def _message(kind: Kind, times: int, message_bytes: float, ranks: int) -> Operator:
    return Operator(
        name=kind.value,
        kind=kind,
        arithmetic="bf16",
        times=times,
        flops=0,
        num_bytes=0,
        message_bytes=message_bytes,
        ranks=ranks,
    )


def _block(
    plan: ModelPlan, layer: LayerPlan, layout: Layout, work: StepWork, kv_dtype: str
) -> list[Operator]:
    return [
        *_matrices(layer, work),
        *_mixing(layer, layout, work, kv_dtype),
        *_around(plan, layer, layout, work),
    ]


def _matrices(layer: LayerPlan, work: StepWork) -> Iterator[Operator]:
    for matrix in layer.matrices:
        yield matrix_operator(matrix, work.tokens, layer.times)


def _mixing(layer: LayerPlan, layout: Layout, work: StepWork, kv_dtype: str) -> Iterator[Operator]:
    for mixer in layer.mixers:
        for operator in mixer_operators(mixer, work, layout.tensor_parallel_size, kv_dtype):
            yield operator._replace(times=operator.times * layer.times)


def _around(plan: ModelPlan, layer: LayerPlan, layout: Layout, work: StepWork) -> list[Operator]:
    """What a block runs besides its dense matrices and its mixers."""
    tokens, times = work.tokens, layer.times
    tp = layout.tensor_parallel_size
    hidden_bytes = plan.hidden_size * ACTIVATION_BYTES
    found: list[Operator] = []
    if layer.norms:  # reads input and residual, writes both
        found.append(_memory("norm", layer.norms * times, 4 * tokens * hidden_bytes))
    if layer.inner_norms:
        found.append(
            _memory("inner_norm", layer.inner_norms * times, 2 * tokens * hidden_bytes / tp)
        )
    if layer.norm_reductions:
        variances = tokens * 2 * _FLOAT32_BYTES
        found.append(_message(Kind.ALL_REDUCE, layer.norm_reductions * times, variances, tp))
    if layer.activation_width:
        width = layer.activation_width * ACTIVATION_BYTES
        found.append(_memory("activation", times, 1.5 * tokens * width))
    if layer.mixers:  # rotary positions and the write into the cache
        found.append(_memory("rotary_and_cache", times, 4 * tokens * hidden_bytes / tp))
    quantized = [matrix for matrix in layer.matrices if matrix.quantizes and matrix.after_mixer]
    for matrix in quantized:  # inputs of the others are converted as the norm or activation writes
        found.append(_memory("quantize", times, 3 * tokens * matrix.inputs))
    if layer.reductions:
        message = tokens * hidden_bytes
        found.append(_message(Kind.ALL_REDUCE, layer.reductions * times, message, tp))
    if layer.experts:
        everyone = tokens + work.other_tokens
        found.append(experts_operator(layer.experts, everyone, times))
        found += _exchange(layout, layer.experts, tokens, everyone, hidden_bytes, times)
    return found


def _exchange(
    layout: Layout, experts: Experts, tokens: int, everyone: int, hidden_bytes: int, times: int
) -> list[Operator]:
    """How tokens reach their experts and come back.

    One data-parallel rank: every rank has all tokens, and an all-reduce sums the experts' results
    (vLLM, SGLang and TensorRT-LLM without attention data parallelism). More: an all-gather before
    and a reduce-scatter after, within a node (vLLM ``allgather_reducescatter``, TensorRT-LLM
    attention DP); all-to-all of a rank's own tokens to the experts they chose once whole experts
    live in other hosts, or where the engine is told so (DeepEP, arXiv:2412.19437, 3.2.2).
    """
    ranks = layout.expert_ranks
    message = everyone * hidden_bytes
    if ranks == 1:
        return []
    if layout.data_parallel_size == 1:
        return [_message(Kind.ALL_REDUCE, times, message, ranks)]
    beyond = ranks > layout.per_node
    if layout.expert_parallel_size > 1 and (beyond or layout.sends_chosen_tokens):
        copies = min(experts.per_token, ranks)
        return [_message(Kind.ALL_TO_ALL, 2 * times, tokens * hidden_bytes * copies, ranks)]
    return [
        _message(Kind.ALL_GATHER, times, message, ranks),
        _message(Kind.REDUCE_SCATTER, times, message, ranks),
    ]


def _final_norm(plan: ModelPlan, work: StepWork) -> Operator:
    return _memory("norm", 1, 4 * work.tokens * plan.hidden_size * ACTIVATION_BYTES)


def _output(plan: ModelPlan, layout: Layout, rows: int) -> list[Operator]:
    tp = layout.tensor_parallel_size
    found: list[Operator] = []
    if plan.head is not None:
        found.append(matrix_operator(plan.head, rows, 1))
    if tp > 1:
        logits = rows * plan.vocab_size * ACTIVATION_BYTES
        found.append(_message(Kind.ALL_GATHER, 1, logits, tp))
    passes = _SAMPLER_PASSES * rows * plan.vocab_size * _FLOAT32_BYTES
    found.append(_memory("sampling", 1, passes))
    return found
