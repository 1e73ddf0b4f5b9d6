"""Tensors of one layer that live at once in vLLM's forward pass."""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.expert_memory import kept_workspace_bytes, passing_workspace_bytes
from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.engines.vllm.sparse_memory import indexer_logits_bytes, residual_streams
from tokenroom.memory.activations import dense_ffn_terms, mixer_terms
from tokenroom.models.spec import (
    DTYPE_BITS,
    DenseFFN,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
)
from tokenroom.units import MIB

_L2_CACHE_BYTES: Final = {
    "ampere": 40 * MIB,
    "ada": 72 * MIB,
    "hopper": 50 * MIB,
    "blackwell": 126 * MIB,
}
# cudaDeviceProp.l2CacheSize of A100, AD102, H100 and B200 (NVIDIA architecture white papers).
# PyTorch's torch/_inductor/runtime/benchmarking.py flushes the cache through a buffer of that
# size while it times the variants of a kernel on the kernel's first run.

_MLA_CONTEXT_TOKENS: Final = 64 * 1024

_layers: Final[Remembered[tuple[Terms, int]]] = Remembered()


def layer_terms(
    spec: ModelSpec,
    inputs: ProfileInputs,
    rules: VersionRules,
    tokens: int,
    *,
    profiling: bool,
) -> Terms:
    """The widest moment of the widest layer, besides what is kept."""
    widest, _ = _layer_bytes(spec, inputs, rules, tokens)
    if profiling and not inputs.enforce_eager:
        flush = _L2_CACHE_BYTES.get(inputs.accelerator.architecture, 50 * MIB)
        widest = (*widest, ("kernel_timing_flush", flush))
    return widest


def expert_workspace_bytes(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> int:
    """Bytes of the experts' workspace that stays allocated, 0 for a model without experts."""
    return _layer_bytes(spec, inputs, rules, tokens)[1]


def _layer_bytes(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> tuple[Terms, int]:
    """The widest moment of a layer, and the bytes of the experts' workspaces."""
    key = (
        tokens,
        inputs.dtype,
        inputs.tensor_parallel_size,
        inputs.data_parallel_size,
        inputs.enable_expert_parallel,
        inputs.max_model_len,
        inputs.max_num_seqs,
        inputs.block_size,
        inputs.accelerator.key,
        inputs.accelerator.compute_capability,
        rules.keeps_moe_workspace,
        rules.moe_chunk_tokens,
        rules.version,
    )

    def make() -> tuple[Terms, int]:
        moments = (
            moment
            for layer, _ in spec.layer_kinds
            for moment in _layer_moments(spec, layer, inputs, rules, tokens)
        )
        widest = max(moments, key=lambda terms: sum(size for _, size in terms), default=())
        return widest, kept_workspace_bytes(spec, inputs, rules, tokens)

    return _layers.get(spec, key, make)


def _layer_moments(
    spec: ModelSpec, layer: Layer, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> list[Terms]:
    """The layer at its mixer and at its feed-forward block.

    A compiled piece runs from the attention output of one layer to the queries of the next; its
    arguments (attention output, residual) stay referenced by the caller until it returns.
    """
    ranks = inputs.tensor_parallel_size
    width = DTYPE_BITS[inputs.dtype] // 8
    hidden = tokens * spec.hidden_size * width
    residual = hidden * residual_streams(layer, spec.hidden_size)
    moments: list[Terms] = []
    attended = 0
    for mixer in layer.mixers:
        terms = mixer_terms(mixer, tokens, element_bytes=width, tensor_parallel_size=ranks)
        attended += terms[-1][1]
        if isinstance(mixer, LatentAttention):
            heads = max(1, mixer.num_heads // ranks)
            terms += (
                ("expanded_context", _expanded_context_bytes(mixer, inputs, heads, width)),
                ("indexer_logits", indexer_logits_bytes(mixer, rules)),
            )
        moments.append((("residual", residual), *terms))
    if layer.ffn is not None:
        carried = (
            ("attention_output", attended),
            ("residual", residual),
            ("updated_residual", residual),
        )
        moments.append(carried + _ffn_terms(spec, layer, inputs, rules, tokens, width))
    return moments


def _ffn_terms(
    spec: ModelSpec,
    layer: Layer,
    inputs: ProfileInputs,
    rules: VersionRules,
    tokens: int,
    width: int,
) -> Terms:
    ranks = inputs.tensor_parallel_size
    ffn = layer.ffn
    if isinstance(ffn, MoEFFN):
        hidden = tokens * spec.hidden_size * width
        shared = ffn.shared_intermediate_size // ranks
        terms = [
            ("normed", hidden),
            ("router_logits", tokens * ffn.num_experts * 4),
            ("shared_experts", 3 * tokens * shared * width),
        ]
        if passing := passing_workspace_bytes(spec, layer, inputs, rules, tokens):
            terms += [("expert_buffers", passing), ("experts_output", hidden)]
        return tuple(terms)
    assert isinstance(ffn, DenseFFN)
    inner = tokens * -(-ffn.intermediate_size // ranks)
    terms = list(dense_ffn_terms(ffn, tokens, element_bytes=width, tensor_parallel_size=ranks))
    if _activation_bits(layer) == 8 and _quantizes_apart(layer):
        # Quantising to integers, or to floats in blocks, is an operator of its own: its outputs
        # are allocated beside what it reads (_custom_ops.scaled_int8_quant; config/vllm.py adds
        # "+quant_fp8" for blocks).
        terms.append(("quantized_activations", inner + tokens * spec.hidden_size))
    return tuple(terms)


def _activation_bits(layer: Layer) -> int:
    bits = [weight.scheme.activation_bits for weight in layer.weights if weight.scheme is not None]
    return min(bits, default=16)


def _quantizes_apart(layer: Layer) -> bool:
    schemes = [weight.scheme for weight in layer.weights if weight.scheme is not None]
    return any("int8" in scheme.name or scheme.block_shape is not None for scheme in schemes)


def _expanded_context_bytes(
    mixer: LatentAttention, inputs: ProfileInputs, heads: int, width: int
) -> int:
    """Keys and values of a chunk of context, which the profile run allocates for their size.

    mla_attention.py ``determine_chunked_prefill_workspace_size``.
    """
    block = max(inputs.block_size, 1)
    context_tokens = min(
        max(8 * inputs.max_model_len, 4 * inputs.max_num_seqs * block), _MLA_CONTEXT_TOKENS
    )
    context_tokens = max(context_tokens, inputs.max_num_seqs * block)
    return context_tokens * heads * (mixer.qk_nope_head_dim + mixer.v_head_dim) * width
