"""vLLM's memory outside PyTorch against what its logs state."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tokenroom.engines.vllm.collectives import (
    fused_all_reduce_bytes,
    fused_all_reduce_workspace_bytes,
)
from tokenroom.engines.vllm.non_torch import non_torch_memory
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import rules_for
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB, MIB

H100 = Accelerator(
    key="h100-sxm",
    name="NVIDIA H100 80GB HBM3",
    architecture="hopper",
    compute_capability=(9, 0),
    memory_bytes=85_028_241_408,
    nominal_memory_bytes=80 * 10**9,
    multiprocessors=132,
    link="nvlink",
)
RECORDED = json.loads(
    (Path(__file__).parent / "data" / "vllm_profile_runs.json").read_text(encoding="utf-8")
)
RUNS: list[dict[str, Any]] = [run for run in RECORDED["runs"] if "non_torch_gib" in run]
SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))


@cache
def model(name: str) -> ModelSpec:
    return read_config(RECORDED["models"][name], name)


def inputs(**changes: Any) -> ProfileInputs:
    settings: dict[str, Any] = {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1024,
        "max_model_len": 8192,
        "accelerator": H100,
        "capture_sizes": SIZES,
    }
    return ProfileInputs(**{**settings, **changes})


def run_id(run: Mapping[str, Any]) -> str:
    ranks = f"tp{run['tensor_parallel_size']}-pp{run['pipeline_parallel_size']}"
    return f"{run['model']}-{run['version']}-{ranks}-{run['pipeline_rank']}"


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_increase_is_what_the_log_states(run: Mapping[str, Any]) -> None:
    settings = inputs(
        dtype=run["dtype"],
        tensor_parallel_size=run["tensor_parallel_size"],
        pipeline_parallel_size=run["pipeline_parallel_size"],
        pipeline_rank=run["pipeline_rank"],
    )
    estimate = non_torch_memory(model(run["model"]), settings, rules_for(run["version"]))
    assert estimate.num_bytes / GIB == pytest.approx(run["non_torch_gib"], abs=0.15)
    assert estimate.low_bytes <= (run["non_torch_gib"] + 0.005) * GIB
    assert (run["non_torch_gib"] - 0.005) * GIB <= estimate.high_bytes
    assert sum(size for _, size in estimate.terms) == estimate.num_bytes


def test_fused_all_reduce_holds_as_many_tokens_as_the_log_states() -> None:
    logged = {
        (2, 8192): 4096,
        (2, 5120): 6553,
        (2, 3584): 8192,
        (2, 4096): 8192,
        (4, 8192): 128,
        (4, 5120): 204,
        (4, 4096): 256,
        (4, 3584): 292,
    }
    for (ranks, hidden), tokens in logged.items():
        settings = inputs(tensor_parallel_size=ranks)
        workspace = fused_all_reduce_workspace_bytes(hidden, settings, rules_for("0.19.0"))
        assert workspace == 4 * ranks * tokens * hidden * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"tensor_parallel_size": 1},
        {"tensor_parallel_size": 3},
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        {"tensor_parallel_size": 2, "data_parallel_size": 2},
        {"tensor_parallel_size": 2, "enforce_eager": True},
        {"tensor_parallel_size": 2, "accelerator": replace(H100, link="pcie")},
        {"tensor_parallel_size": 2, "accelerator": replace(H100, compute_capability=(8, 0))},
    ],
)
def test_all_reduce_is_not_fused(changes: dict[str, Any]) -> None:
    assert fused_all_reduce_bytes(inputs(**changes), rules_for("0.19.0")) == 0


def test_all_reduce_is_fused_from_017() -> None:
    settings = inputs(tensor_parallel_size=2)
    assert fused_all_reduce_bytes(settings, rules_for("0.16.0")) == 0
    assert fused_all_reduce_bytes(settings, rules_for("0.17.0")) == 64 * MIB


def test_unaligned_vocabulary_costs_local_memory_with_the_triton_sampler() -> None:
    spec = model("granite-3.3-8b-instruct")
    for version, expected in (("0.16.0", False), ("0.19.0", True), ("0.21.0", False)):
        terms = dict(non_torch_memory(spec, inputs(), rules_for(version)).terms)
        assert ("kernel_local_memory" in terms) is expected


def test_range_is_wider_where_nothing_was_measured() -> None:
    spec = model("Llama-3.1-8B")
    l40s = replace(H100, key="l40s", architecture="ada", compute_capability=(8, 9), link="pcie")
    spans = [
        estimate.high_bytes - estimate.low_bytes
        for changes in (
            {},
            {"accelerator": l40s},
            {"tensor_parallel_size": 2},
            {"tensor_parallel_size": 8},
            {"tensor_parallel_size": 2, "accelerator": l40s},
        )
        for estimate in [non_torch_memory(spec, inputs(**changes), rules_for("0.19.0"))]
    ]
    assert spans[0] < spans[1]
    assert spans[2] < spans[3]
    assert spans[2] < spans[4]
