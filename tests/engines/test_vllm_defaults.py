"""vLLM's defaults: against what vLLM itself resolved, and by version, GPU and model."""

from __future__ import annotations

import ast
import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tokenroom.engines.vllm.arguments import parse_command
from tokenroom.engines.vllm.attention_backend import AttentionQuery, choose_backend
from tokenroom.engines.vllm.checks import check, refusals
from tokenroom.engines.vllm.default_rules import default_rules
from tokenroom.engines.vllm.defaults import ResolvedSettings, resolve
from tokenroom.engines.vllm.graph_sizes import GraphRequest, capture_sizes
from tokenroom.engines.vllm.model_length import model_length
from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings
from tokenroom.errors import DeploymentError, ModelError
from tokenroom.hardware.accelerator import Node
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models.catalogue import entry, specification
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import ModelSpec

_FIXTURE = Path(__file__).parent / "data" / "vllm_defaults_0.32.json.gz"
_LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
#: Rows that building the engine's configuration takes and loading the model refuses later.
_REFUSED_LATER = ("no attention backend", "KV heads nor", "padded vocabulary")


@cache
def _model(name: str) -> ModelSpec:
    return specification(entry(name))


def _node(gpu: str = "h100-sxm-80gb", count: int = 8) -> Node:
    return Node(accelerator=find_accelerator(gpu), count=count)


def _resolved(
    name: str = _LLAMA, gpu: str = "h100-sxm-80gb", version: str | None = None, **given: Any
) -> ResolvedSettings:
    return resolve(VLLMSettings(**given), _model(name), _node(gpu), version)


def _settings(usage: str, given: dict[str, Any]) -> VLLMSettings:
    given = dict(given)
    if "speculative" in given:
        draft = given["speculative"]
        given["speculative"] = SpeculativeSettings(
            method=draft["method"], num_speculative_tokens=draft["num_speculative_tokens"]
        )
    if "cudagraph_capture_sizes" in given:
        given["cudagraph_capture_sizes"] = tuple(given["cudagraph_capture_sizes"])
    return VLLMSettings(usage=usage, **given)


def _comparable(name: str, value: Any) -> Any:
    if name == "kv_cache_dtype" and value == "fp8_e4m3":
        return "fp8"  # two names of one type
    return list(value) if isinstance(value, tuple) else value


def test_every_recorded_configuration_resolves_as_vllm_resolved_it() -> None:
    data = json.loads(gzip.decompress(_FIXTURE.read_bytes()))
    wrong = []
    for name, gpu, usage, chosen, expected in data["rows"]:
        spec, node = _model(name), _node(gpu)
        try:
            resolved = resolve(_settings(usage, chosen), spec, node, data["version"])
            check(resolved, spec, node)
        except DeploymentError as refusal:
            later = any(words in str(refusal) for words in _REFUSED_LATER)
            if isinstance(expected, dict) and not later:
                wrong.append(f"{name} {gpu} {chosen}: refused ({refusal})")
            continue
        if not isinstance(expected, dict):
            wrong.append(f"{name} {gpu} {chosen}: taken, vLLM says {expected}")
            continue
        for setting, value in expected.items():
            got = resolved.traits.pooling if setting == "pooling" else getattr(resolved, setting)
            if _comparable(setting, got) != _comparable(setting, value):
                wrong.append(f"{name} {gpu} {usage} {chosen} {setting}: {got}, vLLM {value}")
    assert not wrong
    assert len(data["rows"]) > 200


@pytest.mark.parametrize(
    ("version", "share"),
    [("0.11.0", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), (None, 0.92)],
)
def test_utilization_rose_with_0_20(version: str | None, share: float) -> None:
    assert _resolved(version=version).gpu_memory_utilization == share


@pytest.mark.parametrize(
    ("gpu", "usage", "version", "tokens", "seqs"),
    [
        ("h100-sxm-80gb", "server", "0.33.0", 8192, 1024),
        ("h100-sxm-80gb", "llm", "0.33.0", 16384, 1024),
        ("a100-sxm-80gb", "server", "0.33.0", 2048, 256),
        ("l40s", "llm", "0.33.0", 8192, 256),
        ("b200-sxm-180gb", "server", "0.33.0", 16384, 1024),
        ("b200-sxm-180gb", "server", "0.27.0", 8192, 1024),
        ("gb10", "server", "0.33.0", 2048, 256),
        ("gb10", "server", "0.32.0", 8192, 1024),
        ("h100-sxm-80gb", "other", "0.33.0", 2048, 128),
    ],
)
def test_batch_defaults(gpu: str, usage: str, version: str, tokens: int, seqs: int) -> None:
    resolved = _resolved(gpu=gpu, version=version, usage=usage)
    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs) == (tokens, seqs)


