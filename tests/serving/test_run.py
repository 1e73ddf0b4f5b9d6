"""Laws that any served workload obeys, whatever the engine decides."""

import math

import pytest

from tokenroom import fit
from tokenroom.fitting import FitResult
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.run import Run
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving_speed import speed


@pytest.fixture(scope="module")
def deployment() -> FitResult:
    return fit("llama-3-8b", "a100")


def served(deployment: FitResult, text: str) -> tuple[Run, list[RequestRecord], list[StepRecord]]:
    run = Run(deployment)
    workload = parse_workload(text)
    steps: list[StepRecord] = []
    waits = workload.users is not None
    records = list(run.serve(workload.start(), waits_for_answers=waits, observe=steps.append))
    return run, records, steps


def test_users_times_throughput_is_response_and_thought(deployment: FitResult) -> None:
    """The interactive response time law, N = X (R + Z), over a window in which all users live."""
    users, think = 24, 2.0
    text = f"users:count={users},think={think:g}s,input=600,output=uniform(1,200),requests=1500"
    _, records, _ = served(deployment, text)
    low, high = records[200].finish_seconds, records[-200].finish_seconds
    inside = [record for record in records if low <= record.finish_seconds < high]
    rate = len(inside) / (high - low)
    response = math.fsum(record.e2e_seconds for record in inside) / len(inside)
    assert rate * (response + think) == pytest.approx(users, rel=0.02)


def test_requests_in_the_system_are_rate_times_stay(deployment: FitResult) -> None:
    """Little's law over a whole run: the time that requests stay is the integral of their number.

    A request is seen by a step from the first that is decided after it has reached the engine to
    the one that ends it, so the two sides differ by what passes before and between.
    """
    run, records, steps = served(deployment, "poisson:rate=6,input=600,output=150,requests=600")
    stay = math.fsum(record.e2e_seconds for record in records)
    present = math.fsum(
        (step.end_seconds - step.start_seconds) * (step.running + step.waiting) for step in steps
    )
    assert present == pytest.approx(stay, rel=0.03)
    assert run.outcome().metrics.requests == 600


@pytest.mark.parametrize("users", [4, 16, 48])
def test_a_steady_load_sees_what_the_closed_form_says(deployment: FitResult, users: int) -> None:
    text = (
        f"users:count={users},input=uniform(512,1536),output=uniform(1,511),requests={users * 20}"
    )
    _, records, _ = served(deployment, text)
    steady = records[3 * users : -2 * users]
    tpots = [record.tpot_seconds for record in steady if record.tpot_seconds is not None]
    told = speed("llama-3-8b", "a100", input_tokens=1024, output_tokens=256, concurrency=users)
    assert sum(tpots) / len(tpots) == pytest.approx(told.tpot_seconds.value, rel=0.05)
    ttft = sum(record.ttft_seconds for record in steady) / len(steady)
    assert ttft == pytest.approx(told.ttft_seconds.value, rel=0.2)


def test_a_queue_that_grows_to_the_end_is_told_from_one_that_does_not(
    deployment: FitResult,
) -> None:
    text = "input=2000,output=100,requests=600"
    assert served(deployment, f"poisson:rate=100,{text}")[0].outcome().falls_behind is True
    assert served(deployment, f"poisson:rate=2,{text}")[0].outcome().falls_behind is False
    assert served(deployment, f"batch:{text}")[0].outcome().falls_behind is False


@pytest.mark.parametrize("rate", [30, 60, 100, 150, 250, 1000])
def test_a_load_a_hundred_times_too_high_is_told_however_soon_it_has_come(rate: int) -> None:
    one_by_one = fit("llama-3-8b", "a100", max_num_seqs=1)
    text = "input=100,output=50,requests=300"
    assert served(one_by_one, f"poisson:rate={rate},{text}")[0].outcome().falls_behind is True
    assert served(one_by_one, f"batch:{text}")[0].outcome().falls_behind is False
