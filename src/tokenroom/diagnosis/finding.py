"""What may have happened, how sure that is, and by which lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import Sighting


class CauseName(StrEnum):
    """What took the memory, or what else it was."""

    WEIGHTS_TOO_BIG = "weights_too_big"
    ACTIVATION_PEAK = "activation_peak"
    KV_POOL_TOO_SMALL = "kv_pool_too_small"
    KV_PREALLOCATION = "kv_preallocation"
    CUDA_GRAPHS = "cuda_graphs"
    ENCODER_BUDGET = "encoder_budget"
    COMPUTE_BUFFER = "compute_buffer"
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESS = "other_process"
    HOST_RAM = "host_ram"
    SHM = "shm"
    NCCL_BUFFERS = "nccl_buffers"
    LEAK = "leak"
    WRONG_DTYPE_LOAD = "wrong_dtype_load"
    MISCONFIGURATION = "misconfiguration"
    NOT_MEMORY = "not_memory"
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """What the engine was at."""

    LOAD = "load"
    PROFILE = "profile"
    KV_INIT = "kv_init"
    GRAPH_CAPTURE = "graph_capture"
    PREFILL = "prefill"
    DECODE = "decode"
    RUNTIME = "runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause, with what speaks for it.

    Attributes:
        cause: The cause.
        phase: When.
        weight: How much speaks for it, 0 to 1.
        evidence: The lines.
        reason: Key of the sentence that says why, without ``explain.reason.``.
        values: Figures of that sentence.
    """

    cause: CauseName
    phase: Phase
    weight: float
    evidence: tuple[Sighting, ...]
    reason: str
    values: Mapping[str, object] = field(default_factory=dict)


class Cause(Protocol):
    """Something that may have happened."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """What speaks for it in a log; nothing where nothing does."""


_SERVING: Final = frozenset(
    {
        *("execute_model", "compute_logits", "_sample", "in generate", "in backward"),
        *("eager_attention_forward", "sdpa_attention_forward"),
        *("flash_attention_forward", "flex_attention_forward"),
    }
)
"""Functions that steps run through, and older profiling passes as well."""


def is_placed(report: Report, sighting: Sighting) -> bool:
    """Whether anything before or beside a line tells when it was written."""
    return report.phase_at(sighting.line) is not None or any(
        abs(one.line - sighting.line) <= 200 for one in report.of("frame", "shards")
    )


def phase_of(report: Report, sightings: Sequence[Sighting], usual: Phase = Phase.LOAD) -> Phase:
    """The phase of the first of some lines, by frames beside it or by what began before it."""
    frames = {
        "load_model": Phase.LOAD,
        "create_weights": Phase.LOAD,
        "initialize_model": Phase.LOAD,
        "load_weights": Phase.LOAD,
        "process_weights_after_loading": Phase.LOAD,
        "from_pretrained": Phase.LOAD,
        "dispatch_model": Phase.LOAD,
        "caching_allocator_warmup": Phase.LOAD,
        "load_checkpoint_in_model": Phase.LOAD,
        "_load_pretrained_model": Phase.LOAD,
        "enc_dec_model_runner": Phase.PROFILE,
        "Method Warmup": Phase.PROFILE,
        "Method Prefill": Phase.PREFILL,
        "Method Decode": Phase.DECODE,
        "_allocate_kv_cache_tensors": Phase.KV_INIT,
        "quantize.py": Phase.LOAD,
        "DecoderLayer": Phase.LOAD,
        "profile_run": Phase.PROFILE,
        "_dummy_run": Phase.PROFILE,
        "determine_available_memory": Phase.PROFILE,
        "determine_num_available_blocks": Phase.PROFILE,
        "warmup": Phase.PROFILE,
        "_allocate_kv_cache": Phase.KV_INIT,
        "initialize_kv_cache": Phase.KV_INIT,
        "init_memory_pool": Phase.KV_INIT,
        "alloc_memory_pool": Phase.KV_INIT,
        "capture_model": Phase.GRAPH_CAPTURE,
        "forward_extend": Phase.PREFILL,
        "forward_decode": Phase.DECODE,
        "RuntimeBuffers::reshape": Phase.RUNTIME,
        "prepareStep": Phase.RUNTIME,
    }
    if not sightings:
        return usual
    for words, told in (
        ("Capture cuda graph failed", Phase.GRAPH_CAPTURE),
        ("}:prefill", Phase.PREFILL),  # TGI's spans: router/client
        ("}:decode", Phase.DECODE),
    ):
        if words in sightings[0].text:
            return told
    line = sightings[0].line
    near = [found for found in report.of("frame") if 0 <= line - found.line <= 200]
    # C++ prints the stack behind its error, Python before it
    near += [
        found
        for found in report.of("frame")
        if 0 < found.line - line <= 20 and "::" in found.values.get("where", "")
    ]
    for found in reversed(near):
        if (phase := frames.get(found.values.get("where", ""))) is not None:
            if phase is Phase.PROFILE and any(
                other.values.get("where") == "capture_model" for other in near
            ):
                return Phase.GRAPH_CAPTURE
            return phase
    began = report.phase_at(line)
    if began in (None, "load") and any(found.values.get("where") in _SERVING for found in near):
        return Phase.RUNTIME
    return usual if began is None else Phase(began)