def test_origins_say_whose_value_it_is() -> None:
    settings = _resolved(max_num_seqs=16).settings
    assert settings["max_num_seqs"].origin == "user"
    assert settings["max_num_batched_tokens"].origin == "gpu"
    assert settings["max_model_len"].origin == "model"
    assert settings["gpu_memory_utilization"].origin == "engine"


def test_whole_prompts_without_chunked_prefill() -> None:
    resolved = _resolved(enable_chunked_prefill=False)
    assert resolved.max_num_batched_tokens == 131072


def test_short_lengths_cap_the_budget() -> None:
    resolved = _resolved(max_model_len=512, max_num_seqs=4)
    assert resolved.max_num_batched_tokens == 2048


@pytest.mark.parametrize(
    ("version", "prefix", "mode"),
    [
        ("0.11.0", False, "none"),
        ("0.19.0", False, "none"),
        ("0.27.0", False, "none"),
        ("0.28.0", True, "align"),
    ],
)
def test_hybrid_prefix_caching_by_version(version: str, prefix: bool, mode: str) -> None:
    resolved = _resolved("Qwen/Qwen3-Next-80B-A3B-Instruct", version=version)
    assert (resolved.enable_prefix_caching, resolved.mamba_cache_mode) == (prefix, mode)


def test_mamba_layers_could_keep_every_state() -> None:
    name = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    for version, mode in (("0.16.0", "all"), ("0.27.0", "all"), ("0.28.0", "align")):
        resolved = _resolved(name, version=version, enable_prefix_caching=True)
        assert resolved.mamba_cache_mode == mode


@pytest.mark.parametrize(
    ("version", "stages", "method", "overlaps"),
    [
        ("0.13.0", 1, None, False),
        ("0.14.0", 1, None, True),
        ("0.14.0", 2, None, False),
        ("0.17.0", 2, None, True),
        ("0.31.0", 2, None, True),  # on the second runner
        ("0.19.0", 1, "ngram", False),
        ("0.19.0", 1, "eagle3", True),
        ("0.27.0", 1, "draft_model", False),
        ("0.28.0", 1, "draft_model", True),
        ("0.33.0", 1, "ngram", True),
        ("0.33.0", 1, "suffix", False),
    ],
)
def test_async_scheduling(version: str, stages: int, method: str | None, overlaps: bool) -> None:
    draft = None if method is None else SpeculativeSettings(method=method, num_speculative_tokens=2)
    resolved = _resolved(version=version, pipeline_parallel_size=stages, speculative=draft)
    assert resolved.async_scheduling is overlaps


