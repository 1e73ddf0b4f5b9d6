"""Prompts by some engines, answers by others: what each does, and how KV moves between them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from tokenroom import fit
from tokenroom.errors import DeploymentError, FleetError
from tokenroom.fitting import FitResult
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.fleet_description import Role, RouterDescription, Transfer
from tokenroom.serving.pool import Pool, pool_of
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.run import Run
from tokenroom.serving.schedulers.vllm_transfers import VllmDecodeScheduler
from tokenroom.serving.workloads.grammar import parse_workload

AT_ONCE = Transfer(link=None, bytes_per_second=1e30)


@pytest.fixture(scope="module")
def deployment() -> FitResult:
    return fit("llama-3-8b", "h100")


def pools(deployment: FitResult, prefill: int = 1, decode: int = 1) -> tuple[Pool, Pool]:
    return (
        pool_of(deployment, name="prompts", replicas=prefill, role=Role.PREFILL),
        pool_of(deployment, name="answers", replicas=decode, role=Role.DECODE),
    )


def served(
    pools: Sequence[Pool], requests: Iterable[Request], transfer: Transfer
) -> tuple[Run, list[RequestRecord], list[StepRecord]]:
    run = Run(pools, router=RouterDescription(), transfer=transfer)
    steps: list[StepRecord] = []
    return run, list(run.serve(OpenLoop(requests), observe=steps.append)), steps


def drawn(text: str) -> list[Request]:
    return list(parse_workload(text))


LOAD = "poisson:rate=15,input=lognormal(1200,0.8,7000),output=uniform(1,200),requests=300"


def test_every_answer_is_written_by_a_server_of_answers(deployment: FitResult) -> None:
    requests = drawn(LOAD)
    run, records, steps = served(pools(deployment, 2, 2), requests, AT_ONCE)
    assert sorted(record.id for record in records) == [request.id for request in requests]
    outputs = {request.id: request.output_tokens for request in requests}
    assert all(record.output_tokens == outputs[record.id] for record in records)
    assert {record.replica for record in records} == {2, 3}
    assert all(
        record.arrival_seconds < record.scheduled_seconds < record.first_token_seconds
        for record in records
    )
    prompts, answers = run.outcome().pools
    assert prompts.metrics.output_tokens == answers.metrics.requests == len(requests)
    assert answers.metrics.computed_tokens == sum(outputs.values())
    written = [step for step in steps if step.replica >= 2]
    assert all(step.tokens == step.sequences for step in written)
    assert max(step.used_blocks for step in steps[-2:]) < 400


def test_prompts_are_computed_as_if_answers_had_one_token(deployment: FitResult) -> None:
    requests = drawn(LOAD)
    seen: list[RequestRecord] = []
    run = Run(pools(deployment), transfer=AT_ONCE)
    fleet = run._fleet
    assert fleet is not None
    tell = fleet._ended
    fleet._ended = lambda place, record: (place or seen.append(record), tell(place, record))
    list(run.serve(OpenLoop(requests)))
    plain = Run(deployment)
    assert seen == list(
        plain.serve(OpenLoop(replace(request, output_tokens=1) for request in requests))
    )


def test_a_request_alone_takes_its_prompt_the_transfer_and_its_answer(
    deployment: FitResult,
) -> None:
    (prompts, answers) = pools(deployment)
    request = Request(id=7, arrival_seconds=1.0, prompt_tokens=1000, output_tokens=3)
    (alone,) = Run(deployment).serve(OpenLoop([replace(request, output_tokens=1)]))
    blocks = -(-1000 // 16)
    block_bytes = 16 * 2 * 32 * 8 * 128 * 2  # tokens, K and V, layers, heads, width, bfloat16
    delay = prompts.cost.delay_seconds(request)
    first = {}
    for bandwidth, latency in ((1e9, 0.0), (1e9, 0.5), (2e9, 0.0)):
        link = Transfer(link=None, bytes_per_second=bandwidth, latency_seconds=latency)
        _, (record,), steps = served((prompts, answers), [request], link)
        arrives = alone.finish_seconds + delay + latency + blocks * block_bytes / bandwidth
        assert [step.tokens for step in steps] == [1000, 1, 1, 1]
        assert steps[1].start_seconds == pytest.approx(arrives)
        assert record.first_token_seconds == steps[1].end_seconds
        assert record.scheduled_seconds == alone.scheduled_seconds
        first[bandwidth, latency] = record.first_token_seconds
    assert first[1e9, 0.5] - first[1e9, 0.0] == pytest.approx(0.5)


def test_blocks_stay_held_until_they_are_read(deployment: FitResult) -> None:
    requests = drawn(LOAD)
    use, ttft = [], []
    for bandwidth in (1e12, 10e9, 4e9):
        link = Transfer(link=None, bytes_per_second=bandwidth)
        run, _, _ = served(pools(deployment), requests, link)
        done = run.outcome()
        use.append(done.pools[0].metrics.mean_used_blocks)
        assert done.metrics.ttft.mean_seconds is not None
        ttft.append(done.metrics.ttft.mean_seconds)
    assert use == sorted(use)
    assert use[-1] > 1.5 * use[0]
    assert ttft == sorted(ttft)


def test_what_the_server_of_answers_refuses_is_given_back(deployment: FitResult) -> None:
    short = pool_of(fit("llama-3-8b", "h100", context=512), name="answers", role=Role.DECODE)
    fleet = (pools(deployment)[0], short)
    requests = [
        Request(id=0, arrival_seconds=0.0, prompt_tokens=600, output_tokens=5),
        Request(id=1, arrival_seconds=0.0, prompt_tokens=9000, output_tokens=5),
        Request(id=2, arrival_seconds=0.0, prompt_tokens=60, output_tokens=5),
    ]
    run, records, _ = served(fleet, requests, AT_ONCE)
    assert {record.id: record.refused for record in records} == {
        0: Refusal.TOO_LONG,
        1: Refusal.TOO_LONG,
        2: None,
    }
    done = run.outcome()
    assert [pool.metrics.refused for pool in done.pools] == [1, 1]
    assert done.refusals == {Refusal.TOO_LONG: 2}


def test_a_prefix_that_is_there_already_is_not_moved(deployment: FitResult) -> None:
    scheduler = pools(deployment)[1].engine.new_scheduler()
    assert isinstance(scheduler, VllmDecodeScheduler)
    names = tuple(range(100, 160))
    for number, arrives, expected in ((0, True, 63), (1, False, 3)):
        sequence = scheduler.add(
            Request(
                id=number,
                arrival_seconds=0.0,
                prompt_tokens=1000,
                output_tokens=1,
                block_hashes=names,
            )
        )
        assert scheduler.schedule().sequences == []
        ((wanted, blocks),) = scheduler.wanted()
        assert (wanted, blocks) == (sequence, expected)
        assert scheduler.unfinished == 1
        if arrives:
            scheduler.arrived(sequence)
            plan = scheduler.schedule()
            assert (plan.sequences, plan.tokens, plan.contexts) == ([sequence], [1], [999])
            assert scheduler.complete(plan) == [sequence]
        else:
            scheduler.abort(sequence)
    assert scheduler.unfinished == 0
    assert scheduler.kv.pool.num_free == scheduler.config.num_blocks - 1


def test_an_answer_that_loses_its_blocks_computes_its_prompt_anew() -> None:
    small = fit("llama-3-8b", "h100", kv_cache_memory_bytes=2**30, context=4096)
    requests = [
        Request(id=index, arrival_seconds=0.0, prompt_tokens=900, output_tokens=1500)
        for index in range(6)
    ]
    _, records, steps = served(pools(small), requests, AT_ONCE)
    assert sorted(record.id for record in records) == list(range(6))
    assert sum(record.preemptions for record in records) > 0
    assert any(step.replica == 1 and step.tokens > 900 for step in steps)


def test_what_does_not_serve_together_is_refused(deployment: FitResult) -> None:
    prompts, answers = pools(deployment)
    with pytest.raises(FleetError, match="role prefill and none with role decode"):
        Run([prompts, prompts])
    with pytest.raises(FleetError, match="link of transfer is nvlink, which NVIDIA L4 of pool"):
        Run(
            [prompts, pool_of(fit("llama-3-8b", "l4"), name="l4", role=Role.DECODE), answers],
            transfer=Transfer(link="nvlink"),
        )
    windows = fit("gemma-3-12b", "h100")
    for role in (Role.PREFILL, Role.DECODE):
        with pytest.raises(DeploymentError, match="full attention in every layer"):
            pool_of(windows, role=role)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (lambda: fit("qwen2.5-7b", "h100"), "the model of pool 'prompts' is .*Llama-3-8B.*Qwen"),
        (lambda: fit("llama-3-8b", "h100", kv="fp8"), "the type of the KV cache"),
        (lambda: fit("llama-3-8b", "h100", engine="vllm@0.32.0"), "the version of vLLM"),
    ],
)
def test_what_cannot_read_the_others_kv_is_refused(
    deployment: FitResult, answers: Callable[[], FitResult], said: str
) -> None:
    prompts = pool_of(deployment, name="prompts", role=Role.PREFILL)
    with pytest.raises(FleetError, match=said):
        Run((prompts, pool_of(answers(), name="answers", role=Role.DECODE)))
