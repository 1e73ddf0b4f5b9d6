"""What each pipeline stage holds beside the pool, and what a request takes of the pool."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Final

from tokenroom.engines.abstract.resolve import Resolved
from tokenroom.engines.policy import Deployment, Estimate, StageMemory
from tokenroom.memory.activations import Terms, terms_bytes, widest_moment
from tokenroom.memory.kv_cache import (
    attention_bytes_per_token,
    element_bytes,
    indexer_bytes_per_token,
    latent_bytes_per_token,
    mixer_bytes,
)
from tokenroom.memory.process_context import communicator_bytes, cuda_context_bytes
from tokenroom.memory.rank_weights import Place, rank_weights, split_layers
from tokenroom.models.spec import Attention, LatentAttention, MoEFFN, Recurrent

_ACTIVATION_RANGE: Final = 0.25
"""The tensors of a layer are counted, kernels' workspaces are not."""


def request_cost(deployment: Deployment, stage: int) -> Callable[[int], int]:
    """Bytes that so many tokens of one request take on a stage; never falls with tokens.

    Attention: KV heads x cell a token, as far as the window or chunk reaches; latent attention: the
    latent; recurrent layers: their state, whatever the length.
    """
    resolved: Resolved = deployment.resolved
    spec, tp = deployment.spec, resolved.tensor_parallel_size
    reach: dict[int | None, int] = {}
    fixed = 0
    for index in split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage):
        for mixer in spec.layers[index].mixers:
            if isinstance(mixer, Recurrent):
                fixed += mixer_bytes(
                    mixer, 1, resolved.dtype, tensor_parallel_size=tp, state_dtype=resolved.dtype
                )
            elif isinstance(mixer, Attention):
                if mixer.cross:
                    continue
                each = attention_bytes_per_token(
                    mixer, resolved.kv_cache_dtype, tensor_parallel_size=tp
                )
                limit = mixer.window if mixer.window is not None else mixer.chunk
                reach[limit] = reach.get(limit, 0) + each
            elif isinstance(mixer, LatentAttention):
                each = latent_bytes_per_token(mixer, resolved.kv_cache_dtype)
                index_bytes = indexer_bytes_per_token(mixer.indexer) if mixer.indexer else 0
                if mixer.compress_ratio == 1:
                    reach[mixer.window] = reach.get(mixer.window, 0) + each
                    reach[None] = reach.get(None, 0) + index_bytes
                else:
                    reach[mixer.window] = reach.get(mixer.window, 0) + each
                    reach[None] = reach.get(None, 0) + -(
                        -(each + index_bytes) // mixer.compress_ratio
                    )
    terms = tuple(reach.items())

    def cost(tokens: int) -> int:
        grown = sum(
            each * (tokens if limit is None else min(tokens, limit)) for limit, each in terms
        )
        return fixed + grown if tokens > 0 else 0

    return cost


def step_terms(deployment: Deployment, stage: int, tokens: int, outputs: int) -> Terms:
    """The widest layer of a stage at a step, and the logits of those that get a token."""
    resolved: Resolved = deployment.resolved
    spec, tp = deployment.spec, resolved.tensor_parallel_size
    width = element_bytes(resolved.dtype)
    layers = split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage)
    kinds = {id(spec.layers[index]): spec.layers[index] for index in layers}
    moments = [
        widest_moment(
            layer,
            tokens,
            spec.hidden_size,
            element_bytes=width,
            tensor_parallel_size=tp,
            expert_shards=tp,
        )
        for layer in kinds.values()
    ]
    if layers.stop == spec.num_layers:
        hidden = tokens * spec.hidden_size * width
        moments.append((("hidden", hidden), ("logits", outputs * spec.vocab_size * 4)))
    return max(moments, key=terms_bytes)


def stage_memory(deployment: Deployment, index: int) -> StageMemory:
    """Everything of a stage; the pool is what is left of its budget, or the size given."""
    resolved: Resolved = deployment.resolved
    spec, node = deployment.spec, deployment.node
    tp = resolved.tensor_parallel_size
    total = node.accelerator.memory_bytes
    layers = split_layers(spec.num_layers, resolved.pipeline_parallel_size, index)
    weights = rank_weights(
        spec, Place(tp=tp, expert_tp=tp, layers=layers), dtype=resolved.dtype, mtp=False
    )
    tokens = min(resolved.max_num_batched_tokens, resolved.allocator.max_tokens)
    terms = step_terms(deployment, index, tokens, 1)
    peak = terms_bytes(terms)
    activation = Estimate(
        num_bytes=peak,
        low_bytes=round(peak * (1 - _ACTIVATION_RANGE)),
        high_bytes=round(peak * (1 + _ACTIVATION_RANGE)),
        phase="layers",
        terms=terms,
        source="memory/activations.py widest_moment",
    )
    nothing = Estimate(num_bytes=0, low_bytes=0, high_bytes=0)
    experts = any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds)
    context = cuda_context_bytes(node.accelerator) + communicator_bytes(
        node.accelerator,
        ranks=tp * resolved.pipeline_parallel_size,
        tensor_ranks=tp,
        expert_group=tp > 1 and experts,
    )
    budget = floor(total * resolved.gpu_memory_utilization)
    held = weights.total_bytes + peak + context + node.used_bytes
    available = budget - held
    if resolved.kv_cache_memory_bytes is not None:
        available = resolved.kv_cache_memory_bytes
    return StageMemory(
        pipeline_parallel_rank=index,
        total_bytes=total,
        budget_bytes=budget,
        context_bytes=context + node.used_bytes,
        weights={component.value: size for component, size in weights.components.items()},
        activation=activation,
        activation_decode_bytes=terms_bytes(step_terms(deployment, index, 1, 1)),
        cuda_graphs=nothing,
        cuda_graph_actual_bytes=0,
        non_torch=nothing,
        buffers_bytes=0,
        available_bytes=available,
        kv_pool_bytes=max(0, available),
        kv_bytes_per_token=float(_growth(request_cost(deployment, index), resolved)),
    )


def _growth(cost: Callable[[int], int], resolved: Resolved) -> int:
    longest = resolved.allocator.max_tokens
    return cost(longest + 1) - cost(longest)
