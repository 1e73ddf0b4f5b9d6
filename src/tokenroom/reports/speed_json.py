"""The answer of ``speed`` as a JSON object, whose schema is published beside this module.

The schema (``data/speed.schema.json``, printed by ``tokenroom speed --json-schema``) is versioned
by ``schema_version``: a new key raises the minor number, a changed or dropped one the major number.
Times are seconds; a figure with a range is an object of ``value``, ``low`` and ``high``.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from tokenroom.fitting import FitResult
from tokenroom.objectives import Largest, LoadLimits, Objectives
from tokenroom.performance.drafting import Drafting
from tokenroom.regimes import Regimes
from tokenroom.reports.calibration_json import applied_json
from tokenroom.reports.messages import Language, refusal_text
from tokenroom.reports.speed_text import speed_warnings
from tokenroom.serving_speed import FirstParts, Range, ServingSpeed, TokenParts
from tokenroom.step_ledger import StepLedger

SCHEMA_VERSION: Final = "1.4"


def speed_json(
    result: ServingSpeed,
    regimes: Regimes,
    *,
    language: Language,
    limits: LoadLimits | None = None,
    explain: bool = False,
) -> dict[str, Any]:
    """``result`` as plain JSON values; sentences in ``language``, keys always the same.

    Under objectives (``limits``) the figures are those of the largest load that keeps them, or of
    one request alone.
    """
    terms, layout, step = result.terms, result.terms.layout, result.decode.time
    return {
        **subject_json(result.fit, SCHEMA_VERSION),
        "reason": None,
        "cause": None,
        "deployment": {
            "tensor_parallel_size": layout.tensor_parallel_size,
            "pipeline_parallel_size": layout.pipeline_parallel_size,
            "data_parallel_size": layout.data_parallel_size * terms.replicas,
            "expert_parallel_size": layout.expert_parallel_size,
            "token_budget": terms.token_budget,
            "max_num_seqs": result.fit.plan.max_num_seqs,
            "kv_pool_tokens": result.fit.plan.kv_pool_tokens,
            "requests_held": result.fit.requests_held,
        },
        "input_tokens": result.load.input_tokens,
        "output_tokens": result.load.output_tokens,
        **_point(result),
        "concurrency_assumed": result.assumed,
        "num_prompts": result.num_prompts,
        "arrivals": None
        if result.arrivals is None
        else {
            "requests_per_second": result.arrivals.requests_per_second,
            "capacity": result.arrivals.capacity,
            "falls_behind": result.arrivals.falls_behind,
        },
        "tpot_limiter": result.tpot_limiter,
        "tpot_shares": dict(result.tpot_shares),
        "tpot_parts": _seconds(result.tpot_parts),
        "tpot_operators": dict(result.tpot_operators),
        "ttft_limiter": result.ttft_limiter,
        "ttft_parts": _seconds(result.ttft_parts),
        "regime": regimes.of(result.concurrency),
        "regimes": [
            {"name": name, "first": first, "last": last} for name, first, last in regimes.spans
        ],
        "objectives": None if limits is None else _limits(limits),
        "speculation": _speculation(terms.drafting),
        "price_per_gpu_hour": result.price_per_gpu_hour,
        "prefill": _step(result.prefill, explain),
        "decode": _step(result.decode, explain),
        "tables_of": step.tables_of,
        "borrowed": step.borrowed,
        "tables": list(result.tables),
        "beyond_tables": [*_beyond("prefill", result.prefill), *_beyond("decode", result.decode)],
        "calibration": None if result.calibration is None else applied_json(result.calibration),
        "warnings": speed_warnings(result, language),
    }


def speed_sweep_json(
    points: Sequence[ServingSpeed],
    regimes: Regimes,
    *,
    language: Language,
    objectives: Objectives | None = None,
) -> dict[str, Any]:
    """A sweep: the object of its first point, and the figures of each."""
    return speed_json(points[0], regimes, language=language) | {
        "parameter": "concurrency",
        "points": [
            _point(point)
            | {"regime": regimes.of(point.concurrency)}
            | ({} if objectives is None else {"missed": list(objectives.missed(point))})
            for point in points
        ],
    }


def refusal_json(result: FitResult, *, language: Language) -> dict[str, Any]:
    """Why there is no speed: the engine would not start."""
    refusal = result.plan.refusal
    assert refusal is not None
    return {
        **subject_json(result, SCHEMA_VERSION),
        "reason": refusal_text(refusal, language),
        "cause": refusal.cause,
    }


def schema_text() -> str:
    """The JSON schema of all three objects, as text."""
    return files("tokenroom.reports").joinpath("data/speed.schema.json").read_text("utf-8")


def subject_json(result: FitResult, schema_version: str) -> dict[str, Any]:
    """What an answer is about, as every object of it begins."""
    deployment = result.deployment
    accelerator = deployment.node.accelerator
    return {
        "schema_version": schema_version,
        "verdict": "does_not_fit" if result.plan.refusal is not None else "fits",
        "engine": {"name": deployment.engine, "version": deployment.version},
        "model": {"name": deployment.spec.name, "quantization": deployment.spec.quantization},
        "hardware": {
            "accelerator": accelerator.key,
            "name": accelerator.name,
            "count": deployment.node.count,
        },
    }


def _point(result: ServingSpeed) -> dict[str, Any]:
    cost = result.usd_per_million_output_tokens

    def further(figures: Range) -> dict[str, float] | None:
        return _range(figures) if result.has_further_tokens else None

    return {
        "concurrency": result.concurrency,
        "requests_running": result.requests_running,
        "requests_waiting": result.requests_waiting,
        "ttft_seconds": _range(result.ttft_seconds),
        "tpot_seconds": further(result.tpot_seconds),
        "tokens_per_second_per_user": further(result.tokens_per_second_per_user),
        "output_tokens_per_second_per_gpu": _range(result.output_tokens_per_second_per_gpu),
        "output_tokens_per_second": _range(result.output_tokens_per_second),
        "requests_per_second": _range(result.requests_per_second),
        "usd_per_million_output_tokens": None if cost is None else _range(cost),
    }


def _seconds(parts: TokenParts | FirstParts) -> dict[str, float]:
    return {f"{name}_seconds": seconds for name, seconds in parts._asdict().items()}


def _speculation(drafting: Drafting | None) -> dict[str, Any] | None:
    if drafting is None:
        return None
    rate = drafting.acceptance
    return {
        "method": drafting.method,
        "drafted_tokens": drafting.depth,
        "verified_rows": drafting.verified,
        "branches": drafting.branches,
        "acceptance_rate": {"value": rate.rate, "low": rate.low, "high": rate.high},
        "tokens_per_step": _range(Range(*drafting.tokens_per_step)),
        "source": rate.source or None,
    }


def _limits(limits: LoadLimits) -> dict[str, Any]:
    return {
        "tpot_seconds": limits.objectives.tpot_seconds,
        "ttft_seconds": limits.objectives.ttft_seconds,
        "met": limits.met,
        "load": _largest(limits.load),
        "batch": None if limits.batch is None else _largest(limits.batch),
        "bursts": [
            {"prompts": burst.prompts, "ttft_seconds": _range(burst.ttft_seconds)}
            for burst in limits.bursts
        ],
        "unmet": [
            {
                "objective": unmet.objective,
                "alone_seconds": _range(unmet.alone_seconds),
                "floor_seconds": unmet.floor.seconds,
                "floor_by": unmet.floor.limiter,
                "floor_bytes": unmet.floor.num_bytes,
                "floor_flops": unmet.floor.flops,
                "drafts": None if unmet.drafts is None else unmet.drafts._asdict(),
            }
            for unmet in limits.unmet
        ],
    }


def _largest(largest: Largest) -> dict[str, Any]:
    return {
        "concurrency": largest.concurrency,
        "cautious": largest.cautious,
        "hopeful": largest.hopeful,
        "binds": list(largest.binds),
        "bound_by": largest.bound_by,
    }


def _beyond(step: str, ledger: StepLedger) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "operator": line.name,
            "extent": out.extent,
            "value": out.value,
            "limit": out.limit,
            "widening": out.widening,
        }
        for line in ledger.lines
        for out in line.beyond
    ]


def _range(figures: Range) -> dict[str, float]:
    return figures._asdict()


def _step(ledger: StepLedger, explain: bool) -> dict[str, Any]:
    work = ledger.time.work
    data: dict[str, Any] = {
        "seconds": ledger.time.seconds,
        "prompt_tokens": work.prefill_tokens,
        "decoding_requests": work.decode_sequences,
        "limiter": ledger.limiter,
        "shares": dict(ledger.shares),
        "operators": [
            {"name": line.name, "share": line.share, "seconds": line.seconds}
            | (
                {
                    "flops": line.flops,
                    "bytes": line.num_bytes,
                    "message_bytes": line.message_bytes,
                    "limiter": line.limiter,
                    "sources": list(line.sources),
                }
                if explain
                else {}
            )
            for line in ledger.lines
        ],
    }
    return data
