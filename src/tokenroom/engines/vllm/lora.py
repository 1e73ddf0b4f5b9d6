"""LoRA adapter slots: buffers that vLLM allocates beside the weights before it profiles.

Every linear layer gets, for each of ``max_loras`` slots, two matrices of the largest rank allowed,
whether an adapter uses them or not (vLLM 0.33 ``lora/layers/base_linear.py``
``create_lora_weights``, ``column_parallel_linear.py``, ``fused_moe.py``, ``logits_processor.py``,
``vocab_parallel_embedding.py``; ``lora/utils.py`` ``get_supported_lora_modules``: all linear
layers).
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenroom.memory.weights import kv_heads_of, local_weight
from tokenroom.models.quantization.size import dtype_bytes
from tokenroom.models.spec import Layer, ModelSpec, Role, Shard, Weight


def lora_slot_bytes(
    spec: ModelSpec,
    layers: Iterable[tuple[Layer, int]],
    *,
    first_stage: bool,
    last_stage: bool,
    tensor_parallel_size: int,
    expert_parallel_size: int = 1,
    max_loras: int,
    max_lora_rank: int,
    fully_sharded: bool = False,
    lora_dtype: str,
) -> int:
    """Bytes of all adapter slots on one rank.

    A slot of a linear layer of shape (out, in) holds A: rank x in and B: out x rank of the local
    shapes; with ``fully_sharded`` the rank of A (column-parallel) or the rows of B (row-parallel)
    are divided too. Embeddings hold A: vocab x rank and B: hidden x rank, undivided; the head holds
    A: rank x hidden and B: vocab x rank.

    Args:
        spec: The model; towers carry no slots here, as vLLM leaves them out unless asked.
        layers: The stage's blocks with how often each occurs.
        first_stage: The stage holds the token embedding.
        last_stage: The stage holds the head.
        tensor_parallel_size: Ranks a layer is divided over.
        expert_parallel_size: Ranks the experts are dealt to, 1 when experts are divided like the
            rest.
        max_loras: Slots.
        max_lora_rank: Largest rank.
        fully_sharded: ``--fully-sharded-loras``.
        lora_dtype: Type of the slots.
    """

    def slot_elements(weight: Weight, kv_heads: int) -> int:
        expert_parallel = weight.expert and expert_parallel_size > 1
        local = local_weight(
            weight,
            tp=tensor_parallel_size,
            kv_heads=kv_heads,
            expert_tp=1 if expert_parallel else None,
            ep=expert_parallel_size if expert_parallel else 1,
        )
        rows, columns = local.shape[-2], local.shape[-1]
        rank_a, rows_b = max_lora_rank, rows
        if fully_sharded and weight.shard in (Shard.COLUMN, Shard.KV_COLUMN):
            rank_a = max_lora_rank // tensor_parallel_size
        elif fully_sharded and weight.shard is Shard.ROW:
            rows_b = rows // tensor_parallel_size
        return local.count * (rank_a * columns + rows_b * max_lora_rank)

    elements = 0
    for layer, count in layers:
        kv_heads = kv_heads_of(layer)
        for weight in layer.weights:
            if weight.role in (Role.LINEAR, Role.ROUTER) and len(weight.shape) == 2:
                elements += count * slot_elements(weight, kv_heads)
    ends = [weight for weight in spec.input_weights if first_stage]
    ends += [weight for weight in spec.output_weights if last_stage]
    for weight in ends:
        if weight.role in (Role.EMBEDDING, Role.LM_HEAD):
            elements += max_lora_rank * (weight.shape[0] + weight.shape[1])
    if last_stage and spec.tied_embeddings:
        elements += max_lora_rank * (spec.vocab_size + spec.hidden_size)
    return elements * max_loras * dtype_bytes(lora_dtype)
