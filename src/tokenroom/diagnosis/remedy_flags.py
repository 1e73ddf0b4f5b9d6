"""What a change is called in the words of each engine, where no deployment is known to write it by.

Sources: vLLM engine/arg_utils.py (0.33), SGLang srt/server_args.py (0.5.9), TensorRT-LLM
commands/serve.py (1.0), llama.cpp common/arg.cpp (b8117), Ollama envconfig/config.go and
api/types.go (0.11), TGI launcher/src/main.rs (3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    # what: the flag of each engine, its value in the place of {value}
    "length": {
        "vllm": "--max-model-len {value}",
        "sglang": "--context-length {value}",
        "tensorrt-llm": "--max_seq_len {value}",
        "llama.cpp": "-c {value}",
        "ollama": "num_ctx {value}",
        "tgi": "--max-total-tokens {value}",
        "transformers": "max_new_tokens={value}",
    },
    "share": {
        "vllm": "--gpu-memory-utilization {value}",
        "sglang": "--mem-fraction-static {value}",
        "tensorrt-llm": "--kv_cache_free_gpu_memory_fraction {value}",
        "tgi": "--cuda-memory-fraction {value}",
    },
    "kv_type": {
        "vllm": "--kv-cache-dtype fp8",
        "sglang": "--kv-cache-dtype fp8_e4m3",
        "tensorrt-llm": "kv_cache_config.dtype: fp8",
        "llama.cpp": "-ctk q8_0 -ctv q8_0",
        "ollama": "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0",
        "tgi": "--kv-cache-dtype fp8_e4m3fn",
    },
    "budget": {
        "vllm": "--max-num-batched-tokens {value}",
        "sglang": "--chunked-prefill-size {value}",
        "tensorrt-llm": "--max_num_tokens {value}",
        "llama.cpp": "-ub {value}",
        "ollama": "num_batch {value}",
        "tgi": "--max-batch-prefill-tokens {value}",
    },
    "requests": {
        "vllm": "--max-num-seqs {value}",
        "sglang": "--max-running-requests {value}",
        "tensorrt-llm": "--max_batch_size {value}",
        "llama.cpp": "-np {value}",
        "ollama": "OLLAMA_NUM_PARALLEL={value}",
    },
    "gpus": {
        "vllm": "--tensor-parallel-size {value}",
        "sglang": "--tp-size {value}",
        "tensorrt-llm": "--tp_size {value}",
        "tgi": "--num-shard {value}",
        "transformers": 'device_map="auto"',
    },
    "no_graphs": {
        "vllm": "--enforce-eager",
        "sglang": "--disable-cuda-graph",
        "tensorrt-llm": "cuda_graph_config: null",
        "tgi": "--cuda-graphs 0",
    },
    "layers": {"llama.cpp": "-ngl {value}", "ollama": "num_gpu {value}"},
    "encoder": {
        "vllm": "--limit-mm-per-prompt '{\"image\": 1}'",
        "sglang": "--mm-max-concurrent-calls 1",
    },
    "prompt_cache": {"llama.cpp": "--cache-ram {value}", "ollama": "LLAMA_ARG_CACHE_RAM={value}"},
    "no_graph_estimate": {"vllm": "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0"},
}

SHARES: Final[Mapping[str, float]] = {
    "vllm": 0.9,
    "sglang": 0.88,
    "tensorrt-llm": 0.9,
    "tgi": 1.0,
}
"""What each engine takes unless told."""

BUDGETS: Final[Mapping[str, int]] = {
    # tokens of one step unless told
    **{"vllm": 8192, "sglang": 8192, "tensorrt-llm": 8192},
    **{"llama.cpp": 512, "ollama": 512, "tgi": 4096},
}

REQUESTS: Final[Mapping[str, int]] = {
    # at once, unless told; Ollama and transformers run one
    **{"vllm": 256, "sglang": 256, "tensorrt-llm": 2048, "llama.cpp": 4},
}


def spelled(what: str, engine: str, value: object) -> str | None:
    """A change as an engine's user writes it; None where the engine has none of its kind."""
    form = FLAGS[what].get(engine)
    return None if form is None else form.replace("{value}", str(value))
