"""PyTorch ran out: of weights, activations, graphs, or of pieces that are large enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase, is_placed, phase_of
from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import AMOUNT, Sighting
from tokenroom.units import GIB

_FULL: Final = 0.85
"""Of a GPU, from which on what PyTorch holds is what fills it."""

_OTHERS: Final = 0.2
"""Of a GPU, from which on what others hold is what is missing."""

_FRAGMENTED: Final = 0.15
"""Of what PyTorch reserves, from which on what it keeps unused is much."""

_PROCESS: Final = re.compile(rf"Process \d+ has ({AMOUNT}) memory in use")

_LEFTOVER: Final = 0.05
"""Of a GPU, below which what PyTorch keeps unused is what reading weights leaves behind."""

_LARGEST_WEIGHT_BYTES: Final = 8 * GIB

_UNPLACED: Final = 0.5
"""Of an error of which nothing tells whether a model was read or a request served."""

_EARLY: Final = 0.25
"""Of the shards, before which a GPU should not be full."""


def _held_bytes(found: Sighting) -> float | None:
    """What PyTorch holds, allocated or kept."""
    for name in ("allocated", "already", "mps"):
        if (allocated := found.size_bytes(name)) is not None:
            return allocated + (found.size_bytes("unallocated") or 0.0)
    return None


def _total_bytes(found: Sighting) -> float | None:
    for name in ("total", "capacity", "allowed"):
        if (size := found.size_bytes(name)) is not None:
            return size
    return None


def _own_bytes(found: Sighting, held: float) -> float | None:
    """What the process that failed holds in all; None where the error does not say.

    In a container it is not called "this process": it is the process that holds the least of those
    that hold as much as PyTorch does.
    """
    if (own := found.size_bytes("own")) is not None:
        return own or None
    others = [
        found._replace(values={"size": size}).size_bytes("size") or 0.0
        for size in _PROCESS.findall(found.text)
    ]
    return min((size for size in others if size >= held), default=None)


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
            phase = phase_of(report, [found])
            # graphs hold memory of their own while they are captured, and ever after
            held = "private" in found.values and phase is not Phase.RUNTIME
            named = began != "runtime" and (
                "graphs" in found.values or (held and began is not None)
            )
            if named or held or phase is Phase.GRAPH_CAPTURE or began == "kv_init":
                pool = [one for one in report.of("vllm_pool") if one.line < found.line]
                yield Finding(
                    cause=CauseName.CUDA_GRAPHS,
                    phase=Phase.GRAPH_CAPTURE,
                    weight=0.93
                    if named or phase is Phase.GRAPH_CAPTURE
                    else 0.7
                    if began == "kv_init"
                    else 0.5,
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
            method = report.of("quantizes_at_load")
            later = quantising or report.has("quantizing")
            yield Finding(
                cause=CauseName.WRONG_DTYPE_LOAD,
                phase=Phase.LOAD,
                weight=0.85 if early or (full and method) else 0.7 if later or method else 0.3,
                evidence=(*method[:1], *shards[-1:], *frames[-1:], found),
                reason="quantized_while_loading"
                if method
                else "wider_type_early"
                if early
                else "wider_type",
                values={"share": f"{done:.0%}" if done is not None else ""},
            )
            placed = is_placed(report, found)
            asked = found.size_bytes("asked") or 0.0
            # no tensor of weights is that large: one for all tokens of a step may be
            step = not placed and asked >= _LARGEST_WEIGHT_BYTES
            yield Finding(
                cause=CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.LOAD,
                weight=_UNPLACED - 0.1 * step if not placed else 0.8 if full else 0.6,
                evidence=(*frames, found),
                reason="weights" if placed else "unplaced",
            )
            if not placed:
                yield Finding(
                    cause=CauseName.ACTIVATION_PEAK,
                    phase=Phase.RUNTIME,
                    weight=_UNPLACED - 0.05,
                    evidence=(found,),
                    reason="unplaced",
                )


class Dequantized:
    """Transformers makes weights of 16 bits of packed ones, or leaves some of them elsewhere."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """By its own warnings, the first of which matters only where memory then ended."""
        ended = _telling(report)
        for found in report.of("dequantized")[:1]:
            if ended:
                yield Finding(
                    cause=CauseName.WRONG_DTYPE_LOAD,
                    phase=Phase.LOAD,
                    weight=0.9,
                    evidence=(found, ended[0]),
                    reason="dequantized",
                    values=dict(found.values),
                )
        for found in report.of("dispatched_to_cpu")[:1]:
            refused = "refused" in found.values
            yield Finding(
                cause=CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.LOAD if refused else Phase.RUNTIME,
                weight=0.9 if refused else 0.6,
                evidence=(found,),
                reason="modules_elsewhere",
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
        for found in report.of("encoder_above_budget")[:1]:
            yield Finding(
                cause=CauseName.ENCODER_BUDGET,
                phase=Phase.LOAD,
                weight=0.9,
                evidence=(found,),
                reason="encoder_above_budget",
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
                both = "enc_dec" in encoder[-1].values
                yield Finding(
                    cause=CauseName.ENCODER_BUDGET,
                    phase=phase,
                    weight=0.85 if phase is Phase.PROFILE else 0.7,
                    evidence=(encoder[-1], found),
                    reason="encoder_of_every_request" if both else "encoder",
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
                phase, held, total = (
                    phase_of(report, [found]),
                    _held_bytes(found),
                    _total_bytes(found),
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
        for found in report.of("sglang_unbalanced")[:1]:
            yield Finding(
                cause=CauseName.OTHER_PROCESS,
                phase=Phase.LOAD,
                weight=0.9,
                evidence=(found,),
                reason="unbalanced",
            )
        for found in _telling(report)[:1]:
            size, left, held = _total_bytes(found), _free_bytes(found), _held_bytes(found)
            if size is None or left is None or held is None:
                continue
            own = _own_bytes(found, held)
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


class Native:
    """The process itself holds what is missing, and not by PyTorch."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """TensorRT-LLM's C++ runtime keeps weights and KV pool out of PyTorch's sight."""
        if report.engine != "tensorrt-llm":
            return
        for found in _telling(report)[:1]:
            size, held = _total_bytes(found), _held_bytes(found)
            own = None if held is None else _own_bytes(found, held)
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
        if (
            not failed
            or allocated is None
            or any("asked" in one.values for one in _telling(report))
        ):
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
    GraphCapture(),
    Weights(),
    Dequantized(),
    Activations(),
    Fragmentation(),
    OtherProcesses(),
    Native(),
    Summary(),
)
