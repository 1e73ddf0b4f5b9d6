"""Weights of the ranks of one pipeline stage: the model's, the draft's and adapter slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tokenroom.engines.policy import Deployment
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.storage import storage_of
from tokenroom.engines.sglang.weights import RankLayout, rank_weights, stage_layers
from tokenroom.errors import DeploymentError, shown
from tokenroom.memory.weights import kv_heads_of, local_weight
from tokenroom.models.quantization import dtype_bytes
from tokenroom.models.spec import Layer, Role

_LORA_ROLES: Final = frozenset({Role.LINEAR, Role.ROUTER})


def layer_partition_of(resolved: ResolvedSettings) -> tuple[int, ...] | None:
    """Blocks of each pipeline stage that ``SGLANG_PP_LAYER_PARTITION`` asks for, None without it.

    Raises:
        DeploymentError: It holds no whole numbers.
    """
    text = resolved.environment.get("SGLANG_PP_LAYER_PARTITION")
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DeploymentError(
            f"SGLANG_PP_LAYER_PARTITION is {shown(text)}; it must hold whole numbers "
            f"separated by commas"
        ) from None


def rank_layout(resolved: ResolvedSettings, rank: int) -> RankLayout:
    """Where the first rank of a pipeline stage stands."""
    return RankLayout(
        tp=resolved.tp_size,
        pp=resolved.pp_size,
        pp_rank=rank,
        attention_tp=resolved.attention_tp_size,
        dense_tp=resolved.dense_tp_size,
        expert_tp=resolved.tp_size // resolved.ep_size,
        ep=resolved.ep_size,
        head_tp=resolved.head_tp_size,
        embedding_tp=1 if resolved.attention_dp_size > 1 else resolved.tp_size,
        layer_partition=layer_partition_of(resolved),
    )


def stage_layers_of(deployment: Deployment, rank: int) -> Sequence[Layer]:
    """Blocks of a pipeline stage."""
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    return [
        spec.layers[index] for index in stage_layers(spec.num_layers, rank_layout(resolved, rank))
    ]


def draft_layers(deployment: Deployment) -> Sequence[Layer]:
    """Layers of the model that drafts; the last stage runs it."""
    resolved: ResolvedSettings = deployment.resolved
    if not resolved.drafts_with_model:
        return ()
    return deployment.draft.layers if deployment.draft is not None else deployment.spec.mtp_layers


def stage_weights(deployment: Deployment, rank: int) -> dict[str, int]:
    """Weights of a rank by component: the model's, the draft's and adapter slots."""
    resolved: ResolvedSettings = deployment.resolved
    spec, layout = deployment.spec, rank_layout(resolved, rank)
    storage = storage_of(spec, deployment.node.accelerator, resolved)
    found = dict(
        rank_weights(
            spec,
            layout,
            dtype=resolved.dtype,
            towers=resolved.towers,
            storage=storage,
            cpu_offload_bytes=resolved.cpu_offload_bytes,
        ).components
    )
    if draft_layers(deployment) and rank == resolved.pp_size - 1:
        alone = replace(layout, pp=1, pp_rank=0, layer_partition=None)
        own = deployment.draft
        found["draft"] = rank_weights(
            own or spec,
            alone,
            dtype=resolved.dtype,
            towers=False,
            mtp=own is None,
            storage=storage,
            shared_ends=resolved.speculative_algorithm != "STANDALONE",
        ).allocated_bytes
    if resolved.max_lora_rank:
        found["lora"] = _lora_bytes(deployment, rank)
    return found


def _lora_bytes(deployment: Deployment, rank: int) -> int:
    """Adapter slots: A and B of the largest rank for every linear layer (``lora/mem_pool.py``)."""
    resolved: ResolvedSettings = deployment.resolved
    elements = 0
    for layer in stage_layers_of(deployment, rank):
        for weight in layer.weights:
            if weight.role not in _LORA_ROLES or len(weight.shape) != 2 or weight.expert:
                continue
            local = local_weight(weight, tp=resolved.attention_tp_size, kv_heads=kv_heads_of(layer))
            elements += resolved.max_lora_rank * (local.shape[0] + local.shape[1])
    return elements * resolved.max_loras_per_batch * dtype_bytes(resolved.dtype)
