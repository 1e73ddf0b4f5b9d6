"""The answer of ``simulate`` as a JSON object, whose schema is published beside this module.

The schema (``data/simulation.schema.json``, printed by ``tokenroom simulate --json-schema``) is
versioned by ``schema_version``: a new key raises the minor number, a changed or dropped one the
major number. Times are seconds, lengths tokens, prices USD.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

from tokenroom.fitting import FitResult
from tokenroom.reports.messages import Language, refusal_text
from tokenroom.reports.simulation_text import LATENCIES, simulation_warnings
from tokenroom.reports.speed_json import subject_json
from tokenroom.serving.metrics import ServingMetrics
from tokenroom.serving.run import PoolOutcome, Simulation

SCHEMA_VERSION: Final = "1.0"


def simulation_json(done: Simulation, workload: str, language: Language) -> dict[str, Any]:
    """What became of a workload."""
    metrics, engine = done.metrics, done.engine
    blocks = engine.usable_blocks
    return {
        **subject_json(done.fit, SCHEMA_VERSION),
        "scheduler": {
            "kv_blocks": blocks,
            "kv_pool_tokens": done.pool_tokens,
            "max_model_len": engine.max_model_len,
            "finds_prefixes": engine.finds_prefixes,
            "settings": dict(engine.settings),
        },
        "workload": workload,
        "interrupted": done.interrupted,
        "falls_behind": done.falls_behind,
        "requests": {
            "arrived": done.arrived,
            "served": metrics.requests,
            "refused": {str(why): count for why, count in done.refusals.items()},
            "unfinished": done.unfinished,
        },
        "duration_seconds": metrics.duration_seconds,
        "busy_seconds": metrics.busy_seconds,
        "steps": metrics.steps,
        "latency": {name: asdict(getattr(metrics, name)) for name in LATENCIES},
        "throughput": {
            "requests_per_second": metrics.requests_per_second,
            "output_tokens_per_second": metrics.output_tokens_per_second,
            "total_tokens_per_second": metrics.total_tokens_per_second,
        },
        "goodput": None
        if done.limits is None
        else {
            "ttft_seconds": done.limits.ttft_seconds,
            "tpot_seconds": done.limits.tpot_seconds,
            "requests": metrics.within_limits,
            "share": metrics.goodput_share,
            "requests_per_second": metrics.goodput_per_second,
        },
        "tokens": _tokens(metrics),
        "prefix_hit_rate": done.prefix_hit_rate,
        "running": {"mean": metrics.mean_running, "max": metrics.max_running},
        "waiting": {"mean": metrics.mean_waiting, "max": metrics.max_waiting},
        "kv_pool_usage": {
            "mean": metrics.mean_used_blocks / blocks,
            "max": metrics.max_used_blocks / blocks,
        },
        "preemptions": metrics.preemptions,
        "pools": [_pool(pool) for pool in done.pools],
        "gpu_hours": done.gpu_hours,
        "usd": done.usd,
        "usd_per_million_output_tokens": done.usd_per_million_output_tokens,
        "timeline": [
            {
                "start_seconds": point.start_seconds,
                "busy_seconds": point.seconds,
                "running": point.running,
                "waiting": point.waiting,
                "kv_pool_usage": point.used_blocks / blocks,
                "tokens": point.tokens,
            }
            for point in metrics.timeline
        ],
        "warnings": simulation_warnings(done, language),
    }


def _pool(found: PoolOutcome) -> dict[str, Any]:
    pool, metrics = found.pool, found.metrics
    blocks = pool.engine.usable_blocks
    return {
        "name": pool.name,
        "role": str(pool.role),
        "model": pool.fit.deployment.spec.name,
        "gpu": pool.fit.deployment.node.accelerator.name,
        "gpus": pool.gpus,
        "copies": pool.copies.count,
        "replicas": pool.replicas,
        "most_replicas": found.most_replicas,
        "requests": {"served": metrics.requests, "refused": metrics.refused},
        "latency": {name: asdict(getattr(metrics, name)) for name in LATENCIES},
        "tokens": _tokens(metrics),
        "steps": metrics.steps,
        "busy_share": found.busy_share,
        "running": {"mean": metrics.mean_running, "max": metrics.max_running},
        "waiting": {"mean": metrics.mean_waiting, "max": metrics.max_waiting},
        "kv_pool_usage": {
            "mean": metrics.mean_used_blocks / blocks,
            "max": metrics.max_used_blocks / blocks,
        },
        "preemptions": metrics.preemptions,
        "gpu_hours": found.gpu_hours,
        "usd": found.usd,
    }


def _tokens(metrics: ServingMetrics) -> dict[str, int]:
    return {
        "prompt": metrics.prompt_tokens,
        "output": metrics.output_tokens,
        "cached": metrics.cached_tokens,
        "computed": metrics.computed_tokens,
    }


def refusal_json(result: FitResult, language: Language) -> dict[str, Any]:
    """Why nothing is served: the engine would not start."""
    refusal = result.plan.refusal
    assert refusal is not None
    return {
        **subject_json(result, SCHEMA_VERSION),
        "reason": refusal_text(refusal, language),
        "cause": refusal.cause,
    }


def schema_text() -> str:
    """The JSON schema of both objects, as text."""
    return files("tokenroom.reports").joinpath("data/simulation.schema.json").read_text("utf-8")
