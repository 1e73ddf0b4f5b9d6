"""llama.cpp and Ollama: buffers that were not to be had, and layers that stayed on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase, is_placed, phase_of
from tokenroom.diagnosis.report import Report


class Buffers:
    """A buffer could not be allocated: of the model, of the cache, or of the graph."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """Which of them is told by what follows, or by what came before (llama-context.cpp)."""
        again = [one.line for one in report.of("ggml_retry")]
        failed = [one for one in report.of("ggml_alloc") if not again or one.line > again[-1]]
        ollama = report.engine == "ollama"
        if not failed:
            if report.engine in ("llama.cpp", "ollama"):
                yield from self._in_a_pass(report)
            return
        host = report.of("ggml_host_alloc")
        if host and host[0].line <= failed[0].line:
            return  # what failed after it is the host's memory (host.py), whatever it is called
        compute, cache = report.of("ggml_compute"), report.of("ggml_kv")
        sized = [found for found in report.of("ggml_kv_size") if found.line < failed[0].line]
        copies = report.of("ggml_copies")
        length = report.facts.flags.get("n_ctx")
        if cache and not compute:
            yield Finding(
                cause=CauseName.KV_PREALLOCATION,
                phase=Phase.KV_INIT,
                weight=0.93,
                evidence=(failed[0], cache[0]),
                reason="kv_buffer",
                values={"length": length} if length else {},
            )
        elif compute or sized or copies or report.has("ollama_memory"):
            yield Finding(
                cause=CauseName.COMPUTE_BUFFER,
                phase=Phase.LOAD if ollama else Phase.KV_INIT,
                weight=0.95 if compute or sized else 0.85,
                evidence=(*copies[:1], *report.of("ollama_memory")[:1], failed[0], *compute[:1]),
                reason="compute_buffer_copies" if copies else "compute_buffer",
                values=dict(failed[0].values) | (dict(copies[0].values) if copies else {}),
            )
        else:
            serving = report.phase_at(failed[0].line) == "runtime"
            if serving:
                yield Finding(
                    cause=CauseName.COMPUTE_BUFFER,
                    phase=Phase.PREFILL,
                    weight=0.8,
                    evidence=(failed[0],),
                    reason="compute_buffer",
                )
            free = [one for one in report.of("ggml_device_free") if one.line < failed[0].line]
            asked, left = failed[0].size_bytes("asked"), free and free[-1].size_bytes("free")
            refused = bool(asked and left and asked < left)
            known = report.has("ggml_model_failed") or is_placed(report, failed[0])
            yield Finding(
                cause=CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.LOAD,
                weight=0.5 if serving or not known else 0.8,
                evidence=(
                    *free[-1:][: int(refused)],
                    failed[0],
                    *report.of("ggml_model_failed")[:1],
                ),
                reason="one_buffer" if refused else "model_buffer",
                values={
                    "asked": failed[0].values.get("asked", ""),
                    "free": free[-1].values["free"] if refused else "",
                },
            )

    def _in_a_pass(self, report: Report) -> Iterator[Finding]:
        """Scratch buffers or cuBLAS, which grow with what is computed (ggml-cuda.cu)."""
        for found in report.of("cuda_oom", "cublas_alloc")[:1]:
            yield Finding(
                cause=CauseName.COMPUTE_BUFFER,
                phase=phase_of(report, [found], usual=Phase.PREFILL),
                weight=0.6,
                evidence=(found,),
                reason="compute_buffer",
            )


class OnTheProcessor:
    """Layers did not fit on the GPU and run on the CPU: slow, not failed."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """Ollama's own split, or what ``ollama ps`` shows."""
        output, counts = report.of("output_on_cpu"), report.of("offloaded")
        partial = [one for one in counts if one.number("layers") != one.number("all")]
        if output or partial:
            yield Finding(
                cause=CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.RUNTIME,
                weight=0.75,
                evidence=(*output[:1], *partial[:1]),
                reason="layers_on_cpu",
                values=dict(partial[0].values) if partial else {"layers": "?", "all": "?"},
            )
        split = [one for one in report.of("ollama_ps") if (one.number("cpu") or 0) > 0]
        if split:
            context = report.of("num_ctx")
            yield Finding(
                cause=CauseName.KV_PREALLOCATION,
                phase=Phase.RUNTIME,
                weight=0.85 if context else 0.6,
                evidence=(*context[:1], split[0]),
                reason="context_on_cpu",
            )
            yield Finding(
                cause=CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.RUNTIME,
                weight=0.5,
                evidence=(split[0],),
                reason="split_with_cpu",
            )


CAUSES: Final[tuple[Cause, ...]] = (Buffers(), OnTheProcessor())