@pytest.mark.parametrize(
    ("gpu", "name", "version", "kv", "backend", "block"),
    [
        ("h100-sxm-80gb", _LLAMA, "0.33.0", None, "FLASH_ATTN", 16),
        ("b200-sxm-180gb", _LLAMA, "0.33.0", None, "FLASHINFER", 16),
        ("a100-sxm-80gb", _LLAMA, "0.33.0", "fp8", "FLASHINFER", 16),
        ("t4", _LLAMA, "0.19.0", None, "FLASHINFER", 16),
        ("t4", _LLAMA, "0.33.0", None, "TRITON_ATTN", 16),
        ("h100-sxm-80gb", "deepseek-ai/DeepSeek-R1", "0.17.0", None, "FLASH_ATTN_MLA", 64),
        ("h100-sxm-80gb", "deepseek-ai/DeepSeek-R1", "0.18.0", None, "FLASH_ATTN_MLA", 16),
        ("h100-sxm-80gb", "deepseek-ai/DeepSeek-R1", "0.33.0", "fp8", "FLASHMLA", 64),
        ("b200-sxm-180gb", "deepseek-ai/DeepSeek-R1", "0.12.0", None, "CUTLASS_MLA", 128),
        ("b200-sxm-180gb", "deepseek-ai/DeepSeek-R1", "0.33.0", None, "FLASHINFER_MLA", 32),
        ("a100-sxm-80gb", "deepseek-ai/DeepSeek-V2-Lite", "0.33.0", None, "TRITON_MLA", 16),
        ("h100-sxm-80gb", "deepseek-ai/DeepSeek-V3.2", "0.33.0", None, "FLASH_ATTN_MLA_SPARSE", 64),
        ("h100-sxm-80gb", "deepseek-ai/DeepSeek-V3.2", "0.20.0", None, "FLASHMLA_SPARSE", 64),
        ("h100-sxm-80gb", "google/gemma-3-27b-it", "0.19.0", None, "TRITON_ATTN", 16),
        ("h100-sxm-80gb", "google/gemma-3-27b-it", "0.33.0", None, "TRITON_FLASH_ATTN", 16),
        ("a100-sxm-80gb", "openai/gpt-oss-20b", "0.33.0", None, "TRITON_ATTN", 16),
        ("h100-sxm-80gb", "openai/gpt-oss-20b", "0.33.0", None, "FLASH_ATTN", 16),
    ],
)
def test_attention_backend_and_its_block(
    gpu: str, name: str, version: str, kv: str | None, backend: str, block: int
) -> None:
    resolved = _resolved(name, gpu, version, kv_cache_dtype=kv)
    assert (resolved.attention_backend, resolved.block_size) == (backend, block)


def test_sparse_caches_are_packed_when_quantised() -> None:
    name = "deepseek-ai/DeepSeek-V3.2"
    assert _resolved(name, version="0.11.0").kv_cache_dtype == "fp8_ds_mla"
    assert _resolved(name, version="0.19.0").kv_cache_dtype == "auto"
    assert _resolved(name, version="0.33.0", kv_cache_dtype="fp8").attention_backend == (
        "FLASHMLA_SPARSE"
    )
    assert _resolved(name, version="0.33.0", kv_cache_dtype="fp8").kv_cache_dtype == "fp8_ds_mla"


def test_block_size_precludes_backends() -> None:
    name = "deepseek-ai/DeepSeek-R1"
    assert _resolved(name, "b200-sxm-180gb", block_size=16).attention_backend == "TRITON_MLA"
    with pytest.raises(DeploymentError, match="no attention backend"):
        _resolved(block_size=17)


def test_selected_backend_has_to_fit() -> None:
    with pytest.raises(DeploymentError, match="attention_backend is CUTLASS_MLA"):
        _resolved(attention_backend="CUTLASS_MLA")
    assert _resolved(attention_backend="MY_OWN").attention_backend == "MY_OWN"
    environment = {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    assert _resolved(version="0.11.0", environment=environment).attention_backend == "FLASHINFER"


def test_old_gpus_fall_back_to_half() -> None:
    resolved = _resolved(gpu="t4")
    assert resolved.dtype == "float16"
    assert resolved.settings["dtype"].origin == "gpu"
    query = AttentionQuery(
        version=(0, 33, 0), capability=(7, 0), head_dim=20, num_heads=4, dtype="float16"
    )
    assert choose_backend(query).name == "FLEX_ATTENTION"


def _sizes(version: str, **given: Any) -> tuple[int, ...]:
    values = {"max_num_seqs": 256, "max_num_batched_tokens": 8192, **given}
    if "sizes" in values:
        values["sizes"] = tuple(values["sizes"])
    return capture_sizes(GraphRequest(**values), default_rules(version))


def test_graph_sizes_by_version() -> None:
    assert len(_sizes("0.11.0")) == 67
    assert len(_sizes("0.12.0")) == 51
    assert _sizes("0.12.0", max_num_seqs=8) == (1, 2, 4, 8, 16)
    assert _sizes("0.12.0", max_num_seqs=8, speculative_tokens=3) == (1, 2, 4, 8, 16)
    assert max(_sizes("0.13.0", max_num_seqs=8, speculative_tokens=3)) == 64
    assert 100 not in _sizes("0.20.0", max_num_batched_tokens=100)
    assert 100 in _sizes("0.21.0", max_num_batched_tokens=100)
    assert 63 in _sizes("0.29.0", max_num_seqs=21, speculative_tokens=2)
    assert 21 not in _sizes("0.30.0", max_num_seqs=21)
    assert 21 in _sizes("0.31.0", max_num_seqs=21)
    assert _sizes("0.17.0", max_num_seqs=4, interactivity=True) == tuple(range(1, 9))
    assert max(_sizes("0.33.0", ceiling=1024, max_num_seqs=1024)) == 1024
    assert max(_sizes("0.33.0", architecture="GptOssForCausalLM")) == 1024
    assert max(_sizes("0.11.0", architecture="GptOssForCausalLM")) == 992
    assert _sizes("0.11.0", sizes=[4, 2], max_num_batched_tokens=3) == (2,)


def test_contradicting_graph_sizes_are_refused() -> None:
    with pytest.raises(DeploymentError, match="max_cudagraph_capture_size is 64"):
        _sizes("0.33.0", sizes=[1, 2], largest=64)
    with pytest.raises(DeploymentError, match="no size up to"):
        _sizes("0.33.0", sizes=[100_000])
    with pytest.raises(DeploymentError, match="is 0; give at least 1"):
        _sizes("0.33.0", largest=0)


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "FULL_AND_PIECEWISE"),
        ({"enforce_eager": True}, "NONE"),
        ({"optimization_level": 0}, "NONE"),
        ({"optimization_level": 1}, "PIECEWISE"),
        ({"cudagraph_mode": "FULL_DECODE_ONLY"}, "FULL_DECODE_ONLY"),
        ({"compilation_mode": 0}, "FULL_DECODE_ONLY"),
        ({"runner": "pooling"}, "PIECEWISE"),
    ],
)
def test_graph_modes(given: dict[str, Any], mode: str) -> None:
    resolved = _resolved(**given)
    assert resolved.cudagraph_mode == mode
    assert bool(resolved.cudagraph_capture_sizes) == (mode != "NONE")


