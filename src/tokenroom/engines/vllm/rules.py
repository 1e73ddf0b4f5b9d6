"""How vLLM's profile run, CUDA-graph capture and memory accounting changed, as data.

Each field of :class:`VersionRules` names one decision of the engine; :func:`rules_for` gives the
values of a version. Read in the source distributions of 0.8.0 to 0.33.0: v1/worker/gpu_worker.py,
v1/worker/gpu_model_runner.py, v1/worker/gpu/ (the second runner), v1/sample/, config/vllm.py,
utils/mem_utils.py. What the V0 engine did, alone until 0.8 and beside V1 until 0.10, is in
:mod:`tokenroom.engines.vllm.v0_rules`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tokenroom.errors import DeploymentError, shown


class TopKTopP(StrEnum):
    """How the first runner masks logits below top-k and top-p when it warms up the sampler."""

    SORT = "sort"  # torch.sort of every row, then scatter back
    TRITON = "triton"  # a Triton kernel in place, with one row of scratch a multiprocessor
    FLASHINFER = "flashinfer"  # FlashInfer where the GPU has it, else the Triton kernel


class Accounting(StrEnum):
    """What counts as memory outside PyTorch when the KV cache is sized."""

    RESERVED = "reserved"  # whatever the driver lost since start, PyTorch's cached blocks included
    TOTAL = "total"  # all that is in use on the GPU, the CUDA context included
    BEFORE_GROUPS = "before_groups"  # what came after the context: communicators and kernels
    AFTER_GROUPS = "after_groups"  # what came after the communicators


class SecondRunner(StrEnum):
    """For which models the second model runner (v1/worker/gpu) is the default."""

    NEVER = "never"
    LISTED_PLAIN = "listed_plain"  # listed architectures without experts and quantisation
    LISTED = "listed"  # listed architectures
    LISTED_OR_DENSE = "listed_or_dense"  # listed ones and every model without experts or states
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """The decisions that differ between versions; defaults are those of 0.33.

    Attributes:
        version: The release as (major, minor, patch).
        accounting: From which moment on memory outside PyTorch is charged.
        checks_free_memory: It does not start when less is free than the budget.
        top_k_top_p: The sampler's masking kernel (v1/sample/ops/topk_topp_sampler.py).
        second_runner: Models that run on the second runner unless VLLM_USE_V2_MODEL_RUNNER says
            otherwise (config/vllm.py ``use_v2_model_runner``).
        second_runner_architectures: The list that ``second_runner`` refers to.
        second_runner_profiles_encoder: Its profile run includes the multimodal encoder.
        second_runner_warms_full_sampler: Its profile run samples once with every parameter set,
            so that float32 logits are paid for (``SamplingParams.for_sampler_warmup``).
        keeps_moe_workspace: Experts share a workspace that stays allocated
            (v1/worker/workspace.py), instead of tensors freed after each layer.
        moe_chunk_tokens: Tokens that pass the experts at once, None for all.
        benchmarks_fused_kernels: Inductor times combined kernels on random copies of their
            arguments while it compiles (``benchmark_combo_kernel``).
        keeps_raw_target_logits: The rejection sampler clones the target logits before it
            processes them.
        counts_persistent_buffers: Everything allocated since start is charged (driver-level
            ``total_consumed``), not only weights, peak and memory outside PyTorch.
        estimates_graphs: Two graphs of each mode are captured to estimate the memory of all.
        estimates_graphs_on_amd: The same on ROCm.
        subtracts_graph_estimate: That estimate is taken from the KV cache by default.
        second_runner_estimates_graphs: The second runner captures graphs to estimate at all; in
            its first versions the estimate is 0.
        max_capture_tokens: Largest default capture size in tokens.
        max_capture_tokens_blackwell: The same on datacentre Blackwell (capability 10.x).
        fuses_all_reduce: The compiled model fuses all-reduce and norm through FlashInfer's
            workspace by default on Hopper and datacentre Blackwell with a multicast link.
    """

    version: tuple[int, int, int] = (0, 33, 0)
    accounting: Accounting = Accounting.AFTER_GROUPS
    checks_free_memory: bool = True
    top_k_top_p: TopKTopP = TopKTopP.FLASHINFER
    second_runner: SecondRunner = SecondRunner.ALWAYS
    second_runner_architectures: frozenset[str] = frozenset()
    second_runner_profiles_encoder: bool = True
    second_runner_warms_full_sampler: bool = True
    keeps_moe_workspace: bool = True
    moe_chunk_tokens: int | None = None
    benchmarks_fused_kernels: bool = True
    keeps_raw_target_logits: bool = True
    counts_persistent_buffers: bool = True
    estimates_graphs: bool = True
    estimates_graphs_on_amd: bool = True
    subtracts_graph_estimate: bool = True
    second_runner_estimates_graphs: bool = True
    max_capture_tokens: int = 512
    max_capture_tokens_blackwell: int = 1024
    fuses_all_reduce: bool = True


NEWEST: Final = VersionRules()

_LISTED_023: Final = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"})
_LISTED_024: Final = _LISTED_023 | {
    "DeepseekV2ForCausalLM",
    "GraniteMoeForCausalLM",
    "Qwen2MoeForCausalLM",
}
_LISTED_026: Final = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "GraniteMoeForCausalLM",
        "InklingForCausalLM",
        "InklingForConditionalGeneration",
        "LongcatFlashNgramForCausalLM",
        "Qwen2MoeForCausalLM",
    }
)
_LISTED_028: Final = _LISTED_026 | {"DeepseekV4ForCausalLM", "KimiK3ForConditionalGeneration"}

# Each entry turns the rules of the versions after it into those of the versions before the named
# one: what the named version introduced is taken back.
_INTRODUCED: Final[tuple[tuple[tuple[int, int, int], dict[str, object]], ...]] = (
    ((0, 33, 0), {"second_runner_warms_full_sampler": False}),
    (
        (0, 29, 0),
        {
            "second_runner": SecondRunner.LISTED_OR_DENSE,
            "second_runner_architectures": _LISTED_028,
            "second_runner_estimates_graphs": False,
        },
    ),
    (
        (0, 28, 0),
        {"second_runner_architectures": _LISTED_026, "max_capture_tokens_blackwell": 512},
    ),
    (
        (0, 27, 0),
        {"counts_persistent_buffers": False, "second_runner_profiles_encoder": False},
    ),
    ((0, 26, 0), {"estimates_graphs_on_amd": False}),
    (
        (0, 25, 0),
        {
            "second_runner": SecondRunner.LISTED,
            "second_runner_architectures": _LISTED_024,
        },
    ),
    (
        (0, 24, 0),
        {
            "second_runner": SecondRunner.LISTED_PLAIN,
            "second_runner_architectures": _LISTED_023,
        },
    ),
    ((0, 23, 0), {"second_runner_architectures": frozenset({"Qwen3ForCausalLM"})}),
    (
        (0, 22, 0),
        {"second_runner": SecondRunner.NEVER, "second_runner_architectures": frozenset()},
    ),
    ((0, 21, 0), {"top_k_top_p": TopKTopP.TRITON}),
    ((0, 20, 0), {"subtracts_graph_estimate": False}),
    ((0, 18, 0), {"estimates_graphs": False, "moe_chunk_tokens": 16 * 1024}),
    ((0, 17, 0), {"top_k_top_p": TopKTopP.SORT, "fuses_all_reduce": False}),
    ((0, 13, 0), {"keeps_moe_workspace": False}),
    (
        (0, 12, 0),
        {
            "benchmarks_fused_kernels": False,
            "keeps_raw_target_logits": False,
            "moe_chunk_tokens": 64 * 1024,
        },
    ),
    ((0, 11, 0), {"accounting": Accounting.BEFORE_GROUPS}),
    ((0, 9, 1), {"checks_free_memory": False}),
    ((0, 9, 0), {"accounting": Accounting.TOTAL}),
)

_VERSION = re.compile(r"^v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?!\d)")
OLDEST: Final = (0, 4, 0)


def version_number(version: str) -> tuple[int, int, int]:
    """A version such as ``"0.19.0"`` as (major, minor, patch).

    Pre-releases, post-releases and local builds (``0.20.1rc1``) count as the release they name.

    Raises:
        DeploymentError: The text is no version, or one before 0.4.
    """
    match = _VERSION.match(version)
    if match is None:
        raise DeploymentError(f"the vLLM version is {shown(version)}; write it as 0.33.0")
    major, minor, patch = (int(part or 0) for part in match.groups())
    number = (major, minor, patch)
    if number < OLDEST:
        raise DeploymentError(
            f"the vLLM version is {version}; its memory rules are known from 0.4.0 on"
        )
    return number


@lru_cache(maxsize=64)
def rules_for(version: str | None = None) -> VersionRules:
    """The rules of a vLLM version such as ``"0.19.0"``; None for the newest known.

    Raises:
        DeploymentError: The text is no version, or one before 0.4.
    """
    if version is None:
        return NEWEST
    number = version_number(version)
    rules = replace(NEWEST, version=number)
    for introduced, before in _INTRODUCED:
        if number < introduced:
            rules = replace(rules, **before)  # type: ignore[arg-type]
    return rules
