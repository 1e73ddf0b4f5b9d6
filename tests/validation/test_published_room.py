"""Requests that the cache of a published deployment held, by its engine's own rules."""

from dataclasses import replace

import pytest

from tokenroom import find_accelerator, fit
from tokenroom.models.resolve import load_model
from tokenroom.performance.work import Layout
from tokenroom.validation.circumstances import Circumstances
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.published_room import PublishedRooms, tokens_held
from tokenroom.validation.recipes import sglang_recipe, vllm_recipe
from tokenroom.validation.rows import Row, read_row

SPEC = load_model("meta-llama/Llama-3.1-8B")
GPU = find_accelerator("h100")
LOAD = MeasuredLoad(input_tokens=1024, output_tokens=1024, concurrency=64)
RUN = Circumstances(layout=Layout(), kv_dtype=None, token_budget=8192)


def row(**changes: object) -> Row:
    data = {
        "id": "one",
        "engine": "vllm",
        "engine_version": "0.19.0",
        "model": SPEC.name,
        "isl": 1024,
        "osl": 1024,
        "concurrency": 64,
        "reported": {"ttft_ms": 100},
    }
    return read_row(data | changes, "row")


def test_it_is_what_the_engine_would_hold() -> None:
    pool = fit(SPEC, GPU, engine="vllm@0.19.0", context=2048, util=0.9, max_num_batched_tokens=8192)
    held = PublishedRooms().requests_held(row(), LOAD, RUN, SPEC, GPU)
    assert held == replace(pool, request_tokens=1024 + 512).requests_held


def test_engines_that_reserve_answers_hold_fewer() -> None:
    assert tokens_held("vllm", 1000, 400) == 1200
    assert tokens_held("sglang", 1000, 400) == tokens_held("tensorrt-llm", 1000, 400) == 1400


@pytest.mark.parametrize(
    "changes", [{"engine_version": None}, {"engine": "llama.cpp"}, {"engine_version": "nightly"}]
)
def test_what_is_not_known_of_a_row_is_not_told(changes: dict[str, object]) -> None:
    assert PublishedRooms().requests_held(row(**changes), LOAD, RUN, SPEC, GPU) is None


def test_what_would_not_start_is_not_told() -> None:
    tight = replace(RUN, memory_share=0.1)
    assert PublishedRooms().requests_held(row(), LOAD, tight, SPEC, GPU) is None


def test_recipes_say_how_servers_were_run() -> None:
    four = sglang_recipe("deepseek-ai/DeepSeek-R1", "B200-180GB", "fp8", 4)
    assert (four.memory_share, four.largest_batch, four.token_budget) == (0.95, 32, 8192)
    march = vllm_recipe("MiniMaxAI/MiniMax-M2.5", "B200-180GB", "0.17.0")
    april = vllm_recipe("MiniMaxAI/MiniMax-M2.5", "B200-180GB", "0.19.0")
    assert (march.memory_share, march.kv_dtype) == (0.95, None)
    assert (april.memory_share, april.kv_dtype, april.prompts_a_step) == (0.9, "fp8", 2)
    assert vllm_recipe("openai/gpt-oss-120b", "B200-180GB", "0.19.0").memory_share is None
