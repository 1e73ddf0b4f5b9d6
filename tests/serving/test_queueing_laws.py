"""Queues whose waiting time is known in closed form, as limits of the simulated engine.

With ``max_num_seqs`` 1 and answers of one token every request is one step, so that the engine is a
queue with one server: its step-time callable is the time of service.
"""

from collections.abc import Callable, Iterable
from math import exp
from random import Random
from statistics import fmean, stdev

import pytest

from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.simulator import simulate

SECONDS = 1e-3
"""Of service, for each token of a prompt."""
LONGEST = 1000
REQUESTS = 24_000
BATCHES = 24
ERRORS = 3.5
"""Standard errors of the mean within which it is found (the seeds are fixed)."""


def server(max_num_seqs: int = 1, **settings: object) -> VllmScheduler:
    usual = {
        "num_blocks": 4096,
        "groups": (KvGroup(kind=Kind.FULL, block_tokens=16),),
        "max_model_len": LONGEST + 10,
        "max_num_batched_tokens": 2 * LONGEST,
        "max_num_seqs": max_num_seqs,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    return VllmScheduler(VllmSchedulerConfig(**(usual | settings)))  # type: ignore[arg-type]


def service_seconds(plan: StepPlan) -> float:
    return SECONDS * sum(plan.tokens)


def arriving(
    rate: float, lengths: Callable[[Random], int], seed: int, urgent_share: float = 0.0
) -> Iterable[Request]:
    """Requests that come independently of each other."""
    draw = Random(seed)
    seconds = 0.0
    for id in range(REQUESTS):
        seconds += draw.expovariate(rate)
        yield Request(
            id=id,
            arrival_seconds=seconds,
            prompt_tokens=lengths(draw),
            output_tokens=1,
            priority=int(draw.random() >= urgent_share),
        )


def waits(records: Iterable[RequestRecord]) -> tuple[float, float]:
    """Mean time until requests are served, and its standard error by means of batches.

    Batches follow each other in time, since requests that come together wait together.
    """
    waited = [
        record.scheduled_seconds - record.arrival_seconds
        for record in sorted(records, key=lambda record: record.id)
    ]
    size = len(waited) // BATCHES
    means = [fmean(waited[at * size : (at + 1) * size]) for at in range(BATCHES)]
    return fmean(means), stdev(means) / BATCHES**0.5


def constant(_: Random) -> int:
    return 100


def two_lengths(draw: Random) -> int:
    return 40 if draw.random() < 0.9 else 640


def falling(draw: Random) -> int:
    return min(LONGEST, 1 + int(draw.expovariate(1 / 99.5)))


def pollaczek_khinchine(rate: float, first: float, second: float) -> float:
    """Mean wait of M/G/1, by the first and second moment of the time of service."""
    return rate * second / (2 * (1 - rate * first))


def moments(lengths: Callable[[Random], int]) -> tuple[float, float]:
    if lengths is constant:
        values = [(100, 1.0)]
    elif lengths is two_lengths:
        values = [(40, 0.9), (640, 0.1)]
    else:  # exact sums of the exponential distribution in whole tokens
        step = exp(-1 / 99.5)
        values = [(tokens, step ** (tokens - 1) * (1 - step)) for tokens in range(1, LONGEST)]
        values.append((LONGEST, step ** (LONGEST - 1)))
    first, second = (
        sum(share * (SECONDS * tokens) ** power for tokens, share in values) for power in (1, 2)
    )
    return first, second


@pytest.mark.parametrize(
    ("lengths", "load"), [(constant, 0.3), (constant, 0.8), (two_lengths, 0.6), (falling, 0.8)]
)
def test_one_server_waits_as_pollaczek_and_khinchine_say(
    lengths: Callable[[Random], int], load: float
) -> None:
    first, second = moments(lengths)
    rate = load / first
    expected = pollaczek_khinchine(rate, first, second)
    if lengths is constant:  # M/D/1
        assert expected == pytest.approx(load * first / (2 * (1 - load)))
    records = simulate(OpenLoop(arriving(rate, lengths, seed=1)), server(), service_seconds)
    mean, error = waits(records)
    assert error < 0.12 * expected
    assert mean == pytest.approx(expected, abs=ERRORS * error)


def test_urgent_requests_wait_as_cobham_says() -> None:
    first, second = moments(two_lengths)
    load, share = 0.7, 0.3
    rate = load / first
    rest = rate * second / 2
    urgent_load = share * load
    expected = {
        0: rest / (1 - urgent_load),
        1: rest / ((1 - urgent_load) * (1 - load)),
    }
    requests = arriving(rate, two_lengths, seed=2, urgent_share=share)
    priority: dict[int, int] = {}

    def noted() -> Iterable[Request]:
        for request in requests:
            priority[request.id] = request.priority
            yield request

    records = list(simulate(OpenLoop(noted()), server(policy="priority"), service_seconds))
    for urgency, predicted in expected.items():
        of_it = [record for record in records if priority[record.id] == urgency]
        mean, error = waits(of_it)
        assert mean == pytest.approx(predicted, abs=ERRORS * error)
    # Conservation (Kleinrock): the wait weighted by work is that of first come, first served.
    weighted = share * expected[0] + (1 - share) * expected[1]
    assert weighted == pytest.approx(pollaczek_khinchine(rate, first, second))


@pytest.mark.parametrize("servers", [1, 4])
def test_the_engine_works_while_there_is_a_request(servers: int) -> None:
    steps: list[StepRecord] = []
    rate = 0.9 / moments(falling)[0]
    records = list(
        simulate(
            OpenLoop(arriving(rate, falling, seed=3)),
            server(servers, max_num_batched_tokens=LONGEST),
            service_seconds,
            observe=steps.append,
        )
    )
    present = sorted((record.arrival_seconds, record.finish_seconds) for record in records)
    at = 0
    busy_until = 0.0
    for step in steps:
        if step.start_seconds > busy_until:  # it was idle: all that had come were done
            while at < len(present) and present[at][0] < step.start_seconds:
                assert present[at][1] <= busy_until
                at += 1
            assert present[at][0] == step.start_seconds
        busy_until = step.end_seconds
    work = sum(record.prompt_tokens for record in records) * SECONDS
    assert sum(step.end_seconds - step.start_seconds for step in steps) == pytest.approx(work)


def test_more_room_or_a_quicker_step_lets_nobody_wait_longer() -> None:
    def finished(seconds: float, rooms: int) -> list[float]:
        workload = [
            Request(id=id, arrival_seconds=0.05 * id, prompt_tokens=160, output_tokens=40)
            for id in range(120)
        ]
        scheduler = server(64, num_blocks=rooms, max_num_batched_tokens=LONGEST)
        records = simulate(OpenLoop(workload), scheduler, lambda _: seconds)
        return [record.finish_seconds for record in sorted(records, key=lambda one: one.id)]

    for less, more in (((0.02, 140), (0.02, 300)), ((0.02, 300), (0.02, 900))):
        assert all(a >= b for a, b in zip(finished(*less), finished(*more), strict=True))
    for slow, quick in ((0.03, 0.02), (0.02, 0.005)):
        assert all(a >= b for a, b in zip(finished(slow, 300), finished(quick, 300), strict=True))
