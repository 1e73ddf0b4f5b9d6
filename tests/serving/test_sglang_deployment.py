"""What the simulator takes from a fitted SGLang deployment."""

from collections.abc import Mapping

import pytest

from tokenroom import fit
from tokenroom.engines.sglang.arguments import parse_command
from tokenroom.errors import DeploymentError
from tokenroom.serving.arrivals import ClosedLoop
from tokenroom.serving.deployments import engine_of
from tokenroom.serving.deployments.sglang import scheduler_config
from tokenroom.serving.request import Request
from tokenroom.serving.run import Run
from tokenroom.serving_speed import speed_of


def test_the_plan_says_what_the_scheduler_has() -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang")
    config = scheduler_config(result)
    assert config.max_total_num_tokens == result.plan.kv_pool_tokens
    assert config.max_running_requests == result.plan.max_num_seqs
    assert config.context_length == result.plan.max_model_len
    assert (config.page_size, config.name_tokens) == (1, 16)
    assert (config.chunked_prefill_size, config.max_prefill_tokens) == (8192, 16384)
    assert config.overlap_schedule
    assert config.schedule_policy == "fcfs"
    assert config.ignore_eos
    engine = engine_of(result)
    assert engine.usable_blocks == result.plan.kv_pool_tokens
    assert engine.finds_prefixes


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--chunked-prefill-size -1", {"chunked_prefill_size": None}),
        ("--page-size 64", {"page_size": 64, "name_tokens": 64}),
        ("--page-size 8", {"page_size": 8, "name_tokens": 16}),
        ("--disable-radix-cache", {"disable_radix_cache": True}),
        ("--disable-overlap-schedule", {"overlap_schedule": False}),
        ("--schedule-policy lpm", {"schedule_policy": "lpm"}),
        ("--schedule-conservativeness 0.5", {"schedule_conservativeness": 0.5}),
        ("--enable-mixed-chunk", {"enable_mixed_chunk": True}),
        ("--prefill-max-requests 4", {"prefill_max_requests": 4}),
        ("--scheduler-recv-interval 10", {"scheduler_recv_interval": 10}),
        ("--max-running-requests 32", {"max_running_requests": 32}),
    ],
)
def test_flags_reach_the_scheduler(flags: str, expected: Mapping[str, object]) -> None:
    command = parse_command(f"sglang serve meta-llama/Llama-3.1-8B {flags}")
    assert not command.settings.ignored_flags
    config = scheduler_config(
        fit("llama-3.1-8b", "h100", engine="sglang", settings=command.settings)
    )
    assert {name: getattr(config, name) for name in expected} == expected


def test_what_the_run_sets_counts_before_the_command() -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang", schedule_policy="lpm")
    config = scheduler_config(result, {"schedule_policy": "lof", "max_new_tokens": 4096})
    assert config.schedule_policy == "lof"
    assert (config.max_new_tokens, config.ignore_eos) == (4096, False)


def test_the_order_that_older_versions_have_by_default_is_kept() -> None:
    assert scheduler_config(fit("llama-3.1-8b", "h100", engine="sglang@0.4.3")).schedule_policy == (
        "lpm"
    )


@pytest.mark.parametrize(
    ("model", "gpu", "settings", "said"),
    [
        ("llama-3.1-8b", "h100", {"schedule_policy": "random"}, "schedule_policy 'random' is not"),
        ("gpt-oss-20b", "h100", {}, "SGLang's pool of sliding windows is not simulated"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "b200", {}, "SGLang's pool of recurrent states"),
        ("llama-3.1-8b", "h100", {"enable_hierarchical_cache": True}, "tokens in host memory"),
        ("llama-3.1-8b", "h100", {"disaggregation_mode": "prefill"}, "disaggregation_mode is pre"),
    ],
)
def test_what_is_not_simulated_is_refused_in_one_sentence(
    model: str, gpu: str, settings: dict[str, object], said: str
) -> None:
    result = fit(model, gpu, engine="sglang", **settings)  # type: ignore[arg-type]
    with pytest.raises(DeploymentError, match=said):
        engine_of(result)


def test_flags_that_change_steps_in_other_ways_are_refused() -> None:
    command = parse_command("sglang serve meta-llama/Llama-3.1-8B --enable-priority-scheduling")
    result = fit("llama-3.1-8b", "h100", engine="sglang", settings=command.settings)
    with pytest.raises(DeploymentError, match="--enable-priority-scheduling is not simulated"):
        engine_of(result)


@pytest.mark.parametrize("value", [0, True, "many"])
def test_what_requests_ask_for_is_a_number(value: object) -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang")
    with pytest.raises(DeploymentError, match="max_new_tokens is"):
        engine_of(result, {"max_new_tokens": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("users", [4, 16])
def test_users_see_what_the_closed_form_says(users: int) -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang")
    run = Run(result)
    lengths = [(512 + 97 * i % 1024, 64 + 61 * i % 384) for i in range(40 * users)]
    requests = (
        Request(id=i, arrival_seconds=0, prompt_tokens=prompt, output_tokens=output)
        for i, (prompt, output) in enumerate(lengths)
    )
    for _ in run.serve(ClosedLoop(requests, users), waits_for_answers=True):
        pass
    metrics = run.outcome().metrics
    said = speed_of(
        result,
        input_tokens=round(sum(prompt for prompt, _ in lengths) / len(lengths)),
        output_tokens=round(sum(output for _, output in lengths) / len(lengths)),
        concurrency=users,
    )
    assert metrics.tpot.mean_seconds == pytest.approx(said.tpot_seconds.value, rel=0.05)
