"""Bars of single requests: what each was doing, and which are drawn."""

from typing import Any

import pytest

from tokenroom.errors import TokenroomError
from tokenroom.reports.gantt import MOST_BARS, GanttSamples
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord


def record(id: int, *times: float, **changes: Any) -> RequestRecord:
    arrival, scheduled, first_token, finish = times
    return RequestRecord(
        id=id,
        session=None,
        arrival_seconds=arrival,
        scheduled_seconds=scheduled,
        first_token_seconds=first_token,
        finish_seconds=finish,
        prompt_tokens=10,
        output_tokens=5,
        cached_tokens=0,
        preemptions=0,
        **changes,
    )


def step(at: float, lost: tuple[int, ...] = (), again: tuple[int, ...] = ()) -> StepRecord:
    return StepRecord(at, at + 0.1, 1, 1, 1, 0, 1, len(lost), [], lost, again)


def test_a_bar_is_made_of_what_a_request_was_doing() -> None:
    samples = GanttSamples()
    samples.request(record(4, 1.0, 3.0, 4.0, 9.0))
    samples.request(record(2, 0.5, 0.5, 1.5, 1.5))
    first, second = samples.bars()
    assert first == (2, (("prompt", 0.5, 1.5),))
    assert second == (4, (("waiting", 1.0, 3.0), ("prompt", 3.0, 4.0), ("answer", 4.0, 9.0)))
    assert samples.span_seconds() == (0.5, 9.0)


def test_what_was_lost_parts_prompt_and_answer() -> None:
    samples = GanttSamples()
    for at, lost, again in ((3.5, (1,), ()), (4.5, (), (1,)), (6.0, (1, 2), ()), (7.0, (), (1,))):
        samples.step(step(at, lost, again))
    samples.request(record(1, 1.0, 3.0, 5.0, 9.0))
    samples.request(record(2, 1.5, 3.0, 4.0, 6.5))  # its last token was under way
    first, second = samples.bars()
    assert first.phases == (
        ("waiting", 1.0, 3.0),
        ("prompt", 3.0, 3.5),
        ("preempted", 3.5, 4.5),
        ("prompt", 4.5, 5.0),
        ("answer", 5.0, 6.0),
        ("preempted", 6.0, 7.0),
        ("answer", 7.0, 9.0),
    )
    assert second.phases[-2:] == (("answer", 4.0, 6.0), ("preempted", 6.0, 6.5))


def test_phases_cover_the_stay_without_a_gap() -> None:
    samples = GanttSamples()
    samples.step(step(3.5, (1,)))
    samples.step(step(6.0, (), (1,)))  # away from its prompt into its answer
    samples.request(record(1, 1.0, 3.0, 5.0, 9.0))
    (bar,) = samples.bars()
    assert [phase.start_seconds for phase in bar.phases[1:]] == [
        phase.end_seconds for phase in bar.phases[:-1]
    ]
    assert (bar.phases[0].start_seconds, bar.phases[-1].end_seconds) == (1.0, 9.0)


def test_only_who_was_there_in_the_window_is_taken() -> None:
    samples = GanttSamples((10.0, 20.0))
    for id, times in enumerate(
        [(1.0, 1.0, 2.0, 10.0), (1.0, 1.0, 2.0, 10.5), (19.0, 21.0, 22.0, 30.0), (20.0,) * 4]
    ):
        samples.request(record(id, *times))
    samples.request(record(9, 15.0, 15.0, 15.0, 15.0, refused=Refusal.TOO_LONG))
    assert [bar.id for bar in samples.bars()] == [1, 2]
    assert samples.present == 2
    assert samples.span_seconds() == (10.0, 20.0)


def test_of_too_many_the_first_that_came_are_drawn() -> None:
    samples = GanttSamples()
    for id in reversed(range(MOST_BARS + 50)):
        samples.request(record(id, id / 10, id / 10 + 1, id / 10 + 2, 200.0))
    assert [bar.id for bar in samples.bars()] == list(range(MOST_BARS))
    assert samples.present == MOST_BARS + 50


def test_a_window_holds_time() -> None:
    with pytest.raises(TokenroomError, match="10 s to 10 s, holds no time"):
        GanttSamples((10.0, 10.0))
