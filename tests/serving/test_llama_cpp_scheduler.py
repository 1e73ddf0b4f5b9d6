"""llama-server's slots against a real one, and what a batch holds."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_server_scenarios import Scenario, replay

from tokenroom.errors import DeploymentError
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.record import Refusal, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.llama_cpp import (
    LlamaCppScheduler,
    LlamaCppSchedulerConfig,
    passes,
)
from tokenroom.serving.sequence import Sequence
from tokenroom.serving.simulator import simulate

RECORDED = Path(__file__).parents[1] / "fixtures" / "serving" / "llama_server.jsonl"
USUAL = LlamaCppSchedulerConfig(n_parallel=2, n_ctx=200, n_ctx_slot=100, n_batch=32, n_ubatch=16)
SPLIT = replace(USUAL, kv_unified=False)

few = settings(max_examples=60, deadline=None)


def read() -> list[Scenario]:
    return [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("scenario", read(), ids=lambda scenario: scenario["name"])
def test_slots_and_cached_tokens_are_those_of_llama_server(scenario: Scenario) -> None:
    assert replay(scenario) == scenario["answers"]


def test_recorded_requests_cross_what_slots_do() -> None:
    answers = [answer for scenario in read() for answer in scenario["answers"]]
    assert sum(cached > 0 for _, cached in answers) > 80
    assert len({slot for slot, _ in answers}) == 4


def asks(id: int, prompt: int, output: int, at: float = 0.0, shared: int = 0) -> Request:
    return Request(
        id=id,
        arrival_seconds=at,
        prompt_tokens=prompt,
        output_tokens=output,
        block_hashes=tuple(range(shared)),
    )


def row(plan: StepPlan) -> list[tuple[int, int, int]]:
    return [
        (sequence.request.id, tokens, context)
        for sequence, tokens, context in zip(
            plan.sequences, plan.tokens, plan.contexts, strict=True
        )
    ]


def test_who_decodes_comes_before_prompts_in_the_order_of_slots() -> None:
    at = LlamaCppScheduler(SPLIT)
    at.add(asks(0, 40, 3))  # takes the last slot, as all are unused
    batches = []
    for _ in range(4):
        plan = at.schedule()
        batches.append(row(plan))
        at.complete(plan)
        if len(batches) == 1:
            at.add(asks(1, 50, 3))
    assert batches == [
        [(0, 32, 0)],
        [(1, 32, 0)],  # slot 0 comes first and fills the batch
        [(1, 18, 32), (0, 8, 32)],
        [(1, 1, 50), (0, 1, 40)],
    ]


def test_a_request_without_a_slot_waits_for_one() -> None:
    at = LlamaCppScheduler(replace(SPLIT, n_parallel=1))
    at.add(asks(0, 10, 1))
    at.add(asks(1, 10, 2))
    at.add(asks(2, 10, 1))
    plans = []
    while at.unfinished:
        plans.append(at.schedule())
        at.complete(plans[-1])
    assert [row(plan) for plan in plans] == [
        [(0, 10, 0)],
        [(1, 10, 0)],
        [(1, 1, 10)],
        [(2, 10, 0)],
    ]
    assert [plan.num_waiting for plan in plans] == [2, 1, 1, 0]


def test_a_pass_takes_as_many_tokens_as_fit_in_a_unified_cache() -> None:
    batch = [(0, 1, 70), (2, 1, 40), (1, 30, 0)]
    parts = list(passes(batch, 16, kv_unified=True))
    assert [(part.tokens, part.contexts) for part in parts] == [
        ([1, 1, 14], [70, 40, 0]),
        ([16], [14]),
    ]


def test_a_pass_takes_equally_many_tokens_of_slots_that_follow_each_other_otherwise() -> None:
    batch = [(0, 1, 70), (2, 1, 40), (1, 30, 0)]
    parts = list(passes(batch, 16, kv_unified=False))
    # slot 1 follows slot 0; then slot 2 alone; then the rest of slot 1
    assert [(part.tokens, part.contexts) for part in parts] == [
        ([1, 1], [70, 0]),
        ([1], [40]),
        ([16], [1]),
        ([13], [17]),
    ]
    two = list(passes([(0, 20, 0), (1, 40, 5)], 16, kv_unified=False))
    assert [part.tokens for part in two] == [[8, 8], [8, 8], [4, 4], [16], [4]]


def test_idle_slots_are_cleared_before_a_shared_cache_ends_everyone_with_an_error() -> None:
    config = replace(USUAL, n_ctx=100, cache_idle_slots=False, n_batch=200)
    at = LlamaCppScheduler(config)
    at.add(asks(0, 40, 1))
    at.complete(at.schedule())
    at.add(asks(1, 70, 5))
    plan = at.schedule()
    assert (plan.used_blocks, [slot.tokens for slot in at.slots]) == (70, [70, 0])
    at.complete(plan)
    steps: list[StepRecord] = []
    records = list(
        simulate(
            OpenLoop([asks(0, 60, 9), asks(1, 60, 9), asks(2, 60, 2)]),
            LlamaCppScheduler(config),
            lambda _: 1.0,
            observe=steps.append,
        )
    )
    assert [step.used_blocks for step in steps][:2] == [100, 60]  # not the 120 of the batch
    assert [(record.id, record.refused, record.finish_seconds) for record in records] == [
        (1, Refusal.CONTEXT_FULL, 1.0),
        (0, Refusal.CONTEXT_FULL, 1.0),
        (2, None, 3.0),
    ]


def test_aborting_leaves_its_slot_to_the_next() -> None:
    at = LlamaCppScheduler(replace(SPLIT, n_parallel=1))
    first, second, third = (at.add(asks(id, 10, 3)) for id in range(3))
    at.complete(at.schedule())
    at.abort(second)
    at.abort(first)
    at.abort(first)
    assert row(at.schedule()) == [(2, 10, 0)]
    at.abort(third)
    assert at.unfinished == 0


def test_a_prompt_as_long_as_the_context_is_refused() -> None:
    at = LlamaCppScheduler(SPLIT)
    assert at.refusal(asks(0, 100, 1)) is Refusal.TOO_LONG
    assert at.refusal(asks(0, 99, 9)) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"n_ubatch": 0}, "n_ubatch is 0"), ({"slot_prompt_similarity": 2}, "similarity is 2")],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DeploymentError, match=said):
        replace(USUAL, **changes)


@st.composite
def cases(draw: st.DrawFn) -> tuple[LlamaCppSchedulerConfig, list[Request]]:
    slots, unified = draw(st.sampled_from((1, 2, 5))), draw(st.booleans())
    config = LlamaCppSchedulerConfig(
        n_parallel=slots,
        n_ctx=150 * slots,
        n_ctx_slot=150,
        n_batch=draw(st.sampled_from((8, 40, 512))),
        n_ubatch=draw(st.sampled_from((4, 16, 512))),
        kv_unified=unified,
        cache_prompt=draw(st.booleans()),
        slot_prompt_similarity=draw(st.sampled_from((0.0, 0.1, 0.5))),
        cache_ram_bytes=draw(st.sampled_from((0, 2000, 100_000))),
        cache_idle_slots=draw(st.booleans()),
    )
    at, requests = 0.0, []
    for index in range(draw(st.integers(1, 14))):
        at += draw(st.sampled_from((0.0, 0.0, 1.0, 9.5)))
        prompt = draw(st.integers(1, 120))
        shared = draw(st.integers(0, prompt // 16))
        requests.append(asks(index, prompt, draw(st.integers(1, 40)), at, shared))
    return config, requests


def steps(at: LlamaCppScheduler, workload: list[Request]) -> Iterator[StepPlan]:
    due, step = list(workload), 0
    while due or at.unfinished:
        while due and due[0].arrival_seconds <= step:
            at.add(due.pop(0))
        plan = at.schedule()
        yield plan
        at.complete(plan)
        step += 1
        assert step < 20_000


@few
@given(cases())
def test_every_token_is_computed_once_and_no_cell_is_held_twice(
    case: tuple[LlamaCppSchedulerConfig, list[Request]],
) -> None:
    config, workload = case
    at = LlamaCppScheduler(config)
    computed: dict[Sequence, int] = {}
    for plan in steps(at, workload):
        for sequence in plan.admitted:
            assert sequence not in computed
            computed[sequence] = plan.contexts[plan.sequences.index(sequence)]
            assert config.cache_prompt or computed[sequence] == 0
        for sequence, tokens, context in zip(
            plan.sequences, plan.tokens, plan.contexts, strict=True
        ):
            assert computed[sequence] == context
            computed[sequence] += tokens
        assert plan.used_blocks <= config.n_ctx
        assert all(slot.tokens <= config.n_ctx_slot for slot in at.slots)
        working = [slot.sequence for slot in at.slots if slot.sequence is not None]
        assert len(set(working)) == len(working) == plan.num_running
    assert len(computed) == len(workload)
    assert all(tokens == one.last_tokens - 1 for one, tokens in computed.items())


@few
@given(cases())
def test_a_step_works_while_it_can_and_its_passes_are_all_of_it(
    case: tuple[LlamaCppSchedulerConfig, list[Request]],
) -> None:
    config, workload = case
    for plan in steps(LlamaCppScheduler(config), workload):
        assert sum(plan.tokens) <= max(config.n_batch, config.n_parallel)
        assert bool(plan.sequences) == bool(plan.num_running or plan.num_waiting)
        assert sum(sum(part.tokens) for part in plan.passes) == sum(plan.tokens)
        assert all(0 < sum(part.tokens) <= config.n_ubatch for part in plan.passes)


@few
@given(cases())
def test_the_same_workload_gives_the_same_records_and_every_answer_is_whole(
    case: tuple[LlamaCppSchedulerConfig, list[Request]],
) -> None:
    config, workload = case

    def records() -> list[Any]:
        at = LlamaCppScheduler(config)
        return list(simulate(OpenLoop(workload), at, lambda plan: 0.01 * len(plan.passes)))

    first = records()
    assert first == records()
    by_id = sorted(first, key=lambda record: record.id)
    for record, asked in zip(by_id, workload, strict=True):
        wanted = min(asked.output_tokens, 150 - asked.prompt_tokens)
        assert (record.id, record.output_tokens) == (asked.id, wanted)


@few
@given(cases())
def test_alike_requests_that_come_at_once_are_done_no_later_with_more_slots(
    case: tuple[LlamaCppSchedulerConfig, list[Request]],
) -> None:
    config, workload = case
    alike = [replace(workload[0], id=one.id, output_tokens=9, block_hashes=()) for one in workload]

    def makespan(slots: int) -> float:
        roomy = replace(config, n_parallel=slots, n_ctx=150 * slots, n_batch=4096)
        at = LlamaCppScheduler(roomy)
        return max(record.finish_seconds for record in simulate(OpenLoop(alike), at, lambda _: 1.0))

    spans = [makespan(slots) for slots in (1, 2, 5, 20)]
    assert spans == sorted(spans, reverse=True)
