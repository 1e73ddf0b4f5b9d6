"""Engines of several stages: who waits for what, and how many steps are under way."""

import math
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tokenroom import fit
from tokenroom.errors import DeploymentError
from tokenroom.serving.arrivals import ClosedLoop, OpenLoop
from tokenroom.serving.engine import Engine, OneByOne
from tokenroom.serving.events import Events, happen
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.pipeline import Pipeline, PipelineCost, StageTimes
from tokenroom.serving.pool import pool_of
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.replica import Replica
from tokenroom.serving.request import Request
from tokenroom.serving.run import Run
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.schedulers.vllm_pipeline import VllmPipelineConfig, VllmPipelineScheduler
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving_speed import speed

SETTINGS = {
    "groups": (KvGroup(kind=Kind.FULL, block_tokens=16),),
    "num_blocks": 200,
    "max_model_len": 512,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 64,
}


def staged(stages: int, *, staggers: bool, **settings: int) -> VllmPipelineConfig:
    return VllmPipelineConfig(
        **(SETTINGS | settings),  # type: ignore[arg-type]
        stages=stages,
        staggers=staggers,
        async_scheduling=staggers,
    )


def requests(count: int, prompt: int = 20, output: int = 30) -> Iterator[Request]:
    for index in range(count):
        yield Request(id=index, arrival_seconds=0.0, prompt_tokens=prompt, output_tokens=output)


def served(
    config: VllmPipelineConfig, times: StageTimes, arrivals: OpenLoop | ClosedLoop
) -> tuple[list[RequestRecord], list[StepRecord], VllmPipelineScheduler]:
    scheduler = VllmPipelineScheduler(config)
    steps: list[StepRecord] = []
    line = Pipeline(
        lambda _: times, batches=config.max_concurrent_batches, keeps_empty=config.staggers
    )
    engine = Engine(scheduler, line, observe=steps.append)
    events = Events()
    records = list(happen(events, arrivals, Replica(0, events, (engine,)).send))
    assert not engine.in_flight
    assert scheduler.kv.pool.num_free == config.num_blocks - 1
    return records, steps, scheduler


@pytest.mark.parametrize("ahead", [False, True])
def test_one_stage_is_an_engine_without_any(ahead: bool) -> None:
    draws = random.Random(3)
    asked = [
        Request(
            id=index,
            arrival_seconds=index * 0.2,
            prompt_tokens=draws.randint(1, 400),
            output_tokens=draws.randint(1, 60),
        )
        for index in range(80)
    ]
    config = VllmSchedulerConfig(**SETTINGS, async_scheduling=ahead)  # type: ignore[arg-type]

    def seconds(plan: StepPlan) -> float:
        return 0.01 + 0.001 * sum(plan.tokens)

    found = []
    for line in (
        OneByOne(seconds),
        Pipeline(
            lambda plan: StageTimes((seconds(plan),), 0.0, 0.0),
            batches=1 + ahead,
            keeps_empty=False,
        ),
    ):
        events = Events()
        replica = Replica(0, events, (Engine(VllmScheduler(config), line),))
        found.append(list(happen(events, OpenLoop(asked), replica.send)))
    assert found[0] == found[1]
    assert sum(record.preemptions for record in found[0]) > 0


@pytest.mark.parametrize("staggers", [False, True])
def test_a_request_alone_passes_all_stages_for_each_token(staggers: bool) -> None:
    times = StageTimes((0.1, 0.2, 0.3), 0.01, 0.05)
    (record,), steps, _ = served(staged(3, staggers=staggers), times, OpenLoop(requests(1)))
    whole = 0.6 + 2 * 0.01
    assert record.first_token_seconds == pytest.approx(whole + 0.05)
    # Decided ahead, the next token enters when the one before it has left the last stage.
    each = whole if staggers else whole + 0.05
    assert record.tpot_seconds == pytest.approx(each)
    assert len(steps) == 30


@pytest.mark.parametrize("staggers", [False, True])
def test_full_stages_let_a_step_through_each_time_of_the_slowest(staggers: bool) -> None:
    times = StageTimes((0.1, 0.1, 0.1, 0.1), 0.0, 0.0)
    config = staged(4, staggers=staggers, max_num_seqs=8, max_num_batched_tokens=40)
    records, steps, _ = served(config, times, ClosedLoop(requests(200), 8))
    middle = [step.end_seconds for step in steps[40:-40]]
    gaps = [later - earlier for earlier, later in pairwise(middle)]
    assert sum(gaps) / len(gaps) == pytest.approx(0.1, rel=0.02)
    tpots = [record.tpot_seconds for record in records[50:100] if record.tpot_seconds is not None]
    assert min(tpots) == pytest.approx(0.4)
    assert math.fsum(tpots) / len(tpots) < 0.5


