"""Comparing parameter counts with those that ``scripts/oracle_towers.py`` recorded."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tokenroom.models.hf_config import read_config

FIXTURES = Path(__file__).parent.parent / "fixtures" / "models"
ROWS: dict[str, Any] = json.loads((FIXTURES / "tower_parameters.json").read_text(encoding="utf-8"))

EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("zamba", "tie_word_embeddings=false"): (
        "transformers then ties nothing and gives every place its own copy of the shared attention "
        "block; checkpoints store it once and engines load it once"
    ),
    ("zamba2", "tie_word_embeddings=false"): "as zamba",
    ("mt5", "tie_word_embeddings=false"): (
        "mT5 and T5 1.1 checkpoints store a head of their own; transformers ties it until it has "
        "read the checkpoint"
    ),
}
"""Recorded counts that are not those of the checkpoints, with the reason."""


def _cases(model_type: str) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Every recorded configuration of a type: what was changed, the whole of it, its count."""
    row = ROWS[model_type]
    yield "", row["config"], row["parameters"]
    for change, count in row["changed"].items():
        path, value = change.split("=", 1)
        data = copy.deepcopy(row["config"])
        place = data
        *outer, last = path.split(".")
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = json.loads(value)
        yield change, data, count


def _check_counts(model_type: str) -> None:
    """Every recorded count of a type equals ours, but for the listed exceptions."""
    checked = 0
    for change, data, count in _cases(model_type):
        counted = read_config(data, model_type).parameters_total
        if (model_type, change) in EXCEPTIONS:
            assert counted != count, f"{change} is no exception any more"
            continue
        assert counted == count, change or data
        checked += 1
    assert checked > 10


@pytest.fixture(scope="session")
def check_counts() -> Callable[[str], None]:
    """The comparison of a model type with every recorded count of it."""
    return _check_counts


@pytest.fixture(scope="session")
def whole_models() -> Mapping[str, int]:
    """Parameters of published models, encoders included, by folder of their configuration."""
    rows = json.loads((FIXTURES / "tower_totals.json").read_text(encoding="utf-8"))
    return {name: count for name, count in rows.items() if not name.startswith("_")}


@pytest.fixture(scope="session")
def recorded_types() -> frozenset[str]:
    """Every model type with recorded counts."""
    return frozenset(name for name in ROWS if not name.startswith("_"))
