"""Runs that are faster than they can be on their GPUs, as far as they say what they drafted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.efficiency import bandwidth_of, peak_flops
from tokenroom.performance.operators import step_operators
from tokenroom.performance.work import Kind, StepWork
from tokenroom.validation.circumstances import Circumstances
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.speed_quantities import ITL, TPOT, TTFT

_REACHED: Final = 0.7
"""Share of the arithmetic peak that no run of matrices has been seen above."""


def beats_hardware(
    load: MeasuredLoad,
    run: Circumstances,
    spec: ModelSpec,
    accelerator: Accelerator,
    observed: Mapping[str, float],
) -> bool:
    """Whether a run was faster than memory or arithmetic allow, every drafted token kept."""
    each = observed.get(TPOT, observed.get(ITL))
    if each is None or load.concurrency is None:
        return False
    tpot_seconds = each / 1e3
    copies = run.layout.data_parallel_size
    sequences = max(1, load.concurrency // copies)
    prompt = (load.input_tokens or 1) * run.length_share
    work = StepWork(
        decode_sequences=sequences,
        decode_context_tokens=prompt,
        other_tokens=sequences * (copies - 1),
    )
    operators = step_operators(spec, run.layout, work, kv_dtype=run.kv_dtype)
    moved = sum(operator.times * operator.num_bytes for operator in operators)
    step_seconds = tpot_seconds * (1 + run.drafted_tokens)
    if step_seconds < moved / bandwidth_of(accelerator):
        return True
    first = observed.get(TTFT)
    if first is None:
        return False
    flops = sum(
        operator.times * operator.flops / work.tokens
        for operator in operators
        if operator.kind in (Kind.GEMM, Kind.GROUPED_GEMM) and operator.name != "lm_head"
    )
    cycle_seconds = first / 1e3 + (load.output_tokens or 1) * tpot_seconds
    tokens_per_second = load.concurrency * prompt / cycle_seconds
    peak = _REACHED * peak_flops(_arithmetic(spec), accelerator)
    return tokens_per_second * flops / copies > peak


def _arithmetic(spec: ModelSpec) -> str:
    """The fastest type the model's matrices run in."""
    method = spec.quantization or ""
    if "fp4" in method:
        return "nvfp4"
    return "fp8" if "fp8" in method else "bf16"