def _with_rope(**rope: Any) -> ModelSpec:
    config = {**entry(_LLAMA).config, "max_position_embeddings": 8192, "rope_scaling": rope}
    return read_config(config, name="m")


@pytest.mark.parametrize(
    ("rope", "old", "new"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 32768, 32768),
        ({"rope_type": "dynamic", "factor": 2.0}, 16384, 16384),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
            16384,
            8192,
        ),
        ({"rope_type": "llama3", "factor": 8.0}, 8192, 8192),
    ],
)
def test_rope_scaling_and_length(rope: dict[str, Any], old: int, new: int) -> None:
    spec = _with_rope(**rope)
    assert model_length(spec, default_rules("0.19.0")).default == old
    assert model_length(spec, default_rules("0.33.0")).default == new


def test_longrope_defaults_to_the_original_length() -> None:
    name = "microsoft/Phi-3-mini-128k-instruct"
    assert _resolved(name).max_model_len == 4096
    assert _resolved(name, version="0.11.0").max_model_len == 131072
    assert _resolved(name, max_model_len=131072).max_model_len == 131072


def test_overrides_change_the_length() -> None:
    assert _resolved(hf_overrides={"max_position_embeddings": 4096}).max_model_len == 4096
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 131072}
    assert _resolved(hf_overrides={"rope_scaling": yarn}, version="0.19.0").max_model_len == 262144
    nested = {"text_config": {"max_position_embeddings": 1024}}
    assert _resolved(hf_overrides=nested).max_model_len == 1024


def test_too_long_is_refused_unless_allowed() -> None:
    with pytest.raises(DeploymentError, match="max_model_len is 200000, but the model takes"):
        _resolved(max_model_len=200_000)
    allowed = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    assert _resolved(max_model_len=200_000, environment=allowed).max_model_len == 200_000


def test_automatic_length_is_bounded_by_the_model() -> None:
    resolved = _resolved(max_model_len=-1)
    assert (resolved.max_model_len, resolved.fits_max_model_len) == (131072, True)


def test_mtp_drafts_at_least_one_token() -> None:
    draft = SpeculativeSettings(method="mtp", num_speculative_tokens=0)
    resolved = _resolved("deepseek-ai/DeepSeek-R1", speculative=draft)
    assert resolved.num_speculative_tokens == 1


