"""TensorRT-LLM's scheduler against its own policies: who is let in, paused, found cached."""

from pathlib import Path

import pytest
from tensorrt_llm_scenarios import Scenario, read, replay

from tokenroom.errors import DeploymentError
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.tensorrt_llm import TensorRtLlmScheduler
from tokenroom.serving.schedulers.tensorrt_llm_config import (
    CapacityPolicy,
    ChunkingPolicy,
    TensorRtLlmSchedulerConfig,
)

RECORDED = Path(__file__).parents[1] / "fixtures" / "serving" / "tensorrt_llm_scheduler.jsonl.gz"


@pytest.mark.parametrize("scenario", list(read(RECORDED)), ids=lambda scenario: scenario["name"])
def test_every_step_is_the_one_that_its_policies_took(scenario: Scenario) -> None:
    ours = replay(scenario)
    for step, (mine, theirs) in enumerate(zip(ours, scenario["steps"], strict=False), start=1):
        assert mine == theirs, f"step {step}"
    assert len(ours) == len(scenario["steps"])


def test_recorded_workloads_cross_what_policies_do() -> None:
    steps = [step for scenario in read(RECORDED) for step in scenario["steps"]]
    assert sum(len(step["paused"]) for step in steps) > 150
    begun: set[tuple[str, int]] = set()
    found = 0
    for scenario in read(RECORDED):
        for step in scenario["steps"]:
            for id, _, context in step["scheduled"]:
                if (scenario["name"], id) not in begun:
                    begun.add((scenario["name"], id))
                    found += context
    assert found > 2_500


def scheduler(**settings: object) -> TensorRtLlmScheduler:
    usual = {
        "num_blocks": 64,
        "tokens_per_block": 8,
        "max_seq_len": 256,
        "max_batch_size": 8,
        "max_num_tokens": 256,
        "overlaps": False,
    }
    return TensorRtLlmScheduler(TensorRtLlmSchedulerConfig(**(usual | settings)))  # type: ignore[arg-type]


def asks(id: int, prompt: int, output: int, shared: int = 0) -> Request:
    return Request(
        id=id,
        arrival_seconds=0,
        prompt_tokens=prompt,
        output_tokens=output,
        block_hashes=tuple(range(shared)),
    )


def row(plan: StepPlan) -> list[tuple[int, int, int]]:
    """Id, tokens and context of each scheduled request."""
    return [
        (sequence.request.id, tokens, context)
        for sequence, tokens, context in zip(
            plan.sequences, plan.tokens, plan.contexts, strict=True
        )
    ]


def run(at: TensorRtLlmScheduler) -> list[tuple[int, int, int]]:
    plan = at.schedule()
    at.complete(plan)
    return row(plan)


def test_a_request_is_let_in_where_its_whole_answer_has_room() -> None:
    at = scheduler(num_blocks=10)
    at.add(asks(0, 16, 33))  # 49 tokens: 7 blocks
    at.add(asks(1, 16, 9))  # 25 tokens: 4 blocks, 3 are left
    at.add(asks(2, 16, 8))  # it would fit, and waits behind the other
    assert run(at) == [(0, 16, 0)]
    for context in range(16, 48):
        assert run(at) == [(0, 1, context)]
    assert run(at) == [(1, 16, 0), (2, 16, 0)]


def test_the_last_is_paused_where_blocks_run_out_and_computed_again() -> None:
    at = scheduler(
        num_blocks=5,
        capacity_scheduler_policy=CapacityPolicy.MAX_UTILIZATION,
        enable_block_reuse=False,
    )
    at.add(asks(0, 16, 10))
    at.add(asks(1, 16, 10))
    assert run(at) == [(0, 16, 0), (1, 16, 0)]
    plan = at.schedule()  # one block is left for two that need one each
    assert (row(plan), [one.request.id for one in plan.preempted]) == ([(0, 1, 16)], [1])
    at.complete(plan)
    assert at.blocks.tree.num_free == 2
    for context in range(17, 24):
        assert run(at) == [(0, 1, context)]
    assert run(at) == [(0, 1, 24)]
    plan = at.schedule()
    assert (row(plan), plan.resumed[0].preemptions) == ([(1, 17, 0)], 1)


def test_nobody_joins_a_static_batch() -> None:
    at = scheduler(capacity_scheduler_policy=CapacityPolicy.STATIC_BATCH)
    at.add(asks(0, 16, 3))
    assert run(at) == [(0, 16, 0)]
    at.add(asks(1, 16, 1))
    assert [run(at), run(at), run(at)] == [[(0, 1, 16)], [(0, 1, 17)], [(1, 16, 0)]]


def test_a_prompt_that_does_not_fit_a_step_waits_for_the_next() -> None:
    at = scheduler(max_num_tokens=40)
    for id in range(3):
        at.add(asks(id, 24, 2))
    assert [run(at), run(at)] == [[(0, 24, 0)], [(1, 24, 0), (0, 1, 24)]]


