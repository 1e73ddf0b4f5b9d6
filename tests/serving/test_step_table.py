"""Looked-up times of steps against computed ones."""

import random

import pytest

from tokenroom import fit
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.step_cost import step_cost
from tokenroom.serving.step_table import StepTable


def planned(tokens: list[int], contexts: list[int]) -> StepPlan:
    plan = StepPlan()
    plan.tokens, plan.contexts = tokens, contexts
    return plan


@pytest.mark.parametrize("model", ["llama-3-8b", "gpt-oss-20b", "deepseek-v2-lite"])
def test_decode_steps_are_within_a_thousandth(model: str) -> None:
    cost = step_cost(fit(model, "h100"))
    table = StepTable(cost)
    draw = random.Random(4)
    for _ in range(100):
        count = draw.randint(1, 200)
        top = draw.choice([20, 300, 3000, 30000])
        plan = planned([1] * count, [draw.randint(1, top) for _ in range(count)])
        assert table(plan) == pytest.approx(cost(plan), rel=1e-3)


def test_steps_with_prompts_are_computed_as_they_are() -> None:
    cost = step_cost(fit("llama-3-8b", "h100"))
    plan = planned([1, 777, 1], [50, 16, 1234])
    assert StepTable(cost)(plan) == cost(plan)
