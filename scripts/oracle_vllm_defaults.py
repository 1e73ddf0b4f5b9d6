"""Record what vLLM itself makes of models, GPUs and settings, as a fixture for the tests.

``EngineArgs.create_engine_config`` runs on a faked CUDA platform: only the GPU's name, memory,
capability and count are answered from a table. Runs in an environment with vLLM 0.32 (the CPU
build suffices), with this package importable for its catalogue of configurations:

    PYTHONPATH=src python scripts/oracle_vllm_defaults.py \
        tests/engines/data/vllm_defaults_0.32.json.gz
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import sys
import tempfile
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="CRITICAL")


class AbsentKernels(types.ModuleType):
    """CUDA kernels that the CPU build does not have; nothing here runs them."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


for name in (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn",
    "vllm.vllm_flash_attn.flash_attn_interface",
):
    sys.modules[name] = AbsentKernels(name)

import vllm.platforms as platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402
from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402

from tokenroom.hardware.catalogue import find_accelerator  # noqa: E402
from tokenroom.models import catalogue  # noqa: E402

SEED = 20260202
GPU_NAMES = (
    *("T4", "A100 80GB", "L40S", "H100 SXM", "H200", "B200", "RTX 5090", "GB10", "V100 32GB"),
)
MODELS = (
    *("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-2-7b-hf"),
    *("meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Llama-4-Scout-17B-16E-Instruct"),
    *("mistralai/Mistral-7B-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
    *("mistralai/Mistral-Nemo-Instruct-2407", "Qwen/Qwen2.5-7B-Instruct"),
    *("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen3-8B"),
    *("Qwen/Qwen3-30B-A3B-FP8", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3.5-27B"),
    *("Qwen/Qwen3.5-35B-A3B", "openai/gpt-oss-20b", "openai/gpt-oss-120b"),
    *("deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3.2"),
    *("google/gemma-2-9b-it", "google/gemma-3-1b-it", "google/gemma-2b"),
    *("microsoft/Phi-3-mini-128k-instruct", "microsoft/Phi-3-mini-4k-instruct"),
    *("microsoft/Phi-4-mini-instruct", "microsoft/phi-2", "moonshotai/Kimi-K2-Instruct"),
    *("ai21labs/Jamba-v0.1", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
    *("nvidia/Llama-3.1-70B-Instruct-FP8", "CohereForAI/c4ai-command-r-v01"),
    *("facebook/opt-125m", "openai-community/gpt2", "mosaicml/mpt-7b", "tiiuae/falcon-7b"),
    *("01-ai/Yi-34B", "zai-org/GLM-4.5-Air", "zai-org/GLM-5-FP8"),
    *("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "RedHatAI/Qwen3-8B-quantized.w4a16"),
    *("allenai/OLMo-2-1124-7B", "HuggingFaceTB/SmolLM3-3B", "LGAI-EXAONE/EXAONE-4.0-32B"),
    *("MiniMaxAI/MiniMax-M2.5", "codellama/CodeLlama-7b-hf", "openbmb/MiniCPM4-8B"),
    "Qwen/QwQ-32B",
)
GPUS = {
    gpu.key: (gpu.name, gpu.memory_bytes, gpu.compute_capability)
    for gpu in map(find_accelerator, GPU_NAMES)
}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"max_model_len": 4096},
    {"max_model_len": 2048, "max_num_seqs": 2},
    {"max_model_len": 10_000_000},
    {"max_model_len": -1},
    {"max_num_seqs": 16},
    {"max_num_seqs": 300},
    {"max_num_batched_tokens": 512},
    {"max_num_batched_tokens": 4097, "max_num_seqs": 64},
    {"max_num_batched_tokens": 64, "max_num_seqs": 128},
    {"enable_chunked_prefill": False},
    {"enable_chunked_prefill": False, "max_num_batched_tokens": 1024},
    {"enable_prefix_caching": False},
    {"enable_prefix_caching": True},
    {"enforce_eager": True},
    {"dtype": "half"},
    {"dtype": "float32"},
    {"kv_cache_dtype": "fp8"},
    {"kv_cache_dtype": "bfloat16"},
    {"gpu_memory_utilization": 0.5},
    {"performance_mode": "throughput"},
    {"performance_mode": "interactivity"},
    {"optimization_level": 0},
    {"optimization_level": 1},
    {"compilation_mode": 0},
    {"cudagraph_mode": "FULL"},
    {"cudagraph_capture_sizes": [1, 2, 4, 100_000]},
    {"max_cudagraph_capture_size": 100},
    {"speculative": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}},
    {
        "speculative": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
        "max_num_seqs": 40,
    },
    {"async_scheduling": False},
    {"tensor_parallel_size": 2},
    {"tensor_parallel_size": 8},
    {"tensor_parallel_size": 3},
    {"pipeline_parallel_size": 2},
    {"pipeline_parallel_size": 2, "tensor_parallel_size": 2},
    {"runner": "pooling"},
    {"max_lora_rank": 64, "enable_lora": True, "max_loras": 4},
    {"hf_overrides": {"max_position_embeddings": 12345}},
    {"block_size": 64},
)


class FakeCuda(NonNvmlCudaPlatform):
    """A CUDA platform whose GPU is an entry of the table."""

    name = "gpu"
    total = 0
    capability = (9, 0)

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        return DeviceCapability(*cls.capability)

    @classmethod
    def has_device_capability(cls, capability: Any, device_id: int = 0) -> bool:
        if isinstance(capability, tuple):
            return cls.capability >= capability
        return cls.capability[0] * 10 + cls.capability[1] >= capability

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return cls.name

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return cls.total

    @classmethod
    def device_count(cls) -> int:
        return 8

    @classmethod
    def is_fully_connected(cls, device_ids: list[int]) -> bool:
        return True

    @classmethod
    def is_integrated_gpu(cls, device_id: int = 0) -> bool:
        return False

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        return 132


FAKE = FakeCuda()
platforms._current_platform = FAKE

import vllm.config.vllm as vllm_config  # noqa: E402
import vllm.model_executor.models.registry as registry  # noqa: E402

vllm_config.HAS_TRITON = True  # as on a GPU; nothing here runs a kernel


def inspect_in_process(function: Any) -> Any:
    """Inspect a model class on the CPU platform, where its kernels import."""
    platforms._current_platform = CpuPlatform()
    try:
        return function()
    finally:
        platforms._current_platform = FAKE


registry._run_in_subprocess = inspect_in_process

from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.usage.usage_lib import UsageContext  # noqa: E402


def engine_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    arguments = dict(settings)
    if "speculative" in arguments:
        arguments["speculative_config"] = dict(arguments.pop("speculative"))
    config = {}
    if "compilation_mode" in arguments:
        config["mode"] = arguments.pop("compilation_mode")
    if "cudagraph_mode" in arguments:
        config["cudagraph_mode"] = arguments.pop("cudagraph_mode")
    if config:
        arguments["compilation_config"] = config
    return arguments


def run(folder: str, settings: dict[str, Any], usage: str) -> dict[str, Any]:
    context = UsageContext.LLM_CLASS if usage == "llm" else UsageContext.OPENAI_API_SERVER
    os.environ.pop("VLLM_USE_BREAKABLE_CUDAGRAPH", None)  # an engine sets it for its model
    arguments = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        distributed_executor_backend="mp",
        **engine_arguments(settings),
    )
    config = arguments.create_engine_config(context)
    cache, scheduler = config.cache_config, config.scheduler_config
    compilation = config.compilation_config
    return {
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "max_model_len": config.model_config.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "kv_cache_dtype": cache.cache_dtype,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "mamba_cache_mode": cache.mamba_cache_mode,
        "cudagraph_mode": compilation.cudagraph_mode.name,
        "cudagraph_capture_sizes": list(compilation.cudagraph_capture_sizes),
        "async_scheduling": bool(scheduler.async_scheduling),
        "second_runner": config.use_v2_model_runner,
        "max_in_flight_tokens": config.max_in_flight_tokens,
        "pooling": config.model_config.runner_type == "pooling",
    }


