"""Looked-up times of steps against computed ones."""

import random

import pytest

from tokenroom import fit
from tokenroom.performance.work import Chunk, StepWork
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.step_cost import StepCost, step_cost
from tokenroom.serving.step_table import COUNTS, StepTable, place

WORST = 2.5e-3
"""What docs/simulate.md promises."""

DEPLOYMENTS = [
    ("llama-3-8b", "a100", 1),
    ("Qwen/Qwen2.5-7B", "l4", 1),
    ("Qwen/Qwen3-32B", "b200", 1),
    ("meta-llama/Llama-3.1-70B", "h100", 4),
    ("mistralai/Mixtral-8x7B-v0.1", "h100", 2),
    ("Qwen/Qwen3-30B-A3B", "h100", 1),
    ("gpt-oss-20b", "h100", 1),
    ("google/gemma-3-27b-it", "h100", 1),
    ("deepseek-v2-lite", "a100", 1),
    ("deepseek-ai/DeepSeek-V3", "h200", 8),
    ("deepseek-ai/DeepSeek-V3.2-Exp", "h200", 8),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "h200", 2),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "h200", 4),
]


def planned(tokens: list[int], contexts: list[int]) -> StepPlan:
    plan = StepPlan()
    plan.tokens, plan.contexts = tokens, contexts
    return plan


def drawn_step(draw: random.Random, *, decodes: bool, prompts: bool) -> StepPlan:
    """Any mix of requests that decode and chunks of prompts, short and long, new and continued."""
    tokens: list[int] = []
    contexts: list[int] = []
    top = draw.choice([20, 300, 3000, 30000, 100000])
    if decodes:
        count = draw.choice([draw.randint(1, 16), draw.randint(1, 300)])
        tokens += [1] * count
        contexts += [draw.randint(1, top) for _ in range(count)]
    if prompts:
        budget = draw.choice([512, 2048, 8192, 16384])
        for _ in range(draw.choice([1, 1, 2, 3, draw.randint(1, 30)])):
            most = draw.choice([budget, max(2, budget // 8)])
            size = draw.choice([draw.randint(2, most), most])
            tokens.append(size)
            contexts.append(draw.choice([0, draw.randint(0, top)]))
            budget -= size
            if budget < 2:
                break
    return planned(tokens, contexts)


@pytest.mark.parametrize(("model", "gpu", "gpus"), DEPLOYMENTS)
def test_any_step_is_close(model: str, gpu: str, gpus: int) -> None:
    cost = step_cost(fit(model, gpu, tensor_parallel_size=gpus))
    table = StepTable(cost)
    draw = random.Random(4)
    for decodes, prompts in ((True, False), (False, True), (True, True)):
        for _ in range(25):
            plan = drawn_step(draw, decodes=decodes, prompts=prompts)
            assert table(plan) == pytest.approx(cost(plan), rel=WORST)


@pytest.mark.parametrize("settings", [{"enforce_eager": True}, {"async_scheduling": False}])
def test_the_host_adds_what_it_adds_to_a_computed_step(settings: dict[str, bool]) -> None:
    cost = step_cost(fit("gpt-oss-20b", "h100", **settings))
    table = StepTable(cost)
    for plan in (planned([1, 1], [50, 70]), planned([1, 512], [400, 0])):
        assert table(plan) == pytest.approx(cost(plan), rel=WORST)


def test_the_host_starts_what_surrounds_prompts_over_latents() -> None:
    cost = step_cost(fit("deepseek-v2-lite", "h100", engine="sglang"))
    table = StepTable(cost)
    for plan in (planned([9], [0]), planned([1, 90], [400, 0])):
        assert table(plan) == pytest.approx(cost(plan), rel=WORST)


def test_a_step_on_nodes_is_computed_exactly() -> None:
    cost = step_cost(fit("llama-3-8b", "h100"))
    plan = planned([1, 1, 6, 24], [32, 32, 512, 0])
    assert StepTable(cost)(plan) == pytest.approx(cost(plan), rel=1e-12)


def test_parts_of_a_step_are_its_operators() -> None:
    """What is looked up adds up to what the model of a step says, part by part."""
    cost = step_cost(fit("deepseek-v2-lite", "h100"))
    parts = StepTable(cost).parts
    assert parts is not None
    chunks = (Chunk(300, 20), Chunk(41, 7000), Chunk(2, 0))
    loads = zip(*map(parts.prompt_loads, chunks), strict=True)
    kernels = parts.prompt_kernels()
    together = [
        kernel.seconds(type(asked[0])(*map(sum, zip(*asked, strict=True))), len(chunks))
        for kernel, asked in zip(kernels, loads, strict=True)
    ]
    device = (
        parts.of_tokens(353).started_seconds
        + parts.of_outputs(13).started_seconds
        + parts.of_decoding(10, 900.5).started_seconds
        + sum(together)
    )
    work = StepWork(prefill=chunks, decode_sequences=10, decode_context_tokens=900.5)
    assert device == pytest.approx(timed(cost, work), rel=1e-12)


def timed(cost: StepCost, work: StepWork) -> float:
    from tokenroom.performance.step_time import step_time

    terms = cost.terms
    return step_time(
        cost.spec, terms.layout, cost.accelerator, work, engine=terms.engine
    ).device_seconds


def test_without_parts_prompts_are_computed() -> None:
    """llama.cpp's kernels change with the number of rows, so its steps are not taken apart."""
    cost = step_cost(fit("llama-3-8b", "h100", engine="llama.cpp"))
    table = StepTable(cost)
    assert table.parts is None
    prompts = planned([1, 777, 1], [50, 16, 1234])
    assert table(prompts) == cost(prompts)
    decoding = planned([1, 1, 1], [500, 1600, 1234])
    assert table(decoding) == pytest.approx(cost(decoding), rel=WORST)


def test_every_value_lies_between_two_nodes() -> None:
    for value in (0, 1, 31, 33.5, 512, 513, 99_999.25, 10_000_000):
        low, share = place(COUNTS, value)
        between = COUNTS[low] + share * (COUNTS[low + 1] - COUNTS[low])
        assert between == pytest.approx(value)
        assert COUNTS[low] <= value < COUNTS[low + 1]
