"""The figures of a served workload that deployments are compared by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from tokenroom.serving.run import Simulation

LATENCIES: Final = ("ttft", "tpot", "itl", "e2e")
STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")


class Unit(StrEnum):
    """What a figure counts, which says how it is written."""

    SECONDS = "seconds"
    RATE = "rate"
    SHARE = "share"
    COUNT = "count"
    USD = "usd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure.

    Attributes:
        key: Its name.
        unit: What it counts.
        better: Which of two is better; None where neither is by itself.
    """

    key: str
    unit: Unit
    better: Literal["lower", "higher"] | None = None


FIGURES: Final[tuple[Figure, ...]] = (
    *(
        Figure(key=f"{latency}_{statistic}_seconds", unit=Unit.SECONDS, better="lower")
        for latency in LATENCIES
        for statistic in STATISTICS
    ),
    Figure(key="queue_mean_seconds", unit=Unit.SECONDS, better="lower"),
    Figure(key="requests_per_second", unit=Unit.RATE, better="higher"),
    Figure(key="output_tokens_per_second", unit=Unit.RATE, better="higher"),
    Figure(key="goodput_per_second", unit=Unit.RATE, better="higher"),
    Figure(key="goodput_share", unit=Unit.SHARE, better="higher"),
    Figure(key="refused", unit=Unit.COUNT, better="lower"),
    Figure(key="preemptions", unit=Unit.COUNT, better="lower"),
    Figure(key="prefix_hit_rate", unit=Unit.SHARE, better="higher"),
    Figure(key="kv_pool_usage_mean", unit=Unit.SHARE),
    Figure(key="kv_pool_usage_max", unit=Unit.SHARE),
    Figure(key="running_mean", unit=Unit.COUNT),
    Figure(key="running_max", unit=Unit.COUNT),
    Figure(key="waiting_mean", unit=Unit.COUNT, better="lower"),
    Figure(key="gpu_hours", unit=Unit.COUNT, better="lower"),
    Figure(key="usd", unit=Unit.USD, better="lower"),
    Figure(key="usd_per_million_output_tokens", unit=Unit.USD, better="lower"),
)
"""All figures, in the order of reports."""
BY_KEY: Final = {figure.key: figure for figure in FIGURES}


def figures_of(done: Simulation) -> dict[str, float | None]:
    """The figures of one run by their names; None for what it does not have."""
    metrics = done.metrics
    blocks = done.engine.usable_blocks
    latencies = {
        f"{latency}_{statistic}_seconds": getattr(getattr(metrics, latency), f"{statistic}_seconds")
        for latency in LATENCIES
        for statistic in STATISTICS
    }
    return latencies | {
        "queue_mean_seconds": metrics.queue.mean_seconds,
        "requests_per_second": metrics.requests_per_second,
        "output_tokens_per_second": metrics.output_tokens_per_second,
        "goodput_per_second": metrics.goodput_per_second,
        "goodput_share": metrics.goodput_share,
        "refused": metrics.refused,
        "preemptions": metrics.preemptions,
        "prefix_hit_rate": done.prefix_hit_rate,
        "kv_pool_usage_mean": metrics.mean_used_blocks / blocks,
        "kv_pool_usage_max": metrics.max_used_blocks / blocks,
        "running_mean": metrics.mean_running,
        "running_max": metrics.max_running,
        "waiting_mean": metrics.mean_waiting,
        "gpu_hours": done.gpu_hours,
        "usd": done.usd,
        "usd_per_million_output_tokens": done.usd_per_million_output_tokens,
    }
