"""How InferenceX ran its servers: what its recipes of March and April 2026 set.

Read in SemiAnalysisAI/InferenceX, ``benchmarks/single_node/`` at 41ed82dc1 (21 April 2026) and
41147ad86 (30 March 2026), each by the name of its file.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Recipe(NamedTuple):
    """What one recipe sets; None is the engine's own.

    Attributes:
        memory_share: ``--gpu-memory-utilization``, ``--mem-fraction-static``.
        largest_batch: ``--max-num-seqs``, ``--max-running-requests``, where that is fixed.
        token_budget: ``--chunked-prefill-size``.
        prompts_a_step: Prompts that ``--max-num-batched-tokens`` takes, where it is a multiple of
            the prompt's length.
        kv_dtype: ``--kv-cache-dtype``.
    """

    memory_share: float | None = None
    largest_batch: int | None = None
    token_budget: int | None = None
    prompts_a_step: int | None = None
    kv_dtype: str | None = None


_NONE: Final = Recipe()
_DEEPSEEK_B200: Final = {
    8: Recipe(0.82, 128, 32768, None, "fp8"),  # dsr1_fp8_b200.sh, TP=8
    4: Recipe(0.95, 32, 8192, None, "fp8"),  # the same, TP=4
}


def sglang_recipe(model: str, gpu: str, precision: str | None, tp: int) -> Recipe:
    """Of an SGLang server of DeepSeek-R1 or Qwen3.5."""
    b200, name = gpu.startswith("B200"), model.lower()
    if "deepseek" in name and b200:
        if precision == "fp4":
            return Recipe(0.85, 256, 16384, None, "fp8")  # dsr1_fp4_b200.sh
        return _DEEPSEEK_B200.get(tp, _NONE)
    if "deepseek" in name:
        return Recipe(0.82, 256, 32768)  # dsr1_fp8_h200.sh
    if "qwen3.5" in name:
        if b200:
            return Recipe(0.82, 128, 32768)  # qwen3.5_fp8_b200.sh, qwen3.5_bf16_b200.sh
        return Recipe(0.8, 128, 16384, None, "fp8")  # qwen3.5_fp8_h200.sh
    return _NONE


def vllm_recipe(model: str, gpu: str, version: str) -> Recipe:
    """Of a vLLM server of MiniMax-M2.5; those of other models leave 0.90 and the engine's own.

    On B200 the recipe changed with release 0.19 (0ee5ff342, 5 April): an FP8 cache and steps of two
    prompts.
    """
    if "minimax" not in model.lower():
        return _NONE
    if gpu.startswith("B200"):
        if version.startswith("0.19"):
            return Recipe(0.90, None, None, 2, "fp8")  # minimaxm2.5_fp8_b200.sh, _fp4_b200.sh
        return Recipe(0.95)
    if gpu.startswith("H200"):
        return Recipe(0.95)  # minimaxm2.5_fp8_h200.sh
    return Recipe(0.90, 256)  # minimaxm2.5_fp8_h100.sh
