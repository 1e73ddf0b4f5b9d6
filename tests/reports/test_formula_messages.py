"""Every formula of the ledger has its Chinese, or is made of names and signs alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from tokenroom import fit
from tokenroom.memory.ledger import Line
from tokenroom.reports.formula_messages import formula_text
from tokenroom.reports.messages import Language

MODELS = (
    ("Llama-3.1-8B-Instruct", "2xh200"),
    ("DeepSeek-V3", "8xh200"),
    ("Qwen2.5-VL-7B-Instruct", "h200"),
)
ENGINES = (
    *("vllm", "vllm@0.8.0", "sglang", "sglang@0.4.6", "tensorrt-llm", "llama.cpp"),
    *("transformers", "contiguous", "paged"),
)
NAMES = {
    *("x", "ceil", "max_running_requests", "context_length", "mem_fraction_static"),
    *("free_gpu_memory_fraction", "gpu_memory_utilization", "pre_model_load_memory"),
    "SGLANG_VLM_CACHE_SIZE_MB",
    *("graphs", "reserves", "states"),  # sums of lines of the ledger
}


def lines_of(lines: Iterable[Line]) -> Iterator[Line]:
    for line in lines:
        yield line
        yield from lines_of(line.parts)


@pytest.mark.parametrize("engine", ENGINES)
def test_formulas_are_in_chinese(engine: str) -> None:
    left = {}
    for model, gpu in MODELS:
        layout = {"weights": "q8_0"} if engine == "llama.cpp" else {}
        lines = list(lines_of(fit(model, gpu, engine=engine, context=4096, **layout).explain))
        keys = {line.key for line in lines} | {name for line in lines for name in line.values}
        for line in lines:
            text = formula_text(line.formula, Language.CHINESE)
            assert formula_text(line.formula, Language.ENGLISH) == line.formula
            if text == line.formula and (words := _words(text) - keys - NAMES):
                left[line.formula] = words
    assert left == {}


def _words(formula: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]+", formula))
