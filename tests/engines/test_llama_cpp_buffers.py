"""llama.cpp's buffers: against what llama.cpp itself printed for the same models."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest

from tokenroom.engines.llama_cpp.memory import Memory, measure
from tokenroom.engines.llama_cpp.policy import LLAMA_CPP
from tokenroom.engines.llama_cpp.repeats import block_keys, kept_blocks
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.gguf import to_spec
from tokenroom.models.gguf.container import Container
from tokenroom.models.quantization.ggml import BLOCKS
from tokenroom.models.ranges import StoredTensor
from tokenroom.models.spec import ModelSpec

FIXTURE = Path(__file__).parents[1] / "fixtures" / "llama_cpp" / "buffers.json.gz"
MODELS: dict[str, Any] = json.loads(gzip.decompress(FIXTURE.read_bytes()))["models"]
HOST = Node(
    accelerator=Accelerator(
        key="host", name="host", vendor="nvidia", memory_bytes=2**40, nominal_memory_bytes=2**40
    )
)
BLOCK = {**BLOCKS, "f32": (1, 4)}  # elements and bytes of a block


@cache
def model(name: str) -> ModelSpec:
    recorded = MODELS[name]
    tensors = tuple(
        StoredTensor(
            name=tensor,
            dtype=kind,
            shape=tuple(reversed(shape)),
            num_bytes=prod(shape) // BLOCK[kind][0] * BLOCK[kind][1],
            file=name,
        )
        for tensor, (kind, shape) in recorded["tensors"].items()
    )
    metadata = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in recorded["metadata"].items()
    }
    container = Container(name=name, version=3, metadata=metadata, tensors=tensors, header_bytes=0)
    return to_spec([container], name)


def memory_of(name: str, asked: dict[str, Any]) -> Memory:
    asked = {"swa_full": False, **asked}
    flash = {0: "off", None: "auto"}[asked.pop("flash_attn", None)]
    outputs = asked.pop("n_outputs_max", None)
    settings = LlamaCppSettings(
        program="library",
        gpus=0,
        load_mode="none",
        n_parallel=asked.pop("n_seq_max", 1),
        flash_attn=flash,
        **asked,
    )
    spec = model(name)
    outcome = LLAMA_CPP.deploy(spec, HOST, settings).resolved
    memory: Memory = outcome.memory
    if outputs is None:
        return memory
    resolved = replace(outcome.resolved, n_outputs_max=outputs)
    return measure(spec, HOST, resolved, memory.decisions)


def mib(num_bytes: int) -> float:
    return round(num_bytes / 2**20, 2)


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name]["full"]])
def test_model_buffers_are_exact(name: str) -> None:
    for mode, key in (("none", "model"), ("mmap", "model_mapped")):
        settings = LlamaCppSettings(program="library", gpus=0, load_mode=mode)
        memory = LLAMA_CPP.deploy(model(name), HOST, settings).resolved.memory
        found = {kind: mib(size) for kind, size in memory.buffers()["model"].items()}
        printed = dict(MODELS[name][key])
        if "CPU_REPACK" in printed and "CPU_Mapped" in printed:
            # llama.cpp prints the mapped range, in which the repacked tensors lie too.
            assert printed.pop("CPU_Mapped") >= found.pop("CPU_Mapped")
        assert found == printed


@pytest.mark.parametrize("name", list(MODELS))
def test_caches_are_exact_and_compute_buffers_near(name: str) -> None:
    compared = 0
    for context in MODELS[name]["contexts"]:
        asked, printed = context["asked"], context["logged"]
        if printed is None:
            with pytest.raises(DeploymentError):
                memory_of(name, asked)
            continue
        memory = memory_of(name, asked)
        assert mib(memory.kv_bytes[0]) == pytest.approx(printed.get("cached", 0.0), abs=0.011)
        (output,) = (size for key, size in printed.items() if key.startswith("output"))
        assert mib(memory.output_bytes) == pytest.approx(output, abs=0.006)
        (compute,) = (size for key, size in printed.items() if key.startswith("compute"))
        # Every buffer agrees to the last digit printed; one differs by a quarter of a percent.
        assert memory.compute.sizes[0] / 2**20 == pytest.approx(compute, rel=0.003, abs=0.006)
        compared += 1
    assert compared


@pytest.mark.parametrize("name", ["Llama-3-8B", "Qwen3-32B", "DeepSeek-V3", "Qwen3-Next-80B"])
def test_a_few_blocks_stand_for_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"n_ctx": 8192, "n_seq_max": 1}
    short = memory_of(name, asked)
    blocks = len(short.tensors.blocks)
    assert len(kept_blocks(block_keys(short.spec, short.tensors, short.placement))) < blocks
    monkeypatch.setattr(
        "tokenroom.engines.llama_cpp.memory.kept_blocks", lambda *_, **__: tuple(range(blocks))
    )
    whole = memory_of(name, asked)
    assert short.compute.sizes[0] == pytest.approx(whole.compute.sizes[0], rel=0.003)
