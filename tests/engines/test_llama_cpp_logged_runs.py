"""Buffers that llama.cpp logged in public threads, on GPUs of all kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokenroom.engines.llama_cpp.memory import Memory, measure
from tokenroom.engines.llama_cpp.policy import LLAMA_CPP
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.models.resolve import load_model
from tokenroom.units import MIB


def memory(
    name: str, weights: str, vendor: str, gpus: int, *, pipeline: bool = True, **settings: Any
) -> Memory:
    large = Accelerator(
        key="large",
        name="large",
        vendor=vendor,
        memory_bytes=2**40,
        nominal_memory_bytes=2**40,
        compute_capability=(8, 6) if vendor == "nvidia" else None,
    )
    node = Node(accelerator=large, count=gpus)
    asked = LlamaCppSettings(
        program="cli", gpus=gpus, fit=False, n_gpu_layers=999, flash_attn="off", **settings
    )
    spec = what_if(load_model(name), weights)
    outcome = LLAMA_CPP.deploy(spec, node, asked).resolved
    found: Memory = outcome.memory
    return measure(spec, node, outcome.resolved, found.decisions, pipeline=pipeline)


def mib(sizes: tuple[int, ...]) -> list[float]:
    return [round(size / MIB, 2) for size in sizes]


def test_five_rocm_devices() -> None:
    """github.com/ggml-org/llama.cpp issue 12369: Qwen2.5-32B, 32768 cells."""
    found = memory(
        "qwen2.5-32b-instruct", "q4_k_m", "amd", 5, n_ctx=32768, version="b4900", pipeline=False
    )
    assert mib(found.kv_bytes) == [1664, 1664, 1664, 1664, 1536, 0]
    assert mib(found.compute.sizes) == pytest.approx([2664.0] * 5 + [74.01], abs=0.011)


def test_four_cuda_devices() -> None:
    """github.com/ggml-org/llama.cpp issue 9229: a Llama-2-7B in f16, 4096 cells."""
    found = memory("llama-2-7b", "f16", "nvidia", 4, n_ctx=4096, version="b3600", pipeline=False)
    assert sum(mib(found.kv_bytes)) == 2048
    assert mib(found.compute.sizes)[1:] == pytest.approx([296.0] * 3 + [16.01], abs=0.011)
    assert round(found.output_bytes / MIB, 2) == 0.12


def test_pipeline_parallelism() -> None:
    """github.com/ggml-org/llama.cpp pull 6122: Command-R with four copies of its inputs."""
    found = memory(
        "c4ai-command-r-v01",
        "q4_k_m",
        "nvidia",
        2,
        n_ctx=4096,
        tensor_split=(12, 29),
        version="b2450",
    )
    assert found.copies == 4
    assert mib(found.kv_bytes) == [1536, 3584, 0]
    assert mib(found.compute.sizes)[0] == 672.01
    assert mib(found.weights_bytes)[-1] == 1640.62


def test_cells_in_steps_of_32() -> None:
    """github.com/ggml-org/llama.cpp issue 15009: Qwen3-30B-A3B, 70000 tokens asked for."""
    found = memory("qwen3-30b-a3b-thinking-2507", "q8_0", "amd", 1, n_ctx=70000, version="b6000")
    assert found.caches.cells == 70016
    assert mib(found.kv_bytes) == [6564, 0]
    assert found.compute.sizes[0] == pytest.approx(4757131264, abs=4096)


def test_states_of_three_sequences() -> None:
    """github.com/ggml-org/llama.cpp pull 23792: gated delta rules, 149.62 MiB a sequence."""
    found = memory("qwen3.6-27b", "q4_k_m", "nvidia", 1, n_ctx=4096, n_parallel=3)
    states = [cache for cache in found.caches.layers if cache.kind == "recurrent"]
    assert sum(cache.num_bytes for cache in states) / MIB == pytest.approx(448.88, abs=0.01)


@pytest.mark.parametrize(("slots", "cells"), [(3, 1536), (4, 1024)])
def test_three_slots_take_more_than_four(slots: int, cells: int) -> None:
    """github.com/unslothai/unsloth pull 7530: 1024 tokens are divided, then padded."""
    found = memory("llama-3.2-1b", "f16", "nvidia", 1, n_ctx=1024, n_parallel=slots)
    assert found.caches.cells * found.caches.streams == cells


def test_latents_of_early_builds_are_refused() -> None:
    with pytest.raises(Exception, match="give b5140 or newer"):
        memory("deepseek-v3", "q4_k_m", "nvidia", 1, version="b4700")


def test_slots_of_the_server_take_more_windows() -> None:
    """github.com/ggml-org/llama.cpp issue 21514: the server takes 1.2 GiB more than the client."""
    node = Node(
        accelerator=Accelerator(
            key="large", name="large", vendor="nvidia", memory_bytes=2**40,
            nominal_memory_bytes=2**40, compute_capability=(8, 6),
        )
    )  # fmt: skip
    asked = LlamaCppSettings(
        program="cli",
        version="b8668",
        n_ctx=64000,
        n_gpu_layers=99,
        flash_attn="on",
        type_k="q8_0",
        type_v="q8_0",
    )
    spec = what_if(load_model("gemma-4-31b-it"), "q4_k_m")
    client, server = (
        LLAMA_CPP.deploy(spec, node, replace(asked, program=program)).resolved.memory.total_of(0)
        for program in ("cli", "server")
    )
    assert (server - client) / 2**30 == pytest.approx(1.2, abs=0.1)
