"""The multimodal part of vLLM's profile run: how many items it encodes and what they take.

Sources: multimodal/encoder_budget.py ``MultiModalBudget``, v1/core/encoder_cache_manager.py
``compute_mm_encoder_budget``, v1/worker/gpu_model_runner.py ``profile_run`` (0.19.0); what lives
at once in a block: model_executor/models/{qwen2_5_vl,qwen3_vl,siglip,gemma4_mm}.py (0.19 to 0.33).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.models.spec import DTYPE_BITS, ModelSpec, Role, Shard, Tower

_MODALITY: Final = {"vision": "image", "audio": "audio"}

_CHUNK_SHARE: Final = 10
"""Part of the GPU that Gemma 4 bounds a batch of images by from 0.22 on (gemma4_mm.py
``_encoder_chunk``), ..."""
_CHUNK_BYTES_PER_POSITION: Final = 4 * 8
"""... reckoning this much for each position and each row of the position table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderBatch:
    """The dummy items one profile run encodes.

    Attributes:
        tower: The encoder they pass.
        modality: ``"image"``, ``"video"`` or ``"audio"``.
        items: How many of the largest items fit the budget.
        item_tokens: Language-model tokens of one.
        item_positions: Positions the encoder processes for one.
        budget_tokens: Encoder budget and cache size in language-model tokens.
    """

    tower: Tower
    modality: str
    items: int
    item_tokens: int
    item_positions: int
    budget_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Item:
    """The largest item of a modality; they order by tokens, then by name."""

    tokens: int
    modality: str
    positions: int


def encoder_batch(spec: ModelSpec, inputs: ProfileInputs) -> EncoderBatch | None:
    """What the profile run encodes, None when the model has no encoder or it is left out.

    The budget is the token budget of a step, or the largest item when that is larger; the
    modality with the most tokens an item is encoded, as many items as the budget and the
    requests of a step hold.
    """
    if inputs.language_model_only:
        return None
    found = [(item, tower) for tower in spec.towers for item in _items(tower, inputs)]
    if not found:
        return None
    item, tower = max(found, key=lambda pair: pair[0])
    budget_tokens = max(inputs.max_num_batched_tokens, item.tokens)
    limit = inputs.mm_limits.get(item.modality, inputs.max_model_len)
    per_prompt = max(1, min(limit, inputs.max_model_len // item.tokens))
    items = max(1, min(budget_tokens // item.tokens, inputs.max_num_seqs * per_prompt))
    return EncoderBatch(
        tower=tower,
        modality=item.modality,
        items=items,
        item_tokens=item.tokens,
        item_positions=item.positions,
        budget_tokens=budget_tokens,
    )


def _items(tower: Tower, inputs: ProfileInputs) -> Iterator[_Item]:
    """The largest items of the modalities that pass an encoder and are not limited to none."""
    modality = _MODALITY[tower.name]
    if tower.max_tokens_per_item and inputs.mm_limits.get(modality, 1) > 0:
        positions = tower.encoder_tokens_per_item or 0
        yield _Item(tokens=tower.max_tokens_per_item, modality=modality, positions=positions)
    clip = tower.clip
    if clip is not None and inputs.mm_limits.get("video", 1) > 0:
        groups = clip.groups
        if clip.within_context:
            groups = max(1, min(groups, inputs.max_model_len // clip.tokens))
        yield _Item(
            tokens=groups * clip.tokens, modality="video", positions=groups * clip.encoder_tokens
        )


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
    outputs = batch.items * batch.item_tokens * spec.hidden_size * width
    positions = batch.items * batch.item_positions
    return (
        ("encoder_inputs", positions * _input_elements(batch.tower) * width),
        ("encoder_outputs", outputs),
    )


def running_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, *, second_runner: bool
) -> Terms:
    """What the encoder's widest moment adds: attention or feed-forward of a block.

    Both hold the residual and its norm; the position embeddings of encoders that interpolate them
    live as long as the blocks run. Attention holds queries, keys and values, a copy of queries and
    keys and the rotated ones where they are rotated, and its output; the feed-forward block holds
    its projections (two where it is gated) and the activated one.
    """
    batch = _profiled(spec, inputs, rules, second_runner)
    if batch is None:
        return ()
    width = DTYPE_BITS[inputs.dtype] // 8
    tower = batch.tower
    positions = _positions_at_once(batch, inputs, rules)
    divided = any(weight.shard is Shard.COLUMN for weight in tower.weights)
    ranks = inputs.tensor_parallel_size if divided else 1
    inner = -(-tower.intermediate_size // ranks)
    attended = -(-tower.hidden_size // ranks)
    gated = any(".gate_proj" in weight.name for weight in tower.weights)
    interpolates = tower.rotary and any("pos_embed" in weight.name for weight in tower.weights)
    block = positions * tower.hidden_size * width
    shared = [("encoder_residual", block), ("encoder_normed", block)]
    if interpolates:
        shared.append(("encoder_positions", block))
    attention = [("encoder_qkv", positions * 3 * attended * width)]
    if tower.rotary:
        attention.append(("encoder_rotation", positions * 4 * attended * width))
    attention.append(("encoder_attended", positions * attended * width))
    feed_forward = [
        ("encoder_up", positions * (2 if gated else 1) * inner * width),
        ("encoder_activated", positions * inner * width),
    ]
    return (*shared, *max(attention, feed_forward, key=_total))


def _positions_at_once(batch: EncoderBatch, inputs: ProfileInputs, rules: VersionRules) -> int:
    """Positions that pass the encoder side by side."""
    ranks = inputs.tensor_parallel_size if inputs.encoder_shares_items else 1
    tower, every = batch.tower, -(-batch.items // ranks) * batch.item_positions
    if not tower.items_apart:
        return every
    clip = tower.clip
    is_clip = batch.modality == "video" and clip is not None
    one = clip.encoder_tokens if is_clip and clip is not None else batch.item_positions
    if rules.version < (0, 22, 0):
        return one
    rows = max((weight.shape[-2] for weight in tower.weights if _is_table(weight.name)), default=1)
    bound = inputs.accelerator.memory_bytes // _CHUNK_SHARE
    return min(every, max(one, bound // (_CHUNK_BYTES_PER_POSITION * rows) // one * one))


def _is_table(name: str) -> bool:
    return "position_embedding_table" in name


def _total(terms: list[tuple[str, int]]) -> int:
    return sum(size for _, size in terms)


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
        if weight.role is Role.CONV or (weight.role is Role.LINEAR and "patch" in weight.name):
            return prod(weight.shape[1:])
    return tower.hidden_size