def _refusal(name: str = _LLAMA, gpu: str = "h100-sxm-80gb", count: int = 8, **given: Any) -> str:
    spec, node = _model(name), _node(gpu, count)
    return "; ".join(refusals(resolve(VLLMSettings(**given), spec, node), spec, node))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tensor_parallel_size": 3}, "does not divide the model's 32 attention heads; use 2"),
        (
            {"tensor_parallel_size": 5, "name": "Qwen/Qwen3-14B"},
            "does not divide the padded vocabulary of 151936; use a power of two",
        ),
        ({"tensor_parallel_size": 4, "count": 2}, "needs 4 accelerators, but there are 2"),
        ({"data_parallel_size": 4, "tensor_parallel_size": 4}, "needs 16 accelerators"),
        ({"pipeline_parallel_size": 64, "count": 64}, "the model has 32 layers"),
        ({"enable_expert_parallel": True}, "the model has no experts"),
        ({"decode_context_parallel_size": 2}, "does not divide tensor_parallel_size (1)"),
        (
            {"decode_context_parallel_size": 2, "tensor_parallel_size": 8},
            "8 KV heads over tensor_parallel_size 8 allow at most 1",
        ),
        ({"max_num_batched_tokens": 64, "max_num_seqs": 128}, "below max_num_seqs (128)"),
        (
            {"max_num_batched_tokens": 64, "enable_chunked_prefill": False, "max_num_seqs": 1},
            "below max_model_len (131072) without chunked prefill",
        ),
        ({"dtype": "bfloat16", "gpu": "t4"}, "needs compute capability 8.0; the Tesla T4 has 7.5"),
        ({"dtype": "int4"}, "dtype is 'int4'; choose from auto"),
        ({"enable_lora": True, "max_lora_rank": 17}, "max_lora_rank is 17; choose from 1, 8"),
        ({"name": "openai/gpt-oss-20b", "gpu": "v100-sxm-32gb"}, "which needs compute capability"),
        (
            {"speculative": SpeculativeSettings(method="ngram", num_speculative_tokens=0)},
            "num_speculative_tokens is not set, which the ngram method needs",
        ),
        (
            {
                "speculative": SpeculativeSettings(
                    method="eagle3", num_speculative_tokens=3, draft_tensor_parallel_size=3
                )
            },
            "draft_tensor_parallel_size is 3",
        ),
        (
            {
                "speculative": SpeculativeSettings(method="ngram", num_speculative_tokens=9),
                "enable_lora": True,
                "max_num_batched_tokens": 1024,
                "max_num_seqs": 256,
            },
            "LoRA with 9 drafted tokens needs 2560",
        ),
        (
            {"name": "Qwen/Qwen3-Next-80B-A3B-Instruct", "enable_chunked_prefill": False},
            "caching prefixes of recurrent layers needs it",
        ),
    ],
)
def test_refusals(given: dict[str, Any], sentence: str) -> None:
    assert sentence in _refusal(**given)


def test_check_raises_the_first_reason_and_takes_what_fits() -> None:
    spec, node = _model(_LLAMA), _node()
    with pytest.raises(DeploymentError, match="attention heads"):
        check(resolve(VLLMSettings(tensor_parallel_size=3), spec, node), spec, node)
    check(resolve(VLLMSettings(tensor_parallel_size=8), spec, node), spec, node)


def test_versions_have_to_be_versions() -> None:
    with pytest.raises(DeploymentError, match="the vLLM version is 'newest'"):
        _resolved(version="newest")


def test_other_vendors_resolve() -> None:
    resolved = _resolved(gpu="mi300x")
    assert (resolved.attention_backend, resolved.block_size) == ("TRITON_ATTN", 16)
    assert resolved.max_num_batched_tokens == 16384


_CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "tensor_parallel_size": st.sampled_from([1, 2, 8]),
    "pipeline_parallel_size": st.sampled_from([1, 2]),
    "max_model_len": st.sampled_from([-1, 1, 17, 4096, 10**7]),
    "max_num_seqs": st.integers(1, 5000),
    "max_num_batched_tokens": st.integers(1, 10**6),
    "kv_cache_dtype": st.sampled_from(["auto", "fp8", "fp8_e5m2", "bfloat16", "nvfp4"]),
    "block_size": st.sampled_from([16, 32, 64, 128]),
    "optimization_level": st.integers(0, 3),
    "performance_mode": st.sampled_from(["throughput", "interactivity"]),
    "max_cudagraph_capture_size": st.integers(0, 3000),
    "enable_prefix_caching": st.booleans(),
    "enable_chunked_prefill": st.booleans(),
    "runner": st.sampled_from(["auto", "pooling"]),
    "usage": st.sampled_from(["server", "llm", "other"]),
}


