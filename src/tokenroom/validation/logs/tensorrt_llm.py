"""TensorRT-LLM's log words, of the C++ runtime and of the PyTorch backend.

Sources: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp and
tensorrt_llm/_torch/pyexecutor/_util.py ``KvCacheCreator`` (1.0).
"""

from __future__ import annotations

import re
from typing import Final

from tokenroom.validation.logs.facts import LogReader, sized
from tokenroom.validation.logs.lines import Message
from tokenroom.validation.logs.literals import named_values

_VERSION: Final = re.compile(r"TensorRT-LLM version: *v?(\d+\.\d+[\w.+-]*)")
_ARGUMENTS: Final = frozenset(
    {
        *("tensor_parallel_size", "pipeline_parallel_size", "moe_expert_parallel_size"),
        *("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width"),
        *("free_gpu_memory_fraction", "tokens_per_block", "kv_cache_dtype"),
    }
)


class TensorRTLLMLog(LogReader):
    """Reads what TensorRT-LLM prints."""

    engine = "tensorrt-llm"
    keywords = (
        "TensorRT-LLM version",
        "Loaded engine size",
        "in paged KV cache",
        "KV cache primary pool",
        "tokens per block",
        "memory usage profiling",
        "calculating max tokens",
        "max tokens in KV cache",
        "Max KV cache ",
        "LLM Args",
        "Traceback (most recent",
    )
    started = ("Application startup complete", "Uvicorn running on")
    out_of_memory = (
        "OutOfMemoryError",
        "CUDA out of memory",
        "Error Code 2: OutOfMemory",
        "cudaErrorMemoryAllocation",
    )
    figures = (
        sized(r"Loaded engine size: <engine_mib> MiB"),
        sized(
            r"calculating max tokens in paged KV cache: total: <total_gpu_gib> GiB, "
            r"available: <avail_for_kv_gib> GiB"
        ),
        sized(r"Allocated <kv_gib> GiB for max tokens in paged KV cache \(<kv_tokens>\)"),
        sized(r"Number of blocks in KV cache primary pool: <blocks>"),
        sized(r"Number of tokens per block: <block_size>"),
        sized(r"Using <kv_tokens> tokens in paged KV cache"),
        sized(r"Max KV cache (?:pages|blocks) per sequence: <blocks_per_seq>"),
        sized(r"Estimated max (?:tokens|memory) in KV cache ?: <kv_tokens>"),
        sized(r"available KV cache memory when calculating max tokens: <available_kv_gib> GiB"),
        sized(r"device total memory <total_gpu_gib> GiB"),
        sized(r"after loading model weights \(inside torch\).*?: <weights_gib> GiB"),
    )

    def read(self, message: Message) -> None:
        """Version, model and arguments."""
        text, facts = message.text, self.facts
        if (version := _VERSION.search(text)) is not None:
            facts.version = version[1]
        if (fraction := re.search(r"fraction is set (0?\.\d+|1(?:\.0)?)", text)) is not None:
            facts.flags.setdefault("kv_cache_free_gpu_memory_fraction", float(fraction[1]))
        if "LLM Args" in text:
            for name, value in named_values(text):
                if name == "model" and isinstance(value, str):
                    facts.model = value
                elif name in _ARGUMENTS and value not in (None, "auto"):
                    facts.flags[name] = value
        if "Traceback (most recent call last)" in text and facts.failure is None:
            facts.failure = "fails_other"
