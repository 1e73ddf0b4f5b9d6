"""The KV pool: too small for a request or for the load, or taken in advance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase
from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import Sighting

_LOW_SHARE: Final = 0.5
"""Below it ``--mem-fraction-static`` was hardly meant."""

_MANY_GRAPHS_GIB: Final = 5.0
"""Graphs of ordinary deployments take 0.3 to 2 GiB."""

_HIGH_SHARE: Final = 0.88
"""From it on there is little more to give: SGLang takes 0.8 to 0.9 by itself."""

_FULL_PCT: Final = 95.0


class PoolBelowOneRequest:
    """The engine says that one request of the longest length finds no room, and does not start."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """VLLM's check at start-up (v1/core/kv_cache_utils.py ``check_enough_kv_cache_memory``)."""
        found = report.of("vllm_kv_below_length")
        if found:
            pool = report.of("vllm_pool")
            yield Finding(
                cause=CauseName.KV_POOL_TOO_SMALL,
                phase=Phase.KV_INIT,
                weight=0.97,
                evidence=(*pool[-1:], found[0]),
                reason="pool_below_length",
                values=_told_of_gpu(report) | found[0].values,
            )


def _told_of_gpu(report: Report) -> dict[str, str]:
    """The GPU's memory and the engine's share of it, where the log has them."""
    facts = report.facts
    found = {
        "total": facts.reported().get("total_gpu_gib"),
        "share": facts.flags.get("gpu_memory_utilization"),
    }
    return {name: str(value) for name, value in found.items() if value is not None}


class NothingLeft:
    """Weights, activations and graphs leave nothing of the engine's share for the cache."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """VLLM's check (v1/core/kv_cache_utils.py); which of them is told by its own figures."""
        found = report.of("vllm_no_blocks")
        if not found:
            return
        told = report.facts.reported()
        weights, budget = told.get("weights_gib"), told.get("budget_gib")
        left, graphs = told.get("kv_gib"), told.get("graph_estimated_gib", 0.0)
        if weights is not None and budget is not None and weights >= budget:
            yield Finding(
                cause=CauseName.WEIGHTS_TOO_BIG,
                phase=Phase.KV_INIT,
                weight=0.93,
                evidence=(found[0],),
                reason="weights_over_budget",
                values={"weights": f"{weights:g}", "budget": f"{budget:g}"},
            )
        if graphs >= _MANY_GRAPHS_GIB or (graphs > 0 and left is not None and left + graphs > 0):
            yield Finding(
                cause=CauseName.CUDA_GRAPHS,
                phase=Phase.KV_INIT,
                weight=0.94,
                evidence=(*report.of("vllm_graph_estimate")[-1:], found[0]),
                reason="graphs_reserved",
                values={"graphs": f"{graphs:g}"},
            )
        activation = told.get("activation_gib", 0.0)
        if left is not None and left <= 0 < left + activation:
            most = budget is not None and activation >= budget / 2
            encoder = report.of("encoder_budget")
            yield Finding(
                cause=CauseName.ENCODER_BUDGET if most and encoder else CauseName.ACTIVATION_PEAK,
                phase=Phase.KV_INIT,
                weight=0.93 if most else 0.6,
                evidence=(*(encoder[-1:] if most else ()), found[0]),
                reason="activations_over_rest",
                values={"activation": f"{activation:g}"},
            )
        yield Finding(
            cause=CauseName.KV_POOL_TOO_SMALL,
            phase=Phase.KV_INIT,
            weight=0.9,
            evidence=(found[0],),
            reason="no_blocks",
            values=_told_of_gpu(report) | ({} if left is None else {"missing": f"{-left:g}"}),
        )


class RequestNeverAdmitted:
    """A request waits for ever, since the pool is smaller than it may become."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The pool holds less than the longest request, and requests wait with none running."""
        idle = [
            found
            for found in report.of("vllm_stats")
            if found.number("running") == 0 and (found.number("waiting") or 0) > 0
        ]
        pool = [found for found in report.of("vllm_pool") if "tokens" in found.values]
        lengths = [found for found in report.of("vllm_length") if found.number("length")]
        if not idle or not pool or not lengths:
            return
        tokens, length = pool[-1].number("tokens") or 0, lengths[-1].number("length") or 0
        if tokens < length:
            yield Finding(
                cause=CauseName.KV_POOL_TOO_SMALL,
                phase=Phase.RUNTIME,
                weight=0.92,
                evidence=(lengths[-1], pool[-1], idle[0]),
                reason="never_admitted",
                values={"tokens": round(tokens), "length": round(length)},
            )


