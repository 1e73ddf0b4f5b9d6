"""Our scheduler against the steps that SGLang 0.5.23's own decided."""

from pathlib import Path

import pytest
from sglang_scenarios import Scenario, read, replay

from tokenroom.errors import DeploymentError
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.sglang import SglangScheduler
from tokenroom.serving.schedulers.sglang_config import SglangSchedulerConfig

RECORDED = Path(__file__).parents[1] / "fixtures" / "serving" / "sglang_scheduler.jsonl.gz"


def config(**settings: object) -> SglangSchedulerConfig:
    usual = {
        "max_total_num_tokens": 1024,
        "page_size": 1,
        "context_length": 512,
        "max_running_requests": 8,
        "chunked_prefill_size": 256,
        "name_tokens": 16,
    }
    return SglangSchedulerConfig(**(usual | settings))  # type: ignore[arg-type]


def asks(prompt: int, output: int) -> Request:
    return Request(id=0, arrival_seconds=0, prompt_tokens=prompt, output_tokens=output)


@pytest.mark.parametrize("scenario", list(read(RECORDED)), ids=lambda scenario: scenario["name"])
def test_every_step_is_the_one_that_sglang_took(scenario: Scenario) -> None:
    ours = replay(scenario)
    for step, (mine, theirs) in enumerate(zip(ours, scenario["steps"], strict=False), start=1):
        assert mine == theirs, f"step {step}"
    assert len(ours) == len(scenario["steps"])


def test_recorded_workloads_cross_what_schedulers_do() -> None:
    scenarios = list(read(RECORDED))
    steps = [step for scenario in scenarios for step in scenario["steps"]]
    assert sum(len(step.get("retracted", ())) for step in steps) > 40
    assert sum(len(step.get("aborted", ())) for step in steps) > 25
    assert sum(hit for step in steps for _, hit in step.get("admitted", ())) > 10_000
    chunks = sum(step["decided"][5] for step in steps if "decided" in step)
    assert chunks > 100
    policies = {scenario["config"]["schedule_policy"] for scenario in scenarios}
    assert policies == {"fcfs", "lpm", "dfs-weight", "lof"}
    assert {scenario["config"]["page_size"] for scenario in scenarios} >= {1, 4, 16, 64}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_running_requests": 0}, "max_running_requests is 0"),
        ({"chunked_prefill_size": -1}, "chunked_prefill_size is -1"),
        ({"schedule_policy": "random"}, "schedule_policy 'random' is not simulated"),
        ({"schedule_conservativeness": 0.0}, "schedule_conservativeness is 0.0"),
        ({"page_size": 64}, "name_tokens is 16; it must be a multiple of page_size 64"),
    ],
)
def test_settings_that_make_no_scheduler_are_refused(
    settings: dict[str, object], said: str
) -> None:
    with pytest.raises(DeploymentError, match=said):
        SglangScheduler(config(**settings))


@pytest.mark.parametrize(
    ("settings", "prompt", "why"),
    [
        ({}, 505, None),
        ({}, 506, Refusal.TOO_LONG),
        ({"max_total_num_tokens": 400}, 393, None),
        ({"max_total_num_tokens": 400}, 394, Refusal.BEYOND_POOL),
        ({"max_total_num_tokens": 384, "page_size": 64, "name_tokens": 64}, 319, None),
        ({"max_total_num_tokens": 384, "page_size": 64, "name_tokens": 64}, 320, "beyond_pool"),
    ],
)
def test_a_prompt_that_would_not_be_served_is_known_beforehand(
    settings: dict[str, object], prompt: int, why: Refusal | None
) -> None:
    scheduler = SglangScheduler(config(overlap_schedule=False, **settings))
    assert scheduler.refusal(asks(prompt, 1)) == why
    if why is None:
        sequence = scheduler.add(asks(prompt, 1))
        finished = [scheduler.complete(scheduler.schedule()) for _ in range(2)]
        assert [sequence] in finished


def test_an_answer_ends_where_context_or_pool_do() -> None:
    scheduler = SglangScheduler(config(max_total_num_tokens=300))
    assert scheduler.add(asks(200, 500)).max_new_tokens == 300 - 1 - 200 - 1
    assert SglangScheduler(config()).add(asks(500, 500)).max_new_tokens == 512 - 1 - 500 - 1


def test_an_aborted_answer_ends_with_the_next_result_and_leaves_nothing_behind() -> None:
    scheduler = SglangScheduler(config(overlap_schedule=False))
    sequence = scheduler.add(asks(20, 50))
    scheduler.complete(scheduler.schedule())
    scheduler.abort(sequence)
    assert scheduler.complete(scheduler.schedule()) == [sequence]
    scheduler.abort(sequence)
    assert scheduler.unfinished == 0
    assert scheduler.used_tokens == 0


def test_a_step_that_the_pool_has_no_room_for_ends_the_run_in_one_sentence() -> None:
    cache = SglangScheduler(config()).cache
    with pytest.raises(Exception, match="a step needs 1025 tokens of the pool and 1024 are left"):
        cache.take(1025)


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("overlap", [True, False])
def test_every_token_of_the_pool_has_one_owner(page: int, overlap: bool) -> None:
    scheduler = SglangScheduler(
        config(
            max_total_num_tokens=1024,
            page_size=page,
            max_running_requests=12,
            chunked_prefill_size=128,
            overlap_schedule=overlap,
            schedule_conservativeness=0.05,
            ignore_eos=False,
        )
    )
    cache, tree = scheduler.cache, scheduler.cache.tree
    sequences = [
        scheduler.add(
            Request(
                id=index,
                arrival_seconds=0,
                prompt_tokens=40 + 17 * index % 150,
                output_tokens=20 + 31 * index % 120,
                block_hashes=tuple(range(index % 4)),
            )
        )
        for index in range(40)
    ]
    behind, retracted = None, 0
    while scheduler.unfinished or behind is not None:
        plan = scheduler.schedule()
        retracted += len(plan.preempted)
        runs = list(tree.nodes())
        assert sum(run.end - run.start for run in runs if run.locks) == tree.protected_tokens
        assert sum(run.end - run.start for run in runs if not run.locks) == tree.evictable_tokens
        owned = sum(cache.pages(one.allocated) - one.protected for one in sequences)
        cached = tree.protected_tokens + tree.evictable_tokens
        assert cache.free_tokens + cached + owned == 1024
        assert len({id(one) for one in plan.sequences}) == len(plan.sequences) <= 12
        behind, due = (plan if plan.sequences else None, behind) if overlap else (None, plan)
        if due is not None:
            scheduler.complete(due)
    assert retracted
    assert [one.answered for one in sequences] == [20 + 31 * index % 120 for index in range(40)]
    assert scheduler.used_tokens == 0
