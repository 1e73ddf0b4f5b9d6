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
_MTP_TOKENS: Final = 3
_ALL_GPUS: Final = 8
_LONG_PROMPT: Final = 8192
_FEW, _MANY = 4, 64  # clients without drafts at most
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


def tensorrt_llm_drafted(version: str, measured: str | None, data_parallel_size: int) -> int:
    """Tokens that a DeepSeek-R1 server under TensorRT-LLM drafted by MTP.

    The recipes that draft (``dsr1_*_trt_mtp.sh``: three tokens, one under attention data
    parallelism) came with bf3456727 (pull 392, runs of 14 January 2026, on 1.1.0rc2.post2), and
    have had an image of their own, 1.2.0rc6.post3, since February (pulls 594 and 642;
    ``.github/configs/nvidia-master.yaml``).
    """
    drafts = version == "1.2.0rc6.post3" or (
        version == "1.1.0rc2.post2" and measured == "2026-01-14"
    )
    if not drafts:
        return 0
    return 1 if data_parallel_size > 1 else _MTP_TOKENS


def sglang_drafted(
    model: str, measured: str | None, tp: int, concurrency: int, input_tokens: int
) -> int:
    """Tokens that an SGLang server of an FP8 checkpoint on B200 drafted by MTP.

    Runs of Qwen3.5 of 20 March 2026 came with the recipe that drafts (35d4bb367, pull 898). On 25
    March (12ba0ae07, pull 943) DeepSeek-R1 ran both ways, on eight GPUs without drafts with at most
    64 clients, or 4 of prompts of 8192 (``nvidia-master.yaml``); who drafted below cannot be told,
    and is taken not to have.
    """
    name = model.lower()
    if "qwen3.5" in name and measured == "2026-03-20":
        return _MTP_TOKENS
    if "deepseek" in name and measured == "2026-03-25" and tp == _ALL_GPUS:
        most = _FEW if input_tokens == _LONG_PROMPT else _MANY
        return _MTP_TOKENS if concurrency > most else 0
    return 0
