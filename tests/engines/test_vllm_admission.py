"""Accelerators, cache types and values that vLLM refuses before anything else."""

from __future__ import annotations

from typing import Any

import pytest

from tokenroom.engines.vllm.admission import kv_cache_dtypes
from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.errors import DeploymentError
from tokenroom.fitting import fit

_MODEL = "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    ("gpu", "version", "sentence"),
    [
        ("p40", "0.33.0", r"capability 6\.1, and vLLM 0\.33\.0 needs 7\.5; --engine llama\.cpp"),
        ("m40-24gb", "0.6.6", r"needs 7\.0"),
        ("p100-pcie-16gb", "0.11.0", r"needs 7\.0"),
        ("v100-sxm-32gb", "0.20.0", r"needs 7\.5; vLLM 0\.19 still takes it"),
        ("m4-max-128gb", "0.33.0", r"Apple GPUs.*--engine llama\.cpp does"),
    ],
)
def test_accelerators_below_the_least_are_refused(gpu: str, version: str, sentence: str) -> None:
    with pytest.raises(DeploymentError, match=sentence):
        fit(_MODEL, gpu, engine=f"vllm@{version}")


@pytest.mark.parametrize(("gpu", "version"), [("v100-sxm-32gb", "0.19.0"), ("t4", "0.33.0")])
def test_the_least_is_enough(gpu: str, version: str) -> None:
    fit("Qwen/Qwen3-0.6B", gpu, engine=f"vllm@{version}", max_model_len=2048)


@pytest.mark.parametrize("gpu", ["mi300x", "gaudi3", "tpu-v6e", "ascend-910b-64gb"])
def test_other_vendors_get_a_notice(gpu: str) -> None:
    result = fit(_MODEL, gpu)
    assert "vendor_unmeasured" in {notice.key for notice in result.notices}


@pytest.mark.parametrize("dtype", ["fp9", "FP8", "int8", "bf16"])
def test_the_cache_type_is_checked_first(dtype: str) -> None:
    with pytest.raises(DeploymentError, match=f"kv_cache_dtype is '{dtype}'.*choose from auto"):
        fit(_MODEL, "H100", kv=dtype)


def test_cache_types_are_those_of_the_version() -> None:
    with pytest.raises(DeploymentError, match=r"'nvfp4', which vLLM 0\.19\.0 does not know"):
        fit(_MODEL, "B200", kv="nvfp4", engine="vllm@0.19.0")
    with pytest.raises(DeploymentError, match="; write fp8"):
        fit(_MODEL, "H100", kv="FP8")
    assert kv_cache_dtypes((0, 4, 1)) == ("auto", "fp8")
    assert kv_cache_dtypes((0, 8, 5)) == ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dtype": 5}, "dtype is 5; it must be a text"),
        ({"cudagraph_capture_sizes": 5}, "must be a tuple of whole numbers"),
        ({"cudagraph_capture_sizes": (0,)}, "must be a tuple of whole numbers"),
        ({"enforce_eager": "yes"}, "enforce_eager is 'yes'; it must be True or False"),
        ({"max_model_len": 0}, "or -1 for the longest that fits"),
        ({"max_num_seqs": 2.0}, "max_num_seqs is 2.0; it must be a whole number"),
        ({"gpu_memory_utilization": 1.5}, "must be above 0 and at most 1"),
        ({"usage": "batch"}, "usage is 'batch'; choose from server, llm, other"),
        ({"limit_mm_per_prompt": {"image": "2"}}, "must be counts by modality"),
        ({"limit_mm_per_prompt": 2}, "must be counts by modality"),
        ({"environment": {"A": 1}}, "must be a mapping from names to texts"),
        ({"environment": None}, "environment is None; leave it out"),
        ({"hf_overrides": "{}"}, "must be a mapping from names to values"),
        ({"speculative": "ngram"}, "must be SpeculativeSettings"),
        ({"optimization_level": 4}, "must be a level from 0 to 3"),
        ({"enable_lora": True, "max_lora_rank": 17}, "max_lora_rank is 17; choose from"),
        ({"enable_lora": True, "max_loras": 4, "max_cpu_loras": 2}, "below max_loras"),
    ],
)
def test_wrong_values_are_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DeploymentError, match=sentence):
        fit(_MODEL, "H100", **settings)


def test_lists_are_taken_for_tuples() -> None:
    result = fit(_MODEL, "H100", cudagraph_capture_sizes=[1, 2, 4])
    assert result.deployment.resolved.cudagraph_capture_sizes == (1, 2, 4)