def test_chunks_end_with_blocks_and_prompts_that_end_come_last() -> None:
    at = scheduler(max_num_tokens=45, enable_chunked_prefill=True)
    at.add(asks(0, 30, 3))
    at.add(asks(1, 60, 3))
    assert run(at) == [(1, 8, 0), (0, 30, 0)]
    assert run(at) == [(1, 40, 8), (0, 1, 30)]


def test_prompts_advance_equally_where_asked() -> None:
    at = scheduler(
        max_num_tokens=45,
        enable_chunked_prefill=True,
        context_chunking_policy=ChunkingPolicy.EQUAL_PROGRESS,
    )
    at.add(asks(0, 60, 3))
    at.add(asks(1, 60, 3))
    assert run(at) == [(0, 24, 0), (1, 16, 0)]


def test_what_others_computed_is_found_and_costs_no_tokens_of_a_step() -> None:
    at = scheduler(max_num_tokens=60)
    at.add(asks(0, 40, 1, shared=4))
    run(at)
    at.add(asks(1, 40, 1, shared=4))
    at.add(asks(2, 44, 1, shared=4))
    assert run(at) == [(1, 8, 32), (2, 12, 32)]
    assert (at.queried_tokens, at.hit_tokens) == (124, 64)


def test_a_version_that_does_not_credit_reuse_fills_its_steps_with_what_it_finds() -> None:
    at = scheduler(max_num_tokens=60, credits_reuse=False)
    at.add(asks(0, 40, 1, shared=4))
    run(at)
    at.add(asks(1, 40, 1, shared=4))
    at.add(asks(2, 44, 1, shared=4))
    assert [run(at), run(at)] == [[(1, 8, 32)], [(2, 12, 32)]]


def test_a_request_waits_for_a_prefix_that_another_is_computing() -> None:
    at = scheduler()
    at.add(asks(0, 40, 2, shared=4))
    at.add(asks(1, 40, 2, shared=4))
    assert [run(at), run(at)] == [[(0, 40, 0)], [(1, 8, 32), (0, 1, 40)]]
    blind = scheduler(enable_prefix_aware_scheduling=False)
    blind.add(asks(0, 40, 2, shared=4))
    blind.add(asks(1, 40, 2, shared=4))
    assert run(blind) == [(0, 40, 0), (1, 40, 0)]


def test_of_a_prompt_that_is_cached_whole_the_last_token_is_computed() -> None:
    at = scheduler()
    at.add(asks(0, 32, 1, shared=4))
    at.add(asks(1, 40, 1, shared=4))
    run(at)
    assert run(at) == [(1, 8, 32)]
    at.add(asks(2, 32, 1, shared=4))
    assert run(at) == [(2, 1, 31)]


def test_with_overlap_a_request_holds_its_place_until_its_last_token_has_come() -> None:
    at = scheduler(max_batch_size=1, overlaps=True)
    at.add(asks(0, 16, 2))
    at.add(asks(1, 16, 1))
    first, second, third = at.schedule(), at.schedule(), None
    assert at.complete(first) == []
    third = at.schedule()
    assert [row(first), row(second), row(third)] == [[(0, 16, 0)], [(0, 1, 16)], []]
    assert [one.request.id for one in at.complete(second)] == [0]
    assert row(at.schedule()) == [(1, 16, 0)]


def test_a_paused_request_keeps_the_token_that_was_on_its_way() -> None:
    at = scheduler(
        num_blocks=5,
        capacity_scheduler_policy=CapacityPolicy.MAX_UTILIZATION,
        enable_block_reuse=False,
        overlaps=True,
    )
    at.add(asks(0, 16, 2))
    last = at.add(asks(1, 16, 10))
    first = at.schedule()
    second = at.schedule()
    assert [one.request.id for one in second.preempted] == [1]
    at.complete(first)
    assert last.tokens == 17
    at.schedule()
    at.complete(second)
    assert row(at.schedule()) == [(1, 17, 0)]


def test_aborting_frees_blocks_wherever_a_request_stands() -> None:
    at = scheduler(max_batch_size=1)
    running, waiting = at.add(asks(0, 16, 5)), at.add(asks(1, 16, 5))
    at.complete(at.schedule())
    at.abort(waiting)
    at.abort(running)
    at.abort(running)
    assert (at.unfinished, at.blocks.tree.num_free) == (0, 64)


def test_a_request_that_is_never_served_is_known_beforehand() -> None:
    at = scheduler(num_blocks=20, max_num_tokens=128)
    assert at.refusal(asks(0, 128, 32)) is None
    assert at.refusal(asks(0, 128, 33)) is Refusal.BEYOND_POOL
    assert at.refusal(asks(0, 129, 1)) is Refusal.BEYOND_STEP
    assert at.refusal(asks(0, 256, 1)) is Refusal.TOO_LONG
    chunked = scheduler(num_blocks=20, max_num_tokens=128, enable_chunked_prefill=True)
    assert chunked.refusal(asks(0, 129, 1)) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"capacity_scheduler_policy": "LIFO"}, "capacity_scheduler_policy is 'LIFO'"),
        ({"context_chunking_policy": None}, "context_chunking_policy is None"),
    ],
)
def test_settings_that_no_release_has_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(DeploymentError, match=said):
        scheduler(**settings)
