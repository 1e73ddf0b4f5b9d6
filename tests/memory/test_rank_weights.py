"""Ranks together hold the checkpoint once, but for what every rank must have."""

import pytest

from tokenroom.memory.rank_weights import Place, rank_weights, split_layers
from tokenroom.memory.weights import Component, checkpoint_weights
from tokenroom.models.catalogue import find


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "qwen3-30b-a3b", "gemma-3-27b-it"])
def test_one_rank_holds_the_checkpoint(name: str) -> None:
    spec = find(name)
    whole = checkpoint_weights(spec)
    assert rank_weights(spec).total_bytes == whole.total_bytes - whole.mtp_bytes
    assert sum(rank_weights(spec).components.values()) == rank_weights(spec).total_bytes


def test_stages_divide_the_checkpoint() -> None:
    spec = find("llama-3.1-8b")
    parts = [
        rank_weights(spec, Place(layers=split_layers(spec.num_layers, 3, stage))).total_bytes
        for stage in range(3)
    ]
    assert sum(parts) == rank_weights(spec).total_bytes


def test_a_tied_table_is_needed_on_both_ends() -> None:
    spec = find("llama-3.2-1b")
    last = rank_weights(spec, Place(layers=split_layers(spec.num_layers, 2, 1)))
    assert last.components[Component.EMBEDDING] == spec.vocab_size * spec.hidden_size * 2


def test_experts_are_dealt_or_divided() -> None:
    spec = find("qwen3-30b-a3b")
    whole = rank_weights(spec).components[Component.EXPERTS]
    dealt = [
        rank_weights(spec, Place(tp=4, ep=4, ep_rank=rank)).components[Component.EXPERTS]
        for rank in range(4)
    ]
    divided = rank_weights(spec, Place(tp=4, expert_tp=4)).components[Component.EXPERTS]
    assert sum(dealt) == whole
    assert divided * 4 == whole


@pytest.mark.parametrize(("layers", "stages"), [(61, 8), (32, 4), (5, 3), (2, 2)])
def test_layers_are_split_whole_with_the_rest_first(layers: int, stages: int) -> None:
    parts = [split_layers(layers, stages, stage) for stage in range(stages)]
    assert [index for part in parts for index in part] == list(range(layers))
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


def test_encoders_are_whole_on_every_rank() -> None:
    spec = find("gemma-3-27b-it")
    whole = rank_weights(spec).components[Component.VISION]
    assert rank_weights(spec, Place(tp=8, expert_tp=8)).components[Component.VISION] == whole
    assert rank_weights(spec, Place(tp=8), towers=False).components.get(Component.VISION) is None
