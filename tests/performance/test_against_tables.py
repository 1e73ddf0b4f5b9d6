"""Speeds against published measurements; the bounds are what was reached, with a little room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenroom.models.hub import HubOptions
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_statistics import speed_groups, speed_order
from tokenroom.validation.validate import Validation, validate

pytestmark = pytest.mark.shared


def known(name: str) -> ModelSpec:
    return load_model(name, hub=HubOptions(offline=True))


def validated(file: Path) -> Validation:
    rows = [row for row in read_rows(file) if isinstance(row, Row)]
    return validate(rows, predictor=Predictor(load=known))


def test_serving_rows_kept_for_checking(shared: Path) -> None:
    found = validated(shared / "truth/perf_aic_silicon.jsonl.gz")
    groups = {group.quantity: group for group in speed_groups(found.counted_speeds)}
    tpot, ttft = groups["tpot_ms"], groups["ttft_ms"]
    assert tpot.n == ttft.n > 1100
    assert tpot.median_abs_pct < 15
    assert tpot.p90_abs_pct < 40
    assert tpot.inside_share > 0.7
    assert ttft.median_abs_pct < 40
    assert speed_order(found.counted_speeds)[0].tau > 0.85
    fitted = [item for item in found.speeds if item.fitted and not item.repeats]
    assert {group.quantity: group.n for group in speed_groups(fitted)}["tpot_ms"] == 897
    assert not found.comparisons
    told = {item.id for item in (*found.speeds, *found.unpredicted)}
    assert len(told) == found.num_rows


def test_offline_tables(shared: Path) -> None:
    found = validated(shared / "truth/perf.jsonl")
    dense = [
        item
        for item in found.speeds
        if item.id.startswith("trt017") and item.gpu.startswith(("NVIDIA H", "NVIDIA G"))
    ]
    (group,) = speed_groups(dense)
    assert group.n > 200
    assert group.median_abs_pct < 22
    by_engine = {
        (item.engine, item.quantity): item.n for item in speed_groups(found.speeds, "engine")
    }
    assert by_engine["llama.cpp", "tg_tokens_per_s"] > 170
    told = {item.id for item in (*found.speeds, *found.unpredicted)}
    assert len(told) == found.num_rows
