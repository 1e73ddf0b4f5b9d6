"""Memory that others held, told from what a row prints."""

from dataclasses import replace
from typing import Any

import pytest

from tokenroom.units import GIB
from tokenroom.validation.explanations import Explanations
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.rows import Row, read_row
from tokenroom.validation.validate import validate

ROW = {
    "id": "mine",
    "engine": "sglang",
    "engine_version": "0.5.2",
    "model": "Qwen/Qwen3-8B",
    "gpu": "H100 80GB",
    "gpus": 1,
    "flags": {"mem_fraction_static": 0.8},
    "outcome": "ok",
    "grade": "A",
}
FREE_GIB = 78.68
"""Of an H100, once its CUDA context is there."""
WEIGHTS_GIB = 15.27
FLOAT32_GIB = 30.51
"""8,190,735,360 parameters of four bytes."""


def row(**reported: float) -> Row:
    return read_row(ROW | {"reported": {"kv_tokens": 300_000, **reported}}, "")


def held_gib(one: Row) -> float:
    result = Predictor().predict(one).result
    assert result is not None
    return result.deployment.node.used_bytes / GIB


@pytest.mark.parametrize("quantity", ["avail_start_gib", "avail_before_weights_gib"])
def test_less_free_at_the_start_was_held_by_others(quantity: str) -> None:
    assert held_gib(row(**{quantity: FREE_GIB - 20})) == pytest.approx(20, abs=0.01)
    assert held_gib(row(**{quantity: FREE_GIB - 0.9})) == 0


def test_what_loading_took_is_added_to_what_it_left() -> None:
    """So that an error of the weights leaves no trace in what others held."""
    took = 2 * WEIGHTS_GIB
    left = FREE_GIB - 20 - took
    assert held_gib(row(avail_after_weights_gib=left, weights_gib=took)) == pytest.approx(
        20, abs=0.01
    )
    assert held_gib(row(avail_after_weights_gib=FREE_GIB - took, weights_gib=took)) == 0


@pytest.mark.parametrize("in_use_gib", [2 * WEIGHTS_GIB, FLOAT32_GIB + 0.9])
def test_what_the_weights_could_take_is_not_held_by_others(in_use_gib: float) -> None:
    assert held_gib(row(avail_after_weights_gib=FREE_GIB - in_use_gib)) == 0


def test_more_than_any_layout_of_the_weights_was_held_by_others() -> None:
    left = FREE_GIB - FLOAT32_GIB - 2
    held = FREE_GIB - left - WEIGHTS_GIB
    assert held_gib(row(avail_after_weights_gib=left)) == pytest.approx(held, abs=0.2)


def test_what_it_was_taken_from_is_not_compared_and_it_is_said() -> None:
    def found(**reported: float) -> tuple[set[str], list[Any]]:
        run = validate([row(**reported)], explanations=Explanations(explained={}, repeats={}))
        return {item.quantity for item in run.comparisons}, [item.key for item in run.remarks]

    alone, said = found(avail_after_weights_gib=20.0)
    assert "avail_after_weights_gib" not in alone
    assert said == ["held"]
    beside, said = found(avail_before_weights_gib=40.0, weights_gib=15.3)
    assert "avail_before_weights_gib" not in beside
    assert "weights_gib" in beside
    assert said == ["held"]
    idle, said = found(avail_before_weights_gib=FREE_GIB)
    assert "avail_before_weights_gib" in idle
    assert said == []


def test_a_note_of_what_was_free_counts_as_before() -> None:
    said = replace(row(), note="58.68 of 79.18 GiB free at start")
    assert held_gib(said) == pytest.approx(20, abs=0.01)
