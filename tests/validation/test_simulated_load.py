"""Measured loads served step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenroom.errors import RowError
from tokenroom.validation.measurements import Measurement, batches, measurement
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import read_row
from tokenroom.validation.simulated_load import LoadSimulator
from tokenroom.validation.speed_prediction import SpeedPredictor

ROW: dict[str, Any] = {
    "id": "a",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "gpus": 1,
    "isl": 512,
    "osl": 64,
    "num_prompts": 60,
    "reported": {"ttft_ms": 40.0, "tpot_ms": 8.0},
}
TRITON = ("trt014on-0001", "trt014on-0085", "trt014on-0201")
"""Llama 3.1 70B and 8B at 2, 16 and 8 requests a second, on H100 and H200."""


def found_in(*data: dict[str, Any]) -> Measurement:
    rows = [read_row(item, f"rows line {number}") for number, item in enumerate(data, start=1)]
    found = measurement(next(iter(batches(rows))))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def simulator() -> LoadSimulator:
    return LoadSimulator(SpeedPredictor(Predictor()))


def test_clients_and_a_rate_are_served_by_the_rows_own_engine(simulator: LoadSimulator) -> None:
    clients = simulator.simulate(found_in({**ROW, "concurrency": 8}))
    rate = simulator.simulate(found_in({**ROW, "request_rate": 5.0}))
    assert clients.rules == rate.rules == "vllm 0.19.0"
    assert not clients.falls_behind
    assert not rate.falls_behind
    closed = SpeedPredictor(Predictor()).predict(found_in({**ROW, "concurrency": 8})).values
    assert clients.tpot_seconds * 1e3 == pytest.approx(closed["tpot_ms"].value, rel=0.15)


def test_more_than_is_served_falls_behind(simulator: LoadSimulator) -> None:
    flood = {**ROW, "isl": 8192, "osl": 8, "request_rate": 50.0}
    assert simulator.simulate(found_in(flood)).falls_behind


def test_a_built_engine_is_scheduled_by_the_newest_rules_without_overlap(
    simulator: LoadSimulator,
) -> None:
    built = {**ROW, "engine": "TensorRT-LLM", "engine_version": "0.14.0", "request_rate": 5.0}
    served = simulator.simulate(found_in(built))
    assert served.rules.startswith("tensorrt-llm 1.")
    newer = simulator.simulate(found_in({**built, "engine_version": "1.2.0"}))
    assert served.tpot_seconds > newer.tpot_seconds


def test_copies_and_loads_that_are_not_stated_are_refused(simulator: LoadSimulator) -> None:
    with pytest.raises(RowError, match="copies"):
        simulator.simulate(found_in({**ROW, "gpus": 2, "tp": 1, "dp": 2, "concurrency": 8}))
    with pytest.raises(RowError, match="neither clients nor a rate"):
        simulator.simulate(found_in({**ROW, "request_rate": "inf"}))


def test_servers_under_triton_are_met(shared: Path, simulator: LoadSimulator) -> None:
    with (shared / "truth/perf.jsonl").open(encoding="utf-8") as file:
        data = {item["id"]: item for item in map(json.loads, file) if "trt014on" in item["id"]}
    for first in TRITON:
        number = int(first.rpartition("-")[2])
        told = [data[f"trt014on-{place:04}"] for place in range(number, number + 4)]
        found = found_in(*told)
        served = simulator.simulate(found)
        seen = {item.name: item.value / 1e3 for item in found.observed}
        assert served.ttft_seconds == pytest.approx(seen["ttft_ms"], rel=0.3)
        assert served.tpot_seconds == pytest.approx(seen["itl_ms"], rel=0.25)
