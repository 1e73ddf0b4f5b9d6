"""PyTorch ran out: of weights, activations, graphs, or of pieces that are large enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase, phase_of
from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import Sighting
from tokenroom.units import GIB

_FULL: Final = 0.85
"""Of a GPU, from which on what PyTorch holds is what fills it."""

_OTHERS: Final = 0.2
"""Of a GPU, from which on what others hold is what is missing."""

_EARLY: Final = 0.25
"""Of the shards, before which a GPU should not be full."""


def _held_bytes(found: Sighting) -> float | None:
    """What PyTorch holds, allocated or kept."""
    allocated = found.size_bytes("allocated")
    if allocated is None and (allocated := found.size_bytes("already")) is None:
        return None
    return allocated + (found.size_bytes("unallocated") or 0.0)


def _total_bytes(found: Sighting) -> float | None:
    return found.size_bytes("total") or found.size_bytes("capacity")


def _free_bytes(found: Sighting) -> float | None:
    for name in ("free", "left", "alone"):
        if (size := found.size_bytes(name)) is not None:
            return size
    return None


def _telling(report: Report) -> list[Sighting]:
    """The errors, those with figures first.

    That cuBLAS or the runtime found no room, too, is told by when it happened.
    """
    if report.engine in ("llama.cpp", "ollama"):
        return report.of("torch_oom")
    found = report.of("torch_oom", "cuda_oom", "cublas_alloc")
    return sorted(found, key=lambda found: (-len(found.values), found.kind != "torch_oom"))


class GraphCapture:
    """CUDA graphs were captured after the pool had taken what was left."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The pool was sized and nothing was served yet, or the error names the capture."""
        for found in report.of("sglang_oom"):
            if "capture" in found.values:
                yield Finding(
                    cause=CauseName.CUDA_GRAPHS,
                    phase=Phase.GRAPH_CAPTURE,
                    weight=0.93,
                    evidence=(found,),
                    reason="graphs",
                )
        if report.has("vllm_sampler"):
            return  # it runs after the graphs
        for found in _telling(report)[:1]:
            began = report.phase_at(found.line)
            named = began != "runtime" and ("graphs" in found.values or "private" in found.values)
            if named or phase_of(report, [found]) is Phase.GRAPH_CAPTURE or began == "kv_init":
                pool = [one for one in report.of("vllm_pool") if one.line < found.line]
                yield Finding(
                    cause=CauseName.CUDA_GRAPHS,
                    phase=Phase.GRAPH_CAPTURE,
                    weight=0.93 if named or began != "kv_init" else 0.7,
                    evidence=(*pool[-1:], found),
                    reason="graphs",
                )


class Weights:
    """The weights alone fill the GPU, or are made in a wider type than they are stored in."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The error comes while the model is built or its files are read."""
        for found in _telling(report)[:1]:
            phase = phase_of(report, [found], usual=Phase.LOAD)
            if phase is not Phase.LOAD or report.has("vllm_sampler"):
                return
            held, total = _held_bytes(found), _total_bytes(found)
            full = held is not None and total is not None and held >= _FULL * total
            shards = [one for one in report.of("shards") if one.line <= found.line]
            done = _share_done(shards[-1]) if shards else None
            frames = [one for one in report.of("frame") if one.line <= found.line][-2:]
            quantising = any(one.values.get("where") == "quantize.py" for one in report.of("frame"))
            early = full and done is not None and done <= _EARLY
            yield Finding(
                cause=CauseName.WRONG_DTYPE_LOAD,
                phase=Phase.LOAD,
                weight=0.85 if early else 0.7 if quantising or report.has("quantizing") else 0.3,
                evidence=(*shards[-1:], *frames[-1:], found),
                reason="wider_type_early" if early else "wider_type",
                values={"share": f"{done:.0%}" if done is not None else ""},
            )
            yield Finding(
                cause=CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.LOAD,
                weight=0.8 if full else 0.6,
                evidence=(*frames, found),
                reason="weights",
            )


