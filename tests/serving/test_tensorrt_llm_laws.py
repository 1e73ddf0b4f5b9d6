"""Laws of TensorRT-LLM's scheduler and its blocks, on workloads that hypothesis draws."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.tensorrt_llm import TensorRtLlmScheduler
from tokenroom.serving.schedulers.tensorrt_llm_config import (
    CapacityPolicy,
    ChunkingPolicy,
    TensorRtLlmSchedulerConfig,
)
from tokenroom.serving.sequence import Sequence
from tokenroom.serving.simulator import simulate

BLOCK = 8
LONGEST = 96

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def configs(draw: st.DrawFn, **fixed: Any) -> TensorRtLlmSchedulerConfig:
    chunked = draw(st.booleans())
    drawn = {
        "num_blocks": LONGEST // BLOCK + draw(st.integers(0, 40)),
        "tokens_per_block": BLOCK,
        "max_seq_len": LONGEST,
        "max_batch_size": draw(st.sampled_from((2, 5, 16))),
        "max_num_tokens": draw(st.sampled_from((24, 40) if chunked else (LONGEST, 128))),
        "enable_block_reuse": draw(st.booleans()),
        "enable_chunked_prefill": chunked,
        "capacity_scheduler_policy": draw(st.sampled_from(CapacityPolicy)),
        "context_chunking_policy": draw(st.sampled_from(ChunkingPolicy)),
        "enable_prefix_aware_scheduling": draw(st.booleans()),
        "credits_reuse": draw(st.booleans()),
        "overlaps": draw(st.booleans()),
    }
    return TensorRtLlmSchedulerConfig(**(drawn | fixed))


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    requests = []
    seconds = 0.0
    for index in range(draw(st.integers(1, 14))):
        seconds += draw(st.sampled_from((0.0, 0.0, 1.0, 9.5)))
        prompt = draw(st.integers(1, LONGEST - 1))
        family = draw(st.integers(0, 3))
        shared = draw(st.integers(0, prompt // BLOCK)) if family else 0
        requests.append(
            Request(
                id=index,
                arrival_seconds=seconds,
                prompt_tokens=prompt,
                output_tokens=draw(st.integers(1, 40)),
                block_hashes=tuple(1000 * family + block for block in range(shared)),
            )
        )
    return requests


def steps(
    scheduler: TensorRtLlmScheduler, workload: list[Request]
) -> Iterator[tuple[StepPlan | None, list[Sequence]]]:
    """Each plan when it is decided, and who ended when one has returned."""
    due = list(workload)
    behind = None
    step = 0
    while due or scheduler.unfinished or behind is not None:
        while due and due[0].arrival_seconds <= step:
            scheduler.add(due.pop(0))
        plan = scheduler.schedule()
        yield plan, []
        if scheduler.config.overlaps:
            behind, returned = (plan if plan.sequences else None), behind
        else:
            returned = plan
        if returned is not None:
            yield None, scheduler.complete(returned)
        step += 1
        assert step < 20_000


def held(scheduler: TensorRtLlmScheduler) -> Counter[int]:
    return Counter(block for sequence in scheduler.active for block in sequence.blocks[0])


@few
@given(configs(), workloads())
def test_every_block_is_free_or_held_and_counted(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = TensorRtLlmScheduler(config)
    tree = scheduler.blocks.tree
    for _ in steps(scheduler, workload):
        owners = held(scheduler)
        free = list(tree.free_blocks())
        assert len(free) == len(set(free)) == tree.num_free
        assert not owners.keys() & set(free)
        assert len(owners) + len(free) == config.num_blocks
        assert all(tree.holders[block] == times for block, times in owners.items())
        assert config.enable_block_reuse or max(owners.values(), default=1) == 1
    assert tree.num_free == config.num_blocks


@few
@given(configs(), workloads())
def test_every_token_is_computed_once_but_for_pauses(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = TensorRtLlmScheduler(config)
    computed: dict[Sequence, int] = {}
    finished = 0
    for plan, ended in steps(scheduler, workload):
        finished += len(ended)
        if plan is None:
            continue
        for sequence in (*plan.admitted, *plan.resumed):
            computed[sequence] = plan.contexts[plan.sequences.index(sequence)]
        for sequence, tokens, context in zip(
            plan.sequences, plan.tokens, plan.contexts, strict=True
        ):
            assert tokens > 0
            assert computed[sequence] == context
            computed[sequence] += tokens
    assert finished == len(computed) == len(workload)
    for sequence, tokens in computed.items():
        assert sequence.tokens == sequence.last_tokens
        assert tokens == sequence.last_tokens - 1


@few
@given(configs(), workloads())
def test_a_step_stays_within_its_budget_and_works_while_it_can(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = TensorRtLlmScheduler(config)
    for plan, _ in steps(scheduler, workload):
        if plan is None:
            continue
        # Of two equal prompts in one step the first may take the block that both were to find.
        spare = BLOCK * len(plan.admitted) if config.enable_block_reuse else 0
        assert sum(plan.tokens) <= config.max_num_tokens + spare
        assert len(plan.sequences) <= config.max_batch_size
        if not config.overlaps and (plan.num_running or plan.num_waiting):
            assert plan.sequences or plan.preempted


@few
@given(configs(capacity_scheduler_policy=CapacityPolicy.GUARANTEED_NO_EVICT), workloads())
def test_who_is_let_in_to_the_end_is_never_paused(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = TensorRtLlmScheduler(config)
    assert not any(plan.preempted for plan, _ in steps(scheduler, workload) if plan is not None)


@few
@given(configs(capacity_scheduler_policy=CapacityPolicy.STATIC_BATCH), workloads())
def test_nobody_joins_a_batch_that_decodes(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = TensorRtLlmScheduler(config)
    for plan, _ in steps(scheduler, workload):
        if plan is not None and plan.admitted:
            assert all(
                context < sequence.prefill_end
                for sequence, context in zip(plan.sequences, plan.contexts, strict=True)
            )


@few
@given(configs(), workloads())
def test_a_pool_beyond_all_needs_may_be_of_any_size(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    def records(num_blocks: int) -> list[Any]:
        at = TensorRtLlmScheduler(replace(config, num_blocks=num_blocks))
        return list(simulate(OpenLoop(workload), at, lambda _: 1.0))

    assert records(2000) == records(4000)


@few
@given(configs(enable_block_reuse=False, enable_chunked_prefill=False), workloads())
def test_alike_requests_that_come_at_once_are_done_no_later_with_more_blocks(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    alike = [replace(workload[0], id=one.id, output_tokens=1, block_hashes=()) for one in workload]
    roomy = replace(config, max_num_tokens=4096)

    def makespan(num_blocks: int) -> float:
        at = TensorRtLlmScheduler(replace(roomy, num_blocks=num_blocks))
        return max(record.finish_seconds for record in simulate(OpenLoop(alike), at, lambda _: 1.0))

    spans = [makespan(LONGEST // BLOCK + more) for more in (0, 5, 17, 60, 400)]
    assert spans == sorted(spans, reverse=True)


@few
@given(configs(), workloads())
def test_the_same_workload_gives_the_same_records_and_every_answer_is_whole(
    config: TensorRtLlmSchedulerConfig, workload: list[Request]
) -> None:
    def records() -> list[Any]:
        return list(
            simulate(
                OpenLoop(workload),
                TensorRtLlmScheduler(config),
                lambda plan: 0.01 + 1e-4 * sum(plan.tokens),
            )
        )

    first = records()
    assert first == records()
    by_id = sorted(first, key=lambda record: record.id)
    for record, asked in zip(by_id, workload, strict=True):
        wanted = min(asked.output_tokens, LONGEST - asked.prompt_tokens)
        assert (record.id, record.output_tokens) == (asked.id, wanted)
