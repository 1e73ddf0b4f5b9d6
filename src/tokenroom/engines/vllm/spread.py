"""Weights that are spread over ranks otherwise than a description says: whole encoders, copies.

Sources: ``mm_encoder_tp_mode`` of config/multimodal.py and ``supports_encoder_tp_data`` of
model_executor/models/*.py (0.11.0 to 0.33.0); ``num_redundant_experts`` of config/parallel.py and
``EplbConfig`` with fused_moe/layer.py, where a rank holds its share of all physical experts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.models.spec import Layer, ModelSpec, Shard

#: Beginnings of the classes whose encoder can run whole on every rank.
_WHOLE_ENCODERS: Final = (
    *("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3_5", "Glm4v", "InternVLChat", "KimiVL", "KimiK25"),
    *("KimiK3", "MiniCPMV", "Llama4ForConditional", "Step3VL", "DotsOCR", "Isaac", "OpenCUA"),
    *("Eagle2_5_VL", "Cosmos3Edge", "CohereCompass", "MiniMaxM3", "Dots3Note"),
)


def encoder_runs_whole(spec: ModelSpec, settings: VLLMSettings) -> bool:
    """Whether every rank holds the whole encoder and takes a share of the items.

    Models that cannot keep ``"weights"``, with a warning.
    """
    wanted = settings.mm_encoder_tp_mode == "data"
    return wanted and bool(spec.towers) and spec.architecture.startswith(_WHOLE_ENCODERS)


@lru_cache(maxsize=64)
def with_whole_encoder(spec: ModelSpec) -> ModelSpec:
    """The model with towers that tensor parallelism does not divide."""
    towers = tuple(
        replace(
            tower,
            weights=tuple(replace(weight, shard=Shard.REPLICATED) for weight in tower.weights),
        )
        for tower in spec.towers
    )
    return replace(spec, towers=towers)


@lru_cache(maxsize=64)
def with_redundant_experts(spec: ModelSpec, redundant: int) -> ModelSpec:
    """The model with that many more experts in every layer that has some."""
    made: dict[int, Layer] = {}
    for layer, _ in spec.layer_kinds:
        weights = tuple(
            replace(weight, count=weight.count + redundant, stored_bytes=None)
            if weight.expert
            else weight
            for weight in layer.weights
        )
        made[id(layer)] = replace(layer, weights=weights)
    return replace(spec, layers=tuple(made[id(layer)] for layer in spec.layers))
