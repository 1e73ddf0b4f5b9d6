"""Pools with room for all give the same records, whichever way their steps are found."""

import random
from typing import Any

import pytest

from tokenroom import fit
from tokenroom.serving.fleet_description import Policy, Role, RouterDescription, Transfer
from tokenroom.serving.pool import Pool, pool_of
from tokenroom.serving.roomy import RoomyServing
from tokenroom.serving.run import Run
from tokenroom.serving.workloads.grammar import parse_workload

LIGHT = "poisson:rate=3,input=uniform(500,900),output=uniform(100,200),requests=80"
HEAVY = "poisson:rate=30,input=uniform(500,3000),output=uniform(1,60),requests=150"
BURSTS = "bursts:rate=4,factor=4,every=20s,lasting=4s,input=300,output=40,requests=150"
SHORT = "poisson:rate=9,input=uniform(1,40),output=uniform(1,9),requests=150"
GROWING = "poisson:rate=30,input=uniform(100,300),output=uniform(200,400),requests=60"
"""Answers are longer than prompts, so that a small pool that is full of them is too small."""
ALIKE = "users:count=24,think=0s,input=700,output=50,requests=120"
THINKING = "users:count=20,think=500ms,input=uniform(100,900),output=60,requests=120"


def pool(model: str = "llama-3.1-8b", gpu: str = "h100", **settings: Any) -> Pool:
    return pool_of(fit(model, gpu, context=4096, **settings))


def split(prompts: int, answers: int, *, tp: int = 1, **settings: Any) -> list[Pool]:
    """Servers of prompts and of answers; settings are of the latter."""

    def server(gpus: int, **asked: Any) -> Any:
        return fit(
            "llama-3.1-8b", "h100", gpus=gpus, context=4096, kv_connector="NixlConnector", **asked
        )

    return [
        pool_of(server(1), name="prompts", replicas=prompts, role=Role.PREFILL),
        pool_of(server(tp, **settings), name="answers", replicas=answers, role=Role.DECODE),
    ]


def check_alike(
    pools: list[Pool],
    workload: str,
    router: RouterDescription = RouterDescription(),  # noqa: B008
    transfer: Transfer = Transfer(),  # noqa: B008
) -> None:
    waits = workload.startswith("users")
    roomy = RoomyServing(pools, router=router, transfer=transfer)
    run = Run(pools, router=router, transfer=transfer)
    records = roomy.serve(parse_workload(workload).start())
    arrivals = parse_workload(workload).start()
    assert records == list(run.serve(arrivals, waits_for_answers=waits))
    metrics = run.outcome().metrics
    assert roomy.max_running == metrics.max_running
    assert roomy.max_waiting == metrics.max_waiting
    assert roomy.max_used_blocks == metrics.max_used_blocks
    assert roomy.mean_waiting == pytest.approx(metrics.mean_waiting)


def check_alike_unless_preempted(pools: list[Pool], workload: str) -> None:
    if RoomyServing(pools).serve(parse_workload(workload).start()) is not None:
        check_alike(pools, workload)
        return
    run = Run(pools)
    assert list(run.serve(parse_workload(workload).start()))
    assert run.outcome().metrics.preemptions


@pytest.mark.parametrize("workload", [LIGHT, HEAVY, BURSTS, SHORT, THINKING])
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
    check_alike([pool(**settings)], workload)


@pytest.mark.parametrize("workload", [LIGHT, HEAVY, BURSTS, SHORT, ALIKE, THINKING])
@pytest.mark.parametrize(
    ("prompts", "answers", "settings"),
    [
        (1, 1, {}),
        (3, 1, {"tp": 2}),
        (2, 3, {}),
        (2, 2, {"async_scheduling": False}),
        (1, 2, {"max_num_seqs": 6}),
    ],
)
def test_prompts_and_answers_apart_are_served_the_same(
    workload: str, prompts: int, answers: int, settings: dict[str, Any]
) -> None:
    check_alike(split(prompts, answers, **settings), workload)


