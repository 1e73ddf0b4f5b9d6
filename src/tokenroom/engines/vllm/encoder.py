"""The multimodal part of vLLM's profile run: how many items it encodes and what they take.

Sources: multimodal/encoder_budget.py ``MultiModalBudget``, v1/core/encoder_cache_manager.py
``compute_mm_encoder_budget``, v1/worker/gpu_model_runner.py ``profile_run`` (0.19.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.models.spec import DTYPE_BITS, ModelSpec, Role, Tower

_MODALITY: Final = {"vision": "image", "audio": "audio"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderBatch:
    """The dummy items one profile run encodes.

    Attributes:
        tower: The encoder they pass.
        items: How many of the largest items fit the budget.
        budget_tokens: Encoder budget and cache size in language-model tokens.
    """

    tower: Tower
    items: int
    budget_tokens: int


def encoder_batch(spec: ModelSpec, inputs: ProfileInputs) -> EncoderBatch | None:
    """What the profile run encodes, None when the model has no encoder or it is left out.

    The budget is the token budget of a step, or the largest item when that is larger; the
    modality with the most tokens an item is encoded, as many items as the budget and the
    requests of a step hold.
    """
    if not spec.towers or inputs.language_model_only:
        return None
    towers = [
        tower
        for tower in spec.towers
        if tower.max_tokens_per_item and inputs.mm_limits.get(_MODALITY[tower.name], 1) > 0
    ]
    if not towers:
        return None
    tower = max(towers, key=lambda each: (each.max_tokens_per_item or 0, each.name))
    item_tokens = tower.max_tokens_per_item or 1
    budget_tokens = max(inputs.max_num_batched_tokens, item_tokens)
    limit = inputs.mm_limits.get(_MODALITY[tower.name], inputs.max_model_len)
    per_prompt = max(1, min(limit, inputs.max_model_len // item_tokens))
    items = max(1, min(budget_tokens // item_tokens, inputs.max_num_seqs * per_prompt))
    return EncoderBatch(tower=tower, items=items, budget_tokens=budget_tokens)


def kept_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, *, second_runner: bool
) -> Terms:
    """Inputs and outputs of the encoder, which stay allocated until the profile run ends.

    The pixel tensor is a local of ``profile_run`` and the outputs sit in the encoder cache.
    """
    batch = _profiled(spec, inputs, rules, second_runner)
    if batch is None:
        return ()
    width = DTYPE_BITS[inputs.dtype] // 8
    tower = batch.tower
    positions = tower.encoder_tokens_per_item or 0
    outputs = batch.items * (tower.max_tokens_per_item or 0) * spec.hidden_size * width
    return (
        ("encoder_inputs", batch.items * positions * _input_elements(tower) * width),
        ("encoder_outputs", outputs),
    )


def running_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, *, second_runner: bool
) -> Terms:
    """What the encoder's widest moment adds: its feed-forward block over every position."""
    batch = _profiled(spec, inputs, rules, second_runner)
    if batch is None:
        return ()
    width = DTYPE_BITS[inputs.dtype] // 8
    tower = batch.tower
    positions = batch.items * (tower.encoder_tokens_per_item or 0)
    inner = -(-tower.intermediate_size // inputs.tensor_parallel_size)
    return (
        ("encoder_residual", positions * tower.hidden_size * width),
        ("encoder_normed", positions * tower.hidden_size * width),
        ("encoder_up", positions * inner * width),
        ("encoder_activated", positions * inner * width),
    )


def _profiled(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, second_runner: bool
) -> EncoderBatch | None:
    if inputs.skip_mm_profiling:
        return None
    if second_runner and not (rules.second_runner_profiles_encoder and inputs.is_first_stage):
        return None
    return encoder_batch(spec, inputs)


def _input_elements(tower: Tower) -> int:
    """Values of one position's input: what the patch convolution reads."""
    for weight in tower.weights:
        if weight.role is Role.CONV or "patch" in weight.name:
            return prod(weight.shape[1:])
    return tower.hidden_size