def _share_done(found: Sighting) -> float | None:
    done, of = found.number("done"), found.number("of")
    if done is not None and of:
        return done / of
    percent = found.number("percent")
    return None if percent is None else percent / 100


class Activations:
    """A forward pass needed more than was left for it."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """In the profiling pass, or in a step of prompts."""
        for found in report.of("tgi_warmup")[:1]:
            yield Finding(
                cause=CauseName.ACTIVATION_PEAK,
                phase=Phase.PROFILE,
                weight=0.95,
                evidence=(found,),
                reason="warmup",
                values=dict(found.values),
            )
        for found in report.of("vllm_sampler")[:1]:
            yield Finding(
                cause=CauseName.ACTIVATION_PEAK,
                phase=Phase.PROFILE,
                weight=0.95,
                evidence=(found,),
                reason="sampler",
                values=dict(found.values),
            )
        for found in _telling(report)[:1]:
            phase = phase_of(report, [found], usual=Phase.LOAD)
            if phase in (Phase.LOAD, Phase.GRAPH_CAPTURE, Phase.KV_INIT):
                return
            encoder = [
                one for one in report.of("encoder_budget") if 0 <= found.line - one.line <= 200
            ]
            if encoder:
                yield Finding(
                    cause=CauseName.ENCODER_BUDGET,
                    phase=phase,
                    weight=0.85 if phase is Phase.PROFILE else 0.7,
                    evidence=(encoder[-1], found),
                    reason="encoder",
                )
            yield Finding(
                cause=CauseName.ACTIVATION_PEAK,
                phase=Phase.PREFILL if phase is Phase.RUNTIME else phase,
                weight=0.82 if phase is Phase.PROFILE else 0.65,
                evidence=(found,),
                reason="activations",
            )


class Fragmentation:
    """There is enough in all, and no piece of it is large enough."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """What PyTorch keeps unused and what is free would hold it together, neither alone."""
        for found in _telling(report)[:1]:
            asked, free = found.size_bytes("asked"), _free_bytes(found) or 0.0
            kept = found.size_bytes("unallocated")
            if kept is None and (held := found.size_bytes("held")) is not None:
                kept = held - (found.size_bytes("already") or held)
            if asked is None or kept is None or kept < asked / 2:
                continue
            if kept + free >= asked:
                yield Finding(
                    cause=CauseName.FRAGMENTATION,
                    phase=phase_of(report, [found]),
                    weight=0.88 if kept >= 0.9 * asked else 0.6,
                    evidence=(found,),
                    reason="fragments",
                )


class OtherProcesses:
    """Something else holds the memory that is missing."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """By the engine's own check, by PyTorch's figures, or by nvidia-smi."""
        for found in report.of("vllm_profiling_assert")[:1]:
            yield Finding(
                cause=CauseName.OTHER_PROCESS,
                phase=Phase.PROFILE,
                weight=0.97,
                evidence=(found,),
                reason="memory_moved",
                values=dict(found.values),
            )
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
        for found in _telling(report)[:1]:
            size, left, held = _total_bytes(found), _free_bytes(found), _held_bytes(found)
            if size is None or left is None or held is None:
                continue
            beside = size - left - held
            if beside > _OTHERS * size:
                processes = [
                    one for one in report.of("other_process_memory") if one.line == found.line
                ]
                yield Finding(
                    cause=CauseName.OTHER_PROCESS,
                    phase=phase_of(report, [found]),
                    weight=0.9,
                    evidence=(found, *processes[:1]),
                    reason="others_hold",
                    values={"others": f"{beside / GIB:.1f}", "total": f"{size / GIB:.1f}"},
                )


CAUSES: Final[tuple[Cause, ...]] = (
    GraphCapture(),
    Weights(),
    Activations(),
    Fragmentation(),
    OtherProcesses(),
)
