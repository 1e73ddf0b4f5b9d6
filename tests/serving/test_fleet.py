"""Several servers in one virtual time: laws that hold whatever the router does."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

from tokenroom import fit
from tokenroom.fitting import FitResult
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.fleet import Fleet
from tokenroom.serving.fleet_description import Measure, Policy, RouterDescription, Scaling
from tokenroom.serving.pool import Pool, pool_of
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.run import Run, Simulation
from tokenroom.serving.simulator import simulate
from tokenroom.serving.step_table import StepTable
from tokenroom.serving.workloads.grammar import parse_workload


@pytest.fixture(scope="module")
def deployment() -> FitResult:
    return fit("llama-3-8b", "a100")


@pytest.fixture(scope="module")
def one_by_one() -> FitResult:
    """An engine that serves one request at a time, so that it is a queue with one server."""
    return fit("llama-3-8b", "a100", max_num_seqs=1, async_scheduling=False)


def drawn(text: str) -> list[Request]:
    return list(parse_workload(text))


def served(
    pools: FitResult | Sequence[Pool],
    requests: Iterable[Request],
    policy: Policy = Policy.ROUND_ROBIN,
    *,
    replicas: int = 1,
) -> tuple[list[RequestRecord], Simulation, list[StepRecord]]:
    run = Run(pools, router=RouterDescription(policy=policy), replicas=replicas)
    steps: list[StepRecord] = []
    records = list(run.serve(OpenLoop(requests), observe=steps.append))
    return records, run.outcome(), steps


def alone(deployment: FitResult, requests: Iterable[Request]) -> dict[int, tuple[float, ...]]:
    return {record.id: times(record) for record in served(deployment, requests)[0]}


def times(record: RequestRecord) -> tuple[float, ...]:
    return record.scheduled_seconds, record.first_token_seconds, record.finish_seconds


CHAT = "chat-sessions:rate=1.5,requests=150"
LOAD = "poisson:rate=12,input=lognormal(600,0.9,6000),output=uniform(1,200),requests=200"


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("text", [CHAT, LOAD])
def test_no_request_is_lost_or_served_twice(
    deployment: FitResult, policy: Policy, text: str
) -> None:
    requests = drawn(text)
    records, done, steps = served(deployment, requests, policy, replicas=3)
    assert sorted(record.id for record in records) == sorted(request.id for request in requests)
    by_id = {request.id: request for request in requests}
    assert all(record.output_tokens == by_id[record.id].output_tokens for record in records)
    assert {step.replica for step in steps} == {record.replica for record in records}
    (pool,) = done.pools
    assert pool.metrics.requests == done.metrics.requests == len(requests)
    assert pool.metrics.computed_tokens == sum(step.tokens for step in steps)


def test_in_turn_each_server_serves_its_share_as_if_it_were_alone(deployment: FitResult) -> None:
    requests = drawn(LOAD)
    records, _, _ = served(deployment, requests, replicas=3)
    together = {record.id: times(record) for record in records}
    for number in range(3):
        share = requests[number::3]
        assert {record.id for record in records if record.replica == number} == {
            request.id for request in share
        }
        apart = alone(deployment, share)
        assert {request.id: together[request.id] for request in share} == apart


@pytest.mark.parametrize("policy", list(Policy))
def test_servers_never_touch_each_other(deployment: FitResult, policy: Policy) -> None:
    """Whatever is sent where: each server does with it what it does alone."""
    records, _, _ = served(deployment, drawn(CHAT), policy, replicas=2)
    by_id = {request.id: request for request in drawn(CHAT)}
    for number in range(2):
        share = [record for record in records if record.replica == number]
        apart = alone(
            deployment,
            sorted((by_id[one.id] for one in share), key=lambda one: (one.arrival_seconds, one.id)),
        )
        assert {record.id: times(record) for record in share} == apart


def test_a_fleet_of_one_is_the_engine_alone(deployment: FitResult) -> None:
    pool = pool_of(deployment)
    told: list[RequestRecord] = []
    fleet = Fleet(
        (pool,), RouterDescription(), lambda *_: None, lambda _, record: told.append(record)
    )
    records = list(fleet.serve(OpenLoop(drawn(LOAD))))
    plain = simulate(
        OpenLoop(drawn(LOAD)),
        pool.engine.new_scheduler(),
        StepTable(pool.cost),
        delay_seconds=pool.cost.delay_seconds,
    )
    assert records == list(plain) == told


def test_dense_data_parallel_copies_are_independent(deployment: FitResult) -> None:
    copies = fit("llama-3-8b", "a100", dp=3)
    records, done, steps = served(copies, drawn(LOAD))
    assert done.pools[0].pool.copies.count == 3
    assert not done.pools[0].pool.copies.lockstep
    assert {step.rank for step in steps} == {0, 1, 2}
    ends = defaultdict(set)
    for step in steps:
        ends[step.rank].add(step.end_seconds)
    assert not ends[0] & ends[1]
    assert len(records) == 200
    assert done.gpu_hours == pytest.approx(3 * done.metrics.duration_seconds / 3600)


def test_ranks_with_experts_step_together() -> None:
    copies = fit("qwen3-30b-a3b", "h100", dp=2, ep=True)
    requests = drawn(
        "poisson:rate=6,input=lognormal(400,0.8,3000),output=uniform(1,60),requests=60"
    )
    records, done, steps = served(copies, requests)
    assert done.pools[0].pool.copies.lockstep
    assert sorted(record.id for record in records) == [request.id for request in requests]
    spans = {rank: [step for step in steps if step.rank == rank] for rank in (0, 1)}
    for one in spans[0]:
        for other in spans[1]:
            overlap = min(one.end_seconds, other.end_seconds) - max(
                one.start_seconds, other.start_seconds
            )
            same = (one.start_seconds, one.end_seconds) == (other.start_seconds, other.end_seconds)
            assert overlap <= 0 or same
    assert any(
        one.start_seconds == other.start_seconds for one in spans[0] for other in spans[1][:50]
    )


def mean_wait(records: Iterable[RequestRecord], passing: float = 0.0) -> float:
    waits = [record.scheduled_seconds - record.arrival_seconds - passing for record in records]
    return math.fsum(waits) / len(waits)


ALIKE = "poisson:input=512,output=1,requests=6000"


def test_a_random_split_of_poisson_arrivals_is_several_queues_of_one_server(
    one_by_one: FitResult,
) -> None:
    """M/D/1: the mean wait is rho D / 2 (1 - rho), for each of the servers."""
    pool = pool_of(one_by_one, replicas=3)
    first = drawn(f"{ALIKE},rate=1".replace("6000", "1"))
    (lone,), _, _ = served(one_by_one, first)
    service = lone.finish_seconds - lone.scheduled_seconds
    passing = lone.scheduled_seconds - lone.arrival_seconds
    share = 0.7
    requests = [
        Request(
            id=one.id,
            arrival_seconds=one.arrival_seconds,
            prompt_tokens=512,
            output_tokens=1,
            session=one.id,
        )
        for one in drawn(f"{ALIKE},rate={3 * share / service}")
    ]
    records, _, _ = served((pool,), requests, Policy.STICKY)
    expected = share * service / 2 / (1 - share)
    assert mean_wait(records, passing) == pytest.approx(expected, rel=0.1)
    sent = [sum(record.replica == number for record in records) for number in range(3)]
    assert min(sent) > 1850


def test_looking_at_load_is_no_worse_than_chance_and_more_servers_no_slower(
    one_by_one: FitResult,
) -> None:
    requests = [
        Request(
            id=one.id,
            arrival_seconds=one.arrival_seconds,
            prompt_tokens=one.prompt_tokens,
            output_tokens=one.output_tokens,
            session=one.id,
        )
        for one in drawn("poisson:rate=2,input=512,output=uniform(1,60),requests=500")
    ]
    waits = {
        policy: mean_wait(served(one_by_one, requests, policy, replicas=3)[0])
        for policy in (Policy.STICKY, Policy.POWER_OF_TWO, Policy.LEAST_LOAD, Policy.ROUND_ROBIN)
    }
    assert waits[Policy.LEAST_LOAD] < waits[Policy.POWER_OF_TWO] < waits[Policy.STICKY]
    assert waits[Policy.ROUND_ROBIN] < waits[Policy.STICKY]
    by_servers = [
        mean_wait(served(one_by_one, requests, Policy.LEAST_LOAD, replicas=count)[0])
        for count in (1, 2, 3, 5)
    ]
    assert by_servers == sorted(by_servers, reverse=True)
    assert by_servers[0] > 4 * by_servers[-1]


def test_prompts_go_to_the_pool_with_the_least_limit_that_takes_them(
    deployment: FitResult,
) -> None:
    pools = [
        pool_of(deployment, name="long"),
        pool_of(deployment, name="short", replicas=2, max_prompt_tokens=500),
    ]
    records, done, _ = served(pools, drawn(LOAD))
    for record in records:
        assert (record.replica == 0) == (record.prompt_tokens > 500)
    assert [pool.metrics.requests for pool in done.pools] == [
        sum(record.replica == 0 for record in records),
        sum(record.replica > 0 for record in records),
    ]


def test_servers_start_when_requests_wait_and_stop_when_none_do(one_by_one: FitResult) -> None:
    scaling = Scaling(
        most=4,
        measure=Measure.RUNNING,
        target=0.5,
        every_seconds=5.0,
        start_up_seconds=20.0,
        cool_down_seconds=30.0,
    )
    busy = drawn("poisson:rate=2,input=512,output=40,requests=120")
    late = Request(id=1000, arrival_seconds=400.0, prompt_tokens=10, output_tokens=1)
    pool = pool_of(one_by_one, scaling=scaling, price_per_gpu_hour=2.0)
    records, done, steps = served((pool,), [*busy, late], Policy.LEAST_LOAD)
    assert len(records) == 121
    (found,) = done.pools
    assert 1 < found.most_replicas <= 4
    later = {step.replica: step.start_seconds for step in reversed(steps)}
    assert later.pop(0) < 1
    assert all(start >= 5.0 + 20.0 for start in later.values())
    assert done.metrics.duration_seconds < found.held_seconds
    assert found.held_seconds < found.most_replicas * done.metrics.duration_seconds / 2
    assert done.usd == pytest.approx(found.held_seconds / 3600 * 2.0)
