"""Laws of the scheduler and its blocks, on workloads that hypothesis draws."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.block_pool import NULL_BLOCK
from tokenroom.serving.kept_drafts import KeptDrafts
from tokenroom.serving.kv_group import STATES, Kind, KvGroup
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmDrafts, VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.schedulers.vllm_drafting import DraftingScheduler
from tokenroom.serving.sequence import Sequence
from tokenroom.serving.simulator import simulate

BLOCK = 8
LONGEST = 96
FULL = KvGroup(kind=Kind.FULL, block_tokens=BLOCK)
WINDOW = KvGroup(kind=Kind.SLIDING_WINDOW, block_tokens=BLOCK, window_tokens=20)
CHUNK = KvGroup(kind=Kind.CHUNKED_LOCAL, block_tokens=BLOCK, window_tokens=2 * BLOCK)
STATE = KvGroup(kind=Kind.MAMBA, block_tokens=LONGEST)
ALIGNED = KvGroup(kind=Kind.ALIGNED_MAMBA, block_tokens=BLOCK)
GROUPS = (
    *((FULL,), (WINDOW,), (FULL, WINDOW, WINDOW)),
    *((FULL, CHUNK), (FULL, STATE), (ALIGNED, ALIGNED, FULL)),
)

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def configs(draw: st.DrawFn, **fixed: Any) -> VllmSchedulerConfig:
    groups = fixed.get("groups") or draw(st.sampled_from(GROUPS))
    drawn = {
        "num_blocks": 2 + len(groups) * LONGEST // BLOCK + draw(st.integers(0, 60)),
        "groups": groups,
        "max_model_len": LONGEST,
        "max_num_batched_tokens": draw(st.sampled_from((16, 40, 128))),
        "max_num_seqs": draw(st.sampled_from((2, 5, 16))),
        "enable_prefix_caching": STATE not in groups and draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.sampled_from((0, 24))),
        "policy": draw(st.sampled_from(("fcfs", "priority"))),
        "scheduler_reserve_full_isl": draw(st.booleans()),
        "watermark": draw(st.sampled_from((0.0, 0.1))),
        "async_scheduling": draw(st.booleans()),
        "prefix_cache_retention_interval": draw(st.sampled_from((None, 0))),
    }
    recurrent = any(group.kind in STATES for group in groups)
    if not recurrent and "drafts" not in fixed and draw(st.booleans()):
        drawn |= {"drafts": draw(drafts(groups)), "long_prefill_token_threshold": 0}
    return VllmSchedulerConfig(**(drawn | fixed))


@st.composite
def drafts(draw: st.DrawFn, groups: tuple[KvGroup, ...]) -> VllmDrafts:
    tokens = draw(st.sampled_from((1, 3, 6)))
    rereads = CHUNK not in groups and draw(st.booleans())
    return VllmDrafts(
        tokens=tokens,
        lookahead_tokens=draw(st.sampled_from((0, tokens))),
        input_slots=draw(st.sampled_from((0, 1))),
        reread_groups=tuple(range(len(groups))) if rereads else (),
    )


def scheduler_of(config: VllmSchedulerConfig) -> VllmScheduler:
    if config.drafts is None:
        return VllmScheduler(config)
    return DraftingScheduler(config, KeptDrafts((0.7,) * config.drafts.tokens))


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
                priority=draw(st.integers(0, 2)),
                block_hashes=tuple(1000 * family + block for block in range(shared)),
            )
        )
    return requests


def steps(
    scheduler: VllmScheduler, workload: list[Request]
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
        if scheduler.config.async_scheduling:
            behind, returned = (plan if plan.sequences else None), behind
        else:
            returned = plan
        if returned is not None:
            yield None, scheduler.complete(returned)
        step += 1
        assert step < 20_000


def held(scheduler: VllmScheduler) -> Counter[int]:
    return Counter(
        block
        for sequence in scheduler.running
        for blocks in sequence.blocks
        for block in blocks
        if block != NULL_BLOCK
    )


@few
@given(configs(), workloads())
def test_every_block_is_free_or_held_and_counted(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = scheduler_of(config)
    pool = scheduler.kv.pool
    for _ in steps(scheduler, workload):
        owners = held(scheduler)
        free = list(pool.free_blocks())
        assert len(free) == len(set(free)) == pool.num_free
        assert not owners.keys() & set(free)
        assert len(owners) + len(free) == config.num_blocks - 1
        assert all(pool.holders[block] == times for block, times in owners.items())
    assert pool.num_free == config.num_blocks - 1


@few
@given(configs(), workloads())
def test_only_cached_blocks_have_two_owners(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = scheduler_of(config)
    pool = scheduler.kv.pool
    for _ in steps(scheduler, workload):
        for block, times in held(scheduler).items():
            if times > 1:
                assert config.enable_prefix_caching
                assert pool.name_of(block) is not None


@few
@given(configs(drafts=None), workloads())
def test_every_token_is_computed_once_but_for_preemptions(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = scheduler_of(config)
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
            assert computed[sequence] == context
            computed[sequence] += tokens
    assert finished == len(computed) == len(workload)
    for sequence, tokens in computed.items():
        assert sequence.tokens == sequence.last_tokens
        # Who was preempted with the last token in flight computes nothing again.
        assert tokens == sequence.last_tokens - 1


@few
@given(configs(groups=(FULL,), async_scheduling=False), workloads())
def test_a_step_computes_what_is_known_and_what_was_drafted(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    for plan, _ in steps(scheduler_of(config), workload):
        if plan is None:
            continue
        silent = set(plan.silent)
        for sequence, tokens, context in zip(
            plan.sequences, plan.tokens, plan.contexts, strict=True
        ):
            known = context + tokens - plan.drafted.get(sequence, 0)
            assert known < sequence.tokens if sequence in silent else known == sequence.tokens
            assert context + tokens < config.max_model_len + (config.drafts is None)


@few
@given(configs(), workloads())
def test_a_step_stays_within_its_budget_and_works_while_it_can(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    scheduler = scheduler_of(config)
    for plan, _ in steps(scheduler, workload):
        if plan is None:
            continue
        assert sum(plan.tokens) <= config.max_num_batched_tokens
        assert plan.num_running <= config.max_num_seqs
        if not config.async_scheduling and (plan.num_running or plan.num_waiting):
            assert plan.sequences or plan.preempted


@few
@given(configs(), workloads())
def test_a_pool_beyond_all_needs_may_be_of_any_size(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    def records(num_blocks: int) -> list[Any]:
        at = replace(config, num_blocks=num_blocks, watermark=0.0)
        return list(simulate(OpenLoop(workload), scheduler_of(at), lambda _: 1.0))

    assert records(2000) == records(4000)


@few
@given(
    configs(groups=(FULL,), enable_prefix_caching=False, policy="fcfs", drafts=None), workloads()
)
def test_alike_requests_that_come_at_once_are_done_no_later_with_more_blocks(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    # Of others it does not hold: with more room a long one may be let in before short ones.
    alike = [replace(workload[0], id=one.id, output_tokens=1) for one in workload]
    roomy = replace(config, max_num_batched_tokens=4096, long_prefill_token_threshold=0)

    def makespan(num_blocks: int) -> float:
        at = scheduler_of(replace(roomy, num_blocks=num_blocks, watermark=0.0))
        return max(record.finish_seconds for record in simulate(OpenLoop(alike), at, lambda _: 1.0))

    spans = [makespan(2 + LONGEST // BLOCK + more) for more in (0, 5, 17, 60, 400)]
    assert spans == sorted(spans, reverse=True)


@few
@given(configs(), workloads())
def test_the_same_workload_gives_the_same_records_and_every_answer_is_whole(
    config: VllmSchedulerConfig, workload: list[Request]
) -> None:
    def records() -> list[Any]:
        return list(
            simulate(
                OpenLoop(workload),
                scheduler_of(config),
                lambda plan: 0.01 + 1e-4 * sum(plan.tokens),
            )
        )

    first = records()
    assert first == records()
    by_id = sorted(first, key=lambda record: record.id)
    for record, asked in zip(by_id, workload, strict=True):
        wanted = min(asked.output_tokens, LONGEST - asked.prompt_tokens)
        assert (record.id, record.output_tokens) == (asked.id, wanted)
