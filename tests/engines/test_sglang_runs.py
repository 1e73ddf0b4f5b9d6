"""Runs of SGLang that others reported, predicted from their flags.

The runs are in tests/fixtures/sglang_runs.json, each with what was assumed; docs/accuracy.md says
why some are off.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tokenroom import fit
from tokenroom.engines.sglang.mem_fraction import with_vision
from tokenroom.engines.sglang.pools import token_pools
from tokenroom.engines.sglang.taken import LOADING_BYTES
from tokenroom.fitting import FitResult
from tokenroom.hardware.catalogue import custom_accelerator
from tokenroom.units import GIB

_RUNS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "fixtures" / "sglang_runs.json").read_text()
)
_SHARE_NOT_STATED = {"sglang-28620-mtp", "sglang-28620-nospec", "sglang-28620-pp2"}
"""Runs of one thread that leaves the share of memory out; 0.84 goes with all of them."""


def _predicted(run: dict[str, Any]) -> FitResult:
    given = dict(run["settings"])
    if run["id"] in _SHARE_NOT_STATED:
        given["mem_fraction_static"] = 0.84
    version = given.pop("version")
    gpu = run["gpu"] or custom_accelerator(run["gpu_gib"] * GIB)
    return fit(run["model"], gpu, engine=f"sglang@{version}", **given)


def _error(run: dict[str, Any]) -> float:
    tokens: float = run["tokens"]
    return abs(_predicted(run).plan.kv_pool_tokens / tokens - 1)


@pytest.mark.parametrize("run", _RUNS, ids=lambda run: run["id"])
def test_tokens_from_flags_alone(run: dict[str, Any]) -> None:
    assert _error(run) < 0.05


def test_the_median_is_within_two_per_cent() -> None:
    assert median(_error(run) for run in _RUNS) < 0.02
    stated = [_error(run) for run in _RUNS if run["grade"] in "AB"]
    assert median(stated) < 0.05


@pytest.mark.parametrize(
    "run", [run for run in _RUNS if run.get("k_gib")], ids=lambda run: run["id"]
)
def test_tokens_and_bytes_of_the_pool_agree(run: dict[str, Any]) -> None:
    """The engine's own tokens times our bytes a token is its own size of the pool."""
    plan: Any = _predicted(run).plan
    cell = sum(item.num_bytes for item in plan.parts[0].cells)
    logged = (run["k_gib"] + run["v_gib"]) * GIB
    rounding = 0.01 * GIB  # two figures of two decimals
    assert run["tokens"] * cell == pytest.approx(logged, abs=max(rounding, 0.001 * logged))


@pytest.mark.parametrize(
    "run", [run for run in _RUNS if "avail_after_load_gib" in run], ids=lambda run: run["id"]
)
def test_tokens_follow_from_the_engines_own_free_memory(run: dict[str, Any]) -> None:
    """Runs that print free memory before the pool, the weights and the pool."""
    plan: Any = _predicted(run).plan
    after = run["avail_after_load_gib"] * GIB
    before = after + run["weights_gib"] * GIB
    rest = round(after - before * (1 - plan.resolved.mem_fraction_static))
    pools = token_pools(rest, plan.parts[0].cells, page_size=1, window_ratio=None)
    assert pools.max_total_num_tokens == pytest.approx(run["tokens"], rel=0.001)


@pytest.mark.parametrize(
    "run", [run for run in _RUNS if "avail_after_pool_gib" in run], ids=lambda run: run["id"]
)
def test_free_memory_after_the_pool(run: dict[str, Any]) -> None:
    plan: Any = _predicted(run).plan
    found = plan.log_figures().avail_after_pool_bytes
    assert found == pytest.approx(run["avail_after_pool_gib"] * GIB, abs=0.75 * GIB)


@pytest.mark.parametrize(
    "run", [run for run in _RUNS if "weights_gib" in run], ids=lambda run: run["id"]
)
def test_memory_that_loading_takes(run: dict[str, Any]) -> None:
    """ "mem usage" of "Load weight end": the weights and what loading leaves beside them."""
    found = _predicted(run).plan.stages[0].weights_bytes + LOADING_BYTES
    assert found == pytest.approx(run["weights_gib"] * GIB, rel=0.005)


def test_torchao_needs_room_for_the_weights_as_stored() -> None:
    """sgl-project/sglang issue 10736: out of memory while loading on one H20."""
    result = fit(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "h20-96gb",
        engine="sglang@0.5.2",
        torchao_config="int8dq",
        enforce_eager=True,
    )
    assert result.verdict == "does_not_fit"
    assert result.plan.refusal is not None
    assert result.plan.refusal.cause == "weights_too_big"


def test_a_quarter_of_deepseek_r1_exceeds_the_static_share_of_an_mi300x() -> None:
    """sgl-project/sglang issue 7691: 166.59 GiB of weights a GPU is a quarter, not an eighth."""
    result = fit("deepseek-ai/DeepSeek-R1", "mi300x", engine="sglang@0.4.8.post1", tp=4, util=0.95)
    refusal = result.plan.refusal
    assert refusal is not None
    assert refusal.cause == "static_share_too_small"


def test_vision_lessens_the_fraction() -> None:
    from tokenroom.engines.sglang.rules import rules_for

    assert with_vision(0.857, rules_for("0.5.6"), None, 1280) == pytest.approx(0.857 * 0.8966, 1e-3)