@pytest.mark.parametrize("staggers", [False, True])
def test_a_token_is_never_computed_before_the_one_before_it(staggers: bool) -> None:
    times = StageTimes((0.1, 0.3, 0.2), 0.0, 0.02)
    config = staged(3, staggers=staggers, num_blocks=60, max_num_batched_tokens=64)
    scheduler = VllmPipelineScheduler(config)
    line = Pipeline(lambda _: times, batches=3 + staggers, keeps_empty=staggers)
    leaves: dict[int, float] = {}
    most = 0

    class Watched:
        batches = line.batches
        keeps_empty = line.keeps_empty

        def __init__(self) -> None:
            self.under_way: list[float] = []

        def run(self, plan: StepPlan, now: float) -> tuple[float, float]:
            nonlocal most
            start, end = line.run(plan, now)
            self.under_way[:] = [done for done in self.under_way if done > now] + [end]
            most = max(most, len(self.under_way))
            for sequence, tokens in zip(plan.sequences, plan.tokens, strict=True):
                if tokens == 1 and sequence.computed > sequence.prompt_tokens:
                    assert start >= leaves[sequence.request.id] - 1e-9
                leaves[sequence.request.id] = end - 0.02
            return start, end

    events = Events()
    engine = Engine(scheduler, Watched())
    replica = Replica(0, events, (engine,))
    records = list(happen(events, OpenLoop(requests(40, 70, 50)), replica.send))
    assert sorted(record.id for record in records) == list(range(40))
    assert all(record.output_tokens == 50 for record in records)
    assert sum(record.preemptions for record in records) > 0
    assert most == 3 + staggers
    assert scheduler.kv.pool.num_free == 59


@pytest.mark.parametrize(("engine", "batches"), [("vllm", 5), ("vllm@0.20.0", 4)])
def test_a_pipeline_s_times_are_what_the_closed_form_says(engine: str, batches: int) -> None:
    result = fit("llama-3.1-70b", "a100", pp=4, engine=engine)
    assert pool_of(result).engine.config.max_concurrent_batches == batches  # type: ignore[attr-defined]
    users = 32
    workload = parse_workload(
        f"users:count={users},input=uniform(8,24),output=uniform(100,300),requests=160"
    )
    run = Run(result)
    records = list(run.serve(workload.start(), waits_for_answers=True))
    tpots = [one.tpot_seconds for one in records[users:-users] if one.tpot_seconds is not None]
    told = speed(
        "llama-3.1-70b",
        "a100",
        pp=4,
        engine=engine,
        input_tokens=16,
        output_tokens=200,
        concurrency=users,
    )
    assert sum(tpots) / len(tpots) == pytest.approx(told.tpot_seconds.value, rel=0.1)
    (pool,) = run.outcome().pools
    assert 0.9 < pool.busy_share <= 1


def test_the_parts_of_a_step_add_up() -> None:
    cost = pool_of(fit("llama-3-8b", "a100", pp=2)).cost
    plan = StepPlan()
    scheduler = VllmScheduler(VllmSchedulerConfig(**SETTINGS))  # type: ignore[arg-type]
    plan.sequences = [scheduler.add(request) for request in requests(9)]
    for tokens, contexts in (([1] * 9, [300] * 9), ([1] * 8 + [200], [300] * 8 + [0])):
        plan.tokens, plan.contexts = tokens, contexts
        times = PipelineCost(cost)(plan)
        whole = sum(times.stages) + times.between_seconds + times.after_seconds
        assert whole == pytest.approx(cost(plan), rel=1e-3)
        assert times.stages[0] < times.stages[1]  # which also has the output layer


def test_what_is_not_simulated_in_stages_is_refused() -> None:
    result = fit("llama-3-8b", "a100", pp=2)
    with pytest.raises(DeploymentError, match="where KV is moved between engines or scheduler"):
        pool_of(result, scheduling={"scheduler": "static"})
    ranks = fit("qwen3-30b-a3b", "h100", pp=2, dp=2, ep=True)
    with pytest.raises(DeploymentError, match="pipelines of ranks that step together"):
        pool_of(ranks)
