"""The rows that come with the package, predicted from their flags."""

from importlib.resources import files
from pathlib import Path

import pytest

from tokenroom.models.hub import HubOptions
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.validation.comparison import Comparison
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.quantities import FROM_AVAILABLE, FROM_KV, FROM_LOADED
from tokenroom.validation.reading import BadRow, read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.statistics import percentile
from tokenroom.validation.validate import Validation, validate

DATA = Path(str(files("tokenroom.validation").joinpath("data")))
LARGE_PCT = 15
MEDIAN_PCT = {"sglang": 2, "tensorrt_llm": 8}
"""Tokens from the flags alone, by the file's name."""


def known_only(name: str) -> ModelSpec:
    return load_model(name, hub=HubOptions(offline=True))


@pytest.fixture(scope="module", params=sorted(MEDIAN_PCT))
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def rows(engine: str) -> list[Row]:
    read = list(read_rows(DATA / f"{engine}_rows.jsonl"))
    assert not [row for row in read if isinstance(row, BadRow)]
    return [row for row in read if isinstance(row, Row)]


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> Validation:
    return validate(rows, predictor=Predictor(load=known_only))


def counted(found: Validation, quantity: str) -> list[Comparison]:
    return [item for item in found.comparisons if item.counts and item.quantity == quantity]


def errors(items: list[Comparison]) -> list[float]:
    return sorted(abs(item.error_pct or 0) for item in items)


def test_tokens_from_flags_alone(found: Validation, engine: str) -> None:
    items = counted(found, "kv_tokens")
    assert len(items) >= 12
    assert percentile(errors(items), 0.5) < MEDIAN_PCT[engine]


@pytest.mark.parametrize("quantities", [{FROM_KV}, {FROM_AVAILABLE, FROM_LOADED}])
def test_tokens_from_the_engine_s_own_figure(found: Validation, quantities: set[str]) -> None:
    items = [item for item in found.comparisons if item.quantity in quantities]
    assert len(items) >= 7
    assert errors(items)[-1] < 0.2  # the least of all ranks decides, and logs print the first's


def test_every_start_and_failure_is_foreseen(found: Validation) -> None:
    assert len(found.outcomes) >= 15
    assert not [check.id for check in found.outcomes if not check.agrees]


def test_every_large_error_has_its_cause(found: Validation) -> None:
    large = [item for item in found.comparisons if abs(item.error_pct or 0) > LARGE_PCT]
    assert large
    assert not [item.id for item in large if item.explained_by is None and not item.is_small]


def test_every_row_says_where_it_was_read(rows: list[Row]) -> None:
    assert all(row.url.startswith("https://") for row in rows if row.url)
    assert all(row.url or row.note for row in rows)
    assert len({row.id for row in rows}) == len(rows)
