"""Lines in which an engine, a library or a tool says itself what was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase
from tokenroom.diagnosis.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A kind of line that names its cause.

    Attributes:
        kinds: Kinds of line, of which the first counts.
        cause: What it says.
        phase: When such a line is printed.
        weight: How sure it is, 0 to 1.
        reason: Key of the sentence that says why; the line's figures are in it.
        beside: Kinds whose last line is shown before it.
    """

    kinds: tuple[str, ...]
    cause: CauseName
    phase: Phase
    weight: float
    reason: str
    beside: tuple[str, ...] = ()

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The first such line."""
        for found in report.of(*self.kinds)[:1]:
            yield Finding(
                cause=self.cause,
                phase=self.phase,
                weight=self.weight,
                evidence=(*report.of(*self.beside)[-1:], found),
                reason=self.reason,
                values=dict(found.values),
            )


CAUSES: Final[tuple[Cause, ...]] = (
    Said(
        kinds=("tgi_warmup",),
        cause=CauseName.ACTIVATION_PEAK,
        phase=Phase.PROFILE,
        weight=0.95,
        reason="warmup",
    ),
    Said(
        kinds=("vllm_sampler",),
        cause=CauseName.ACTIVATION_PEAK,
        phase=Phase.PROFILE,
        weight=0.95,
        reason="sampler",
    ),
    Said(
        kinds=("encoder_above_budget",),
        cause=CauseName.ENCODER_BUDGET,
        phase=Phase.LOAD,
        weight=0.9,
        reason="encoder_above_budget",
    ),
    Said(
        kinds=("vllm_profiling_assert",),
        cause=CauseName.OTHER_PROCESS,
        phase=Phase.PROFILE,
        weight=0.97,
        reason="memory_moved",
    ),
    Said(
        kinds=("sglang_unbalanced",),
        cause=CauseName.OTHER_PROCESS,
        phase=Phase.LOAD,
        weight=0.9,
        reason="unbalanced",
    ),
    Said(
        kinds=("trt_pool_below_request",),
        cause=CauseName.KV_POOL_TOO_SMALL,
        phase=Phase.KV_INIT,
        weight=0.95,
        reason="no_tokens_for_one",
        beside=("trt_pool",),
    ),
    Said(
        kinds=("sglang_pool_leak",),
        cause=CauseName.LEAK,
        phase=Phase.RUNTIME,
        weight=0.9,
        reason="pool_leak",
    ),
    Said(
        kinds=("ggml_fit_refused",),
        cause=CauseName.WEIGHTS_TOO_BIG,
        phase=Phase.LOAD,
        weight=0.85,
        reason="fit_refused",
        beside=("ggml_projected",),
    ),
    # NCCL found no memory on the GPU for its buffers, or DeepEP for those of experts
    Said(
        kinds=("nccl_cuda_oom", "nvshmem"),
        cause=CauseName.NCCL_BUFFERS,
        phase=Phase.LOAD,
        weight=0.78,
        reason="nccl_buffers",
    ),
    Said(
        kinds=("tp_heads",),
        cause=CauseName.MISCONFIGURATION,
        phase=Phase.LOAD,
        weight=0.93,
        reason="division",
    ),
    # WSL has no pinned memory: transfers are slow, and nothing failed
    Said(
        kinds=("wsl",),
        cause=CauseName.NOT_MEMORY,
        phase=Phase.RUNTIME,
        weight=0.7,
        reason="wsl",
    ),
)
