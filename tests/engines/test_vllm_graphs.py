"""vLLM's CUDA-graph memory against what its logs estimate and take."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.engines.vllm.graph_pool import LayerTensors, Pool, replay
from tokenroom.engines.vllm.graphs import cuda_graph_memory
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import rules_for
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models import catalogue
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
RUNS: list[dict[str, Any]] = [run for run in RECORDED["runs"] if "graph_gib" in run]
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


def inputs_of(run: Mapping[str, Any]) -> ProfileInputs:
    return inputs(
        dtype=run["dtype"],
        tensor_parallel_size=run["tensor_parallel_size"],
        pipeline_parallel_size=run["pipeline_parallel_size"],
        pipeline_rank=run["pipeline_rank"],
        attention_backend=run["backend"],
        full_graphs="full_mib" in run,
    )


def run_id(run: Mapping[str, Any]) -> str:
    ranks = f"tp{run['tensor_parallel_size']}-pp{run['pipeline_parallel_size']}"
    return f"{run['model']}-{ranks}-{run['dtype']}-{run['max_model_len']}"


def errors(key: str) -> list[float]:
    found = []
    for run in RUNS:
        graphs = cuda_graph_memory(model(run["model"]), inputs_of(run), rules_for("0.19.0"))
        predicted = graphs.actual_bytes if key == "graph_gib" else graphs.estimated_bytes
        found.append(predicted / GIB / run[key] - 1)
    return found


def test_estimate_is_close_to_the_logged_one() -> None:
    found = [abs(error) for error in errors("graph_estimated_gib")]
    assert sum(found) / len(found) < 0.10


def test_memory_taken_is_close_to_the_logged_one() -> None:
    found = [abs(error) for error in errors("graph_gib")]
    assert sum(found) / len(found) < 0.05


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_first_full_capture_holds_split_kv_accumulators(run: Mapping[str, Any]) -> None:
    graphs = cuda_graph_memory(model(run["model"]), inputs_of(run), rules_for("0.19.0"))
    full = [mode for mode in graphs.modes if mode.name == "FULL"]
    assert bool(full) is ("full_mib" in run)
    for mode in full:
        assert mode.first_bytes / MIB == pytest.approx(run["full_mib"][0], abs=5)


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_first_piecewise_capture(run: Mapping[str, Any]) -> None:
    graphs = cuda_graph_memory(model(run["model"]), inputs_of(run), rules_for("0.19.0"))
    piecewise = next(mode for mode in graphs.modes if mode.name == "PIECEWISE")
    assert piecewise.first_bytes / MIB == pytest.approx(run["piecewise_mib"][0], rel=0.25)


def test_ranges_cover_nearly_all_runs() -> None:
    inside = 0
    for run in RUNS:
        graphs = cuda_graph_memory(model(run["model"]), inputs_of(run), rules_for("0.19.0"))
        taken = graphs.low_bytes <= run["graph_gib"] * GIB + 0.005 * GIB
        taken &= run["graph_gib"] * GIB - 0.005 * GIB <= graphs.high_bytes
        guessed = graphs.estimated_low_bytes <= run["graph_estimated_gib"] * GIB
        guessed &= run["graph_estimated_gib"] * GIB <= graphs.estimated_high_bytes
        inside += taken and guessed
    assert inside >= len(RUNS) - 3


@pytest.mark.parametrize("changes", [{"enforce_eager": True}, {"capture_sizes": ()}])
def test_no_graphs_no_memory(changes: dict[str, Any]) -> None:
    graphs = cuda_graph_memory(model("Llama-3.1-8B"), inputs(**changes), rules_for("0.19.0"))
    assert (graphs.estimated_bytes, graphs.actual_bytes, graphs.modes) == (0, 0, ())


def test_estimate_is_made_from_018_and_charged_from_020() -> None:
    charged = {}
    for version in ("0.17.0", "0.18.0", "0.19.0", "0.20.0", "0.28.0", "0.33.0"):
        graphs = cuda_graph_memory(model("Llama-3.1-8B"), inputs(), rules_for(version))
        charged[version] = (graphs.estimated_bytes > 0, graphs.charged_bytes > 0)
        assert graphs.actual_bytes > 0
    assert charged == {
        "0.17.0": (False, False),
        "0.18.0": (True, False),
        "0.19.0": (True, False),
        "0.20.0": (True, True),
        "0.28.0": (False, False),  # the second runner's first versions estimate nothing
        "0.33.0": (True, True),
    }


def test_adapters_double_the_graphs() -> None:
    spec, rules = model("Llama-3.1-8B"), rules_for("0.19.0")
    counts = [
        [mode.count for mode in cuda_graph_memory(spec, inputs(max_loras=n), rules).modes]
        for n in (0, 4)
    ]
    assert counts == [[51, 51], [102, 102]]


def test_full_graphs_stop_at_the_largest_decode_batch() -> None:
    graphs = cuda_graph_memory(model("Llama-3.1-8B"), inputs(max_num_seqs=16), rules_for("0.19.0"))
    assert {mode.name: mode.count for mode in graphs.modes} == {"PIECEWISE": 51, "FULL": 5}


def test_only_flash_attention_3_keeps_accumulators() -> None:
    spec, rules = model("Llama-3.1-8B"), rules_for("0.19.0")
    ampere = replace(H100, key="a100", architecture="ampere", compute_capability=(8, 0))
    for changes in ({"accelerator": ampere}, {"attention_backend": "TRITON_ATTN"}):
        full = cuda_graph_memory(spec, inputs(**changes), rules).modes[1]
        assert full.first_bytes < 32 * MIB


def test_pool_rounds_and_reuses_as_pytorch_does() -> None:
    pool = Pool()
    small = pool.take(100_000)
    assert pool.num_bytes == 2 * MIB
    large = pool.take(3 * MIB)
    assert pool.num_bytes == 22 * MIB
    own = pool.take(13 * MIB)
    assert pool.num_bytes == 22 * MIB  # the rest of the 20 MiB segment holds it
    pool.take(11 * MIB)
    assert pool.num_bytes == 34 * MIB
    for block in (small, large, own):
        pool.give_back(block)
    pool.take(20 * MIB)
    assert pool.num_bytes == 34 * MIB


def test_replay_frees_everything_it_takes() -> None:
    tensors = LayerTensors(
        hidden=8192, queries=8192, keys=2048, gate_up=57344, activated=28672, normed=8192
    )
    pool = Pool()
    replay(pool, tensors, 512, 32, full=False)
    taken = pool.num_bytes
    for _ in range(3):
        replay(pool, tensors, 512, 32, full=False)
    assert pool.num_bytes == taken


@given(
    sizes=st.lists(st.integers(1, 64 * MIB), min_size=1, max_size=30),
    order=st.randoms(use_true_random=False),
)
def test_pool_never_gives_out_a_byte_twice(sizes: list[int], order: Any) -> None:
    pool, held = Pool(), []
    for size in sizes:
        if held and order.random() < 0.4:
            pool.give_back(held.pop(order.randrange(len(held))))
        held.append(pool.take(size))
        spans = sorted((block[1], block[2], block[2] + block[0]) for block in held)
        for first, second in pairwise(spans):
            assert first[0] != second[0] or first[2] <= second[1]
        assert sum(block[0] for block in held) <= pool.num_bytes


def _inputs_of(gpu: str, **changes: Any) -> ProfileInputs:
    settings: dict[str, Any] = {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 4,
        "max_model_len": 32768,
        "accelerator": find_accelerator(gpu),
        "capture_sizes": (1, 2, 4, 8),
    }
    return ProfileInputs(**settings | changes)


def test_first_full_graph_holds_flashinfers_workspace() -> None:
    spec = catalogue.find("Qwen/Qwen3-8B")
    rules = rules_for("0.24.0")
    plain = cuda_graph_memory(spec, _inputs_of("RTX 5090"), rules)
    packed = cuda_graph_memory(spec, _inputs_of("RTX 5090", attention_backend="FLASHINFER"), rules)
    first = {mode.name: mode.first_bytes for mode in packed.modes}
    assert first["FULL"] - first["PIECEWISE"] > 300 * MIB
    assert packed.actual_bytes - plain.actual_bytes == 394 * MIB


def test_drafts_leave_flashinfer_with_piecewise_graphs_but_for_datacentre_blackwell() -> None:
    spec = catalogue.find("Qwen/Qwen3-8B")
    for gpu, modes in (("RTX 5090", ["PIECEWISE"]), ("B200", ["PIECEWISE", "FULL"])):
        inputs = _inputs_of(gpu, attention_backend="FLASHINFER", speculative_tokens=1)
        found = cuda_graph_memory(spec, inputs, rules_for("0.24.0"))
        assert [mode.name for mode in found.modes] == modes


def test_attention_in_chunks_captures_no_full_graph() -> None:
    # "Estimated PIECEWISE CUDA graph memory" alone stands in the log of Llama 4 Scout
    spec = catalogue.find("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    found = cuda_graph_memory(spec, _inputs_of("H100"), rules_for("0.19.0"))
    assert [mode.name for mode in found.modes] == ["PIECEWISE"]
