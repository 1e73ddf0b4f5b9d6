"""Settings and machines: slices, divisions that cannot be, what WSL does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase
from tokenroom.diagnosis.report import Report


class Slices:
    """A MIG slice is taken for the smallest GPU, whose defaults are small."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """VLLM asks NVML for the memory, which a container may not read of a slice."""
        found = report.of("mig")
        if found and not report.has("torch_oom", "nvml_assert", "ggml_alloc", "cuda_oom"):
            yield Finding(
                cause=CauseName.MISCONFIGURATION,
                phase=Phase.RUNTIME,
                weight=0.6,
                evidence=(*report.of("small_budget")[:1], found[0]),
                reason="mig_defaults",
            )


class Division:
    """Tensor parallelism does not divide the model."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The engine says so and stops."""
        found = report.of("tp_heads")
        if found:
            yield Finding(
                cause=CauseName.MISCONFIGURATION,
                phase=Phase.LOAD,
                weight=0.93,
                evidence=(found[0],),
                reason="division",
            )


class SlowHost:
    """WSL has no pinned memory: transfers are slow, and nothing failed."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """VLLM's own warning."""
        found = report.of("wsl")
        if found:
            yield Finding(
                cause=CauseName.NOT_MEMORY,
                phase=Phase.RUNTIME,
                weight=0.7,
                evidence=(found[0],),
                reason="wsl",
            )


CAUSES: Final[tuple[Cause, ...]] = (Slices(), Division(), SlowHost())
