"""What the simulator takes from a TensorRT-LLM deployment that was fitted."""

from pathlib import Path
from typing import Any

import pytest

from tokenroom import fit
from tokenroom.engines.tensorrt_llm.arguments import parse_command
from tokenroom.engines.tensorrt_llm.launch import launch_command
from tokenroom.errors import DeploymentError
from tokenroom.serving.deployments import engine_of
from tokenroom.serving.run import Run
from tokenroom.serving.schedulers.tensorrt_llm_config import (
    CapacityPolicy,
    TensorRtLlmSchedulerConfig,
)
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving_speed import speed


def config_of(**settings: Any) -> TensorRtLlmSchedulerConfig:
    config = engine_of(fit("llama-3.1-8b", "h100", engine="tensorrt-llm", **settings)).config
    assert isinstance(config, TensorRtLlmSchedulerConfig)
    return config


def test_the_scheduler_has_what_the_deployment_has() -> None:
    result = fit("llama-3.1-8b", "h100", engine="tensorrt-llm", context=8192)
    engine = engine_of(result)
    config = engine.config
    assert isinstance(config, TensorRtLlmSchedulerConfig)
    assert (config.num_blocks, config.tokens_per_block) == (result.plan.kv_blocks, 32)
    assert (config.max_batch_size, config.max_num_tokens, config.max_seq_len) == (2048, 8192, 8192)
    assert config.capacity_scheduler_policy is CapacityPolicy.GUARANTEED_NO_EVICT
    assert (config.overlaps, config.credits_reuse, config.enable_block_reuse) == (True,) * 3
    assert (engine.block_tokens, engine.usable_blocks) == (32, result.plan.kv_blocks)


def test_what_only_the_scheduler_reads_comes_from_settings_and_the_file(tmp_path: Path) -> None:
    assert config_of(disable_overlap_scheduler=True).overlaps is False
    assert config_of(enable_prefix_aware_scheduling=False).enable_prefix_aware_scheduling is False
    file = tmp_path / "options.yaml"
    file.write_text(
        "disable_overlap_scheduler: true\n"
        "scheduler_config:\n"
        "  capacity_scheduler_policy: MAX_UTILIZATION\n"
        "  waiting_queue_policy: FCFS\n"
    )
    parsed = parse_command(
        f"trtllm-serve meta-llama/Llama-3.1-8B --extra_llm_api_options {file}", allow_files=True
    )
    assert parsed.settings.capacity_scheduler_policy == "MAX_UTILIZATION"
    assert parsed.settings.unknown_flags == ()
    result = fit("llama-3.1-8b", "h100", engine="tensorrt-llm", settings=parsed.settings)
    config = engine_of(result).config
    assert isinstance(config, TensorRtLlmSchedulerConfig)
    assert config.capacity_scheduler_policy is CapacityPolicy.MAX_UTILIZATION
    assert not config.overlaps
    (written,) = launch_command(result.deployment).files.values()
    assert "capacity_scheduler_policy: MAX_UTILIZATION" in written


def test_what_older_versions_decided_otherwise_is_kept() -> None:
    old = engine_of(fit("llama-3.1-8b", "h100", engine="tensorrt-llm@1.2")).config
    assert isinstance(old, TensorRtLlmSchedulerConfig)
    assert not old.credits_reuse


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"engine": "tensorrt-llm@0.20"}, "built engines are not simulated"),
        ({"max_attention_window": (4096,)}, "max_attention_window is below max_seq_len"),
        ({"max_beam_width": 2}, "max_beam_width is 2"),
        ({"host_cache_size": 2**30}, "host_cache_size is 1073741824"),
        ({"use_kv_cache_manager_v2": True}, "use_kv_cache_manager_v2 is true"),
        (
            {"model": "Qwen/Qwen3-Next-80B-A3B-Instruct", "gpus": 4, "tp": 4},
            "slots of recurrent states are not simulated",
        ),
    ],
)
def test_what_is_not_simulated_is_refused(settings: dict[str, Any], said: str) -> None:
    asked = {"engine": "tensorrt-llm", "model": "llama-3.1-8b"} | settings
    with pytest.raises(DeploymentError, match=said):
        engine_of(fit(asked.pop("model"), "h100", **asked))


def test_a_policy_that_it_does_not_have_is_refused() -> None:
    result = fit("llama-3.1-8b", "h100", engine="tensorrt-llm")
    with pytest.raises(DeploymentError, match="capacity_scheduler_policy is 'FIFO'"):
        engine_of(result, {"capacity_scheduler_policy": "FIFO"})
    with pytest.raises(DeploymentError, match="watermark is no setting of tensorrt-llm"):
        engine_of(result, {"watermark": 0.1})


@pytest.mark.parametrize("users", [4, 48])
def test_a_steady_load_sees_what_the_closed_form_says(users: int) -> None:
    result = fit("llama-3-8b", "a100", engine="tensorrt-llm")
    workload = parse_workload(
        f"users:count={users},input=uniform(512,1536),output=uniform(1,511),requests={users * 20}"
    )
    records = list(Run(result).serve(workload.start(), waits_for_answers=True))
    steady = records[3 * users : -2 * users]
    tpots = [record.tpot_seconds for record in steady if record.tpot_seconds is not None]
    told = speed(
        "llama-3-8b",
        "a100",
        engine="tensorrt-llm",
        input_tokens=1024,
        output_tokens=256,
        concurrency=users,
    )
    assert sum(tpots) / len(tpots) == pytest.approx(told.tpot_seconds.value, rel=0.05)
    ttft = sum(record.ttft_seconds for record in steady) / len(steady)
    assert ttft == pytest.approx(told.ttft_seconds.value, rel=0.2)