class Preemptions:
    """Running requests lose their blocks to others: the pool is too small for the load."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """VLLM preempts, SGLang retracts."""
        found = report.of("preempted", "sglang_retract", "vllm_no_swap")
        if not found:
            return
        counts = [found_one.number("count") or found_one.number("plain") for found_one in found]
        known = [count for count in counts if count is not None]
        yield Finding(
            cause=CauseName.KV_POOL_TOO_SMALL,
            phase=Phase.DECODE,
            weight=0.9,
            evidence=(found[0], *found[-1:][found[0] is found[-1] :]),
            reason="preemptions",
            values={"count": round(max(known)) if known else report.counts["preempted"]},
        )


class PoolFull:
    """The pool was full while requests waited."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """Nothing failed; the statistics say it."""
        full = [
            found
            for found in report.of("vllm_stats")
            if (found.number("usage") or 0) >= _FULL_PCT and (found.number("waiting") or 0) > 0
        ]
        if full:
            yield Finding(
                cause=CauseName.KV_POOL_TOO_SMALL,
                phase=Phase.DECODE,
                weight=0.6,
                evidence=(full[0],),
                reason="pool_full",
            )


class SglangStatic:
    """SGLang's static share leaves nothing for the pool, or its pool ran out in a step."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """srt/model_executor/model_runner.py ``init_memory_pool``; mem_cache allocation errors."""
        for found in report.of("sglang_not_enough")[:1]:
            share = found.number("share")
            if share is None and isinstance(
                told := report.facts.flags.get("mem_fraction_static"), int | float
            ):
                share = float(told)
            values = {"of": ""} if share is None else {"of": f" ({share:g})", "share": f"{share:g}"}
            printed = report.facts.reported()
            total = printed.get("avail_before_weights_gib")
            left = printed.get("avail_after_weights_gib")
            if share is not None and total and left is not None:
                # model_runner.py profile_max_num_token: what the share leaves unused of the rest
                values |= {"total": f"{total:g}", "missing": f"{total * (1 - share) - left:.2f}"}
            low = share is not None and share < _LOW_SHARE
            if share is not None and share >= _HIGH_SHARE:
                yield Finding(
                    cause=CauseName.WEIGHTS_TOO_BIG,
                    phase=Phase.KV_INIT,
                    weight=0.85,
                    evidence=(found,),
                    reason="static_share",
                    values=values,
                )
            yield Finding(
                cause=CauseName.MISCONFIGURATION if low else CauseName.KV_POOL_TOO_SMALL,
                phase=Phase.KV_INIT,
                weight=0.92 if low else 0.8,
                evidence=(found,),
                reason="static_share_low" if low else "static_share",
                values=values,
            )
        for found in report.of("sglang_oom")[:1]:
            if "phase" in found.values:
                phase = found.values["phase"].lower()
                yield Finding(
                    cause=CauseName.KV_POOL_TOO_SMALL,
                    phase=Phase(phase),
                    weight=0.85,
                    evidence=(found,),
                    reason="no_tokens_left",
                )


class HiddenOutOfMemory:
    """PyTorch ran out of memory where it cannot ask NVML how much there is, as in a MIG slice."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """c10/cuda/CUDACachingAllocator.cpp asks NVML when it words an out-of-memory error."""
        for found in report.of("nvml_assert")[:1]:
            evidence: tuple[Sighting, ...] = (found, *report.of("mig")[:1])
            for cause, weight in (
                (CauseName.KV_PREALLOCATION, 0.6),
                (CauseName.MISCONFIGURATION, 0.5),
            ):
                yield Finding(
                    cause=cause,
                    phase=Phase.RUNTIME,
                    weight=weight,
                    evidence=evidence,
                    reason="hidden_oom",
                )


CAUSES: Final[tuple[Cause, ...]] = (
    PoolBelowOneRequest(),
    NothingLeft(),
    RequestNeverAdmitted(),
    Preemptions(),
    PoolFull(),
    SglangStatic(),
    HiddenOutOfMemory(),
)
