"""Virtual time: who waits for what, and that nothing of a workload is lost."""

from collections.abc import Iterator

import pytest

from tokenroom.errors import WorkloadError
from tokenroom.serving.arrivals import ClosedLoop, OpenLoop
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.simulator import simulate

FULL = KvGroup(kind=Kind.FULL, block_tokens=16)


def scheduler(*, ahead: bool = False, **settings: int) -> VllmScheduler:
    usual = {
        "num_blocks": 64,
        "max_model_len": 512,
        "max_num_batched_tokens": 256,
        "max_num_seqs": 8,
    }
    return VllmScheduler(
        VllmSchedulerConfig(
            groups=(FULL,),
            async_scheduling=ahead,
            **(usual | settings),  # type: ignore[arg-type]
        )
    )


def request(id: int, at: float, prompt: int = 20, output: int = 3) -> Request:
    return Request(id=id, arrival_seconds=at, prompt_tokens=prompt, output_tokens=output)


def one_second(_: StepPlan) -> float:
    return 1.0


def test_a_request_alone_takes_a_step_for_each_token() -> None:
    (record,) = simulate(OpenLoop([request(0, 5.0)]), scheduler(), one_second)
    assert (record.scheduled_seconds, record.first_token_seconds) == (5.0, 6.0)
    assert record.finish_seconds == 8.0
    assert (record.ttft_seconds, record.tpot_seconds, record.e2e_seconds) == (1.0, 1.0, 3.0)


@pytest.mark.parametrize(("ahead", "first_token"), [(False, 2.0), (True, 3.0)])
def test_who_arrives_in_a_step_waits_for_it_and_for_the_one_prepared(
    ahead: bool, first_token: float
) -> None:
    workload = [request(0, 0.0, output=6), request(1, 0.5)]
    records = {
        record.id: record
        for record in simulate(OpenLoop(workload), scheduler(ahead=ahead), one_second)
    }
    # It arrives in the first step, which ends at 1 s; ahead, the second is prepared by then.
    assert records[1].first_token_seconds == first_token
    assert records[0].finish_seconds == 6.0


def test_steps_say_what_ran_and_the_times_between_tokens() -> None:
    steps: list[StepRecord] = []
    workload = [request(0, 0.0, output=4), request(1, 0.0, prompt=300, output=2)]
    records = list(
        simulate(
            OpenLoop(workload),
            scheduler(),
            lambda plan: 0.5 if max(plan.tokens) == 1 else 2.0,
            observe=steps.append,
        )
    )
    assert [record.id for record in records] == [1, 0]
    assert [step.tokens for step in steps] == [256, 1 + 64, 2, 1]
    assert [step.end_seconds for step in steps] == [2.0, 4.0, 4.5, 5.0]
    assert [step.gaps for step in steps] == [[], [(2.0, 1)], [(0.5, 2)], [(0.5, 1)]]
    assert steps[1].used_blocks == 2 + 19
    assert sum(count for step in steps for _, count in step.gaps) == 3 + 1


def test_users_ask_again_after_their_answer_and_a_thought() -> None:
    arrivals = ClosedLoop((request(index, 0.0) for index in range(5)), 2, think_seconds=10.0)
    records = list(simulate(arrivals, scheduler(), one_second))
    assert [record.arrival_seconds for record in records] == [0.0, 0.0, 13.0, 13.0, 26.0]
    assert [record.finish_seconds for record in records] == [3.0, 3.0, 16.0, 16.0, 29.0]


def test_what_the_engine_cannot_serve_is_refused_and_the_rest_goes_on() -> None:
    workload = [
        request(0, 0.0, prompt=512),
        request(1, 0.0, prompt=300, output=100),
        request(2, 1.0),
    ]
    records = list(simulate(ClosedLoop(workload, 1), scheduler(num_blocks=22), one_second))
    assert [(record.id, record.refused) for record in records] == [
        (0, Refusal.TOO_LONG),
        (1, Refusal.BEYOND_POOL),
        (2, None),
    ]
    assert records[2].arrival_seconds == 0.0


def test_an_answer_ends_with_the_context() -> None:
    (record,) = simulate(OpenLoop([request(0, 0.0, 500, 100)]), scheduler(), one_second)
    assert record.output_tokens == 12


def test_a_delay_comes_before_the_scheduler_and_can_change_the_order() -> None:
    workload = [request(0, 0.0, prompt=100), request(1, 0.5, prompt=10)]
    records = list(
        simulate(
            OpenLoop(workload),
            scheduler(max_num_seqs=1),
            one_second,
            delay_seconds=lambda asked: asked.prompt_tokens / 10,
        )
    )
    assert [(record.id, record.scheduled_seconds) for record in records] == [(1, 1.5), (0, 10.0)]


def test_requests_are_read_only_when_their_time_has_come() -> None:
    read: list[int] = []

    def endless() -> Iterator[Request]:
        index = 0
        while True:
            read.append(index)
            yield request(index, 10.0 * index)
            index += 1

    records = simulate(OpenLoop(endless()), scheduler(), one_second)
    for _ in range(3):
        next(records)
    assert len(read) <= 5


def test_requests_out_of_order_are_named() -> None:
    workload = [request(0, 2.0), request(1, 1.0)]
    with pytest.raises(WorkloadError, match=r"request 1 arrives at 1\.0 s, before request 0"):
        list(simulate(OpenLoop(workload), scheduler(), one_second))


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_step_takes_a_finite_time(seconds: float) -> None:
    with pytest.raises(WorkloadError, match="a step of 20 tokens takes"):
        list(simulate(OpenLoop([request(0, 0.0)]), scheduler(), lambda _: seconds))


def test_a_closed_loop_needs_users_and_time_that_passes() -> None:
    with pytest.raises(WorkloadError, match="users is 0"):
        ClosedLoop([], 0)
    with pytest.raises(WorkloadError, match=r"think_seconds is -1\.0"):
        list(simulate(ClosedLoop([request(0, 0.0)], 1, -1.0), scheduler(), one_second))


@pytest.mark.parametrize("ahead", [False, True])
def test_preempted_requests_are_served_to_their_last_token(ahead: bool) -> None:
    workload = [request(index, 0.1 * index, prompt=60, output=90) for index in range(12)]
    steps: list[StepRecord] = []
    records: list[RequestRecord] = list(
        simulate(
            OpenLoop(workload),
            scheduler(ahead=ahead, num_blocks=30),
            one_second,
            observe=steps.append,
        )
    )
    assert sum(record.preemptions for record in records) == sum(step.preempted for step in steps)
    assert sum(record.preemptions for record in records) > 3
    assert {record.output_tokens for record in records} == {90}
    assert sum(count for step in steps for _, count in step.gaps) == 12 * 89
    for record in records:
        assert record.arrival_seconds <= record.scheduled_seconds < record.first_token_seconds
        assert record.first_token_seconds < record.finish_seconds
