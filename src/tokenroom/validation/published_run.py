"""A replica under the circumstances that the source of a published row states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from tokenroom.errors import RowError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.memory.kv_cache import request_bytes
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.drafters import mtp_drafter
from tokenroom.performance.drafting import Acceptance, Drafting
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.load import Load, Speed
from tokenroom.performance.load import speed as load_speed
from tokenroom.performance.replica import Replica
from tokenroom.serving_speed import Range
from tokenroom.units import GIB
from tokenroom.validation.circumstances import Circumstances
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.published_room import tokens_held
from tokenroom.validation.speed_quantities import served_quantities

_RANDOM_PROMPTS: Final = Acceptance(0.7, 0.6, 0.83, "rows of InferenceX kept for fitting")
"""How often tokens drafted after random prompts are kept: the smallest median error of TPOT of the
56 rows kept for fitting whose servers drafted."""

_KEPT_BYTES: Final = 3 * GIB  # beside weights and cache


def published_values(
    load: MeasuredLoad,
    run: Circumstances,
    spec: ModelSpec,
    accelerator: Accelerator,
    engine: str,
    factors: Factors = UNCALIBRATED,
    requests_held: int | None = None,
) -> Mapping[str, Range]:
    """What clients of the replica see, by quantity.

    Args:
        load: What they send.
        run: How the replica was run.
        spec: The model, stored as the row's.
        accelerator: The kind of GPU.
        engine: Its name in :mod:`tokenroom.performance`.
        factors: Those of the machine, where it was calibrated.
        requests_held: Requests that the cache of one data-parallel rank holds by the engine's own
            rules; None for what weights and a usual remainder leave.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
        RowError: The GPUs cannot hold the weights.
    """
    isl = round((load.input_tokens or 1) * run.length_share)
    osl = round((load.output_tokens or 1) * run.length_share)
    estimated = _requests_held(run, spec, accelerator, tokens_held(engine, isl, osl))
    held = estimated if requests_held is None else requests_held
    running = held if run.largest_batch is None else min(run.largest_batch, held)
    replica = Replica(
        spec=spec,
        layout=run.layout,
        accelerator=accelerator,
        engine=engine,
        max_num_batched_tokens=run.token_budget,
        max_num_seqs=running,
        admission=run.admission,
        kv_dtype=run.kv_dtype,
        asynchronous=run.asynchronous,
        drafting=_drafting(run, spec),
        factors=factors,
    )
    sent = Load(
        input_tokens=isl,
        output_tokens=osl,
        concurrency=load.concurrency or running * run.layout.data_parallel_size,
        waves=run.waves,
        lengths_vary=run.lengths_vary,
    )
    found = load_speed(replica, sent)
    ttft = Range(found.ttft_seconds, found.ttft_low_seconds, found.ttft_high_seconds)
    tpot = Range(found.tpot_seconds, found.tpot_low_seconds, found.tpot_high_seconds)
    return served_quantities(
        input_tokens=isl,
        output_tokens=osl,
        accelerators=run.layout.accelerators,
        ttft_seconds=ttft,
        tpot_seconds=tpot,
        output_tokens_per_second=_rate(found, ttft, tpot, osl),
    )


def _drafting(run: Circumstances, spec: ModelSpec) -> Drafting | None:
    """By the model's own blocks for multi-token prediction; prompts are random tokens."""
    if not run.drafted_tokens:
        return None
    return Drafting(
        method="mtp",
        depth=run.drafted_tokens,
        verified=run.drafted_tokens + 1,
        branches=1,
        acceptance=_RANDOM_PROMPTS,
        drafter=mtp_drafter(spec),
        layout=run.layout,
    )


def _rate(found: Speed, ttft: Range, tpot: Range, output_tokens: int) -> Range:
    """Output of the replica; its range is that of the time a request takes."""
    cycles = [first + (output_tokens - 1) * each for first, each in zip(ttft, tpot, strict=True)]
    rate = found.output_tokens_per_second
    return Range(rate, rate * cycles[0] / cycles[2], rate * cycles[0] / cycles[1])


def _requests_held(
    run: Circumstances, spec: ModelSpec, accelerator: Accelerator, tokens: int
) -> int:
    """Requests of one data-parallel rank that the cache holds.

    Raises:
        RowError: The weights do not fit.
    """
    layout = run.layout
    weights_bytes = _weights_bytes(spec) / layout.accelerators
    if weights_bytes > accelerator.memory_bytes:
        raise RowError(
            f"the weights are larger than the memory of the GPUs it states ({layout.accelerators})"
        )
    if run.share_of_rest:
        room = run.memory_share * (accelerator.memory_bytes - weights_bytes - _KEPT_BYTES)
    else:
        room = run.memory_share * accelerator.memory_bytes - weights_bytes - _KEPT_BYTES
    one = request_bytes(
        spec, tokens, run.kv_dtype, tensor_parallel_size=layout.tensor_parallel_size
    )
    return max(1, int(room * layout.pipeline_parallel_size / one))


@lru_cache(maxsize=256)
def _weights_bytes(spec: ModelSpec) -> float:
    return checkpoint_weights(spec).total_bytes
