"""Whole predictions against figures that vLLM logged.

``data/vllm_logged_runs.json`` holds the flags and figures of public logs and reports, each with its
address, and what had to be assumed because a report does not say it. Runs that cannot be predicted
from what was reported, with the reason, stand in docs/accuracy-vllm-rows.md.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.units import GIB

_FILE = Path(__file__).parent / "data" / "vllm_logged_runs.json"
_RUNS: list[dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))["runs"]
_H100 = [run for run in _RUNS if run["group"] == "h100"]
_OTHER = [run for run in _RUNS if run["group"] == "other"]

# Largest relative error of a quantity; of memory outside PyTorch in GiB.
_H100_BOUNDS = {
    "weights_gib": 0.003,
    "activation_gib": 0.06,
    "non_torch_gib": 0.15,
    "graph_estimated_gib": 0.45,
    "graph_gib": 0.25,
    "kv_gib": 0.02,
    "kv_tokens": 0.03,
}
_OTHER_BOUNDS = {
    "weights_gib": 0.01,
    "kv_gib": 0.05,
    "kv_tokens": 0.05,
    "kv_needed_gib": 0.005,
    "longest": 0.001,
    "block_size": 0.0,
}


@cache
def _fitted(key: str) -> FitResult:
    run = next(run for run in _RUNS if run["id"] == key)
    settings = dict(run["settings"])
    if "speculative" in settings:
        settings["speculative"] = SpeculativeSettings(**settings["speculative"])
    used = 0
    if "free_at_start_gib" in run:
        total = find_accelerator(run["gpu"]).memory_bytes
        used = total - round(run["free_at_start_gib"] * GIB)
    return fit(
        run["model"],
        run["gpu"],
        engine=f"vllm@{run['version']}",
        weights=run.get("weights"),
        used_bytes=used,
        **settings,
    )


def _predicted(result: FitResult, quantity: str) -> float:
    plan, stage = result.plan, result.plan.stages[0]
    kv: Any = plan.kv  # type: ignore[attr-defined]
    figures = {
        "weights_gib": stage.weights_bytes / GIB,
        "activation_gib": stage.activation.num_bytes / GIB,
        "non_torch_gib": stage.non_torch.num_bytes / GIB,
        "graph_estimated_gib": stage.cuda_graphs.num_bytes / GIB,
        "graph_gib": stage.cuda_graph_actual_bytes / GIB,
        "kv_gib": min(each.available_bytes for each in plan.stages) / GIB,
        "kv_tokens": plan.kv_pool_tokens,
        "kv_needed_gib": kv.needed_bytes / GIB,
        "longest": result.max_model_len_that_fits if quantity == "longest" else 0,
        "block_size": plan.kv_block_size,
    }
    return float(figures[quantity])


def _error(run: dict[str, Any], quantity: str) -> float:
    """Relative error; of memory outside PyTorch the difference in GiB."""
    observed = run["observed"][quantity]
    difference = _predicted(_fitted(run["id"]), quantity) - observed
    return float(difference if quantity == "non_torch_gib" else difference / observed)


def _errors(runs: list[dict[str, Any]], quantity: str) -> list[float]:
    return sorted(abs(_error(run, quantity)) for run in runs if quantity in run["observed"])


@pytest.mark.parametrize("run", _RUNS, ids=lambda run: run["id"])
def test_every_logged_figure_is_predicted(run: dict[str, Any]) -> None:
    bounds = dict(_H100_BOUNDS if run["group"] == "h100" else _OTHER_BOUNDS)
    bounds |= run.get("within", {})
    for quantity in run["observed"]:
        error = _error(run, quantity)
        assert abs(error) <= bounds[quantity], f"{quantity} is off by {error:+.4f}"


@pytest.mark.parametrize("run", _RUNS, ids=lambda run: run["id"])
def test_what_started_fits_and_what_ran_out_does_not(run: dict[str, Any]) -> None:
    fits = _fitted(run["id"]).verdict != "does_not_fit"
    assert fits == (run["outcome"] == "ok")


def test_h100_group_is_predicted_closely() -> None:
    assert mean(_errors(_H100, "weights_gib")) < 0.003
    assert mean(_errors(_H100, "activation_gib")) < 0.05
    assert max(_errors(_H100, "non_torch_gib")) < 0.15
    assert mean(_errors(_H100, "graph_estimated_gib")) < 0.10
    tokens = _errors(_H100, "kv_tokens")
    assert mean(tokens) < 0.01
    assert tokens[-1] < 0.03


def test_other_runs_are_predicted_from_their_flags() -> None:
    tokens = _errors(_OTHER, "kv_tokens")
    assert median(tokens) < 0.05
    assert tokens[round(0.9 * (len(tokens) - 1))] < 0.12


@pytest.mark.shared
def test_recorded_figures_are_those_of_the_collection(shared: Path) -> None:
    """Every recorded figure stands in the collected reports, and no grade A log of 0.19 lacks."""
    text = (shared / "truth" / "engine_memory.jsonl").read_text(encoding="utf-8")
    rows = {row["id"]: row for row in map(json.loads, text.splitlines())}
    for run in _RUNS:
        prefix = "h100v019-" if run["group"] == "h100" else ""
        row = rows[prefix + run["id"]]
        assert row["outcome"] == run["outcome"]
        for quantity, value in run["observed"].items():
            if quantity in row["reported"]:
                assert row["reported"][quantity] == value
    logged = {
        name
        for name, row in rows.items()
        if name.startswith("h100v019-") and row["outcome"] != "fails_other"
    }
    assert logged == {"h100v019-" + run["id"] for run in _H100}


@pytest.mark.shared
def test_no_collected_failure_for_memory_is_called_fitting(shared: Path) -> None:
    """Of the runs that a report describes well enough to be predicted."""
    text = (shared / "truth" / "engine_memory.jsonl").read_text(encoding="utf-8")
    failed = {row["id"] for row in map(json.loads, text.splitlines()) if row["outcome"] == "fails"}
    recorded = {("h100v019-" if run["group"] == "h100" else "") + run["id"]: run for run in _RUNS}
    for name in failed & set(recorded):
        assert _fitted(recorded[name]["id"]).verdict == "does_not_fit", name
