"""Why each figure of a llama.cpp ledger is what it is: formula, values and source, by device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tokenroom.engines.llama_cpp.caches import CacheLayout
from tokenroom.engines.llama_cpp.settings import COMMIT
from tokenroom.memory.ledger import Confidence, Line

if TYPE_CHECKING:
    from tokenroom.engines.llama_cpp.plan import LlamaCppPlan

_COMMIT = f"llama.cpp {COMMIT}"


def explain_plan(plan: LlamaCppPlan) -> tuple[Line, ...]:
    """The ledger of every device in llama.cpp's own words."""
    return tuple(_lines(plan))


def _lines(plan: LlamaCppPlan) -> Iterator[Line]:
    memory, resolved = plan.memory, plan.outcome.resolved
    decisions = memory.decisions
    printed = memory.buffers()
    for device, stage in enumerate(plan.stages):
        name = stage.device
        yield _line(
            f"{name} model buffers",
            stage.weights_bytes,
            "sum of the tensors placed there, each aligned",
            {
                "n_gpu_layers": min(
                    decisions.n_gpu_layers, len(memory.placement.layer_devices) + 1
                ),
                **{
                    f"{buffer} model buffer size": f"{size / 2**20:.2f} MiB"
                    for buffer, size in printed["model"].items()
                    if (buffer.split("_")[0] == name)
                    or (device == memory.host and not buffer[-1].isdigit())
                },
            },
            f"{_COMMIT} src/llama-model.cpp load_tensors",
            [_line(f"{name}.{part}", size, "", {}, "") for part, size in stage.weights.items()],
        )
        yield _line(
            f"{name} KV buffer",
            stage.kv_pool_bytes,
            "streams x cells x (row(type_k, K width) + row(type_v, V width)), summed over its "
            "layers; states in float32",
            {
                "n_ctx": decisions.n_ctx,
                "n_ctx_seq": decisions.n_ctx_seq,
                "n_seq_max": resolved.n_seq_max,
                "kv_unified": resolved.kv_unified,
                "type_k": resolved.type_k,
                "type_v": resolved.type_v,
                **_cells(memory.caches),
            },
            f"{_COMMIT} src/llama-kv-cache.cpp",
        )
        yield _line(
            f"{name} compute buffer",
            stage.activation.num_bytes,
            "peak of the tensors alive at once in the graph of one micro-batch",
            {
                "n_ubatch": resolved.n_ubatch,
                "n_outputs_max": resolved.n_outputs_max,
                "flash_attn": resolved.flash_attn,
                "sched copies": memory.copies,
                "one token a sequence": f"{stage.activation_decode_bytes / 2**20:.2f} MiB",
            },
            f"{_COMMIT} src/llama-context.cpp sched_reserve, ggml/src/ggml-alloc.c",
        )
        if stage.is_host:
            yield _line(
                "output buffer",
                stage.buffers_bytes,
                "n_vocab x n_seq_max x 4; grows with the outputs of a batch",
                {"n_vocab": memory.spec.vocab_size, "n_seq_max": resolved.n_seq_max},
                f"{_COMMIT} src/llama-context.cpp output_reserve",
            )
        else:
            yield _line(
                f"{name} driver",
                stage.context_bytes,
                "CUDA context, and what other processes hold",
                {},
                "llama.cpp start-up logs: total less free memory",
                confidence=Confidence.ESTIMATED,
            )
        estimate = stage.non_torch
        if estimate.high_bytes:
            yield Line(
                key=f"{name} {'saved prompts' if stage.is_host else 'libraries and kernels'}",
                num_bytes=estimate.num_bytes,
                confidence=Confidence.ESTIMATED,
                low_bytes=estimate.low_bytes,
                high_bytes=estimate.high_bytes,
                formula="up to --cache-ram and --ctx-checkpoints"
                if stage.is_host
                else "in use beyond llama.cpp's own buffers",
                source=estimate.source,
            )


def _cells(caches: CacheLayout) -> Mapping[str, object]:
    counts: dict[str, int] = {}
    for cache in caches.layers:
        counts[cache.kind] = counts.get(cache.kind, 0) + 1
    cells = {"full_attention": caches.cells, "mla": caches.cells, "indexer": caches.cells}
    cells |= {"sliding_window": caches.window_cells, "recurrent": caches.sequences}
    return {f"{count} {kind} layers": f"{cells[kind]} cells" for kind, count in counts.items()}


def _line(
    key: str,
    num_bytes: int,
    formula: str,
    values: Mapping[str, object],
    source: str,
    parts: Iterable[Line] = (),
    *,
    confidence: Confidence = Confidence.EXACT,
) -> Line:
    return Line(
        key=key,
        num_bytes=num_bytes,
        confidence=confidence,
        low_bytes=num_bytes,
        high_bytes=num_bytes,
        formula=formula,
        values=values,
        source=source,
        parts=tuple(parts),
    )
