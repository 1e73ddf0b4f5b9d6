"""FLOPs and bytes of attention and of recurrent layers in one step, counted from their shapes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Final

from tokenroom.errors import DeploymentError
from tokenroom.memory.kv_cache import (
    attention_cell_bytes,
    element_bytes,
    indexer_bytes_per_token,
    kv_heads_per_rank,
    latent_bytes_per_token,
    recurrent_state,
)
from tokenroom.models.spec import (
    Attention,
    Indexer,
    LatentAttention,
    Mixer,
    Recurrence,
    Recurrent,
)
from tokenroom.performance.work import Chunk, Kind, Operator, StepWork

ACTIVATION_BYTES: Final = 2
"""Bytes of one activation between operators; engines keep 16 bits whatever the weights are."""

SCAN_CHUNK: Final = 64
"""Tokens that chunked scans process as matrices before the state is updated
(flash-linear-attention ``chunk_gated_delta_rule``, used by vLLM and SGLang)."""

_PRODUCTS_PER_STATE_ELEMENT: Final = {
    Recurrence.MAMBA1: 6,  # decay from dt (2), input (2), read-out (2)
    Recurrence.MAMBA2: 5,  # decay, outer product (2), read-out (2)
    Recurrence.LIGHTNING: 5,
    Recurrence.RWKV: 7,
    Recurrence.GATED_DELTA: 7,  # decay, what k recalls (2), correction (2), read-out (2)
    Recurrence.KIMI_DELTA: 7,
    Recurrence.RG_LRU: 4,
    Recurrence.SHORT_CONV: 0,
}
_CHUNKED: Final = (
    Recurrence.MAMBA2,
    Recurrence.LIGHTNING,
    Recurrence.GATED_DELTA,
    Recurrence.KIMI_DELTA,
)


def causal_pairs(chunk: Chunk, window: int | None = None, local_chunk: int | None = None) -> int:
    """Query-key pairs a causal mask leaves of a chunk of a prompt.

    Query at position p sees p + 1 keys; at most ``window`` of them in sliding attention, and those
    since the last multiple of ``local_chunk`` in chunked attention (Llama 4).
    """
    first, last = chunk.context, chunk.context + chunk.tokens

    def triangle(count: int) -> int:
        return count * (count + 1) // 2

    if local_chunk is not None:

        def before(position: int) -> int:
            whole, rest = divmod(position, local_chunk)
            return whole * triangle(local_chunk) + triangle(rest)

        return before(last) - before(first)
    if window is None:
        return triangle(last) - triangle(first)
    growing = triangle(min(last, window)) - triangle(min(first, window))
    return growing + window * (last - max(first, window) if last > window else 0)


def seen_tokens(context: float, window: int | None = None, local_chunk: int | None = None) -> float:
    """Keys that one new token attends to, itself included, on average over a chunk's positions."""
    seen = context + 1
    if local_chunk is not None and seen > local_chunk:
        return (local_chunk + 1) / 2
    return seen if window is None else min(seen, window)


def mixer_operators(mixer: Mixer, work: StepWork, tp: int, kv_dtype: str) -> list[Operator]:
    """Operators of one mixer in one layer on one rank, matrices left out.

    Args:
        mixer: The attention or recurrent layer.
        work: The step.
        tp: Ranks it is divided over.
        kv_dtype: Type of the cache.

    Raises:
        DeploymentError: Attention to an encoder, which is not modelled, or heads that do not
            divide.
    """
    if isinstance(mixer, Recurrent):
        return _scan(mixer, work, tp, kv_dtype)
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, work, tp, kv_dtype)
    return _attention(mixer, work, tp, kv_dtype)


@lru_cache(maxsize=512)
def _cell_bytes(mixer: Attention, kv_dtype: str) -> int:
    return attention_cell_bytes(mixer.head_dim, mixer.value_head_dim, kv_dtype)


