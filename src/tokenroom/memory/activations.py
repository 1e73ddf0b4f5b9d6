"""Transient tensors of one layer on one rank, as engines with fused kernels allocate them.

The score matrix is never materialised (FlashAttention, arXiv:2205.14135, section 3), projections
of queries, keys and values are one product, and so are gate and up. What an engine keeps beside
these tensors, and for how long, is its own affair.
"""

from __future__ import annotations

from typing import TypeAlias

from tokenroom.models.spec import Attention, DenseFFN, LatentAttention, Layer, Mixer, MoEFFN

Terms: TypeAlias = tuple[tuple[str, int], ...]
"""Named tensors with their bytes."""


def terms_bytes(terms: Terms) -> int:
    """Bytes of all tensors."""
    return sum(num_bytes for _, num_bytes in terms)


def mixer_terms(
    mixer: Mixer, tokens: int, *, element_bytes: int, tensor_parallel_size: int = 1
) -> Terms:
    """Tensors that live at the widest moment of a mixer; the last one is its output.

    Args:
        mixer: Softmax attention, latent attention or a recurrence.
        tokens: Tokens of the step.
        element_bytes: Bytes of an activation.
        tensor_parallel_size: Ranks that share the heads, or the inner width.
    """
    ranks, width = tensor_parallel_size, element_bytes
    if isinstance(mixer, Attention):
        heads = max(1, mixer.num_heads // ranks)
        kv_heads = max(1, mixer.num_kv_heads // ranks)
        queries = tokens * heads * mixer.head_dim * width
        keys = tokens * kv_heads * mixer.head_dim * width
        return (
            ("queries_keys_values", queries + 2 * keys),
            ("rotated_queries_keys", queries + keys),
            ("attention_output", tokens * heads * mixer.value_head_dim * width),
        )
    if isinstance(mixer, LatentAttention):
        heads = max(1, mixer.num_heads // ranks)
        query_dim = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        return (
            ("queries", tokens * heads * query_dim * width),
            ("latent", tokens * (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * width),
            ("attention_output", tokens * heads * mixer.v_head_dim * width),
        )
    inner = mixer.num_heads * (mixer.state_shape[0] if mixer.state_shape else 0)
    inner = max(inner, mixer.conv_dim) // ranks
    return (
        ("projected_inputs", tokens * 2 * inner * width),
        ("convolved_inputs", tokens * mixer.conv_dim // ranks * width),
        ("recurrence_output", tokens * inner * width),
    )


def dense_ffn_terms(
    ffn: DenseFFN, tokens: int, *, element_bytes: int, tensor_parallel_size: int = 1
) -> Terms:
    """Tensors of a dense feed-forward block: the merged gate and up, and their product."""
    inner = tokens * -(-ffn.intermediate_size // tensor_parallel_size) * element_bytes
    return (("gate_up", inner * (2 if ffn.gated else 1)), ("activated", inner))


def expert_terms(
    ffn: MoEFFN,
    tokens: int,
    hidden_size: int,
    *,
    element_bytes: int,
    expert_shards: int = 1,
    expert_ranks: int = 1,
) -> Terms:
    """Tensors of a mixture of experts that computes each (token, expert) pair as a row.

    Rows gathered by expert, gate and up, their product and the output of each pair, which is then
    summed by token. ``expert_shards`` is over how many ranks one expert is divided, and
    ``expert_ranks`` over how many the experts are dealt, each with its even share of the pairs.
    """
    pairs = -(-tokens * ffn.experts_per_token // expert_ranks)
    inner = pairs * -(-ffn.intermediate_size // expert_shards) * element_bytes
    shared = tokens * -(-ffn.shared_intermediate_size // expert_shards) * element_bytes
    return (
        ("router_logits", tokens * ffn.num_experts * 4),
        ("shared_experts", 3 * shared),
        ("gathered_rows", pairs * hidden_size * element_bytes),
        ("experts_gate_up", inner * (2 if ffn.gated else 1)),
        ("experts_activated", inner),
        ("experts_rows", pairs * hidden_size * element_bytes),
    )


def widest_moment(
    layer: Layer,
    tokens: int,
    hidden_size: int,
    *,
    element_bytes: int,
    tensor_parallel_size: int = 1,
    expert_shards: int = 1,
    expert_ranks: int = 1,
) -> Terms:
    """The layer at its mixer or at its feed-forward block, whichever holds more.

    Beside a mixer lives the residual stream; beside the block that follows, the residual before
    and after the sum and what the mixers put out.
    """
    hidden = tokens * hidden_size * element_bytes
    moments: list[Terms] = []
    attended = 0
    for mixer in layer.mixers:
        terms = mixer_terms(
            mixer, tokens, element_bytes=element_bytes, tensor_parallel_size=tensor_parallel_size
        )
        moments.append((("residual", hidden), ("normed", hidden), *terms))
        attended += terms[-1][1]
    carried = (("mixer_output", attended), ("residual", hidden), ("updated_residual", hidden))
    if isinstance(layer.ffn, MoEFFN):
        moments.append(
            (
                *carried,
                ("normed", hidden),
                *expert_terms(
                    layer.ffn,
                    tokens,
                    hidden_size,
                    element_bytes=element_bytes,
                    expert_shards=expert_shards,
                    expert_ranks=expert_ranks,
                ),
            )
        )
    elif isinstance(layer.ffn, DenseFFN):
        terms = dense_ffn_terms(
            layer.ffn,
            tokens,
            element_bytes=element_bytes,
            tensor_parallel_size=tensor_parallel_size,
        )
        moments.append((*carried, *terms))
    return max(moments, key=terms_bytes, default=())