@pytest.mark.parametrize("seed", range(12))
def test_drawn_loads_of_drawn_servers_are_served_the_same(seed: int) -> None:
    draw = random.Random(seed)
    low, more = draw.randint(1, 1500), draw.randint(0, 2000)
    answers = draw.choice((f"uniform(1,{draw.randint(1, 120)})", str(draw.randint(1, 60))))
    lengths = f"input=uniform({low},{low + more}),output={answers},requests=100,seed={seed}"
    if draw.random() < 0.5:
        workload = f"poisson:rate={draw.uniform(1, 25)!r},{lengths}"
    else:
        think = draw.choice(("0s", "exponential(2s)"))
        workload = f"users:count={draw.randint(1, 60)},think={think},{lengths}"
    transfer = Transfer(
        link=None,
        bytes_per_second=draw.choice((5e9, 450e9)),
        latency_seconds=draw.choice((0.0, 0.002)),
    )
    settings: dict[str, Any] = {"async_scheduling": draw.random() < 0.7}
    if draw.random() < 0.5:
        settings["max_num_seqs"] = draw.randint(4, 40)
    pools = split(draw.randint(1, 3), draw.randint(1, 3), tp=draw.choice((1, 2)), **settings)
    check_alike(pools, workload, transfer=transfer)


@pytest.mark.parametrize("policy", [Policy.LEAST_LOAD, Policy.POWER_OF_TWO, Policy.KV_AWARE])
def test_routers_see_the_same_loads(policy: Policy) -> None:
    check_alike(split(3, 2), HEAVY, router=RouterDescription(policy=policy))


@pytest.mark.parametrize("workload", [LIGHT, HEAVY, BURSTS, GROWING])
@pytest.mark.parametrize("blocks", [300, 450, 700])
@pytest.mark.parametrize("settings", [{}, {"watermark": 0.1}, {"async_scheduling": False}])
def test_who_waits_for_blocks_is_served_the_same_unless_others_lose_theirs(
    workload: str, blocks: int, settings: dict[str, Any]
) -> None:
    check_alike_unless_preempted([pool(num_gpu_blocks_override=blocks, **settings)], workload)


@pytest.mark.parametrize("of", [0, 1])
@pytest.mark.parametrize("blocks", [270, 600])
@pytest.mark.parametrize("workload", [HEAVY, ALIKE, LIGHT, BURSTS])
def test_split_servers_wait_for_blocks_the_same(of: int, blocks: int, workload: str) -> None:
    pools = split(2, 1)
    pools[of] = small_server(pools[of], blocks)
    check_alike_unless_preempted(pools, workload)


@pytest.mark.parametrize("workload", [GROWING, f"{LIGHT},system=256"])
def test_other_loads_are_left_to_the_scheduler(workload: str) -> None:
    """Of pools without room for all who run, and of prompts that begin alike."""
    blocks = 300 if workload is GROWING else None
    roomy = RoomyServing([pool(num_gpu_blocks_override=blocks)])
    assert roomy.is_covered
    assert roomy.serve(parse_workload(workload).start()) is None


def small_server(like: Pool, blocks: int) -> Pool:
    """Servers of split ones with so many blocks."""
    few = fit(
        *("llama-3.1-8b", "h100"),
        context=4096,
        kv_connector="NixlConnector",
        num_gpu_blocks_override=blocks,
    )
    return pool_of(few, name=like.name, replicas=like.replicas, role=like.role)


def test_split_servers_without_room_are_left_to_the_schedulers() -> None:
    prompts, answers = split(1, 1)
    pools = [prompts, small_server(answers, 300)]
    assert RoomyServing(pools).serve(parse_workload(GROWING).start()) is None


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gemma-3-12b", {}),  # layers with a window give their blocks back
        ("qwen3-next-80b-a3b", {"gpus": 4}),  # states
        ("llama-3.1-8b", {"long_prefill_token_threshold": 512}),
        ("llama-3.1-8b", {"gpus": 2, "pipeline_parallel_size": 2}),
        ("llama-3.1-8b", {"gpus": 2, "data_parallel_size": 2}),
    ],
)
def test_other_schedulers_are_not_covered(model: str, settings: dict[str, Any]) -> None:
    roomy = RoomyServing([pool(model, **settings)])
    assert not roomy.is_covered
    assert roomy.serve(parse_workload(LIGHT).start()) is None
