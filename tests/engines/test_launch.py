"""Commands that are written: every setting of every engine, read back by the engine's parser."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenroom import fit, load_model
from tokenroom.engines.command_line import ParsedCommand
from tokenroom.engines.launch import LaunchCommand, asked_settings, launch_command
from tokenroom.engines.llama_cpp.settings import (
    CACHE_TYPES,
    LOAD_MODES,
    SPLIT_MODES,
    LlamaCppSettings,
)
from tokenroom.engines.policy import Deployment
from tokenroom.engines.registry import command_parser, engine_named
from tokenroom.engines.sglang.flags import known_versions as sglang_versions
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.engines.tensorrt_llm.settings import (
    BACKENDS,
    CAPACITY_POLICIES,
    CHUNKING_POLICIES,
    KV_DTYPES,
    TensorRTSettings,
)
from tokenroom.engines.vllm.flags import all_flags, flags_of
from tokenroom.engines.vllm.flags import known_versions as vllm_versions
from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings
from tokenroom.engines.vllm.value_types import CHOICES, checked
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.hardware.accelerator import Node
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.units import GIB

MODEL = load_model("llama-3.1-8b-instruct")
#: A command says neither, and the version is told to its parser.
NOT_SAID = {"version", "host_memory_bytes", "unknown_flags", "ignored_flags"}
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

#: argparse takes -- for the end of the options, wherever it stands.
texts = st.text("ab1 -_.'\"$/=,{é\\", min_size=1, max_size=8).filter(lambda text: text != "--")
numbers = st.integers(1, 5000)
small_objects = st.dictionaries(
    st.sampled_from(["a", "rope_theta", "nested"]),
    st.one_of(numbers, texts, st.booleans(), st.dictionaries(st.just("b"), numbers)),
    max_size=2,
)


def deployment_of(engine: str, version: str, asked: Any) -> Deployment:
    """A deployment as far as a command depends on it, whether the engine would start or not."""
    return Deployment(
        engine=engine,
        version=version,
        spec=MODEL,
        draft=None,
        node=Node(accelerator=find_accelerator("h100"), count=1),
        settings={},
        asked=asked,
        resolved=None,
    )


def read_back(engine: str, version: str | None, launch: LaunchCommand) -> ParsedCommand:
    """What the engine's own parser reads from the command as a shell runs it."""
    with TemporaryDirectory() as folder, chdir(folder):
        for name, text in launch.files.items():
            Path(name).write_text(text, encoding="utf-8")
        parsed = command_parser(engine)(launch.shell_text, allow_files=True, version=version)
    assert not parsed.settings.unknown_flags, launch.shell_text
    return parsed


def check(
    engine: str, version: str, asked: Any, instead: Mapping[str, Any] | None = None
) -> LaunchCommand:
    """Every setting is read back as asked, or the command says that it is left out.

    Args:
        engine: Whose command.
        version: Which version's.
        asked: The settings.
        instead: What a setting is read back as where another says the same.
    """
    launch = launch_command(deployment_of(engine, version, asked))
    assert launch is not None
    parsed = read_back(engine, version, launch)
    left_out = {note.values["name"] for note in launch.notes if note.key == "launch_left_out"}
    assert left_out <= asked_settings(asked).keys()
    unset = type(asked)()
    for item in fields(asked):
        if item.name in NOT_SAID:
            continue
        wanted = getattr(asked, item.name)
        if instead and item.name in instead:
            wanted = instead[item.name]
        elif item.name in left_out:
            wanted = getattr(unset, item.name)
        assert getattr(parsed.settings, item.name) == wanted, (item.name, launch.shell_text)
    return launch


