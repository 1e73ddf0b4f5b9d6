"""Static batching: batches assembled, padded and run to the end of their longest answer."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.errors import DeploymentError
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.record import Refusal, RequestRecord
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.static import StaticScheduler, StaticSchedulerConfig
from tokenroom.serving.simulator import simulate

LONGEST = 100


def scheduler(batch_size: int = 4) -> StaticScheduler:
    return StaticScheduler(StaticSchedulerConfig(batch_size=batch_size, max_model_len=LONGEST))


def asks(id: int, prompt: int, output: int, at: float = 0.0) -> Request:
    return Request(id=id, arrival_seconds=at, prompt_tokens=prompt, output_tokens=output)


def test_a_batch_is_padded_to_its_longest_prompt_and_run_to_its_longest_answer() -> None:
    at = scheduler()
    for request in (asks(0, 5, 1), asks(1, 20, 4), asks(2, 8, 2)):
        at.add(request)
    steps = []
    while at.unfinished:
        plan = at.schedule()
        done = at.complete(plan)
        speaking = [one.request.id for one in plan.sequences if one not in plan.silent]
        steps.append((plan.tokens, plan.contexts, speaking, [one.request.id for one in done]))
    assert steps == [
        ([20] * 3, [0] * 3, [1, 2], []),
        ([1] * 3, [20] * 3, [1], []),
        ([1] * 3, [21] * 3, [1], []),
        ([1] * 3, [22] * 3, [0, 1, 2], [0, 1, 2]),
    ]


def test_who_comes_while_a_batch_runs_waits_for_its_end() -> None:
    requests = [asks(0, 10, 5), asks(1, 10, 2, at=0.5), asks(2, 10, 3, at=1.5)]
    records = list(simulate(OpenLoop(requests), scheduler(), lambda _: 1.0))
    assert [(record.id, record.scheduled_seconds) for record in records] == [
        (0, 0.0),
        (1, 5.0),
        (2, 5.0),
    ]
    assert [record.finish_seconds for record in records] == [5.0, 8.0, 8.0]
    assert [record.first_token_seconds for record in records] == [1.0, 6.0, 6.0]


def test_a_batch_is_no_longer_than_the_context() -> None:
    at = scheduler()
    at.add(asks(0, 60, 10))
    at.add(asks(1, 5, 50))  # 60 + 50 is beyond 100
    at.add(asks(2, 5, 5))
    assert [one.request.id for one in at.schedule().sequences] == [0]
    assert at.refusal(asks(3, LONGEST, 1)) is Refusal.TOO_LONG
    assert at.refusal(asks(3, LONGEST - 1, 9)) is None


def test_rows_of_who_left_are_computed_on_until_nobody_is_left() -> None:
    at = scheduler()
    first, second, third = (at.add(asks(id, 5, 9)) for id in range(3))
    at.add(asks(3, 5, 9))
    waiting = at.add(asks(4, 5, 9))
    at.complete(at.schedule())
    at.abort(waiting)
    at.abort(first)
    at.abort(first)
    plan = at.schedule()
    assert (len(plan.sequences), first in plan.silent) == (4, True)
    at.complete(plan)
    assert [len(at.batch), len(at.waiting)] == [4, 0]
    at.abort(second)
    at.abort(third)
    at.abort(plan.sequences[3])
    assert at.unfinished == 0


@pytest.mark.parametrize(
    "settings", [{"batch_size": 0, "max_model_len": 5}, {"batch_size": 1, "max_model_len": 0}]
)
def test_a_batch_has_a_request_and_a_token(settings: dict[str, int]) -> None:
    with pytest.raises(DeploymentError, match="is 0; it must be 1 or more"):
        StaticSchedulerConfig(**settings)


requests_drawn = st.lists(
    st.tuples(
        st.integers(1, LONGEST - 1), st.integers(1, 40), st.sampled_from((0.0, 0.0, 3.5, 30.0))
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(requests_drawn, st.sampled_from((1, 3, 8)))
def test_every_answer_is_whole_and_ends_with_its_batch(
    drawn: list[tuple[int, int, float]], batch_size: int
) -> None:
    at, requests = 0.0, []
    for index, (prompt, output, gap) in enumerate(drawn):
        at += gap
        requests.append(asks(index, prompt, output, at))

    def records() -> list[RequestRecord]:
        return list(simulate(OpenLoop(requests), scheduler(batch_size), lambda _: 1.0))

    served = records()
    assert served == records()
    by_id = sorted(served, key=lambda record: record.id)
    batches: dict[float, set[float]] = {}
    for record, asked in zip(by_id, requests, strict=True):
        wanted = min(asked.output_tokens, LONGEST - asked.prompt_tokens)
        assert (record.id, record.output_tokens) == (asked.id, wanted)
        batches.setdefault(record.scheduled_seconds, set()).add(record.finish_seconds)
    assert all(len(ends) == 1 for ends in batches.values())
    starts = [record.scheduled_seconds for record in by_id]
    assert starts == sorted(starts)


@settings(max_examples=30, deadline=None)
@given(requests_drawn)
def test_requests_that_come_at_once_are_done_no_later_in_larger_batches(
    drawn: list[tuple[int, int, float]],
) -> None:
    alike = [asks(index, 10, drawn[0][1]) for index in range(len(drawn))]

    def makespan(size: int) -> float:
        served: list[Any] = list(simulate(OpenLoop(alike), scheduler(size), lambda _: 1.0))
        return max(record.finish_seconds for record in served)

    spans = [makespan(size) for size in (1, 2, 5, 20)]
    assert spans == sorted(spans, reverse=True)
