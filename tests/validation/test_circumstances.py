"""How published rows were run, where their source says what they do not."""

from __future__ import annotations

from typing import Any

import pytest

from tokenroom.validation.circumstances import Circumstances, circumstances
from tokenroom.validation.reading import read_row
from tokenroom.validation.recipes import sglang_drafted, tensorrt_llm_drafted
from tokenroom.validation.validate import validate

OWN: dict[str, Any] = {
    "id": "own",
    "source": "github:ai-dynamo/aiconfigurator silicon_sample.csv",
    "engine": "vLLM",
    "engine_version": "0.12.0",
    "model": "Qwen/Qwen3-32B",
    "precision": "fp8",
    "gpu": "H100-SXM-80GB",
    "tp": 2,
    "isl": 1024,
    "osl": 512,
    "batch_or_concurrency": 16,
    "metric": "tpot_ms",
    "value": 12.0,
    "note": "source_file=h100_sxm/vllm/0.12.0/Qwen_Qwen3-32B.csv; moe_tp=1",
}
RECIPE: dict[str, Any] = {
    **OWN,
    "id": "recipe",
    "engine": "TensorRT-LLM",
    "engine_version": "1.2.0rc6.post2",
    "model": "deepseek-ai/DeepSeek-R1",
    "gpu": "B200-180GB",
    "tp": 8,
    "osl": 1024,
    "value": 9.0,
    "note": "source_file=2026-03-25.csv; moe_tp=8; measured=2026-02-05",
}


def run_of(data: dict[str, Any]) -> Circumstances:
    found = circumstances(read_row(data, "row"))
    assert found is not None
    return found


def test_clients_sent_as_many_requests_as_the_tool_of_the_day_had_them_send() -> None:
    assert run_of(OWN).waves == 10
    assert run_of({**OWN, "note": OWN["note"] + "; measured=2026-03-23"}).waves == 50
    assert run_of(RECIPE).waves == 10


def test_vllm_schedules_ahead_unasked_since_0_14_and_in_recipes() -> None:
    assert not run_of(OWN).asynchronous
    assert run_of({**OWN, "engine_version": "0.14.0"}).asynchronous
    assert run_of({**OWN, "engine_version": None}).asynchronous
    assert run_of({**OWN, "note": "source_file=2026-03-25.csv; moe_tp=2"}).asynchronous
    assert run_of({**OWN, "engine": "SGLang", "engine_version": "0.5.1"}).asynchronous


@pytest.mark.parametrize(
    ("version", "measured", "copies", "drafted"),
    [
        ("1.2.0rc6.post3", "2026-02-06", 1, 3),
        ("1.2.0rc6.post3", None, 8, 1),
        ("1.2.0rc6.post2", "2026-02-05", 1, 0),
        ("1.1.0rc2.post2", "2026-01-14", 1, 3),
        ("1.1.0rc2.post2", "2025-12-15", 1, 0),
    ],
)
def test_tensorrt_llm_drafts_in_the_runs_of_the_recipes_that_draft(
    version: str, measured: str | None, copies: int, drafted: int
) -> None:
    assert tensorrt_llm_drafted(version, measured, copies) == drafted


def test_sglang_drafts_where_the_other_recipe_had_no_such_load() -> None:
    assert sglang_drafted("Qwen/Qwen3.5-397B-A17B", "2026-03-20", 4, 4, 1024) == 3
    assert sglang_drafted("Qwen/Qwen3.5-397B-A17B", "2026-03-24", 4, 4, 1024) == 0
    model, day = "deepseek-ai/DeepSeek-R1", "2026-03-25"
    assert [sglang_drafted(model, day, 8, clients, 8192) for clients in (4, 8)] == [0, 3]
    assert [sglang_drafted(model, day, 8, clients, 1024) for clients in (64, 128)] == [0, 3]
    assert sglang_drafted(model, day, 4, 8, 8192) == 0


def test_a_server_that_drafts_answers_faster_than_one_that_does_not() -> None:
    drafting = {**RECIPE, "engine_version": "1.2.0rc6.post3"}
    plain, drafted = (
        validate([read_row(data, "row")]).speeds[0].predicted for data in (RECIPE, drafting)
    )
    assert 0.4 < drafted / plain < 0.8


def test_a_step_below_the_bandwidth_is_possible_where_tokens_are_drafted() -> None:
    fast = {**RECIPE, "value": 1.0, "batch_or_concurrency": 4}
    assert "faster than the hardware" in validate([read_row(fast, "row")]).unpredicted[0].reason
    drafting = {**fast, "engine_version": "1.2.0rc6.post3"}
    assert validate([read_row(drafting, "row")]).speeds