def of_fields(cls: Any, values: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Settings with some of their fields set."""
    assert values.keys() == {item.name for item in fields(cls)} - NOT_SAID
    return st.fixed_dictionaries({}, optional=dict(values))


def by_annotation(cls: Any, special: Mapping[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    kinds: Mapping[str, st.SearchStrategy[Any]] = {
        "int": numbers,
        "float": st.floats(0.01, 1),
        "bool": st.booleans(),
        "str": texts,
        "tuple[int, ...]": st.lists(numbers, min_size=1, max_size=3).map(tuple),
        "tuple[float, ...]": st.lists(st.floats(0, 9), min_size=1, max_size=3).map(tuple),
        "tuple[str, ...]": st.lists(st.sampled_from(["a", "b1"]), min_size=1).map(tuple),
    }
    return {
        item.name: special[item.name]
        if item.name in special
        else kinds[str(item.type).removesuffix(" | None")]
        for item in fields(cls)
        if item.name not in NOT_SAID
    }


def offered(dest: str) -> list[Any]:
    """Every value that a flag of vLLM lets one choose in any version."""
    return sorted({value for flag in all_flags() if flag.dest == dest for value in flag.choices})


drafting = st.builds(
    SpeculativeSettings,
    method=st.sampled_from(["mtp", "eagle", "eagle3", "ngram", "draft_model"]),
    num_speculative_tokens=st.integers(0, 8),
    model=st.sampled_from([None, "org/eagle-head", "org/EAGLE3-x", "org/small"]),
    draft_tensor_parallel_size=st.sampled_from([None, 1, 2]),
    quantization=st.sampled_from([None, "fp8"]),
    max_model_len=st.sampled_from([None, 4096]),
    kv_cache_dtype=st.sampled_from([None, "fp8"]),
)
VLLM = by_annotation(
    VLLMSettings,
    {
        **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
        **{
            name: st.sampled_from([*offered(name), "other"])
            for name in ("dtype", "kv_cache_dtype", "all2all_backend", "load_format", "model_impl")
        },
        "block_size": st.sampled_from([8, 16, 17, 32, 256]),
        "max_model_len": st.one_of(numbers, st.just(-1)),
        "max_logprobs": st.integers(-1, 9),
        "attention_backend": st.sampled_from(["FLASH_ATTN", "TRITON_ATTN"]),
        "moe_backend": st.sampled_from(["triton", "flashinfer_trtllm"]),
        "linear_backend": st.sampled_from(["triton", "cutlass"]),
        "optimization_level": st.integers(0, 3),
        "compilation_mode": st.integers(0, 3),
        "cpu_offload_bytes": st.integers(0, 2**44),
        "kv_offload_bytes": st.integers(0, 2**44),
        "mm_ipc_gpu_memory_bytes": st.integers(0, 2**44),
        "kv_connector": st.sampled_from(["LMCacheConnectorV1", "NixlConnector"]),
        "limit_mm_per_prompt": st.dictionaries(
            st.sampled_from(["image", "video"]), st.integers(0, 9), min_size=1
        ),
        "attention_config": small_objects,
        "hf_overrides": small_objects,
        "mm_processor_kwargs": small_objects,
        "environment": st.dictionaries(st.just("VLLM_USE_V1"), st.sampled_from(["0", "1"])),
        "speculative": drafting,
    },
)


@QUICK
@given(asked=of_fields(VLLMSettings, VLLM), version=st.sampled_from(vllm_versions()))
def test_vllm_reads_what_is_written(asked: dict[str, Any], version: str) -> None:
    made = VLLMSettings(**{name: checked(name, value) for name, value in asked.items()})
    check_vllm(version, made)


@pytest.mark.parametrize("version", vllm_versions())
def test_vllm_writes_each_setting_alone(version: str) -> None:
    for name, values in ONE_OF_EACH.items():
        for value in values:
            check_vllm(version, VLLMSettings(**{name: checked(name, value)}))


def check_vllm(version: str, asked: VLLMSettings) -> None:
    """With the two settings that are read back as others which say the same."""
    instead: dict[str, Any] = {}
    flags = {flag.dest for flag in flags_of(version)}
    if asked.attention_backend is not None and "attention_backend" not in flags:
        variable = {"VLLM_ATTENTION_BACKEND": asked.attention_backend}
        instead = {"attention_backend": None, "environment": {**asked.environment, **variable}}
    if asked.mm_processor_max_pixels is not None and "mm_processor_kwargs" in flags:
        pixels = {"max_pixels": asked.mm_processor_max_pixels}
        instead["mm_processor_kwargs"] = {**asked.mm_processor_kwargs, **pixels}
    check("vllm", version, asked, instead)


ONE_OF_EACH: dict[str, tuple[Any, ...]] = {
    "max_model_len": (-1, 1, 131072),
    "tensor_parallel_size": (8,),
    "gpu_memory_utilization": (0.1, 0.95, 1),
    "enforce_eager": (True, False),
    "enable_prefix_caching": (True, False),
    "enable_chunked_prefill": (True, False),
    "kv_cache_dtype": ("fp8", "nonsense"),
    "block_size": (16, 17),
    "cudagraph_mode": ("NONE", "PIECEWISE", "FULL", "FULL_AND_PIECEWISE"),
    "compilation_mode": (0, 3),
    "optimization_level": (0, 3),
    "cudagraph_capture_sizes": ((1, 2, 8),),
    "max_cudagraph_capture_size": (0, 64),
    "cpu_offload_bytes": (GIB, GIB // 4),
    "limit_mm_per_prompt": ({"image": 2},),
    "hf_overrides": ({"rope_theta": 1e6}, {"rope_scaling": {"factor": 2.0}}, {"x": {"y": 1}}),
    "mm_processor_max_pixels": (1000,),
    "mm_encoder_tp_mode": ("data", "weights"),
    "num_redundant_experts": (2,),
    "kv_connector": ("NixlConnector",),
    "attention_backend": ("FLASHINFER",),
    "speculative": tuple(
        SpeculativeSettings(method=method, num_speculative_tokens=3, model=model)
        for method, model in (
            ("ngram", None),
            ("mtp", None),
            ("eagle", "org/eagle-head"),
            ("draft_model", "org/small"),
        )
    ),
    "usage": ("llm",),
}

SGLANG = by_annotation(
    SGLangSettings,
    {
        "schedule_policy": st.sampled_from(["fcfs", "lpm", "dfs-weight", "lof", "random"]),
        "chunked_prefill_size": st.one_of(numbers, st.just(-1)),
        "cpu_offload_bytes": st.one_of(st.integers(1, 99).map(lambda gib: gib * GIB), numbers),
        "hicache_size_bytes": st.one_of(st.integers(1, 99).map(lambda gb: gb * 10**9), numbers),
        "environment": st.dictionaries(st.just("SGLANG_PP_LAYER_PARTITION"), texts),
    },
)


@QUICK
@given(asked=of_fields(SGLangSettings, SGLANG), version=st.sampled_from(sglang_versions()))
def test_sglang_reads_what_is_written(asked: dict[str, Any], version: str) -> None:
    check_sglang(version, SGLangSettings(**asked))


@pytest.mark.parametrize("version", sglang_versions())
def test_sglang_writes_each_setting_alone(version: str) -> None:
    for asked in (
        SGLangSettings(tp_size=8, context_length=32768, mem_fraction_static=0.85),
        SGLangSettings(decode_graphs=False, prefill_graphs=False),
        SGLangSettings(decode_graphs=False),
        SGLangSettings(prefill_graphs=False),
        SGLangSettings(decode_graphs=True, prefill_graphs=True),
        SGLangSettings(cuda_graph_max_bs=64, cuda_graph_bs=(1, 2, 4)),
        SGLangSettings(prefill_graph_max_tokens=64, prefill_graph_tokens=(8, 16)),
        SGLangSettings(enable_ep_moe=True, tp_size=4),
        SGLangSettings(enable_ep_moe=True, tp_size=4, ep_size=2),
        SGLangSettings(moe_a2a_backend="deepep", enable_lora=True),
        SGLangSettings(enable_multimodal=False, language_only=True),
        SGLangSettings(cpu_offload_bytes=4 * GIB, hicache_size_bytes=8 * 10**9),
    ):
        check_sglang(version, asked)


def check_sglang(version: str, asked: SGLangSettings) -> None:
    """With expert parallelism over all ranks read back as their number."""
    instead = {}
    launch = launch_command(deployment_of("sglang", version, asked))
    assert launch is not None
    if asked.enable_ep_moe and asked.ep_size is None and "--enable-ep-moe" not in launch.words:
        ranks = read_back("sglang", version, launch).settings.ep_size
        assert ranks in (None, asked.tp_size or 1)
        instead = {"enable_ep_moe": None, "ep_size": ranks}
    check("sglang", version, asked, instead)


TENSORRT = by_annotation(
    TensorRTSettings,
    {
        "capacity_scheduler_policy": st.sampled_from(CAPACITY_POLICIES),
        "context_chunking_policy": st.sampled_from(CHUNKING_POLICIES),
        "backend": st.sampled_from(BACKENDS),
        "kv_cache_dtype": st.sampled_from(KV_DTYPES),
        "mamba_ssm_cache_dtype": st.sampled_from(["auto", "float32"]),
        "tokens_per_block": st.sampled_from([16, 32, 64]),
        "speculative_type": st.sampled_from(["MTP", "Eagle", "NGram"]),
        "environment": st.dictionaries(st.just("TRTLLM_WINDOW_SIZE_SHARES"), st.just("0.4,0.6")),
    },
)
TENSORRT_VERSIONS = ("0.18.2", "0.19.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.4")


@QUICK
@given(asked=of_fields(TensorRTSettings, TENSORRT), version=st.sampled_from(TENSORRT_VERSIONS))
def test_tensorrt_llm_reads_what_is_written(asked: dict[str, Any], version: str) -> None:
    check_tensorrt(version, TensorRTSettings(**asked))


@pytest.mark.parametrize("version", TENSORRT_VERSIONS)
def test_tensorrt_llm_writes_each_setting_alone(version: str) -> None:
    for asked in (
        TensorRTSettings(tensor_parallel_size=2, free_gpu_memory_fraction=0.8),
        TensorRTSettings(kv_cache_dtype="fp8", free_gpu_memory_fraction=0.8),
        TensorRTSettings(cuda_graphs=True),
        TensorRTSettings(cuda_graphs=False),
        TensorRTSettings(cuda_graph_max_batch_size=8, cuda_graph_enable_padding=True),
        TensorRTSettings(speculative_type="MTP", speculative_tokens=2),
        TensorRTSettings(max_attention_window=(512, 4096)),
        *(TensorRTSettings(backend=backend) for backend in BACKENDS),
    ):
        check_tensorrt(version, asked)


def check_tensorrt(version: str, asked: TensorRTSettings) -> None:
    """With graphs that are on read back as set only where nothing else is said of them."""
    graphs = (
        asked.cuda_graph_max_batch_size,
        asked.cuda_graph_batch_sizes,
        asked.cuda_graph_enable_padding,
    )
    unsaid = asked.cuda_graphs and graphs != (None, None, None)
    check("tensorrt-llm", version, asked, {"cuda_graphs": None} if unsaid else None)


LLAMA = by_annotation(
    LlamaCppSettings,
    {
        "program": st.sampled_from(["server", "cli"]),
        "gpus": st.integers(0, 4),
        "type_k": st.sampled_from(CACHE_TYPES),
        "type_v": st.sampled_from(CACHE_TYPES),
        "split_mode": st.sampled_from(SPLIT_MODES),
        "load_mode": st.sampled_from(LOAD_MODES),
        "flash_attn": st.sampled_from(["on", "off", "auto"]),
        "n_gpu_layers": st.integers(-2, 99),
        "cache_ram_mib": st.integers(-1, 9999),
        "override_tensor": st.lists(
            st.sampled_from([("exps", "CPU"), (r"blk\.[0-9]+=", "CUDA1"), ("a{1,2}", "CPU")]),
            max_size=2,
        ).map(tuple),
    },
)
LLAMA_VERSIONS = ("b3600", "b6000", "b7000", "b8766", "b11312")


@QUICK
@given(asked=of_fields(LlamaCppSettings, LLAMA), version=st.sampled_from(LLAMA_VERSIONS))
def test_llama_cpp_reads_what_is_written(asked: dict[str, Any], version: str) -> None:
    check("llama.cpp", version, LlamaCppSettings(**asked))


QUESTIONS: list[dict[str, Any]] = [
    {"engine": "vllm", "context": "32k", "tp": 2, "kv": "fp8", "max_num_seqs": 64},
    {"engine": "vllm@0.6.3", "context": "16k", "util": 0.85, "enforce_eager": True},
    {"engine": "vllm@0.5.1", "context": "8k", "block_size": 32},
    {"engine": "vllm@0.10.2", "max_cudagraph_capture_size": 64, "cudagraph_mode": "PIECEWISE"},
    {"engine": "vllm", "quantization": "fp8", "cpu_offload_bytes": 3 * GIB},
    {"engine": "sglang", "context": "32k", "tp": 2, "util": 0.8, "kv": "fp8"},
    {"engine": "sglang@0.4.0", "context": "8k", "max_running_requests": 32},
    {"engine": "sglang@0.5.15", "enforce_eager": True, "cpu_offload_bytes": 4 * GIB},
    {"engine": "tensorrt-llm", "context": "32k", "tp": 2, "kv": "fp8", "util": 0.8},
    {"engine": "tensorrt-llm@1.0", "max_batch_size": 16, "cuda_graphs": False},
    {"engine": "llama.cpp", "context": "32k", "tp": 2, "kv": "q8_0", "flash_attn": "on"},
    {"engine": "llama.cpp@b5500", "context": "8k", "n_gpu_layers": 20},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["engine"])
def test_the_command_has_the_same_ledger(question: dict[str, Any]) -> None:
    assert_same_ledger(fit(MODEL, "h100", **question))


def assert_same_ledger(result: FitResult) -> None:
    """The command, read back, is another way to ask the same."""
    launch = result.launch
    assert launch is not None
    deployment = result.deployment
    asked = read_back(deployment.engine, deployment.version, launch).settings
    again = fit(
        deployment.spec,
        deployment.node,
        engine=deployment.engine,
        settings=replace(asked, version=deployment.asked.version),
        request_tokens=result.request_tokens,
        concurrency=result.concurrency,
    )
    assert again.plan.stages == result.plan.stages
    assert again.plan.kv_pool_tokens == result.plan.kv_pool_tokens
    assert again.verdict == result.verdict


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    engine=st.sampled_from(["vllm", "vllm@0.7.3", "sglang", "sglang@0.5.2", "tensorrt-llm"]),
    shared=st.fixed_dictionaries(
        {},
        optional={
            "tp": st.sampled_from([1, 2, 4]),
            "pp": st.sampled_from([1, 2]),
            "context": st.sampled_from([2048, 32768]),
            "kv": st.sampled_from(["auto", "fp8"]),
            "util": st.sampled_from([0.7, 0.93]),
            "max_num_seqs": st.sampled_from([1, 100]),
            "max_num_batched_tokens": st.sampled_from([2048, 8192]),
            "enforce_eager": st.just(True),
        },
    ),
)
def test_any_shared_settings_have_the_same_ledger(engine: str, shared: dict[str, Any]) -> None:
    try:
        result = fit(MODEL, "h100", engine=engine, **shared)
    except TokenroomError:  # the engine refuses these together
        return
    assert_same_ledger(result)


@pytest.mark.parametrize(
    "engine",
    ["vllm", "vllm@0.6.3", "vllm@0.10.2", "sglang", "sglang@0.5.2", "tensorrt-llm", "llama.cpp"],
)
def test_a_change_is_written_as_its_command_is(engine: str) -> None:
    result = fit("llama-3.1-70b-instruct", "2xh100", engine=engine, context="64k", concurrency=8)
    assert result.changes_that_fit
    for change in result.changes_that_fit:
        launch = launch_command(change.deployment)
        assert launch is not None
        said = launch.shell_text.replace("\n  ", "\n")
        plain = change.flags.partition("(")[0].strip()
        assert all(word.rsplit(".", 1)[-1] in said for word in plain.split()), (plain, said)
        if change.layout is not None:
            assert launch.notes


def test_a_setting_that_a_version_has_no_flag_for_is_no_change_of_it() -> None:
    flag = "--language-model-only"
    for version, known in (("0.33.0", True), ("0.8.5", False)):
        result = fit("qwen2.5-vl-7b-instruct", "l4", engine=f"vllm@{version}", context="32k")
        assert (flag in [item.flags for item in result.changes_that_fit]) is known


def test_engines_without_a_command_have_none() -> None:
    for engine in ("transformers", "contiguous", "paged", "hybrid"):
        assert fit(MODEL, "h100", engine=engine, context="4k").launch is None


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.4.3", "sglang", "tensorrt-llm"])
def test_weights_in_another_layout_are_not_loaded_from_the_plain_checkpoint(engine: str) -> None:
    for result in (
        fit(MODEL, "h100", engine=engine, weights="awq"),
        fit("llama-3.1-8b-instruct@awq", "h100", engine=engine),
    ):
        launch = result.launch
        assert launch
        assert MODEL.name not in launch.words
        assert f"<a checkpoint of {MODEL.name} in awq>" in launch.words
        assert f"'<a checkpoint of {MODEL.name} in awq>'" in launch.shell_text
        needed, near = launch.notes
        assert needed.values == {"model": MODEL.name, "layout": "awq"}
        assert "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16" in str(near.values["names"])


@pytest.mark.parametrize(
    ("model", "weights", "name"),
    [
        ("qwen2.5-7b-instruct", "awq", "Qwen/Qwen2.5-7B-Instruct-AWQ"),
        ("qwen3-32b", "fp8_block", "Qwen/Qwen3-32B-FP8"),
        ("qwen3-8b", "w4a16", "RedHatAI/Qwen3-8B-quantized.w4a16"),
        ("qwen3-8b", "bf16", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-32B-FP8", "fp8_block", "Qwen/Qwen3-32B-FP8"),
    ],
)
def test_a_known_checkpoint_that_stores_every_weight_so_is_loaded(
    model: str, weights: str, name: str
) -> None:
    result = fit(model, "4xh100", weights=weights)
    launch = result.launch
    assert launch
    assert name in launch.words
    assert launch.notes == ()
    assert fit(name, "4xh100").plan.stages[0].weights == result.plan.stages[0].weights


def test_only_numbers_of_the_same_kind_are_near() -> None:
    launch = fit("llama-3.1-70b-instruct", "2xh100", weights="fp8", context="8k").launch
    assert launch
    assert launch.notes[1].values["names"] == (
        "nvidia/Llama-3.1-70B-Instruct-FP8, RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic"
    )


def test_a_checkpoint_of_another_tuning_is_no_checkpoint_of_the_base_model() -> None:
    launch = fit("meta-llama/Meta-Llama-3.1-70B", "4xh100", weights="fp8").launch
    assert launch
    assert not any("Instruct" in str(note.values) for note in launch.notes)


def test_a_folder_in_another_layout_is_not_loaded_as_it_is() -> None:
    folder = Path(__file__).parents[2] / "examples"
    launch = fit(folder / "config.json", "h100", weights="fp8").launch
    assert launch
    assert launch.arguments[0].startswith("<a checkpoint of ")


def test_models_that_have_to_be_made_first_are_named() -> None:
    gguf = fit(MODEL, "h100", engine="llama.cpp", weights="q4_k_m").launch
    plain = fit(MODEL, "h100", quantization="fp8").launch
    assert gguf
    assert [note.key for note in gguf.notes] == ["launch_gguf_needed"]
    assert str(gguf.notes[0].values["file"]) in gguf.words
    assert plain
    assert plain.notes == ()


def test_a_gguf_file_is_named_by_its_path_or_its_place_on_the_hub() -> None:
    file = replace(MODEL, config=None, name="a", path="/models/a b.gguf")
    hub = replace(MODEL, config=None, name="org/a-GGUF/a-q8_0.gguf")
    for spec, words in (
        (file, ("-m", "/models/a b.gguf")),
        (hub, ("-hf", "org/a-GGUF", "-hff", "a-q8_0.gguf")),
    ):
        launch = launch_command(
            replace(deployment_of("llama.cpp", "b8766", LlamaCppSettings()), spec=spec)
        )
        assert launch is not None
        assert launch.arguments == words
        assert launch.notes == ()
        assert read_back("llama.cpp", "b8766", launch).model == (spec.path or spec.name)


def test_a_local_model_is_named_by_its_folder() -> None:
    folder = Path(__file__).parents[2] / "examples"
    launch = fit(folder / "config.json", "h100").launch
    assert launch
    assert launch.arguments[0] == os.fspath(folder)


def test_flags_of_a_command_that_no_figure_depends_on_are_named() -> None:
    command = "VLLM_USE_V1=0 vllm serve m --port 80 --max-model-len 4096 --nonsense 1"
    parsed = command_parser("vllm")(command, version="0.8.5")
    launch = launch_command(deployment_of("vllm", "0.8.5", parsed.settings))
    assert launch
    assert launch.environment == {"VLLM_USE_V1": "0"}
    assert launch.shell_text.startswith("VLLM_USE_V1=0 vllm serve ")
    assert [note.values["flags"] for note in launch.notes] == ["--port, --nonsense"]


def test_a_python_object_is_left_out() -> None:
    engine, _ = engine_named("vllm")
    asked = engine.settings(None, {"hf_overrides": {"hook": print}})
    launch = launch_command(deployment_of("vllm", "0.33.0", asked))
    assert launch
    assert [note.values["name"] for note in launch.notes] == ["hf_overrides"]
