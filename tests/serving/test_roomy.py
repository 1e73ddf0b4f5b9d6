"""A pool with room for all gives the same records, whichever way its steps are found."""

from typing import Any

import pytest

from tokenroom import fit
from tokenroom.serving.pool import pool_of
from tokenroom.serving.roomy import RoomyServing, is_covered
from tokenroom.serving.run import Run
from tokenroom.serving.step_table import StepTable
from tokenroom.serving.workloads.grammar import parse_workload

LIGHT = "poisson:rate=3,input=uniform(500,900),output=uniform(100,200),requests=80"
HEAVY = "poisson:rate=30,input=uniform(500,3000),output=uniform(1,60),requests=150"
BURSTS = "bursts:rate=4,factor=4,every=20s,lasting=4s,input=300,output=40,requests=150"


def roomy_of(model: str, gpu: str, **settings: Any) -> tuple[RoomyServing, Run]:
    pool = pool_of(fit(model, gpu, context=4096, **settings))
    table = StepTable(pool.cost)
    assert is_covered(pool.engine.config, table)
    found = RoomyServing(pool.engine.config, table, pool.cost.delay_seconds)  # type: ignore[arg-type]
    return found, Run([pool])


@pytest.mark.parametrize("workload", [LIGHT, HEAVY, BURSTS])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 1024},
        {"max_num_seqs": 8},
        {"async_scheduling": False},
        {"enforce_eager": True},
        {"enable_prefix_caching": False},
    ],
)
def test_records_and_figures_are_the_same(workload: str, settings: dict[str, Any]) -> None:
    roomy, run = roomy_of("llama-3.1-8b", "h100", **settings)
    records = roomy.serve(parse_workload(workload).start())
    assert records == list(run.serve(parse_workload(workload).start()))
    metrics = run.outcome().metrics
    assert roomy.max_running == metrics.max_running
    assert roomy.max_waiting == metrics.max_waiting
    assert roomy.max_used_blocks == metrics.max_used_blocks
    assert roomy.mean_waiting == pytest.approx(metrics.mean_waiting)


def test_users_who_wait_for_answers_are_served_the_same() -> None:
    workload = "users:count=20,think=500ms,input=uniform(100,900),output=60,requests=120"
    roomy, run = roomy_of("qwen3-30b-a3b", "h100", gpus=2)
    records = roomy.serve(parse_workload(workload).start())
    expected = run.serve(parse_workload(workload).start(), waits_for_answers=True)
    assert records == list(expected)


def test_a_pool_without_room_is_left_to_the_scheduler() -> None:
    roomy, _ = roomy_of("llama-3.1-8b", "h100", num_gpu_blocks_override=300)
    assert roomy.serve(parse_workload(HEAVY).start()) is None


def test_prompts_that_begin_alike_are_left_to_the_scheduler() -> None:
    roomy, _ = roomy_of("llama-3.1-8b", "h100")
    workload = f"{LIGHT},system=256"
    assert roomy.serve(parse_workload(workload).start()) is None


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gemma-3-12b", {}),  # layers with a window give their blocks back
        ("qwen3-next-80b-a3b", {"gpus": 4}),  # states
        ("llama-3.1-8b", {"long_prefill_token_threshold": 512}),
    ],
)
def test_other_schedulers_are_not_covered(model: str, settings: dict[str, Any]) -> None:
    pool = pool_of(fit(model, "h100", context=4096, **settings))
    assert not is_covered(pool.engine.config, StepTable(pool.cost))
