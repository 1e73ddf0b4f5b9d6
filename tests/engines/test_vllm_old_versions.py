"""vLLM 0.4 to 0.10 against what those versions logged, and the rules that changed among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tokenroom import FitResult, fit
from tokenroom.engines.vllm.arguments import parse_command
from tokenroom.engines.vllm.generation import EngineGeneration, runs_v0
from tokenroom.engines.vllm.rules import Accounting, rules_for
from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings
from tokenroom.engines.vllm.v0_rules import LatentCache, v0_rules
from tokenroom.errors import DeploymentError
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models.resolve import load_model
from tokenroom.units import GIB

LLAMA2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float16",
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
LLAMA3 = {
    **LLAMA2,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
LLAMA31 = {**LLAMA3, "max_position_embeddings": 131072}
MISTRAL = {
    **LLAMA3,
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "vocab_size": 32002,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "zero_point": True,
    "version": "gemm",
}
QWEN2 = {
    **LLAMA2,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
# The repository held 16 KV heads when it came out; half of them were copies.
LLAMA31_405B_FP8 = {
    **LLAMA31,
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_attention_heads": 128,
    "num_key_value_heads": 16,
    "num_hidden_layers": 126,
    "quantization_config": {
        "quant_method": "fbgemm_fp8",
        "activation_scale_ub": 1200.0,
        "modules_to_not_convert": [
            *(f"model.layers.{n}.self_attn.{part}_proj" for n in range(126) for part in "qkvo"),
            *(
                f"model.layers.{n}.mlp.{part}_proj"
                for n in (0, 125)
                for part in ("gate", "up", "down")
            ),
            "lm_head",
        ],
    },
}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "Llama-2-7B-GPTQ": {**LLAMA2, "quantization_config": GPTQ},
    "Meta-Llama-3-8B": LLAMA3,
    "Llama-3.1-8B": LLAMA31,
    "Llama-3.1-405B-FP8": LLAMA31_405B_FP8,
    "Llama-3.2-1B": {
        **LLAMA31,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "OpenHermes-2.5-Mistral-7B": MISTRAL,
    "zephyr-7B-beta-AWQ": {
        **MISTRAL,
        "vocab_size": 32000,
        "torch_dtype": "float16",
        "quantization_config": AWQ,
    },
    "gemma-2-9b": {
        **LLAMA2,
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "num_hidden_layers": 42,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
    },
    "opt-125m": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "hidden_size": 768,
        "ffn_dim": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 768,
        "torch_dtype": "float16",
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "enable_bias": True,
    },
    "deepseek-coder-6.7b": {
        **LLAMA2,
        "vocab_size": 32256,
        "max_position_embeddings": 16384,
        "torch_dtype": "bfloat16",
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "Qwen2.5-72B-GPTQ": {
        **QWEN2,
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "quantization_config": GPTQ,
    },
    "Qwen2.5-7B-AWQ": {
        **QWEN2,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 28,
        "quantization_config": AWQ,
    },
    "R1-Distill-Qwen-14B": {
        **QWEN2,
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_attention_heads": 40,
        "num_hidden_layers": 48,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    },
    "Yi-1.5-34B": {
        **LLAMA2,
        "hidden_size": 7168,
        "intermediate_size": 20480,
        "num_attention_heads": 56,
        "num_key_value_heads": 8,
        "num_hidden_layers": 60,
        "vocab_size": 64000,
        "torch_dtype": "bfloat16",
    },
    "Phi-3-medium-128k": {
        **LLAMA2,
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "hidden_size": 5120,
        "intermediate_size": 17920,
        "num_attention_heads": 40,
        "num_key_value_heads": 10,
        "num_hidden_layers": 40,
        "vocab_size": 32064,
        "max_position_embeddings": 131072,
        "sliding_window": 131072,  # so that prompts are not chunked
    },
    "DeepSeek-V2-Lite": {
        **LLAMA2,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_hidden_layers": 27,
        "vocab_size": 102400,
        "max_position_embeddings": 163840,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "num_experts_per_tok": 6,
        "n_shared_experts": 2,
        "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "torch_dtype": "bfloat16",
    },
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        folder.joinpath(name).mkdir()
        folder.joinpath(name, "config.json").write_text(json.dumps(config))
    return folder


def answer(home: Path, model: str, gpu: str, version: str, gpus: int = 1, **set_: Any) -> FitResult:
    return fit(home / model, gpu, gpus=gpus, engine=f"vllm@{version}", **set_)


THREAD = "https://github.com/vllm-project/vllm"

# "# GPU blocks" of every run on a stated GPU, with the release of the thread's day.
BLOCKS: tuple[tuple[str, str, str, str, int, dict[str, Any], int], ...] = (
    (f"{THREAD}/pull/4454", "Meta-Llama-3-8B", "RTX A6000", "0.4.1", 1, {}, 13248),
    (f"{THREAD}/pull/4454", "OpenHermes-2.5-Mistral-7B", "RTX A6000", "0.4.1", 1, {}, 12735),
    (f"{THREAD}/pull/4454", "Llama-2-7B-GPTQ", "RTX A6000", "0.4.1", 1, {}, 4877),
    (f"{THREAD}/pull/4454", "zephyr-7B-beta-AWQ", "RTX A6000", "0.4.1", 1, {}, 17641),
    (f"{THREAD}/pull/4454", "opt-125m", "RTX A6000", "0.4.1", 1, {}, 75937),
    (
        f"{THREAD}/issues/5248",
        "deepseek-coder-6.7b",
        "T4",
        "0.4.3",
        2,
        {"tp": 2, "dtype": "float16"},
        507,
    ),
    (
        f"{THREAD}/issues/10517",
        "Llama-3.1-8B",
        "RTX 3090",
        "0.6.4.post1",
        1,
        {"max_model_len": 20000},
        1952,
    ),
    (
        f"{THREAD}/issues/10517",
        "Llama-3.1-8B",
        "RTX 3090",
        "0.6.4.post1",
        1,
        {"max_model_len": 29000},
        1478,
    ),
    (
        f"{THREAD}/issues/13061",
        "R1-Distill-Qwen-14B",
        "RTX 4090",
        "0.7.2",
        2,
        {"tp": 2, "gpu_memory_utilization": 0.98},
        81536 // 16,
    ),
)


@pytest.mark.parametrize(("source", "model", "gpu", "version", "gpus", "set_", "blocks"), BLOCKS)
def test_blocks_as_logged(
    home: Path,
    source: str,
    model: str,
    gpu: str,
    version: str,
    gpus: int,
    set_: dict[str, Any],
    blocks: int,
) -> None:
    plan = answer(home, model, gpu, version, gpus, **set_).plan
    assert plan.kv_blocks == pytest.approx(blocks, rel=0.01), source
    assert plan.kv_pool_tokens == plan.kv_blocks * plan.kv_block_size


def test_tokens_over_eight_gpus(home: Path) -> None:
    """79392 tokens with 57.752 GiB of weights a GPU (vLLM issue 6746, July 2024)."""
    plan = answer(home, "Llama-3.1-405B-FP8", "H100", "0.5.3.post1", 8, tp=8).plan
    assert plan.stages[0].weights_bytes / GIB == pytest.approx(57.752, abs=0.01)
    assert plan.kv_pool_tokens == pytest.approx(79392, rel=0.05)
    assert plan.refusal is not None
    assert plan.refusal.cause == "kv_below_one_request"


# "PyTorch activation peak memory" or peak_torch_memory less the weights, in GiB.
ACTIVATION: tuple[tuple[str, str, str, str, dict[str, Any], float, str], ...] = (
    ("issues/10517", "Llama-3.1-8B", "RTX 3090", "0.6.4", {"max_model_len": 20000}, 2.07, "layers"),
    ("issues/10517", "Llama-3.1-8B", "RTX 3090", "0.6.4", {"max_model_len": 29000}, 2.99, "layers"),
    ("pull/10511", "Meta-Llama-3-8B", "H100", "0.6.5", {}, 1.26, "sampler"),
    (
        "issues/11230",
        "Qwen2.5-72B-GPTQ",
        "A40",
        "0.6.4.post1",
        {"max_model_len": 8192, "gpu_memory_utilization": 0.95, "enforce_eager": True},
        2.34,
        "layers",
    ),
    (
        "issues/13882",
        "Qwen2.5-7B-AWQ",
        "RTX 4060",
        "0.7.3",
        {"max_model_len": 4096, "gpu_memory_utilization": 0.7},
        1.42,
        "sampler",
    ),
)


@pytest.mark.parametrize(("source", "model", "gpu", "version", "set_", "gib", "phase"), ACTIVATION)
def test_activation_as_logged(
    home: Path,
    source: str,
    model: str,
    gpu: str,
    version: str,
    set_: dict[str, Any],
    gib: float,
    phase: str,
) -> None:
    activation = answer(home, model, gpu, version, **set_).plan.stages[0].activation
    assert activation.num_bytes / GIB == pytest.approx(gib, abs=0.011), f"{THREAD}/{source}"
    assert activation.phase == phase
    assert sum(size for _, size in activation.terms) == activation.num_bytes


@pytest.mark.parametrize(
    ("source", "model", "gpu", "version", "gpus", "set_", "gib"),
    [
        ("pull/11349", "Llama-3.2-1B", "H100", "0.6.5", 1, {}, 0.21),
        ("issues/7553", "Yi-1.5-34B", "RTX 4090", "0.5.4", 4, {"tp": 4}, 2464 / 1024),
    ],
)
def test_graphs_as_logged(
    home: Path,
    source: str,
    model: str,
    gpu: str,
    version: str,
    gpus: int,
    set_: dict[str, Any],
    gib: float,
) -> None:
    plan = answer(home, model, gpu, version, gpus, **set_).plan
    assert plan.stages[0].cuda_graph_actual_bytes / GIB == pytest.approx(gib, rel=0.1), source
    eager = answer(home, model, gpu, version, gpus, enforce_eager=True, **set_).plan
    assert eager.kv_blocks == plan.kv_blocks, "V0 captured outside its budget"


@pytest.mark.parametrize(
    ("source", "model", "gpu", "version", "gpus", "set_", "cause"),
    [
        (
            "issues/5248",
            "deepseek-coder-6.7b",
            "T4",
            "0.4.3",
            2,
            {"tp": 2, "dtype": "float16"},
            "kv_below_one_request",
        ),
        (
            "issues/7590",
            "Phi-3-medium-128k",
            "T4",
            "0.5.4",
            2,
            {"tp": 2, "dtype": "float16"},
            "profile_peak",
        ),
        (
            "issues/10517",
            "Llama-3.1-8B",
            "RTX 3090",
            "0.6.4",
            1,
            {"max_model_len": 29000},
            "kv_below_one_request",
        ),
        ("issues/10517", "Llama-3.1-8B", "RTX 3090", "0.6.4", 1, {"max_model_len": 35000}, None),
        (
            "issues/13061",
            "R1-Distill-Qwen-14B",
            "RTX 4090",
            "0.7.2",
            2,
            {"tp": 2, "gpu_memory_utilization": 0.98},
            "kv_below_one_request",
        ),
        (
            "issues/13882",
            "Qwen2.5-7B-AWQ",
            "RTX 4060",
            "0.7.3",
            1,
            {"max_model_len": 4096, "gpu_memory_utilization": 0.7},
            "no_room_for_kv",
        ),
    ],
)
def test_starts_or_not_as_reported(
    home: Path,
    source: str,
    model: str,
    gpu: str,
    version: str,
    gpus: int,
    set_: dict[str, Any],
    cause: str | None,
) -> None:
    refusal = answer(home, model, gpu, version, gpus, **set_).plan.refusal
    assert (refusal.cause if refusal else None) == cause, f"{THREAD}/{source}"


def test_reserved_counts_what_the_allocator_keeps(home: Path) -> None:
    reserved = answer(home, "Llama-3.1-8B", "A100 80GB", "0.6.3", max_model_len=8192).plan.stages[0]
    allocated = answer(home, "Llama-3.1-8B", "A100 80GB", "0.6.4", max_model_len=8192).plan.stages[
        0
    ]
    assert reserved.activation.num_bytes > allocated.activation.num_bytes
    assert dict(reserved.activation.terms)["cached_blocks"] > 0
    assert "cuda_context" not in dict(reserved.non_torch.terms)
    assert "cuda_context" in dict(allocated.non_torch.terms)
    assert allocated.context_bytes == 0 < reserved.context_bytes


@pytest.mark.parametrize(
    ("version", "length", "chunked", "tokens"),
    [
        ("0.4.1", 65536, False, 65536),
        ("0.5.1", 65536, False, 65536),
        ("0.5.4", 65536, True, 512),
        ("0.6.3", 32768, False, 32768),
        ("0.6.3", 1024, False, 2048),
        ("0.6.3", 32769, True, 512),
        ("0.6.6", 65536, True, 2048),
        ("0.7.3", 65536, True, 2048),
        ("0.8.5", 65536, True, 8192),
    ],
)
def test_token_budget(home: Path, version: str, length: int, chunked: bool, tokens: int) -> None:
    resolved = answer(
        home, "Llama-3.1-8B", "H100", version, max_model_len=length
    ).deployment.resolved
    assert resolved.enable_chunked_prefill is chunked
    assert resolved.max_num_batched_tokens == tokens
    assert resolved.settings["max_num_batched_tokens"].origin in ("engine", "gpu")


def test_chunking_yields_to_what_v0_could_not_chunk(home: Path) -> None:
    def chunks(version: str, model: str = "Llama-3.1-8B", **set_: Any) -> bool:
        found = answer(home, model, "H100", version, max_model_len=65536, **set_)
        return bool(found.deployment.resolved.enable_chunked_prefill)

    assert chunks("0.6.3")
    assert not chunks("0.6.3", enable_lora=True)
    assert not chunks("0.5.4", enable_prefix_caching=True)
    assert chunks("0.6.3", enable_prefix_caching=True)
    assert not chunks("0.5.4", enable_chunked_prefill=False)
    assert chunks("0.4.1", enable_chunked_prefill=True)
    v0 = {"VLLM_USE_V1": "0"}
    assert not chunks("0.8.5", "DeepSeek-V2-Lite", environment=v0)
    assert chunks("0.7.3", "DeepSeek-V2-Lite")


def test_defaults_of_v0(home: Path) -> None:
    resolved = answer(home, "Meta-Llama-3-8B", "H100", "0.6.3").deployment.resolved
    assert resolved.engine is EngineGeneration.V0
    assert resolved.max_num_seqs == 256
    assert not resolved.enable_prefix_caching
    assert resolved.cudagraph_capture_sizes[:4] == (1, 2, 4, 8)
    assert resolved.cudagraph_capture_sizes[-1] == 256
    few = answer(home, "Meta-Llama-3-8B", "H100", "0.6.3", max_num_seqs=9).deployment.resolved
    assert few.cudagraph_capture_sizes == (1, 2, 4, 8, 16)
    many = answer(home, "Meta-Llama-3-8B", "H100", "0.5.4", max_num_seqs=512).deployment.resolved
    assert many.cudagraph_capture_sizes[-1] == 256
    old_gpu = answer(home, "Meta-Llama-3-8B", "T4", "0.6.3").deployment.resolved
    assert old_gpu.attention_backend == "XFORMERS"
    assert old_gpu.dtype == "float16"


def test_cache_of_latent_attention(home: Path) -> None:
    def per_token(version: str, **set_: Any) -> int:
        plan = answer(home, "DeepSeek-V2-Lite", "H100", version, max_model_len=4096, **set_).plan
        return plan.layout.bytes_per_block // plan.kv_block_size

    assert per_token("0.6.6") == 27 * 2 * 16 * 256 * 2
    assert per_token("0.7.1") == 27 * 576 * 2
    assert per_token("0.7.3") == 27 * 640 * 2
    assert per_token("0.8.5", environment={"VLLM_USE_V1": "0"}) == 27 * 576 * 2
    assert v0_rules((0, 7, 0)).latent_cache is LatentCache.PADDED_HEADS


def test_windows_take_as_much_as_full_attention(home: Path) -> None:
    plan = answer(home, "OpenHermes-2.5-Mistral-7B", "RTX A6000", "0.6.3").plan
    assert plan.layout.bytes_per_block == 2 << 20
    assert plan.requests_of(32768) == plan.kv_blocks * 16 // 32768


def test_length_of_models_with_some_windows(home: Path) -> None:
    def longest(version: str, **set_: Any) -> int:
        return answer(home, "gemma-2-9b", "H100", version, **set_).plan.max_model_len

    assert longest("0.6.3") == 4096
    assert longest("0.6.4") == 8192
    assert longest("0.7.3", environment={"VLLM_ATTENTION_BACKEND": "XFORMERS"}) == 4096
    assert longest("0.8.5") == 8192
    with pytest.raises(DeploymentError, match="at most 4096"):
        answer(home, "gemma-2-9b", "H100", "0.6.3", max_model_len=8192)


def test_experimental_v1_is_refused(home: Path) -> None:
    with pytest.raises(DeploymentError, match="VLLM_USE_V1"):
        answer(home, "Llama-3.1-8B", "H100", "0.7.3", environment={"VLLM_USE_V1": "1"})


def test_no_block_is_held_back(home: Path) -> None:
    plan = answer(home, "Llama-3.1-8B", "RTX 3090", "0.6.4", max_model_len=131072).plan
    longest = plan.max_model_len_that_fits()
    fitting = answer(home, "Llama-3.1-8B", "RTX 3090", "0.6.4", max_model_len=longest).plan
    assert fitting.refusal is None
    assert fitting.requests_of(longest) == 1
    sources = [line.source for line in fitting.explain()]
    assert any("worker/worker.py" in source for source in sources)
    assert not any("v1/" in source for source in sources if "context" not in source)


@pytest.mark.parametrize(
    ("version", "gpu", "set_", "v0"),
    [
        ("0.7.3", "H100", {}, True),
        ("0.8.0", "H100", {}, False),
        ("0.8.5", "T4", {}, True),
        ("0.10.2", "T4", {}, False),
        ("0.8.5", "H100", {"environment": {"VLLM_USE_V1": "0"}}, True),
        ("0.11.0", "H100", {"environment": {"VLLM_USE_V1": "0"}}, False),
        ("0.8.0", "H100", {"environment": {"VLLM_USE_V1": "1"}, "enable_lora": True}, False),
        ("0.8.0", "H100", {"enable_lora": True}, True),
        ("0.8.4", "H100", {"pipeline_parallel_size": 2}, True),
        ("0.9.0", "H100", {"pipeline_parallel_size": 2}, False),
        ("0.8.3", "H100", {"kv_cache_dtype": "fp8"}, True),
        ("0.9.2", "A100 80GB", {"kv_cache_dtype": "fp8"}, True),
        ("0.9.2", "H100", {"kv_cache_dtype": "fp8"}, False),
        ("0.8.5", "MI300X", {}, True),
        ("0.8.5", "H100", {"quantization": "bitsandbytes"}, True),
        ("0.8.2", "H100", {"cpu_offload_bytes": GIB}, True),
        ("0.9.0", "H100", {"task": "embed"}, True),
        (
            "0.9.2",
            "H100",
            {
                "speculative": SpeculativeSettings(
                    method="draft_model", num_speculative_tokens=2, model="draft"
                )
            },
            True,
        ),
    ],
)
def test_which_engine_runs(
    home: Path, version: str, gpu: str, set_: dict[str, Any], v0: bool
) -> None:
    number = rules_for(version).version
    spec = load_model(home / "Llama-3.1-8B")
    assert runs_v0(VLLMSettings(**set_), spec, find_accelerator(gpu), number) is v0


def test_accounting_by_version() -> None:
    assert v0_rules((0, 6, 3)).accounting is Accounting.RESERVED
    assert v0_rules((0, 6, 4)).accounting is Accounting.TOTAL
    assert v0_rules((0, 7, 0)).accounting is Accounting.BEFORE_GROUPS
    assert rules_for("0.8.5").accounting is Accounting.TOTAL
    assert rules_for("0.10.2").accounting is Accounting.BEFORE_GROUPS
    assert rules_for("0.11.0").accounting is Accounting.AFTER_GROUPS
    assert not rules_for("0.9.0").checks_free_memory
    assert rules_for("0.6.4.post1").version == (0, 6, 4)
    with pytest.raises(DeploymentError, match=r"0\.4\.0 on"):
        rules_for("0.3.3")


def test_utilisation_beyond_what_is_free_was_let_through(home: Path) -> None:
    old = answer(home, "Llama-3.1-8B", "H100", "0.7.3", gpu_memory_utilization=0.999)
    new = answer(home, "Llama-3.1-8B", "H100", "0.10.2", gpu_memory_utilization=0.999)
    assert new.plan.refusal is not None
    assert new.plan.refusal.cause == "free_below_budget"
    assert old.plan.refusal is None or old.plan.refusal.cause == "cuda_graphs"


def test_early_v1_sampled_for_every_request(home: Path) -> None:
    plan = answer(home, "Llama-3.1-8B", "H100", "0.8.0", max_model_len=8192)
    assert plan.deployment.resolved.engine is EngineGeneration.V1
    assert plan.deployment.resolved.max_num_seqs == 1024
    assert plan.plan.stages[0].activation.phase == "sampler"
    small = answer(home, "Llama-3.1-8B", "L40S", "0.8.5", max_model_len=8192)
    assert small.deployment.resolved.max_num_seqs == 256
    assert small.deployment.resolved.cudagraph_capture_sizes[-1] == 512


def test_old_flags_are_known() -> None:
    parsed = parse_command(
        "python -m vllm.entrypoints.openai.api_server --model m --swap-space 8 "
        "--num-scheduler-steps 8 --use-v2-block-manager --max-model-len 4096",
        version="0.6.3",
    )
    assert parsed.settings.unknown_flags == ()
    assert parsed.settings.max_model_len == 4096
    assert set(parsed.settings.ignored_flags) == {
        "--swap-space",
        "--num-scheduler-steps",
        "--use-v2-block-manager",
    }
    early = parse_command("vllm serve m --enable-chunked-prefill", version="0.4.1")
    assert early.settings.enable_chunked_prefill is True


def test_encoders_are_profiled_with_every_modality(home: Path) -> None:
    """2.51 GiB of activations, 34.43 of weights (vLLM issue 16570, 0.8.3 on the V0 engine)."""
    plan = fit(
        "Qwen/Qwen2.5-VL-72B-Instruct",
        "A100 40GB",
        gpus=4,
        tp=4,
        engine="vllm@0.8.3",
        util=0.95,
        context=8192,
        environment={"VLLM_USE_V1": "0"},
    ).plan
    stage = plan.stages[0]
    assert stage.weights_bytes / GIB == pytest.approx(34.43, abs=0.01)
    assert stage.activation.low_bytes < 2.51 * GIB < stage.activation.high_bytes
    assert stage.activation.phase == "layers"  # as many requests are sampled for as items fit
    names = [name for name, _ in stage.activation.terms]
    assert names.count("pixels") == names.count("encoder_outputs") == 2


@pytest.mark.parametrize(
    ("source", "model", "gpus", "version", "set_", "tokens"),
    [
        ("issues/21348", "Qwen/Qwen3-235B-A22B-FP8", 4, "0.9.2", {"tp": 4}, 178880),
        ("issues/23278", "openai/gpt-oss-120b", 1, "0.10.1", {}, None),
        (
            "issues/27508",
            "openai/gpt-oss-120b",
            1,
            "0.10.2",
            {"util": 0.95, "max_num_batched_tokens": 1024},
            None,
        ),
    ],
)
def test_early_v1_as_reported(
    source: str, model: str, gpus: int, version: str, set_: dict[str, Any], tokens: int | None
) -> None:
    plan = fit(model, "H100", gpus=gpus, engine=f"vllm@{version}", **set_).plan
    assert (plan.refusal is None) is (tokens is not None), f"{THREAD}/{source}"
    if tokens is not None:
        assert plan.kv_pool_tokens == pytest.approx(tokens, rel=0.05)


@pytest.mark.parametrize(
    ("version", "counts_others"),
    [("0.6.3", False), ("0.6.4", True), ("0.8.0", True), ("0.9.0", False)],
)
def test_what_others_hold_is_counted_where_all_in_use_was(
    version: str, counts_others: bool
) -> None:
    """0.6.4 subtracts mem_get_info's use (worker/worker.py), 0.6.3 what was taken since start."""
    others = 2 * GIB
    model, engine = load_model("llama-3.1-8b"), f"vllm@{version}"
    alone = fit(model, "a40", context=8192, engine=engine)
    shared = fit(model, "a40", context=8192, engine=engine, used_bytes=others)
    before, after = alone.governing_stage, shared.governing_stage
    lost = before.kv_pool_bytes - after.kv_pool_bytes
    page = before.kv_pool_bytes // alone.plan.kv_blocks
    assert abs(lost - (others if counts_others else 0)) <= page
    counted = after.non_torch.num_bytes - before.non_torch.num_bytes
    assert counted + after.context_bytes - before.context_bytes == others
    assert counted == (others if counts_others else 0)
    assert sum(size for _, size in after.non_torch.terms) == after.non_torch.num_bytes