@hypothesis_settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries({}, optional=_CHOICES),
    st.sampled_from(
        [
            _LLAMA,
            "deepseek-ai/DeepSeek-V3.2",
            "Qwen/Qwen3-Next-80B-A3B-Instruct",
            "openai/gpt-oss-20b",
        ]
    ),
    st.sampled_from(["t4", "a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "rtx-5090"]),
    st.sampled_from(["0.11.0", "0.14.0", "0.19.0", "0.25.0", "0.33.0"]),
)
def test_settings_resolve_or_are_refused(
    given: dict[str, Any], name: str, gpu: str, version: str
) -> None:
    try:
        resolved = _resolved(name, gpu, version, **given)
    except DeploymentError:
        return
    sizes = resolved.cudagraph_capture_sizes
    assert list(sizes) == sorted(set(sizes))
    assert all(1 <= size <= resolved.max_num_batched_tokens for size in sizes)
    assert resolved.max_in_flight_tokens >= resolved.max_num_batched_tokens
    assert resolved.block_size % 16 == 0
    assert set(resolved.settings) >= {"dtype", "max_model_len", "block_size", "cudagraph_mode"}


_LOG_FIELDS = {
    "dtype": r"\bdtype=torch\.(\w+)",
    "max_model_len": r"max_seq_len=(\d+)",
    "kv_cache_dtype": r"kv_cache_dtype=(\w+)",
    "max_num_batched_tokens": r"enabled with max_num_batched_tokens=(\d+)",
    "async_scheduling": r"Asynchronous scheduling is (enabled|disabled)",
    "attention_backend": r"Using (\w+) attention backend out of",
    "cudagraph_mode": r"'cudagraph_mode': <CUDAGraphMode\.(\w+)",
    "cudagraph_capture_sizes": r"'cudagraph_capture_sizes': \[([\d, ]*)\]",
}


def _log_value(name: str, text: str) -> str | None:
    match = re.search(_LOG_FIELDS[name], text)
    if match is None:
        return None
    value = match.group(1)
    if name == "async_scheduling":
        return str(value == "enabled")
    return f"[{value}]" if name == "cudagraph_capture_sizes" else value


@pytest.mark.shared
def test_published_logs_show_the_same_settings(shared: Path) -> None:
    wrong, compared = [], 0
    for file in sorted((shared / "truth" / "vllm_logs").glob("*.log.gz")):
        text = gzip.decompress(file.read_bytes()).decode(errors="replace")
        version = re.search(r"\bversion (\d+\.\d+\.\d+)", text)
        arguments = re.search(r"non-default args: (\{.*\})", text)
        gpu = re.search(r"--(h100|a100|l40s|h200|b200)-(\d+)gb--", file.name)
        if version is None or arguments is None or gpu is None:
            continue
        flags = ", ".join(
            f"{name}={value!r}"
            for name, value in ast.literal_eval(arguments.group(1)).items()
            if name != "model_tag"
        )
        call = parse_command(f"AsyncEngineArgs({flags})", version=version[1])
        try:
            spec = _model(call.model)
        except ModelError:
            continue
        node = _node({"h100": "h100-sxm-80gb", "a100": "a100-sxm-80gb"}.get(gpu[1], gpu[1]))
        try:
            resolved = resolve(call.settings, spec, node)
            check(resolved, spec, node)
        except DeploymentError as refusal:
            known = (
                "greater than the derived max_model_len",
                "AssertionError: 151936 is not divis",
            )
            if not any(words in text for words in known):
                wrong.append(f"{file.name}: {refusal}")
            continue
        for name in _LOG_FIELDS:
            expected = _log_value(name, text)
            got = _comparable(name, getattr(resolved, name))
            compared += expected is not None
            if expected is not None and str(got) != _comparable(name, expected):
                wrong.append(f"{file.name} {name}: {got}, the log {expected}")
    assert not wrong
    assert compared > 100
