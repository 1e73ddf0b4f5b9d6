"""TensorRT-LLM: the part of the executor that found no room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase, phase_of
from tokenroom.diagnosis.report import Report

_COMPONENTS: Final = (
    # how its name begins, what it is, when it is made
    ("KV cache", CauseName.KV_PREALLOCATION, Phase.KV_INIT),
    ("Initial KV cache", CauseName.KV_PREALLOCATION, Phase.KV_INIT),
    ("Additional executor resources", CauseName.ACTIVATION_PEAK, Phase.PROFILE),
    ("Model resources created during usage", CauseName.ACTIVATION_PEAK, Phase.PROFILE),
    ("Model", CauseName.WEIGHTS_TOO_BIG, Phase.LOAD),
    ("Draft model", CauseName.WEIGHTS_TOO_BIG, Phase.LOAD),
)


class Executor:
    """The executor could not be made, or its C++ runtime ran out."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The component is named (_torch/pyexecutor/py_executor_creator.py)."""
        failed = report.of("trt_oom")
        for found in report.of("trt_component")[:1]:
            name = found.values["component"]
            for begins, cause, phase in _COMPONENTS:
                if name.startswith(begins):
                    yield Finding(
                        cause=cause,
                        phase=phase,
                        weight=0.9,
                        evidence=(*failed[:1], found),
                        reason="component",
                        values={"component": name},
                    )
                    return
        if failed and not report.has("torch_oom"):
            phase = phase_of(report, failed)
            serving = phase in (Phase.PREFILL, Phase.DECODE, Phase.RUNTIME)
            pool = [one for one in report.of("trt_pool") if one.line <= failed[0].line]
            cache = "KV cache" in failed[0].text
            if pool and not cache:
                # it takes 0.9 of what is free unless told, before contexts of encoders and logits
                yield Finding(
                    cause=CauseName.KV_PREALLOCATION,
                    phase=phase,
                    weight=0.6,
                    evidence=(pool[-1], failed[0]),
                    reason="pool_took_the_rest",
                )
            yield Finding(
                cause=CauseName.KV_PREALLOCATION
                if cache
                else CauseName.ACTIVATION_PEAK
                if serving
                else CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.KV_INIT if cache else phase,
                weight=0.5,
                evidence=(failed[0],),
                reason="executor",
            )


CAUSES: Final[tuple[Cause, ...]] = (Executor(),)
