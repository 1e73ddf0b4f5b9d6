"""What the figures of PyTorch's errors say: pieces, other processes, memory it does not know of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.causes.torch_errors import (
    free_bytes,
    held_bytes,
    own_bytes,
    telling,
    total_bytes,
)
from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase, phase_of
from tokenroom.diagnosis.report import Report
from tokenroom.units import GIB

_FULL: Final = 0.85
"""Of a GPU, from which on what PyTorch holds is what fills it."""

_OTHERS: Final = 0.2
"""Of a GPU, from which on what others hold is what is missing."""

_FRAGMENTED: Final = 0.15
"""Of what PyTorch reserves, from which on what it keeps unused is much."""

_LEFTOVER: Final = 0.05
"""Of a GPU, below which what PyTorch keeps unused is what reading weights leaves behind."""


class Fragmentation:
    """There is enough in all, and no piece of it is large enough."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """What PyTorch keeps unused and what is free would hold it together, neither alone."""
        for found in telling(report)[:1]:
            asked, free = found.size_bytes("asked"), free_bytes(found) or 0.0
            kept = found.size_bytes("unallocated")
            if kept is None and (held := found.size_bytes("held")) is not None:
                kept = held - (found.size_bytes("already") or held)
            if asked is None or kept is None or kept < asked / 2:
                continue
            if kept + free >= asked:
                phase, held, total = (
                    phase_of(report, [found]),
                    held_bytes(found),
                    total_bytes(found),
                )
                # while weights are read, a small piece that is left over is not what is missing
                rest = held is not None and total is not None and held >= _FULL * total
                leftover = phase is Phase.LOAD and rest and kept < _LEFTOVER * (total or 0.0)
                yield Finding(
                    cause=CauseName.FRAGMENTATION,
                    phase=phase,
                    weight=0.5 if leftover else 0.88 if kept >= 0.9 * asked else 0.6,
                    evidence=(found,),
                    reason="fragments",
                    values=found.values,
                )


class OtherProcesses:
    """Something else holds the memory that is missing."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """By the engine's own check, by PyTorch's figures, or by nvidia-smi."""
        for found in report.of("vllm_free_below_budget")[:1]:
            free, total = found.number("free") or 0.0, found.number("total") or 0.0
            taken = total - free
            others = taken > 1.5
            yield Finding(
                cause=CauseName.OTHER_PROCESS if others else CauseName.MISCONFIGURATION,
                phase=Phase.LOAD,
                weight=0.9,
                evidence=(found,),
                reason="free_below_budget" if others else "share_of_total",
                values={**found.values, "taken": f"{taken:.2f}"},
            )
        for found in telling(report)[:1]:
            size, left, held = total_bytes(found), free_bytes(found), held_bytes(found)
            if size is None or left is None or held is None:
                continue
            own = own_bytes(found, held)
            beside = size - left - (held if own is None else max(own, held))
            if beside > _OTHERS * size:
                yield Finding(
                    cause=CauseName.OTHER_PROCESS,
                    phase=phase_of(report, [found]),
                    weight=0.9,
                    evidence=(found,),
                    reason="others_hold",
                    values={"others": f"{beside / GIB:.1f}", "total": f"{size / GIB:.1f}"},
                )


class ListedProcesses:
    """An error without figures, beside a table of nvidia-smi in which processes hold much."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """By the processes' own rows; one of them may be what failed, so that it stays a guess."""
        listed, sizes = report.of("smi_process"), report.of("smi")
        for found in telling(report)[:1]:
            if held_bytes(found) is not None or not listed or not sizes:
                continue
            used = sum(one.number("used") or 0.0 for one in listed)
            total = sum(one.number("total") or 0.0 for one in sizes)
            if total and used > _OTHERS * total:
                yield Finding(
                    cause=CauseName.OTHER_PROCESS,
                    phase=phase_of(report, [found]),
                    weight=0.52,
                    evidence=(listed[0], found),
                    reason="processes_listed",
                    values={"used": f"{used:,.0f}", "total": f"{total:,.0f}"},
                )


class Native:
    """The process itself holds what is missing, and not by PyTorch."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """TensorRT-LLM's C++ runtime keeps weights and KV pool out of PyTorch's sight."""
        if report.engine != "tensorrt-llm":
            return
        for found in telling(report)[:1]:
            size, held = total_bytes(found), held_bytes(found)
            own = None if held is None else own_bytes(found, held)
            if size is None or held is None or own is None or own - held <= _OTHERS * size:
                continue
            yield Finding(
                cause=CauseName.KV_PREALLOCATION,
                phase=phase_of(report, [found]),
                weight=0.85,
                evidence=(found,),
                reason="native",
                values={"native": f"{(own - held) / GIB:.1f}", "held": f"{held / GIB:.1f}"},
            )


class Summary:
    """``torch.cuda.memory_summary()`` counts an allocation that failed."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """By what was kept unused, and by whether anything had been freed yet."""
        failed = [one for one in report.of("summary_failures") if one.number("count")]
        rows = {one.values["row"].lower(): one for one in report.of("summary")}
        allocated, reserved = rows.get("allocated memory"), rows.get("gpu reserved memory")
        if not failed or allocated is None or any("asked" in one.values for one in telling(report)):
            return
        used = allocated.size_bytes("current") or 0.0
        kept = 0.0 if reserved is None else (reserved.size_bytes("current") or 0.0) - used
        evidence = (failed[0], allocated, *([] if reserved is None else [reserved]))
        if kept > _FRAGMENTED * (used + kept):
            yield Finding(
                cause=CauseName.FRAGMENTATION,
                phase=Phase.RUNTIME,
                weight=0.7,
                evidence=evidence,
                reason="summary_kept",
                values={"kept": f"{kept / GIB:.1f}", "used": f"{used / GIB:.1f}"},
            )
        loading = allocated.size_bytes("freed") == 0
        yield Finding(
            cause=CauseName.WEIGHTS_TOO_BIG if loading else CauseName.ACTIVATION_PEAK,
            phase=Phase.LOAD if loading else Phase.RUNTIME,
            weight=0.58 if loading else 0.5,
            evidence=evidence,
            reason="summary_nothing_freed" if loading else "activations",
        )


CAUSES: Final[tuple[Cause, ...]] = (
    Fragmentation(),
    OtherProcesses(),
    ListedProcesses(),
    Native(),
    Summary(),
)
