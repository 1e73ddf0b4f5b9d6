"""The answer of ``plan`` as a JSON object, whose schema is published beside this module.

The schema (``data/plan.schema.json``, printed by ``tokenroom plan --json-schema``) is versioned by
``schema_version``: a new key raises the minor number, a changed or dropped one the major number.
Times are seconds, lengths tokens, prices USD.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.judging import Proposal, Rejection
from tokenroom.planning.quality import quality_notes
from tokenroom.planning.search import Option, Plan
from tokenroom.reports.messages import Language
from tokenroom.reports.plan_files import container_of, start_text
from tokenroom.reports.plan_text import deployment_text, option_lines, quality_text, reason_text

SCHEMA_VERSION: Final = "1.1"


def plan_json(plan: Plan, language: Language) -> dict[str, Any]:
    """What was found; sentences in ``language``, keys always the same."""
    return {
        "schema_version": SCHEMA_VERSION,
        "demand": _demand(plan.demand),
        "complete": plan.complete,
        "candidates": len(plan.candidates),
        "judged": plan.judged,
        "deployments": {
            "judged": plan.counts.judged,
            "ruled_out_by_bounds": plan.counts.skipped,
        },
        "plans": [
            _option(option, number, plan.demand, language)
            for number, option in enumerate(plan.options, start=1)
        ],
        "untried": [_proposal(proposal, language) for proposal in plan.untried],
        "rejected": [_rejection(found, plan.demand, language) for found in plan.rejections],
    }


def schema_text() -> str:
    """The JSON schema, as text."""
    return files("tokenroom.reports").joinpath("data/plan.schema.json").read_text("utf-8")


def _demand(demand: Demand) -> dict[str, Any]:
    return {
        "users": demand.users,
        "think_seconds": demand.think_seconds,
        "requests_per_second": demand.requests_per_second,
        "burst": demand.burst,
        "input_tokens": demand.input_tokens,
        "output_tokens": demand.output_tokens,
        "longest_tokens": demand.longest_tokens,
        "ttft_seconds": demand.objectives.ttft_seconds,
        "tpot_seconds": demand.objectives.tpot_seconds,
        "statistic": demand.statistic,
    }


def _candidate(candidate: Candidate, language: Language, replicas: int = 1) -> dict[str, Any]:
    tuning = candidate.tuning
    return {
        "name": deployment_text(candidate, language, replicas),
        "model": candidate.spec.name,
        "engine": candidate.engine,
        "accelerator": candidate.accelerator.key,
        "tensor_parallel_size": candidate.tensor_parallel_size,
        "pipeline_parallel_size": candidate.pipeline_parallel_size,
        "data_parallel_size": candidate.data_parallel_size,
        "expert_parallel": candidate.expert_parallel,
        "kv_cache_dtype": candidate.kv,
        "max_num_batched_tokens": tuning.max_num_batched_tokens,
        "max_num_seqs": tuning.max_num_seqs,
        "memory_share": tuning.memory_share,
        "prefix_caching": tuning.prefix_caching,
        "kv_offload_bytes": tuning.kv_offload_bytes,
        "max_model_len": tuning.max_model_len,
        "draft": None if tuning.draft is None else asdict(tuning.draft),
        "quality": [quality_text(note, language) for note in quality_notes(candidate)],
        "split": None if candidate.split is None else asdict(candidate.split),
        "gpus_per_replica": candidate.gpus,
    }


def _proposal(proposal: Proposal, language: Language) -> dict[str, Any]:
    point = proposal.point
    return {
        **_candidate(proposal.candidate, language, proposal.replicas),
        "replicas": proposal.replicas,
        "gpus": proposal.gpus,
        "usd_per_hour": proposal.usd_per_hour,
        "headroom": proposal.headroom,
        "concurrency": point.concurrency,
        "concurrency_at_most": proposal.most.concurrency,
        "mean_ttft_seconds": point.ttft_seconds.value,
        "mean_tpot_seconds": point.tpot_seconds.value,
        "output_tokens_per_second": proposal.output_tokens_per_second,
        "kv_pool_tokens": proposal.fit.plan.kv_pool_tokens,
        "limiter": point.tpot_limiter,
        "limiter_shares": dict(point.tpot_shares),
        "extrapolated": proposal.is_extrapolated,
    }


def _option(option: Option, number: int, demand: Demand, language: Language) -> dict[str, Any]:
    proposal, seen = option.proposal, option.verification
    wrapped = container_of(option, number)
    return {
        **_proposal(proposal, language),
        "simulated": {
            "load_per_replica": seen.load,
            "requests": seen.requests,
            "ttft": asdict(seen.ttft),
            "tpot": asdict(seen.tpot),
            "running": {"mean": seen.running, "max": seen.max_running},
            "waiting": {"mean": seen.mean_waiting, "max": seen.max_waiting},
            "kv_pool_usage_max": seen.max_pool_share,
            "preemptions": seen.preemptions,
        },
        "remarks": list(option_lines(option, demand, language)),
        "launch": {
            "command": start_text(proposal),
            "docker": None if wrapped is None else wrapped.docker_text,
            "kubernetes": None if wrapped is None else wrapped.kubernetes_text(proposal.replicas),
        },
    }


def _rejection(rejection: Rejection, demand: Demand, language: Language) -> dict[str, Any]:
    return {
        **_candidate(rejection.candidate, language),
        "reason": rejection.reason,
        "text": reason_text(rejection, demand, language),
    }
