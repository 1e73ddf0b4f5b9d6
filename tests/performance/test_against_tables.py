"""Speeds against published measurements; the bounds are what was reached, with a little room."""

import importlib.util
import sys
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest

pytestmark = pytest.mark.shared


def script(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / f"scripts/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_serving_rows_kept_for_checking(shared: Path) -> None:
    compare = script("compare_speed")
    found, missing = compare.outcomes(compare.serving_rows(shared))
    check = [item for item in found if item.part == "check"]
    assert len(check) > 1000
    assert sum(missing.values()) < 60
    tpot = [abs(item.tpot - 1) for item in check]
    ttft = [abs(item.ttft - 1) for item in check]
    assert median(tpot) < 0.15
    assert compare.quantile(tpot, 0.9) < 0.40
    assert median(ttft) < 0.40
    assert compare.kendall_tau(check) > 0.8
    inside = sum(item.inside for item in check) / len(check)
    assert 0.75 < inside < 0.87  # ranges are to hold 80%


def test_offline_tables(shared: Path) -> None:
    compare = script("compare_tables")
    found, _ = compare.outcomes(shared)
    dense = [item for item in found if item.group.startswith(("trt017 H", "trt017 G"))]
    assert len(dense) > 200
    assert median(abs(item.ratio - 1) for item in dense) < 0.22
