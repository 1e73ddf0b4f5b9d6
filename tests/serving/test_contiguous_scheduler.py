"""Continuous batching over reservations in one piece."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.errors import DeploymentError
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.contiguous import ContiguousScheduler, ContiguousSchedulerConfig
from tokenroom.serving.sequence import Sequence
from tokenroom.serving.simulator import simulate

LONGEST = 96
USUAL = ContiguousSchedulerConfig(
    pool_tokens=3 * LONGEST,
    max_model_len=LONGEST,
    max_num_batched_tokens=64,
    max_num_seqs=8,
    asynchronous=False,
)

few = settings(max_examples=50, deadline=None)


def asks(id: int, prompt: int, output: int) -> Request:
    return Request(id=id, arrival_seconds=0, prompt_tokens=prompt, output_tokens=output)


def test_as_many_run_as_ask_as_may_and_as_have_a_piece() -> None:
    for asking, most, pieces in ((1, 8, 3), (9, 2, 3), (9, 8, 3), (9, 8, 1)):
        config = replace(USUAL, max_num_seqs=most, pool_tokens=pieces * LONGEST + 5)
        at = ContiguousScheduler(config)
        for id in range(asking):
            at.add(asks(id, 3, 5))
        assert at.schedule().num_running == min(asking, most, pieces)


def testpieces_of_their_own_length_leave_holes_that_the_next_may_not_fit() -> None:
    at = ContiguousScheduler(replace(USUAL, pool_tokens=100, knows_length=True))
    for id, length in enumerate((30, 40, 30)):
        at.add(asks(id, length - (9 if id == 1 else 1), 9 if id == 1 else 1))
    at.add(asks(3, 35, 5))
    at.add(asks(4, 20, 5))
    at.complete(at.schedule())
    plan = at.schedule()
    at.complete(plan)
    while len(at.running) > 1:
        at.complete(at.schedule())
    # 60 tokens are free in two pieces of 30: the first in the queue needs 40 in one.
    assert ([one.request.id for one in at.running], at.space.taken) == ([1], 40)
    assert at.schedule().num_waiting == 2


def test_prompts_are_divided_by_what_is_left_of_a_step() -> None:
    at = ContiguousScheduler(USUAL)
    at.add(asks(0, 50, 3))
    at.add(asks(1, 50, 3))
    first = at.schedule()
    at.complete(first)
    assert (first.tokens, [one.request.id for one in first.silent]) == ([50, 14], [1])
    second = at.schedule()
    assert (second.tokens, second.contexts) == ([1, 36], [50, 14])


def test_aborting_gives_the_piece_back() -> None:
    at = ContiguousScheduler(replace(USUAL, max_num_seqs=1))
    running, waiting = at.add(asks(0, 10, 5)), at.add(asks(1, 10, 5))
    at.complete(at.schedule())
    assert at.space.taken == LONGEST
    at.abort(waiting)
    at.abort(running)
    at.abort(running)
    assert (at.unfinished, at.space.taken) == (0, 0)


def test_what_no_piece_holds_is_refused() -> None:
    at = ContiguousScheduler(replace(USUAL, pool_tokens=50, knows_length=True))
    assert at.refusal(asks(0, 40, 10)) is None
    assert at.refusal(asks(0, 40, 11)) is Refusal.BEYOND_POOL
    assert at.refusal(asks(0, LONGEST, 1)) is Refusal.TOO_LONG
    longest = ContiguousScheduler(replace(USUAL, pool_tokens=50))
    assert longest.refusal(asks(0, 1, 1)) is Refusal.BEYOND_POOL


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(DeploymentError, match="max_num_seqs is 0"):
        replace(USUAL, max_num_seqs=0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[ContiguousSchedulerConfig, list[Request]]:
    config = ContiguousSchedulerConfig(
        pool_tokens=LONGEST + draw(st.integers(0, 400)),
        max_model_len=LONGEST,
        max_num_batched_tokens=draw(st.sampled_from((16, 40, 128))),
        max_num_seqs=draw(st.sampled_from((2, 5, 16))),
        knows_length=draw(st.booleans()),
        asynchronous=draw(st.booleans()),
    )
    at, requests = 0.0, []
    for index in range(draw(st.integers(1, 14))):
        at += draw(st.sampled_from((0.0, 0.0, 1.0, 9.5)))
        requests.append(
            Request(
                id=index,
                arrival_seconds=at,
                prompt_tokens=draw(st.integers(1, LONGEST - 1)),
                output_tokens=draw(st.integers(1, 40)),
            )
        )
    return config, requests


def steps(at: ContiguousScheduler, workload: list[Request]) -> Iterator[StepPlan]:
    due, behind = list(workload), None
    step = 0
    while due or at.unfinished or behind is not None:
        while due and due[0].arrival_seconds <= step:
            at.add(due.pop(0))
        plan = at.schedule()
        yield plan
        returned = plan
        if at.config.asynchronous:
            behind, returned = (plan if plan.sequences else None), behind  # type: ignore[assignment]
        if returned is not None:
            at.complete(returned)
        step += 1
        assert step < 20_000


@few
@given(cases())
def testpieces_do_not_overlap_and_are_given_back(
    case: tuple[ContiguousSchedulerConfig, list[Request]],
) -> None:
    config, workload = case
    at = ContiguousScheduler(config)
    for plan in steps(at, workload):
        pieces = sorted(
            (at.pieces[one], one.last_tokens if config.knows_length else LONGEST)
            for one in at.running
        )
        ends = [start + length for start, length in pieces]
        assert all(end <= start for end, (start, _) in zip(ends, pieces[1:], strict=False))
        assert max(ends, default=0) <= config.pool_tokens
        assert plan.used_blocks == sum(length for _, length in pieces)
        assert sum(plan.tokens) <= config.max_num_batched_tokens
        assert plan.num_running <= config.max_num_seqs
        if not config.asynchronous and (plan.num_running or plan.num_waiting):
            assert plan.sequences
    assert at.space.taken == 0


@few
@given(cases())
def test_every_token_is_computed_once(
    case: tuple[ContiguousSchedulerConfig, list[Request]],
) -> None:
    config, workload = case
    computed: dict[Sequence, int] = {}
    for plan in steps(ContiguousScheduler(config), workload):
        for sequence, tokens, context in zip(
            plan.sequences, plan.tokens, plan.contexts, strict=True
        ):
            assert computed.get(sequence, 0) == context
            computed[sequence] = context + tokens
    assert len(computed) == len(workload)
    assert all(tokens == one.last_tokens - 1 for one, tokens in computed.items())


@few
@given(cases())
def test_alike_requests_are_done_no_later_with_more_room(
    case: tuple[ContiguousSchedulerConfig, list[Request]],
) -> None:
    config, workload = case
    alike = [replace(workload[0], id=one.id, output_tokens=1) for one in workload]
    roomy = replace(config, max_num_batched_tokens=4096)

    def served(pool_tokens: int) -> list[Any]:
        at = ContiguousScheduler(replace(roomy, pool_tokens=pool_tokens))
        return list(simulate(OpenLoop(alike), at, lambda _: 1.0))

    spans = [
        max(record.finish_seconds for record in served(LONGEST * pieces))
        for pieces in (1, 2, 5, 30)
    ]
    assert spans == sorted(spans, reverse=True)
    assert served(5000) == served(9000)
