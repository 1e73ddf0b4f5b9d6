"""TensorRT-LLM's own words."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.sightings import Kind, kind_of

KINDS: Final[tuple[Kind, ...]] = (
    # TensorRT-LLM: batch_manager, _torch/pyexecutor/_util.py
    kind_of(
        "trt_oom",
        ("TensorRT-LLM", "tensorrt_llm", "[TRT]", "TRT-LLM", "GPU memory"),
        r"\[(?:TensorRT-LLM|TRT|TRT-LLM)\].*(?:out of memory|OutOfMemory|cudaMalloc\w*.*fail)"
        r"|Executor creation failed due to insufficient GPU memory"
        r"|CUDA runtime error in .*: out of memory|insufficient GPU memory"
        r"|Failed to allocate.*KV cache",
        warned_of=True,
    ),
    kind_of(
        "trt_pool_below_request",
        ("maxTokensInPagedKvCache", "max_tokens_in_paged_kv_cache"),
        r"maxTokensInPagedKvCache(?: \((?P<tokens>\d+)\))? must be (?:large enough|larger than)",
        r"tokensPerBlock(?: \((?P<block>\d+)\))? \* maxBlocksPerSeq(?: \((?P<blocks>\d+)\))?",
    ),
    kind_of(
        "trt_pool",
        ("paged KV cache", "KV cache memory"),
        r"Allocated (?P<size>[\d.]+ [KMG]i?B) for max tokens in paged KV cache"
        r"|Using (?P<tokens>\d+) (?:total )?tokens in paged KV cache",
    ),
    kind_of(
        "trt_component",
        "could not be created",
        r"following component could not be created: (?P<component>\S.*\S)",
    ),
)