def main() -> None:
    rng = random.Random(SEED)
    out, *wanted = sys.argv[1:]
    names = wanted or list(MODELS)
    configs = {name: dict(catalogue.entry(name).config) for name in names}
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, config in configs.items():
            place = Path(folder, name.replace("/", "__"))
            place.mkdir(parents=True)
            place.joinpath("config.json").write_text(json.dumps(config))
            for settings in [{}, *rng.sample(VARIANTS, 5)]:
                gpu = rng.choice(list(GPUS))
                FakeCuda.name, FakeCuda.total, FakeCuda.capability = (
                    GPUS[gpu][0],
                    GPUS[gpu][1],
                    tuple(GPUS[gpu][2]),
                )
                usage = rng.choice(("server", "server", "llm"))
                try:
                    with contextlib.redirect_stderr(io.StringIO()):
                        result: Any = run(str(place), settings, usage)
                except Exception as error:
                    result = " ".join(str(error).split())[:160]
                rows.append([name, gpu, usage, settings, result])
            if not isinstance(rows[-6][4], dict):  # needs code or processors that are absent here
                print(name, rows[-6][4])
                del rows[-6:]
                continue
            print(name, sum(isinstance(row[4], dict) for row in rows[-6:]), flush=True)
    text = json.dumps({"version": "0.32.0", "rows": rows}, separators=(",", ":"))
    Path(out).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
