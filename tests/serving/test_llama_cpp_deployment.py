"""What the simulator takes from a llama-server that was fitted."""

from typing import Any

import pytest

from tokenroom import fit
from tokenroom.engines.llama_cpp.arguments import parse_command
from tokenroom.engines.llama_cpp.launch import launch_command
from tokenroom.errors import DeploymentError
from tokenroom.serving.deployments import engine_of
from tokenroom.serving.record import Refusal
from tokenroom.serving.run import Run
from tokenroom.serving.schedulers.llama_cpp import LlamaCppSchedulerConfig
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving_speed import speed


def config_of(**settings: Any) -> LlamaCppSchedulerConfig:
    config = engine_of(fit("llama-3.1-8b", "h100", engine="llama.cpp", **settings)).config
    assert isinstance(config, LlamaCppSchedulerConfig)
    return config


def test_the_slots_are_those_of_the_deployment() -> None:
    auto = config_of(n_ctx=32768)
    assert (auto.n_parallel, auto.n_ctx, auto.n_ctx_slot) == (4, 32768, 32768)
    assert (auto.kv_unified, auto.n_batch, auto.n_ubatch) == (True, 2048, 512)
    assert (auto.cache_ram_bytes, auto.token_bytes) == (8192 * 2**20, 131072)
    given = config_of(n_ctx=32768, n_parallel=8)
    assert (given.n_parallel, given.n_ctx_slot, given.kv_unified) == (8, 4096, False)


def test_what_only_the_server_reads_comes_from_its_command() -> None:
    parsed = parse_command(
        "llama-server -m model.gguf -c 8192 -sps 0.5 --no-cache-prompt --no-cache-idle-slots"
    )
    asked = parsed.settings
    assert (asked.slot_prompt_similarity, asked.cache_prompt) == (0.5, False)
    result = fit("llama-3.1-8b", "h100", engine="llama.cpp", settings=asked)
    config = engine_of(result).config
    assert isinstance(config, LlamaCppSchedulerConfig)
    assert (config.slot_prompt_similarity, config.cache_prompt) == (0.5, False)
    assert not config.cache_idle_slots
    words = launch_command(result.deployment).words
    assert {"--no-cache-prompt", "--no-cache-idle-slots", "--slot-prompt-similarity"} <= set(words)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"program": "bench"}, "program is bench, which serves nobody"),
        ({"model": "gemma-3-27b-it"}, "windows and recurrent states"),
        ({"slot_prompt_similarity": 1.5}, "slot_prompt_similarity is 1.5"),
    ],
)
def test_what_is_not_simulated_is_refused(settings: dict[str, Any], said: str) -> None:
    asked = {"model": "llama-3.1-8b", "engine": "llama.cpp", "n_ctx": 8192} | settings
    with pytest.raises(DeploymentError, match=said):
        engine_of(fit(asked.pop("model"), "h100", **asked))


def test_requests_beyond_the_cells_that_all_share_end_with_an_error() -> None:
    result = fit("llama-3.1-8b", "h100", engine="llama.cpp", n_ctx=4096)
    run = Run(result)
    workload = parse_workload("users:count=4,input=1500,output=50,requests=8")
    records = list(run.serve(workload.start(), waits_for_answers=True))
    failed = [record for record in records if record.refused is Refusal.CONTEXT_FULL]
    assert failed
    assert all(record.finish_seconds > record.arrival_seconds for record in failed)
    outcome = run.outcome()
    assert outcome.metrics.refused == len(failed)
    assert (outcome.unfinished, outcome.refusals) == (0, {Refusal.CONTEXT_FULL: len(failed)})


@pytest.mark.parametrize("users", [1, 4])
def test_a_steady_load_sees_what_the_closed_form_says(users: int) -> None:
    settings: dict[str, Any] = {"engine": "llama.cpp", "n_parallel": users, "n_ctx": 8192 * users}
    workload = parse_workload(
        f"users:count={users},input=uniform(512,1536),output=uniform(1,511),requests={users * 40}"
    )
    result = fit("llama-3-8b", "a100", **settings)
    records = list(Run(result).serve(workload.start(), waits_for_answers=True))
    steady = records[3 * users : -2 * users]
    tpots = [record.tpot_seconds for record in steady if record.tpot_seconds is not None]
    told = speed(
        "llama-3-8b", "a100", input_tokens=1024, output_tokens=256, concurrency=users, **settings
    )
    assert sum(tpots) / len(tpots) == pytest.approx(told.tpot_seconds.value, rel=0.05)
