"""What TensorRT-LLM has in use when it sizes the pool: profile run, graphs, buffers, driver.

The PyTorch backend runs real context requests that fill ``max_num_tokens``, with a temporary cache
that it adds back, and counts the peak inside PyTorch and everything in use outside it
(``_util.py`` ``configure_kv_cache_capacity``). The engine backend allocates an execution context
whose size TensorRT fixed when the engine was built.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.tensorrt_llm.resolve import Resolved
from tokenroom.memory.activations import Terms, mixer_terms, terms_bytes, widest_moment
from tokenroom.memory.cuda_graphs import LAYER_NODES, graph_driver_bytes
from tokenroom.memory.kv_cache import element_bytes
from tokenroom.memory.rank_weights import split_layers
from tokenroom.models.spec import DenseFFN, Layer, ModelSpec
from tokenroom.units import KIB, MIB

_CUBLAS_WORKSPACE_BYTES: Final = 32 * MIB
_CUBLAS_WORKSPACE_BYTES_OLDER: Final = 8 * MIB + 128 * KIB
# PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp: from Hopper on, and before.

_KERNELS_BYTES: Final = 235 * MIB
"""Kernels that the driver loads on their first launch: what 32 runs of vLLM 0.19.0 on one H100
left outside PyTorch. TensorRT-LLM's own kernels were not measured, hence the range."""

_ACTIVATION_RANGE: Final = (-0.3, 0.5)
_CONTEXT_RANGE: Final = (0.0, 2.2)
"""Of built engines: eight logs print 1.1 to 3.2 times what is counted (``_engine_terms``), as
TensorRT keeps workspaces of its plugins and what runs on a second stream apart."""
_GRAPHS_RANGE: Final = (-0.5, 1.0)
_KERNELS_HIGH_BYTES: Final = 1536 * MIB
_SOURCE: Final = "tensorrt_llm/_torch/pyexecutor/_util.py; tensors counted, no log measured"


def activation(spec: ModelSpec, resolved: Resolved, stage: int, newer: bool) -> Estimate:
    """The peak of the profile run above weights and temporary cache, or the engine's context.

    Args:
        spec: The model.
        resolved: Settings.
        stage: Which pipeline stage.
        newer: The GPU is of Hopper's generation or later.
    """
    requests = -(-resolved.max_num_tokens // max(1, resolved.max_seq_len - 1))
    if resolved.build is not None:
        terms = _engine_terms(spec, resolved, stage)
    else:
        terms = step_terms(spec, resolved, stage, resolved.max_num_tokens, requests)
        workspace = _CUBLAS_WORKSPACE_BYTES if newer else _CUBLAS_WORKSPACE_BYTES_OLDER
        terms = (*terms, ("cublas_workspace", workspace))
    peak = terms_bytes(terms)
    low, high = _ACTIVATION_RANGE if resolved.build is None else _CONTEXT_RANGE
    return Estimate(
        num_bytes=peak,
        low_bytes=round(peak * (1 + low)),
        high_bytes=round(peak * (1 + high)),
        phase="layers",
        terms=terms,
        source=_SOURCE,
    )


def step_terms(spec: ModelSpec, resolved: Resolved, stage: int, tokens: int, outputs: int) -> Terms:
    """Tensors at the widest moment of a step: a layer, or the logits of what it returns.

    Logits are made in the model's type and cast to float32
    (``_torch/modules/logits_processor.py``).
    """
    tp = resolved.attention_ranks
    width = element_bytes(resolved.dtype)
    layers = split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage)
    kinds = {id(spec.layers[index]): spec.layers[index] for index in layers}
    shards = resolved.tensor_parallel_size // resolved.moe_expert_parallel_size
    moments = [
        widest_moment(
            layer,
            tokens * resolved.copies if _has_experts(layer) else tokens,
            spec.hidden_size,
            element_bytes=width,
            tensor_parallel_size=tp,
            expert_shards=shards,
            expert_ranks=resolved.moe_expert_parallel_size,
        )
        for layer in kinds.values()
    ]
    if layers.stop == spec.num_layers:
        vocabulary = spec.vocab_size // tp if not resolved.enable_attention_dp else spec.vocab_size
        moments.append(
            (
                ("hidden", tokens * spec.hidden_size * width),
                ("logits", outputs * vocabulary * width),
                ("gathered_logits", outputs * spec.vocab_size * (width + 4)),
            )
        )
    return max(moments, key=terms_bytes)


def _has_experts(layer: Layer) -> bool:
    return layer.ffn is not None and not isinstance(layer.ffn, DenseFFN)


def _engine_terms(spec: ModelSpec, resolved: Resolved, stage: int) -> Terms:
    """The execution context of a built engine: gate, up and product beside the residual.

    TensorRT frees what is read for the last time, so the normed input is gone when both products
    of the feed-forward block are made.
    """
    tokens, tp = resolved.max_num_tokens, resolved.attention_ranks
    width = element_bytes(resolved.dtype)
    hidden = tokens * spec.hidden_size * width
    moments: list[Terms] = []
    for index in split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage):
        layer = spec.layers[index]
        for mixer in layer.mixers:
            terms = mixer_terms(mixer, tokens, element_bytes=width, tensor_parallel_size=tp)
            moments.append((("residual", hidden), *terms))
        if isinstance(layer.ffn, DenseFFN):
            inner = tokens * layer.ffn.intermediate_size // tp * width
            up = (("up", inner),) if layer.ffn.gated else ()
            moments.append((("residual", hidden), ("gate", inner), *up, ("product", inner)))
    return max(moments, key=terms_bytes, default=())


def cuda_graphs(spec: ModelSpec, resolved: Resolved, stage: int) -> Estimate:
    """Graphs of decode steps: one pool as large as the largest needs, and the driver's nodes."""
    sizes = resolved.graph_batches
    if not sizes:
        return Estimate(num_bytes=0, low_bytes=0, high_bytes=0, source=_SOURCE)
    layers = split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage)
    drafted = 1 + resolved.speculative_tokens
    pool = terms_bytes(step_terms(spec, resolved, stage, sizes[-1] * drafted, sizes[-1] * drafted))
    driver = graph_driver_bytes(len(sizes), LAYER_NODES * len(layers))
    total = pool + driver
    low, high = _GRAPHS_RANGE
    return Estimate(
        num_bytes=total,
        low_bytes=round(total * (1 + low)),
        high_bytes=round(total * (1 + high)),
        phase="capture",
        terms=(("pool", pool), ("driver", driver)),
        source="tensorrt_llm/_torch/pyexecutor/cuda_graph_runner.py; nodes measured on vLLM",
    )


def kernels() -> Estimate:
    """What the driver holds outside PyTorch beside context and communicators."""
    return Estimate(
        num_bytes=_KERNELS_BYTES,
        low_bytes=_KERNELS_BYTES // 2,
        high_bytes=_KERNELS_HIGH_BYTES,
        phase="profile run",
        terms=(("kernels", _KERNELS_BYTES),),
        source="measured on vLLM 0.19.0 (H100); not on TensorRT-LLM",
    )


def block_offsets_bytes(resolved: Resolved) -> int:
    """Tables of block offsets on the GPU: the scheduler's, and one for each captured graph.

    pools x sequences x 2 (keys, values) x blocks of the longest sequence x 4 bytes
    (``attention_backend/trtllm.py`` ``kv_cache_block_offsets``).
    """
    row = 2 * -(-resolved.max_seq_len // resolved.tokens_per_block) * 4
    sequences = resolved.max_batch_size + sum(resolved.graph_batches)
    return len(set(resolved.windows)) * sequences * resolved.max_beam_width * row
