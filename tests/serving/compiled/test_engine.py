"""The compiled engine against the one that goes step by step: equal records and equal steps."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom import fit
from tokenroom.errors import WorkloadError
from tokenroom.serving.arrivals import Arrivals, ClosedLoop, OpenLoop
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.simulator import simulate
from tokenroom.serving.step_cost import step_cost
from tokenroom.serving.step_table import StepTable

pytest.importorskip("numba")

from tokenroom.serving.compiled.engine import CompiledEngine
from tokenroom.serving.compiled.records import records_of
from tokenroom.serving.compiled.sources import (
    AwaitedSource,
    Delay,
    OpenSource,
    tables_of,
)

COST = step_cost(fit("llama-3-8b", "a100"))
TABLE = StepTable(COST)
DELAY = Delay(0.004, 3e-6)


def delay_seconds(request: Request) -> float:
    return DELAY.request_seconds + request.prompt_tokens * DELAY.token_seconds


def step_by_step(
    config: VllmSchedulerConfig, arrivals: Arrivals
) -> tuple[list[RequestRecord], list[StepRecord]]:
    steps: list[StepRecord] = []
    records = simulate(
        arrivals, VllmScheduler(config), TABLE, observe=steps.append, delay_seconds=delay_seconds
    )
    return list(records), steps


def compiled(
    config: VllmSchedulerConfig, arrivals: Arrivals, *, awaited: bool
) -> tuple[list[RequestRecord], CompiledEngine, dict[float, int]]:
    engine = CompiledEngine(config, TABLE, answers_awaited=awaited)
    size = config.groups[0].block_tokens
    gaps: dict[float, int] = {}

    def take(table: object) -> None:
        for seconds, times in table.tolist():  # type: ignore[attr-defined]
            gaps[seconds] = gaps.get(seconds, 0) + times

    source = (
        AwaitedSource(arrivals, DELAY, size)
        if awaited
        else OpenSource(tables_of(arrivals, DELAY, size))
    )
    found = [record for done in engine.serve(source, take) for record in records_of(done)]
    return found, engine, gaps


def check(
    config: VllmSchedulerConfig, start: Callable[[], Arrivals], *, awaited: bool = False
) -> list[RequestRecord]:
    expected, steps = step_by_step(config, start())
    found, engine, gaps = compiled(config, start(), awaited=awaited)
    assert found == expected
    assert all(record.preemptions >= 0 for record in found)
    state = engine.core.engine[0]
    assert state["steps"] == len(steps)
    assert state["computed_tokens"] == sum(step.tokens for step in steps)
    assert state["preemptions"] == sum(step.preempted for step in steps)
    for name, of in (("max_running", "running"), ("max_waiting", "waiting")):
        assert state[name] == max((getattr(step, of) for step in steps), default=0)
    assert state["max_used"] == max((step.used_blocks for step in steps), default=0)
    between: dict[float, int] = {}
    for step in steps:
        for seconds, times in step.gaps:
            between[seconds] = between.get(seconds, 0) + times
    assert gaps == between
    return found


def drawn(draw: random.Random, count: int, *, named: bool, size: int, most: int) -> list[Request]:
    """Requests in bursts and alone, some of whose prompts begin as others do."""
    clock = 0.0
    stems = [[draw.randrange(10**6) for _ in range(most)] for _ in range(3)]
    found = []
    for number in range(count):
        clock += draw.choice([0.0, 0.0, draw.expovariate(20), draw.expovariate(2)])
        prompt = draw.choice([draw.randint(1, 12), draw.randint(1, most - 2), size])
        output = draw.choice([1, draw.randint(1, 8), draw.randint(1, most)])
        names: tuple[int, ...] = ()
        if named and draw.random() < 0.8:
            stem = draw.choice(stems)
            shared = draw.randint(0, (prompt + output) // size)
            names = (*stem[:shared], *(10**7 + number * most + i for i in range(2)))
            names = names[: (prompt + output) // size]
        found.append(
            Request(
                id=number,
                arrival_seconds=clock,
                prompt_tokens=prompt,
                output_tokens=output,
                block_hashes=names,
                session=number % 3 if number % 2 else None,
            )
        )
    return found


configs = st.fixed_dictionaries(
    {
        "block_tokens": st.sampled_from([1, 2, 4, 16]),
        "num_blocks": st.integers(4, 60),
        "max_model_len": st.integers(16, 200),
        "max_num_batched_tokens": st.sampled_from([3, 8, 40, 256]),
        "max_num_seqs": st.integers(1, 12),
        "enable_prefix_caching": st.booleans(),
        "long_prefill_token_threshold": st.sampled_from([0, 0, 5]),
        "long_prefill_token_threshold_adaptive": st.booleans(),
        "scheduler_reserve_full_isl": st.booleans(),
        "watermark": st.sampled_from([0.0, 0.0, 0.1]),
        "async_scheduling": st.booleans(),
    }
)


def config_of(settings: dict[str, object]) -> VllmSchedulerConfig:
    size = int(str(settings.pop("block_tokens")))
    group = KvGroup(kind=Kind.FULL, block_tokens=size)
    return VllmSchedulerConfig(groups=(group,), **settings)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(configs, st.integers(0, 2**32), st.booleans(), st.integers(1, 60))
def test_drawn_workloads_are_served_alike(
    chosen: dict[str, object], seed: int, named: bool, count: int
) -> None:
    config = config_of(dict(chosen))
    size, most = config.groups[0].block_tokens, config.max_model_len
    requests = drawn(random.Random(seed), count, named=named, size=size, most=most)
    try:
        expected = None
        step_by_step(config, OpenLoop(requests))
    except WorkloadError as problem:
        expected = str(problem)
    if expected is not None:
        with pytest.raises(WorkloadError) as raised:
            compiled(config, OpenLoop(requests), awaited=False)
        assert str(raised.value) == expected
        return
    check(config, lambda: OpenLoop(requests))


@settings(max_examples=25, deadline=None)
@given(configs, st.integers(0, 2**32), st.booleans(), st.integers(1, 9))
def test_users_who_wait_are_served_alike(
    chosen: dict[str, object], seed: int, named: bool, users: int
) -> None:
    config = config_of(dict(chosen) | {"num_blocks": 60, "scheduler_reserve_full_isl": True})
    size, most = config.groups[0].block_tokens, config.max_model_len
    requests = drawn(random.Random(seed), 40, named=named, size=size, most=most)

    def start() -> Arrivals:
        return ClosedLoop(requests, users, random.Random(seed).random)

    check(config, start, awaited=True)


@pytest.mark.parametrize("ahead", [True, False])
def test_the_first_of_equal_blocks_is_found(ahead: bool) -> None:
    """Answers that several requests write alike, in a pool that keeps only some of them."""
    config = VllmSchedulerConfig(
        groups=(KvGroup(kind=Kind.FULL, block_tokens=4),),
        num_blocks=60,
        max_model_len=100,
        max_num_batched_tokens=64,
        max_num_seqs=4,
        async_scheduling=ahead,
    )
    hits = 0
    for seed in range(60):
        draw = random.Random(seed)
        requests = []
        clock = 0.0
        for number in range(24):
            clock += draw.choice([0.0, 0.0, 0.9])
            prompt, output = draw.randint(1, 30), draw.randint(20, 60)
            stem = draw.randrange(2)
            names = tuple(1000 * stem + block for block in range((prompt + output) // 4))
            requests.append(
                Request(
                    id=number,
                    arrival_seconds=clock,
                    prompt_tokens=prompt,
                    output_tokens=output,
                    block_hashes=names,
                )
            )
        records = check(config, lambda given=requests: OpenLoop(given))  # type: ignore[misc]
        hits += sum(record.cached_tokens for record in records)
    assert hits > 1000


@pytest.mark.parametrize("ahead", [True, False])
def test_who_is_preempted_after_alike_steps_finds_its_blocks_again(ahead: bool) -> None:
    """A pool that runs out while everybody decodes: what was filled meanwhile is not lost."""
    config = VllmSchedulerConfig(
        groups=(KvGroup(kind=Kind.FULL, block_tokens=4),),
        num_blocks=30,
        max_model_len=100,
        max_num_batched_tokens=64,
        max_num_seqs=5,
        async_scheduling=ahead,
    )
    preemptions = 0
    for seed in range(40):
        draw = random.Random(seed)
        requests = [
            Request(
                id=number,
                arrival_seconds=0.3 * number,
                prompt_tokens=draw.randint(1, 12),
                output_tokens=draw.randint(20, 70),
            )
            for number in range(15)
        ]
        records = check(config, lambda given=requests: OpenLoop(given))  # type: ignore[misc]
        preemptions += sum(record.preemptions for record in records)
    assert preemptions > 50


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("caches", [True, False])
def test_a_long_run_has_the_same_steps(ahead: bool, caches: bool) -> None:
    config = VllmSchedulerConfig(
        groups=(KvGroup(kind=Kind.FULL, block_tokens=16),),
        num_blocks=900,
        max_model_len=4000,
        max_num_batched_tokens=512,
        max_num_seqs=24,
        async_scheduling=ahead,
        enable_prefix_caching=caches,
    )
    requests = drawn(random.Random(7), 400, named=True, size=16, most=1500)
    records = check(config, lambda: OpenLoop(requests))
    assert sum(record.preemptions for record in records) > 20
    assert any(record.cached_tokens for record in records) is caches
