"""The small models that draft, as far as their work goes: heads that share the target's parts."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from tokenroom.errors import DeploymentError
from tokenroom.models.spec import Layer, ModelSpec, Role, Shard, Weight

_QUERY_KEY_VALUE: Final = ("q_proj", "k_proj", "v_proj")
_CACHED: Final = 16


@lru_cache(maxsize=_CACHED)
def mtp_drafter(spec: ModelSpec) -> ModelSpec:
    """One multi-token-prediction block of a checkpoint, between the model's embedding and head.

    Engines run it once a token that is drafted; where a checkpoint has several, they take turns
    (vLLM 0.33 models/deepseek_mtp.py: ``spec_step_idx % num_mtp_layers``). The matrix that joins
    the embedding with the model's state is part of every run.

    Raises:
        DeploymentError: The checkpoint has no such block.
    """
    if not spec.mtp_layers:
        raise DeploymentError(
            f"{spec.name} has no blocks for multi-token prediction; draft by another method"
        )
    block = spec.mtp_layers[0]
    weights = tuple(
        replace(weight, role=Role.LINEAR) if _joins(weight, spec.hidden_size) else weight
        for weight in block.weights
        if weight.role not in (Role.EMBEDDING, Role.LM_HEAD)
    )
    return replace(spec, layers=(replace(block, weights=weights),), mtp_layers=())


def _joins(weight: Weight, hidden_size: int) -> bool:
    return weight.role is Role.OTHER and weight.shape == (hidden_size, 2 * hidden_size)


@lru_cache(maxsize=_CACHED)
def eagle_drafter(draft: ModelSpec, target: ModelSpec) -> ModelSpec:
    """An EAGLE head: a block before which embedding and the model's state are joined.

    Its output projection is the model's own (vLLM 0.33 models/llama_eagle.py).
    """
    first, *rest = draft.layers
    join = Weight(
        name="fc",
        shape=(draft.hidden_size, draft.hidden_size + target.hidden_size),
        role=Role.LINEAR,
        shard=Shard.REPLICATED,
    )
    return replace(
        draft,
        layers=(replace(first, weights=(join, *first.weights)), *rest),
        output_weights=target.output_weights,
        input_weights=target.input_weights,
        tied_embeddings=target.tied_embeddings,
    )


@lru_cache(maxsize=_CACHED)
def eagle3_drafter(draft: ModelSpec) -> ModelSpec:
    """An EAGLE-3 head: attention over embedding and state side by side, its own vocabulary.

    ``draft_vocab_size`` counts the rows of its output projection (vLLM 0.33
    models/llama_eagle3.py). The projection of the model's three states, once a step, is left out.
    """
    first, *rest = draft.layers
    config = draft.config or {}
    rows = config.get("draft_vocab_size")
    output = tuple(
        replace(weight, shape=(rows, *weight.shape[1:]))
        if weight.role is Role.LM_HEAD and isinstance(rows, int)
        else weight
        for weight in draft.output_weights
    )
    return replace(draft, layers=(_twice_as_wide(first), *rest), output_weights=output)


def _twice_as_wide(layer: Layer) -> Layer:
    """The block whose queries, keys and values are made of two vectors side by side."""
    return replace(
        layer,
        weights=tuple(
            replace(weight, shape=(weight.shape[0], 2 * weight.shape[1]))
            if weight.name.endswith(_QUERY_KEY_VALUE)
            else weight
            for weight in layer.weights
        ),
    )
