"""Machines: a slice that is taken for a small GPU."""

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


CAUSES: Final[tuple[Cause, ...]] = (Slices(),)