def _attention(mixer: Attention, work: StepWork, tp: int, kv_dtype: str) -> list[Operator]:
    """FlashAttention counts 2 products for each of QK and PV a pair (arXiv:2205.14135)."""
    if mixer.cross or mixer.encoder_only:
        raise DeploymentError(
            "the model attends to an encoder, whose speed is not modelled; choose a decoder-only "
            "model"
        )
    heads = -(-mixer.num_heads // tp)
    kv_heads = kv_heads_per_rank(mixer.num_kv_heads, tp)
    width = mixer.head_dim + mixer.value_head_dim
    cell = kv_heads * _cell_bytes(mixer, kv_dtype)
    found: list[Operator] = []
    top_k = mixer.indexer.top_k if mixer.indexer else None
    if work.prefill:
        pairs: float = 0
        reads = 0
        for chunk in work.prefill:
            pairs += causal_pairs(chunk, _narrower(mixer.window, top_k), mixer.chunk)
            reads += _kept(chunk, mixer.window, mixer.chunk)
        tokens = work.prefill_tokens
        found.append(
            Operator(
                name="attention_prefill",
                kind=Kind.ATTENTION_PREFILL,
                arithmetic="bf16",
                times=1,
                flops=2 * heads * width * pairs,
                num_bytes=reads * cell + tokens * heads * width * ACTIVATION_BYTES,
                shape=_spans(work, mixer.head_dim, heads, reads / len(work.prefill)),
            )
        )
    if work.decode_sequences:
        queries = work.decode_tokens
        seen = seen_tokens(_decode_context(work), mixer.window, mixer.chunk)
        kept = seen
        if top_k is not None:  # every query chooses keys of its own
            seen = min(seen, top_k)
            kept = seen * queries
        rows = work.decode_sequences
        found.append(
            Operator(
                name="attention_decode",
                kind=Kind.ATTENTION_DECODE,
                arithmetic=_cache_type(kv_dtype),
                times=1,
                flops=2 * heads * width * seen * rows * queries,
                num_bytes=rows * (kept * cell + queries * heads * width * ACTIVATION_BYTES),
                shape=(heads * queries / kv_heads, seen, 1, rows * kv_heads),
            )
        )
    if mixer.indexer:
        found += _index(mixer.indexer, work, mixer.indexer.head_dim * ACTIVATION_BYTES)
    return found


def _decode_context(work: StepWork) -> float:
    """Keys before a decoding request's mean query: drafted ones follow each other."""
    return work.decode_context_tokens + (work.decode_tokens - 1) / 2


def _spans(work: StepWork, width: int, heads: int, keys: float) -> tuple[float, ...]:
    """Extents of an operator over prompts: mean tokens, its width, keys, heads of all prompts."""
    prompts = len(work.prefill)
    return work.prefill_tokens / prompts, width, keys, prompts * heads


def _cache_type(kv_dtype: str) -> str:
    """Whose kernels read the cache: those for 8 bits or those for 16."""
    return "fp8" if kv_dtype.startswith("fp8") else "bf16"


def _narrower(window: int | None, top_k: int | None) -> int | None:
    if window is None or top_k is None:
        return window if top_k is None else top_k
    return min(window, top_k)


def _kept(chunk: Chunk, window: int | None, local_chunk: int | None) -> int:
    """Cached tokens that a chunk must read, its own included."""
    context = chunk.context
    if local_chunk is not None:
        context = min(context, context % local_chunk)
    elif window is not None:
        context = min(context, window)
    return context + chunk.tokens


def _latent(mixer: LatentAttention, work: StepWork, tp: int, kv_dtype: str) -> list[Operator]:
    """MLA: keys and values expanded in prefill, projections absorbed in decode.

    In decode the query is carried into the latent space by the key half of ``kv_b_proj``, attends
    over the cached latent, and the value half carries the result back (DeepSeek-V2,
    arXiv:2405.04434, appendix C; vLLM 0.33 mla_attention.py ``forward_mqa`` and ``forward_mha``).
    """
    heads = -(-mixer.num_heads // tp)
    nope, rope, value = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim
    latent = mixer.kv_lora_rank
    cell = latent_bytes_per_token(mixer, kv_dtype)
    top_k = mixer.indexer.top_k if mixer.indexer else None
    ratio = mixer.compress_ratio
    found = []
    if work.prefill:
        pairs: float = 0
        reads = 0
        for chunk in work.prefill:
            if ratio > 1:
                states = (chunk.context + chunk.tokens) // ratio
                sparse = min(states, top_k) if top_k else states
                pairs += causal_pairs(chunk, mixer.window) + chunk.tokens * sparse // 2
            else:
                pairs += causal_pairs(chunk, _narrower(mixer.window, top_k))
            reads += chunk.tokens + chunk.context
        absorbed = top_k is not None or ratio > 1
        width = 2 * latent + rope if absorbed else nope + rope + value
        expanded = 0 if absorbed else heads * (nope + rope + value) * ACTIVATION_BYTES
        tokens = work.prefill_tokens
        found.append(
            Operator(
                name="attention_prefill",
                kind=Kind.LATENT_PREFILL,
                arithmetic="bf16",
                times=1,
                flops=2 * heads * width * pairs,
                num_bytes=reads * (expanded or cell)
                + tokens * heads * (nope + rope + value) * ACTIVATION_BYTES,
                shape=_spans(work, nope + rope, heads, reads / len(work.prefill)),
            )
        )
        if absorbed:
            found += _absorbed(mixer, tokens, heads)
        else:
            found.append(_expansion(mixer, reads, heads))
    if work.decode_sequences:
        rows, queries = work.decode_sequences, work.decode_tokens
        context = _decode_context(work)
        seen = kept = seen_tokens(context, mixer.window)
        if ratio > 1:
            cached_states = (context + 1) / ratio
            chosen = min(cached_states, top_k) if top_k else cached_states
            seen += chosen
            kept += chosen * (queries if top_k else 1)  # every query chooses keys of its own
        elif top_k is not None:
            seen = min(seen, top_k)
            kept = seen * queries
        found.append(
            Operator(
                name="attention_decode",
                kind=Kind.LATENT_DECODE,
                arithmetic=_cache_type(kv_dtype),
                times=1,
                flops=2 * heads * (2 * latent + rope) * seen * rows * queries,
                num_bytes=rows
                * (kept * cell + queries * heads * (2 * latent + rope) * ACTIVATION_BYTES),
                shape=(heads * queries, seen, 1, rows),
            )
        )
        found += _absorbed(mixer, rows * queries, heads)
    if mixer.indexer:
        found += _index(mixer.indexer, work, indexer_bytes_per_token(mixer.indexer), ratio)
    return found


def _expansion(mixer: LatentAttention, rows: int, heads: int) -> Operator:
    """``kv_b_proj`` over every latent that a prompt's chunk attends to."""
    outputs = heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
    inputs = mixer.kv_lora_rank
    return Operator(
        name="kv_b_proj",
        kind=Kind.GEMM,
        arithmetic="bf16",
        times=1,
        flops=2 * rows * outputs * inputs,
        num_bytes=(outputs * inputs + rows * (outputs + inputs)) * ACTIVATION_BYTES,
        shape=(rows, outputs, inputs, outputs),
    )


def _absorbed(mixer: LatentAttention, rows: int, heads: int) -> list[Operator]:
    found = []
    latent = mixer.kv_lora_rank
    for name, width in (
        ("absorb_query", mixer.qk_nope_head_dim),
        ("expand_value", mixer.v_head_dim),
    ):
        found.append(
            Operator(
                name=name,
                kind=Kind.BATCHED_GEMM,
                arithmetic="bf16",
                times=1,
                flops=2 * rows * heads * width * latent,
                num_bytes=heads * (width * latent + rows * (width + latent)) * ACTIVATION_BYTES,
                shape=(rows, latent, width, heads),
            )
        )
    return found


def _index(indexer: Indexer, work: StepWork, key_bytes: int, ratio: int = 1) -> Iterator[Operator]:
    """Scores of every key for each token, in FP8; one small key a token, shared by the heads.

    Prompts and decoding requests are scored by kernels of their own (vLLM 0.33
    sparse_attn_indexer.py: ``fp8_mqa_logits`` under ``has_prefill``, ``fp8_paged_mqa_logits``
    under ``has_decode``).
    """

    def scores(kind: Kind, pairs: float, keys: float, shape: tuple[float, ...]) -> Operator:
        return Operator(
            name="indexer",
            kind=kind,
            arithmetic="bf16",
            times=1,
            flops=2 * indexer.num_heads * indexer.head_dim * pairs / ratio,
            num_bytes=keys * key_bytes / ratio + 4 * pairs / ratio,
            shape=shape,
        )

    if work.prefill:
        pairs = sum(causal_pairs(chunk) for chunk in work.prefill)
        keys = sum(chunk.tokens + chunk.context for chunk in work.prefill)
        spans = _spans(work, indexer.head_dim, indexer.num_heads, keys / len(work.prefill))
        yield scores(Kind.ATTENTION_PREFILL, pairs, keys, spans)
    if rows := work.decode_sequences * work.decode_tokens:
        seen = _decode_context(work) + 1
        keys_read = work.decode_sequences * (work.decode_context_tokens + 1)
        shape = (indexer.num_heads, seen, 1, rows)
        yield scores(Kind.ATTENTION_DECODE, rows * seen, keys_read, shape)


def _scan(mixer: Recurrent, work: StepWork, tp: int, dtype: str) -> list[Operator]:
    """A recurrent layer: its convolution and its state.

    Decode reads each sequence's state once and writes it after every token, since drafted ones may
    be refused (vLLM and SGLang keep a state a drafted token). Chunked kinds turn prefill into
    matrices: within a chunk of C tokens each token meets C/2 others twice (scores and values), and
    the state is read, updated and written once a chunk.
    """
    plain = "bfloat16" if dtype.startswith("fp8") else dtype
    state = recurrent_state(
        mixer,
        convolution_dtype=plain if element_bytes(plain) > 1 else "bfloat16",
        tensor_parallel_size=tp,
    )
    elements = prod(state.recurrent) if state.recurrent else 0
    heads = state.recurrent[0] if state.recurrent and len(mixer.state_shape) == 2 else 1
    channels = state.convolution[1] if state.convolution else 0
    rows = channels + elements // max(1, mixer.state_shape[-1] if mixer.state_shape else 1)
    convolution = 2 * mixer.conv_kernel * channels
    width = mixer.state_shape[0] if mixer.state_shape else channels
    found = []
    if work.prefill:
        tokens = work.prefill_tokens
        chunks = sum(-(-chunk.tokens // SCAN_CHUNK) for chunk in work.prefill)
        if mixer.kind in _CHUNKED:
            inner = 2 * SCAN_CHUNK * heads * sum(mixer.state_shape)
            flops = tokens * (4 * elements + inner + convolution)
            moved = 2 * chunks * state.num_bytes
        else:
            flops = tokens * (_PRODUCTS_PER_STATE_ELEMENT[mixer.kind] * elements + convolution)
            moved = 2 * len(work.prefill) * state.num_bytes
        found.append(
            Operator(
                name="scan_prefill",
                kind=Kind.SCAN_PREFILL,
                arithmetic="bf16",
                times=1,
                flops=flops,
                num_bytes=moved + 4 * tokens * rows * ACTIVATION_BYTES,
                shape=_spans(work, width, heads, tokens / len(work.prefill)),
            )
        )
    if work.decode_sequences:
        count, tokens = work.decode_sequences, work.decode_tokens
        products = _PRODUCTS_PER_STATE_ELEMENT[mixer.kind] * elements + convolution
        found.append(
            Operator(
                name="scan_decode",
                kind=Kind.SCAN_DECODE,
                arithmetic="bf16",
                times=1,
                flops=count * tokens * products,
                num_bytes=count
                * ((1 + tokens) * state.num_bytes + 4 * tokens * rows * ACTIVATION_BYTES),
                shape=(1, width, tokens, count * heads),
            )
        )
    return found