@pytest.mark.parametrize(
    ("draft", "model", "version", "sentence"),
    [
        (("warp", 3), _MODEL, "0.33.0", "the speculative method is 'warp'; vLLM 0.33.0 knows"),
        (("medusa", 3), _MODEL, "0.33.0", "'medusa'; vLLM 0.33.0 knows"),
        (("ngram", 0), _MODEL, "0.33.0", "give at least 1"),
        (("ngram", -3), _MODEL, "0.33.0", "num_speculative_tokens is -3"),
        (("mtp", 1), _MODEL, "0.33.0", "has no blocks for multi-token prediction"),
        (("ngram", 600), _MODEL, "0.30.0", "draft at most 511, or raise max_cudagraph"),
        (("draft_model", 3), _MODEL, "0.12.0", "does not run; use ngram"),
    ],
)
def test_drafting_is_checked(
    draft: tuple[str, int], model: str, version: str, sentence: str
) -> None:
    speculative = SpeculativeSettings(method=draft[0], num_speculative_tokens=draft[1])
    with pytest.raises(DeploymentError, match=sentence):
        fit(model, "H100", engine=f"vllm@{version}", speculative=speculative)


def test_every_setting_is_listed_with_its_origin() -> None:
    result = fit(
        _MODEL,
        "H100",
        speculative=SpeculativeSettings(method="ngram", num_speculative_tokens=4),
        hf_overrides={"max_position_embeddings": 4096},
        max_num_scheduled_tokens=1024,
    )
    settings = result.deployment.settings
    assert settings["speculative.method"][:2] == ("ngram", "user")
    assert settings["speculative.num_speculative_tokens"][:2] == (4, "user")
    assert settings["hf_overrides"][:2] == ({"max_position_embeddings": 4096}, "user")
    assert settings["max_num_scheduled_tokens"][:2] == (1024, "user")


def test_the_longest_length_is_listed_as_it_ran() -> None:
    result = fit(_MODEL, "rtx-4090", max_model_len=-1)
    setting = result.deployment.settings["max_model_len"]
    assert setting.value == result.plan.max_model_len < 131072
    assert (setting.origin, setting.reason) == ("engine", "auto: the longest that fits")


def test_a_setting_is_not_given_twice() -> None:
    with pytest.raises(DeploymentError, match="tensor_parallel_size is given twice, as 2 and as 4"):
        fit(_MODEL, "8xH100", tp=2, tensor_parallel_size=4)
    assert fit(_MODEL, "8xH100", tp=2, tensor_parallel_size=2).verdict == "fits"


@pytest.mark.parametrize(
    ("model", "settings", "sentence"),
    [
        ("deepseek-ai/DeepSeek-V3.2", {}, "use a GPU of compute capability 9.0 or 10.0 or 12.0"),
        (_MODEL, {"kv": "nvfp4"}, "use kv_cache_dtype auto or kv_cache_dtype fp8$"),
        (_MODEL, {"block_size": 24}, "use no block_size$"),
    ],
)
def test_no_backend_says_what_would_help(
    model: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DeploymentError, match=sentence):
        fit(model, "8xA100 80GB", **settings)


@pytest.mark.parametrize(("rank", "version"), [(512, "0.7.3"), (1, "0.11.0"), (17, "0.33.0")])
def test_adapter_ranks_are_those_of_the_version(rank: int, version: str) -> None:
    settings = {"enable_lora": True, "max_lora_rank": rank}
    with pytest.raises(DeploymentError, match=f"max_lora_rank is {rank}; choose from"):
        fit(_MODEL, "H100", engine=f"vllm@{version}", **settings)


def test_a_start_within_the_ranges_is_not_promised() -> None:
    """DeepSeek V4 Pro on 8 MI300X lacked KV cache at its own length (vLLM issue 53961)."""
    settings = {"tp": 8, "kv": "fp8", "context": 1_048_576}
    amd = fit("deepseek-ai/DeepSeek-V4-Pro", "8xmi300x", **settings)
    notice = next(found for found in amd.notices if found.key == "may_not_start")
    worse, _ = amd.governing_stage.estimate_errors
    needed = amd.plan.kv_bytes_of(1_048_576)
    assert notice.values["missing_bytes"] == needed + worse - amd.governing_stage.available_bytes
    longest = fit(_MODEL, "rtx-3090", context=8192).max_model_len_that_fits
    edge = fit(_MODEL, "rtx-3090", context=longest)
    assert edge.verdict == "fits"
    assert "may_not_start" in {found.key for found in edge.notices}
    given = fit(_MODEL, "rtx-3090", context=longest, kv_cache_memory_bytes=6 * 2**30)
    for sure in (fit(_MODEL, "rtx-3090", context=8192), given):
        assert "may_not_start" not in {found.key for found in sure.notices}
