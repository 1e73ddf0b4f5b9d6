"""PyTorch ran out while it did something: read weights, computed, captured graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.causes.torch_errors import held_bytes, telling, total_bytes
from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase, is_placed, phase_of
from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import Sighting
from tokenroom.units import GIB

_FULL: Final = 0.85
"""Of a GPU, from which on what PyTorch holds is what fills it."""

_LARGEST_WEIGHT_BYTES: Final = 8 * GIB

_UNPLACED: Final = 0.5
"""Of an error of which nothing tells whether a model was read or a request served."""

_EARLY: Final = 0.25
"""Of the shards, before which a GPU should not be full."""


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
                    evidence=(
                        *(one for one in telling(report)[:1] if 0 < found.line - one.line <= 200),
                        found,
                    ),
                    reason="graphs",
                )
        if report.has("vllm_sampler"):
            return  # it runs after the graphs
        for found in telling(report)[:1]:
            began = report.phase_at(found.line)
            phase = phase_of(report, [found])
            flags = report.facts.flags
            share = flags.get("gpu_memory_utilization") or flags.get("mem_fraction_static")
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
                    values={"share": share} | found.values if share else found.values,
                )


class Weights:
    """The weights alone fill the GPU, or are made in a wider type than they are stored in."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The error comes while the model is built or its files are read."""
        for found in telling(report)[:1]:
            phase = phase_of(report, [found], usual=Phase.LOAD)
            if phase is not Phase.LOAD or report.has("vllm_sampler"):
                return
            held, total = held_bytes(found), total_bytes(found)
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
                if method or (later and report.engine in ("vllm", "sglang"))
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
        ended = telling(report)
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
        for found in telling(report)[:1]:
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


CAUSES: Final[tuple[Cause, ...]] = (
    GraphCapture(),
    Weights(),
    Dequantized(),
    Activations(),
)
