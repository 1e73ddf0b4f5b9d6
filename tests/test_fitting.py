"""The facade: verdicts, what they rest on, and what would change them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenroom import ModelSpec, TokenroomError, fit, load_model
from tokenroom.hardware.accelerator import Node
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.units import GIB


@pytest.fixture(scope="module")
def llama() -> ModelSpec:
    return load_model("meta-llama/Llama-3.1-8B-Instruct")


def test_a_recorded_run_comes_out(llama: ModelSpec) -> None:
    # Debug log of vLLM 0.19.0 on one H100 80GB: weights 14.99 GiB, activation 1.89, non-torch 0.25,
    # KV 58.11 GiB, 476,016 tokens, 58.11x (github.com/llm-d-incubation/llm-d-planner pull 205).
    result = fit(
        llama, "h100", engine="vllm@0.19.0", context=8192, util=0.95, enable_prefix_caching=False
    )
    stage = result.plan.stages[0]
    assert result.verdict == "fits"
    assert stage.weights_bytes / GIB == pytest.approx(14.99, abs=0.005)
    assert stage.activation.num_bytes / GIB == pytest.approx(1.89, rel=0.01)
    assert stage.non_torch.num_bytes / GIB == pytest.approx(0.25, abs=0.02)
    assert result.plan.kv_pool_tokens == pytest.approx(476_016, rel=0.001)
    assert result.plan.max_concurrency == pytest.approx(58.11, abs=0.06)
    low, high = result.kv_pool_tokens_range
    assert low <= 476_016 <= high


def test_the_ledger_adds_up_to_the_card(llama: ModelSpec) -> None:
    stage = fit(llama, "h100", context=8192).plan.stages[0]
    parts = (
        stage.context_bytes
        + stage.weights_bytes
        + stage.activation.num_bytes
        + stage.cuda_graphs.num_bytes
        + stage.non_torch.num_bytes
        + stage.buffers_bytes
        + stage.kv_pool_bytes
        + stage.free_bytes
    )
    assert parts == stage.total_bytes


def test_asked_concurrency_decides_between_fits_and_less(llama: ModelSpec) -> None:
    held = fit(llama, "l40s", context=8192).requests_held
    assert fit(llama, "l40s", context=8192, concurrency=held).verdict == "fits"
    more = fit(llama, "l40s", context=8192, concurrency=held + 1)
    assert more.verdict == "fits_with_less"
    assert more.requests_running == held


def test_max_num_seqs_limits_what_runs(llama: ModelSpec) -> None:
    result = fit(llama, "h100", context=8192, request_tokens=256, max_num_seqs=16)
    assert result.requests_held > 16
    assert result.requests_running == 16


def test_weights_beyond_the_card_are_refused_with_their_cause() -> None:
    result = fit("meta-llama/Meta-Llama-3.1-70B", "4090")
    assert result.verdict == "does_not_fit"
    assert result.plan.refusal is not None
    assert result.plan.refusal.cause == "weights_too_big"
    assert result.requests_running == 0
    assert result.max_model_len_that_fits == 0


def test_a_request_longer_than_the_pool_is_refused_and_the_length_that_fits_starts(
    llama: ModelSpec,
) -> None:
    result = fit(llama, "4090", context=131072)
    assert result.verdict == "does_not_fit"
    assert result.plan.refusal is not None
    assert result.plan.refusal.cause == "kv_below_one_request"
    longest = result.max_model_len_that_fits
    assert 0 < longest < 131072
    assert fit(llama, "4090", context=longest).verdict == "fits"
    assert fit(llama, "4090", context=longest + 16).verdict == "does_not_fit"


def test_every_change_offered_fits_when_it_is_made(llama: ModelSpec) -> None:
    result = fit(llama, "4090", context=65536)
    assert result.changes_that_fit
    for change in result.changes_that_fit:
        again = result.engine.plan(change.deployment)
        assert again.refusal is None, change.flags
        assert again.kv_pool_tokens == change.kv_pool_tokens
    keys = [change.key for change in result.changes_that_fit]
    assert keys[0] == "max_model_len"
    assert "kv_cache_dtype" in keys
    assert "quantization" in keys


def test_pairs_are_tried_when_no_single_change_does() -> None:
    result = fit("Qwen/Qwen2.5-72B-Instruct", "l40s", gpus=2, concurrency=8, context=32768)
    assert result.verdict != "fits"
    for change in result.changes_that_fit:
        assert len(change.prices) in (1, 2)


def test_memory_of_other_processes_counts(llama: ModelSpec) -> None:
    # The same log series: 60.33 of 79.19 GiB free at start, 75.23 wanted: refused.
    used = round(18.35 * GIB)
    result = fit(llama, "h100", context=8192, util=0.95, used_bytes=used)
    assert result.plan.refusal is not None
    assert result.plan.refusal.cause == "free_below_budget"
    assert next(change.key for change in result.changes_that_fit) == "gpu_memory_utilization"


def test_gpus_without_a_parallel_size_become_tensor_parallel(llama: ModelSpec) -> None:
    result = fit(llama, "h100", gpus=4)
    assert result.deployment.settings["tensor_parallel_size"].value == 4
    assert result.deployment.node.count == 4


def test_given_pool_bytes_rest_on_no_estimate(llama: ModelSpec) -> None:
    result = fit(llama, "h100", context=8192, kv_cache_memory_bytes=20 * GIB)
    assert result.plan.pool_is_exact
    assert result.plan.kv_pool_tokens == 20 * GIB // (128 * 1024)
    assert result.kv_pool_tokens_range == (163840, 163840)


def test_auto_length_is_the_longest_that_fits(llama: ModelSpec) -> None:
    auto = fit(llama, "4090", context=-1)
    assert auto.verdict == "fits"
    # It profiles with the tables of the full length, so a stated length may go a little further.
    longest = fit(llama, "4090").max_model_len_that_fits
    assert longest * 0.99 < auto.plan.max_model_len <= longest


def test_a_node_and_an_accelerator_are_taken_as_they_are(llama: ModelSpec) -> None:
    gpu = find_accelerator("a100-80gb")
    by_accelerator = fit(llama, gpu, tp=2)
    by_node = fit(llama, Node(accelerator=gpu, count=2))
    assert by_accelerator.plan.kv_pool_tokens == by_node.plan.kv_pool_tokens


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gpu": "h100", "concurrency": 0}, ["concurrency", "0"]),
        ({"gpu": "h100", "concurrency": True}, ["concurrency"]),
        ({"gpu": "h100", "gpus": -1}, ["gpus", "-1"]),
        ({"gpu": "h100", "tp": 3}, ["3"]),
        ({"gpu": "h100", "tp": 8, "gpus": 2}, ["8", "2"]),
        ({"gpu": "h100", "util": 1.5}, ["gpu_memory_utilization", "1.5"]),
        ({"gpu": "h100", "util": float("nan")}, ["gpu_memory_utilization", "nan"]),
        ({"gpu": "h100", "context": 10**9}, ["max_model_len"]),
        ({"gpu": "h100", "context": 0}, ["max_model_len", "0"]),
        ({"gpu": "h100", "kv": "fp3"}, ["fp3"]),
        ({"gpu": "h100", "weights": "int3"}, ["int3"]),
        ({"gpu": "h100", "engine": "vllm@x"}, ["x"]),
        ({"gpu": "h100", "engine": "tgi"}, ["tgi", "vllm"]),
        ({"gpu": "h999"}, ["h999"]),
        ({"gpu": "h100", "max_num_seq": 3}, ["max_num_seq", "max_num_seqs"]),
        ({"gpu": "h100", "context": 4096, "request_tokens": 5000}, ["request_tokens", "5000"]),
    ],
)
def test_bad_input_is_one_sentence_naming_the_field(
    llama: ModelSpec, arguments: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(TokenroomError) as caught:
        fit(llama, **arguments)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_an_unknown_model_names_near_ones() -> None:
    with pytest.raises(TokenroomError, match=r"llama"):
        fit("llama-3.1-8bb", "h100")


def test_a_quantisation_block_without_a_method_is_loaded_plain(tmp_path: Path) -> None:
    # vLLM's _normalize_quantization_config (0.32) looks for quant_method or ModelOpt's producer.
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 1024,
        "vocab_size": 1024,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    block = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    named = {"producer": {"name": "modelopt", "version": "0.31.0"}, **block}
    results = []
    for folder, quantisation in (("unnamed", block), ("named", named)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
        (tmp_path / folder / "hf_quant_config.json").write_text(json.dumps(quantisation))
        results.append(fit(tmp_path / folder, "h100", kv_cache_memory_bytes=GIB))
    unnamed, recognised = results
    assert recognised.plan.kv_blocks == 2 * unnamed.plan.kv_blocks
    assert recognised.plan.stages[0].weights_bytes < unnamed.plan.stages[0].weights_bytes
    assert "quantization_not_recognised" in [notice.key for notice in unnamed.notices]
    assert "quantization_not_recognised" not in [notice.key for notice in recognised.notices]


def test_assumed_memory_of_a_gpu_is_said() -> None:
    answer = fit("qwen3-8b", "rtx-5000-ada")
    (notice,) = [notice for notice in answer.notices if notice.key == "gpu_memory_assumed"]
    assert notice.values["memory_bytes"] == answer.deployment.node.accelerator.memory_bytes
    assert "no driver figure was found" in str(notice.values["source"])
    known = fit("qwen3-8b", "l40")
    assert "gpu_memory_assumed" not in {notice.key for notice in known.notices}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": None}, "model is None; give a name, a path or a ModelSpec"),
        ({"model": 5}, "model is 5; give"),
        ({"gpu": 5}, "gpu is 5; give a name, an Accelerator or a Node"),
        ({"weights": 5}, "weights is 5; give a layout such as 'fp8'"),
        ({"engine": 5}, "engine is 5; give a name such as"),
        ({"engine": None}, "engine is None; give a name such as"),
        ({"settings": {}}, "settings is {}; give vllm's own settings object"),
        ({"used_bytes": "5"}, "used_bytes is '5'; give a whole number of bytes from 0"),
        ({"used_bytes": -5}, "used_bytes is -5; give"),
        ({"used_bytes": float("nan")}, "used_bytes is nan; give"),
        ({"used_bytes": 2**50}, "used_bytes is 1,024.00 TiB, but NVIDIA H100"),
        ({"concurrency": "3"}, "concurrency is '3'; it must be a whole number"),
        ({"concurrency": 10**5000}, "concurrency is a number of thousands of digits; give at"),
        ({"context": 1.5}, "context is 1.5; give tokens"),
        ({"request_tokens": True}, "request_tokens is True; give tokens"),
        ({"kv": 8}, "kv is 8; give a type such as 'fp8'"),
        ({"ep": 1}, "ep is 1; give True or False"),
        ({"notes": "abc"}, "notes is 'abc'; give a list of sentences"),
        ({"notes": [1]}, "give a list of sentences"),
        ({"gpus": 2**40}, "gpus is 1099511627776; give at most 65,536"),
        ({"tp": 2**40}, "give at most 65,536"),
        ({"tp": 2**16, "dp": 2}, "the parallel sizes need 131072 GPUs"),
        ({"cpu_offload_bytes": 10**400}, "cpu_offload_bytes is"),
    ],
)
def test_a_wrong_argument_is_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    given = {"model": "llama-3.2-1b", "gpu": "h100"} | arguments
    with pytest.raises(TokenroomError) as caught:
        fit(given.pop("model"), given.pop("gpu"), **given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "settings", "sentence"),
    [
        ("llama.cpp", {"host_memory_bytes": "x"}, "host_memory_bytes is 'x'; it may be a whole"),
        ("llama.cpp", {"tensor_split": True}, "tensor_split is True; it may be a tuple"),
        ("llama.cpp", {"override_tensor": (0,)}, "it may list a tuple"),
        ("llama.cpp", {"gpus": 65536}, "gpus is 65536; give at most 1,024"),
        ("sglang", {"cuda_graph_bs": ()}, "cuda_graph_bs lists nothing"),
        ("sglang", {"speculative_algorithm": 7}, "speculative_algorithm is 7; it may be a text"),
        ("tensorrt-llm", {"environment": None}, "environment is None; it may be a mapping"),
        ("contiguous", {"concurrency": 10**12}, "concurrency is 1000000000000; give at most"),
    ],
)
def test_a_setting_of_a_wrong_type_is_one_sentence(
    engine: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TokenroomError) as caught:
        fit("llama-3.2-1b", "h100", engine=engine, **settings)
    assert sentence in str(caught.value)


def test_a_pool_below_one_request_holds_less(llama: ModelSpec) -> None:
    short = fit(llama, "rtx-4090", engine="sglang")
    assert short.plan.refusal is None
    assert (short.requests_running, short.verdict) == (0, "fits_with_less")
    assert {change.key for change in short.changes_that_fit} >= {"max_model_len"}


@pytest.mark.parametrize("concurrency", [50, 100])
def test_ladders_end_where_nothing_is_left(llama: ModelSpec, concurrency: int) -> None:
    short = fit(llama, "rtx-4090", engine="sglang", context=16384, concurrency=concurrency)
    assert all(change.requests_running >= concurrency for change in short.changes_that_fit)


def test_a_result_shows_itself_in_a_line(llama: ModelSpec) -> None:
    shown = repr(fit(llama, "h100", context=8192))
    assert shown.startswith(
        "<FitResult meta-llama/Llama-3.1-8B-Instruct on 1 x h100-sxm-80gb, vllm"
    )
    assert ": fits, " in shown


@pytest.mark.parametrize(
    ("engine", "gpu", "asked", "sentence"),
    [
        ("sglang", "m3-max", {}, "SGLang does not run on Apple M3 Max"),
        ("sglang", "v100-sxm-32gb", {}, r"needs compute capability 7\.5"),
        ("tensorrt-llm", "mi300x", {}, "TensorRT-LLM does not run on AMD"),
        ("tensorrt-llm", "h100", {"weights": "q4_k_m"}, "reads no GGUF weights"),
        ("sglang@abc", "h100", {}, "version is 'abc', which is no release"),
        ("sglang@0.1", "h100", {}, r"known from 0\.3\.6 on"),
        ("sglang", "h100", {"util": 0.5, "mem_fraction_static": 0.9}, "given twice, as 0.5 and"),
        ("tensorrt-llm", "h100", {"context": 4096, "max_seq_len": 8192}, "given twice, as 4096"),
        ("llama.cpp", "h100", {"context": 4096, "n_ctx": 8192}, "given twice, as 4096"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(
    llama: ModelSpec, engine: str, gpu: str, asked: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TokenroomError, match=sentence):
        fit(llama, gpu, engine=engine, **asked)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "paged"])
def test_more_gpus_are_paired_with_a_narrower_cache(llama: ModelSpec, engine: str) -> None:
    """Where that saves GPUs: 8 with 8-bit caches instead of 16."""
    asked = fit(llama, "h100", engine=engine, context=131072, concurrency=60)
    pairs = [change for change in asked.changes_that_fit if len(change.prices) == 2]
    assert any("kv_cache_dtype" in change.prices for change in pairs)
    assert all(change.requests_running >= 60 for change in asked.changes_that_fit)


def test_a_length_the_pool_cannot_hold_is_less_than_asked(llama: ModelSpec) -> None:
    """TensorRT-LLM shortens max_seq_len to its pool; the question stays the length asked for."""
    short = fit(llama, "h100", engine="tensorrt-llm", context=131072, util=0.1)
    assert short.plan.max_model_len < short.request_tokens == 131072
    assert (short.verdict, short.requests_running) == ("fits_with_less", 0)
    assert fit(llama, "h100", engine="tensorrt-llm", context=131072).verdict == "fits"


@pytest.mark.parametrize(
    ("model", "gpu", "asked"),
    [
        ("phi-3-mini-128k", "l4", {"engine": "tensorrt-llm", "context": "2k"}),
        ("llama-3.1-70b", "4xl4", {"engine": "tensorrt-llm", "weights": "fp8"}),
        ("gemma-3-27b", "2xl40s", {"engine": "tensorrt-llm", "context": "4k"}),
        ("llama-3.1-8b", "l4", {"engine": "vllm"}),
        ("llama-3.1-8b", "l4", {"engine": "vllm@0.6.3", "context": "1k"}),
        ("gpt-oss-20b", "4090", {"engine": "sglang", "context": "4k"}),
        ("llama-3.1-8b", "3090", {"engine": "llama.cpp", "context": "4k"}),
        ("llama-3.1-8b", "l4", {"engine": "transformers", "context": "4k"}),
        ("llama-3.1-8b", "l4", {"engine": "paged", "context": "4k"}),
        ("llama-3.1-8b", "l4", {"engine": "contiguous", "context": "4k"}),
    ],
)
def test_the_longest_context_fits_and_a_block_more_does_not(
    model: str, gpu: str, asked: dict[str, Any]
) -> None:
    found = fit(model, gpu, **asked)
    longest, block = found.max_model_len_that_fits, max(1, found.plan.kv_block_size)
    assert longest > 0
    assert fit(model, gpu, **(asked | {"context": longest})).verdict == "fits"
    if longest < (found.deployment.spec.max_position_embeddings or 0):
        assert fit(model, gpu, **(asked | {"context": longest + block})).verdict != "fits"
