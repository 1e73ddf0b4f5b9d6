"""Starts that failed, of the collection of measurements, written as their engines print them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rows_as_logs import as_log

from tokenroom.diagnosis.explain import Diagnosis, explain
from tokenroom.diagnosis.remedies import remedies

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "ik_llama.cpp")

CAUSES = {
    # rows that are not about a pool below one request of vLLM, which all others are
    "club3090-96": ("activation_peak",),
    "vllm-16712": ("weights_too_big",),
    "vllm-7590": ("weights_too_big",),
    "vllm-53013": ("cuda_graphs",),
    "gpustack-1897": ("cuda_graphs",),
    "llmd-787": ("activation_peak",),
    "vllm-15105": ("activation_peak",),
    "vllm-14452-8gpu": ("activation_peak",),
    "vllm-8879": ("encoder_budget",),
    "vllm-10034": ("encoder_budget",),
    "vllm-9445": ("encoder_budget",),
    "sglang-7691": ("weights_too_big",),
    "sglang-485": ("weights_too_big", "wrong_dtype_load"),
    "sglang-10736": ("wrong_dtype_load",),
    "ikllama-749": ("compute_buffer",),
    "ollama-6860": ("compute_buffer",),
    "llamacpppy-1944": ("kv_preallocation",),
    "llamacpp-14740": ("compute_buffer", "kv_preallocation"),
    "llamacpp-26297": ("compute_buffer",),
    "llamacpp-15009": ("compute_buffer",),
    "llamacpp-19764": ("weights_too_big",),
    "ollama-5136": ("compute_buffer",),
    "ollama-3390-q5": ("compute_buffer",),
    "trtllm-67": ("kv_preallocation",),
    "trtllm-2496": ("kv_preallocation",),
}
UNTOLD = {
    # rows without the figures that the engine's error has, or whose outcome is not known
    *("vllm-27508", "vllm-53961", "vllm-49878-v026", "vllm-49878-boot", "vllm-16570"),
}
FIXES = {
    # what helped there, and how the first remedy that does the same begins
    "vllm-53013": "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0",
    "llmd-787": "--max-num-seqs 512",
    "vllm-9445": "--max-num-seqs",
    "vllm-14452-qwq": "--max-model-len 58384",
    "qwen3-295": "--max-model-len 7344",
    "vllm-2418": "--max-model-len 3664",
    "basalam-10": "--max-model-len 3664",
    "vllm-10517-29k": "--max-model-len 23648",
    "qevos-4090-48g": "--max-model-len",
    "vllm-25350-221k": "--max-model-len 122080",
    "vllm-4650-dscoder": "--max-model-len",
    "inferencex-3336": "--tensor-parallel-size",
    "sglang-38221": "--mem-fraction-static 0.57",
}


def _rows(shared: Path) -> Iterator[dict[str, Any]]:
    for line in (shared / "truth" / "engine_memory.jsonl").read_text().splitlines():
        row = json.loads(line)
        failed = row["outcome"] in ("fails", "fails at run time") and "log" not in row
        if failed and row["engine"] in ENGINES and row["id"] not in UNTOLD:
            yield row


def _explained(row: dict[str, Any]) -> Diagnosis:
    return explain(io.BytesIO(as_log(row).encode()))


def test_each_start_that_failed_has_its_cause(shared: Path) -> None:
    rows = list(_rows(shared))
    assert len(rows) >= 40
    for row in rows:
        told = str(_explained(row).cause)
        assert told in CAUSES.get(row["id"], ("kv_pool_too_small",)), row["id"]


def test_what_helped_is_among_the_first_remedies(shared: Path) -> None:
    """Among the first three everywhere, and mostly the first."""
    rows = {row["id"]: row for row in _rows(shared)}
    first = 0
    for name, begins in FIXES.items():
        found = _explained(rows[name])
        assert found.first is not None
        flags = [one.flag for one in remedies(found.first, rows[name]["engine"], None)]
        assert any(flag.startswith(begins) for flag in flags[:3]), (name, flags)
        first += flags[0].startswith(begins)
    assert first >= 12


def test_no_cause_contradicts_its_own_lines(shared: Path) -> None:
    """Evidence is in the log, at its line; what holds too little is smaller than what is asked."""
    for row in _rows(shared):
        found = _explained(row)
        assert found.first is not None
        lines = as_log(row).splitlines()
        for one in found.first.evidence:
            assert one.text.split()[-1] in lines[one.line - 1], row["id"]
        values = {name: str(value).replace(",", "") for name, value in found.first.values.items()}
        for less, more in (("tokens", "length"), ("available", "needed"), ("budget", "weights")):
            if less in values and more in values:
                assert float(values[less]) < float(values[more]), row["id"]
