"""What wants attention in what is seen, with a stated criterion for each.

An alert begins when its criterion is met, and ends when it is not; what is an event (a restart, a
preemption, a process that went) stays for :data:`EVENT_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tokenroom.units import GIB, MIB
from tokenroom.watching.observation import (
    Alert,
    Endpoint,
    Gpu,
    Help,
    Observation,
    Planned,
    Replica,
    Severity,
    Value,
)
from tokenroom.watching.trends import Series

EVENT_SECONDS: Final = 60.0
FULL_SHARE: Final = 0.95
"""From here on a warning about the KV pool is critical."""
POOL_TOLERANCE: Final = 0.05
PEAK_TOLERANCE: Final = 0.05
GAP_SHARE: Final = 0.2
GAP_BYTES: Final = GIB
LEAK_BYTES: Final = 64 * MIB
LEAK_SHARE: Final = 0.01
QUEUE_GROWTH: Final = 8
FREE_BYTES: Final = 256 * MIB
_GRAVITY: Final = {"critical": 0, "warning": 1, "notice": 2}

Helper = Callable[[Alert, Endpoint | None], tuple[Help, ...]]
"""What says what helps against an alert of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """From where on something is alarming.

    Attributes:
        waterline: Share of the KV pool, 0 to 1.
        leak_seconds: How long memory must have grown to be called a leak.
        queue_seconds: How long a queue must have grown.
    """

    waterline: float = 0.8
    leak_seconds: float = 600.0
    queue_seconds: float = 60.0


@dataclass(slots=True)
class _Event:
    """Something that happened, shown for a while."""

    severity: Severity
    until: float
    values: dict[str, Value] = field(default_factory=dict)


class AlertBook:
    """Keeps what is needed to say what is alarming.

    Args:
        settings: From where on something is.
        helper: What says what helps; nothing by default.
    """

    def __init__(self, settings: AlertSettings, helper: Helper | None = None) -> None:
        self._settings = settings
        self._helper = helper
        self._open: dict[tuple[str, str], Alert] = {}
        self._events: dict[tuple[str, str], _Event] = {}
        self._series: dict[tuple[str, str], Series] = {}
        self._restarts: dict[str, int] = {}
        self._processes: dict[str, dict[int, str | None]] = {}
        self._touched: set[tuple[str, str]] = set()

    def take(self, seen: Observation) -> Observation:
        """The observation with its alerts."""
        self._touched = set()
        found = [
            *(alert for one in seen.endpoints for alert in self._of_endpoint(one, seen.time)),
            *(alert for gpu in seen.gpus for alert in self._of_gpu(gpu, seen)),
        ]
        found += self._of_events(seen.time)
        self._series = {key: self._series[key] for key in self._touched}
        by_url = {endpoint.url: endpoint for endpoint in seen.endpoints}
        kept: dict[tuple[str, str], Alert] = {}
        for alert in found:
            key = (alert.key, alert.subject)
            before = self._open.get(key)
            if before is not None:
                alert = replace(alert, since=before.since, helps=before.helps)
            elif self._helper is not None:
                endpoint = by_url.get(alert.subject.partition("#")[0])
                alert = replace(alert, helps=self._helper(alert, endpoint))
            kept[key] = alert
        self._open = kept
        ordered = sorted(kept.values(), key=lambda one: (_GRAVITY[one.severity], one.since))
        return replace(seen, alerts=tuple(ordered))

    def _of_endpoint(self, endpoint: Endpoint, now: float) -> Iterator[Alert]:
        def alert(key: str, severity: Severity, **values: Value) -> Alert:
            return Alert(key=key, severity=severity, subject=endpoint.url, since=now, values=values)

        if endpoint.status == "down":
            yield alert("endpoint_down", "critical", error=endpoint.error)
            return
        known = self._restarts.get(endpoint.url, 0)
        if endpoint.restarts > known:
            self._happened(
                "restarted", endpoint.url, "warning", now, {"restarts": endpoint.restarts}
            )
        self._restarts[endpoint.url] = endpoint.restarts
        yield from self._of_pool(endpoint, now)
        for replica in endpoint.replicas:
            yield from self._of_replica(endpoint, replica, now)
        for torch in endpoint.torch:
            gap = torch.reserved_bytes - torch.allocated_bytes
            if gap >= GAP_BYTES and gap >= GAP_SHARE * torch.reserved_bytes:
                found = alert(
                    "torch_gap",
                    "warning",
                    gpu=torch.gpu,
                    gap_bytes=gap,
                    reserved_bytes=torch.reserved_bytes,
                )
                yield replace(found, subject=f"{endpoint.url}#gpu{torch.gpu}")
        if endpoint.host_bytes is not None:
            yield from self._leak("host_leak", endpoint.url, endpoint.host_bytes, now, {})

    def _of_pool(self, endpoint: Endpoint, now: float) -> Iterator[Alert]:
        """Whether the pool is the one that was predicted."""
        facts, plan = endpoint.facts, endpoint.planned
        observed = facts.kv_pool_tokens if facts is not None else None
        if observed is None:
            of_replicas = [one.kv_pool_tokens for one in endpoint.replicas if one.kv_pool_tokens]
            observed = max(of_replicas, default=None)
        if observed is None or plan is None or not plan.starts or not plan.kv_pool_tokens:
            return
        off = observed / plan.kv_pool_tokens - 1
        inside = plan.kv_pool_tokens_low <= observed <= plan.kv_pool_tokens_high
        if abs(off) > POOL_TOLERANCE and not inside:
            yield Alert(
                key="pool_smaller" if off < 0 else "pool_larger",
                severity="warning" if off < 0 else "notice",
                subject=endpoint.url,
                since=now,
                values={"observed": observed, "predicted": plan.kv_pool_tokens, "off": abs(off)},
            )

    def _of_replica(self, endpoint: Endpoint, replica: Replica, now: float) -> Iterator[Alert]:
        subject = endpoint.url + (f"#{replica.rank}" if replica.rank is not None else "")

        def alert(key: str, severity: Severity, **values: Value) -> Alert:
            return Alert(key=key, severity=severity, subject=subject, since=now, values=values)

        share = replica.kv_share
        if share is not None and share >= self._settings.waterline:
            severity: Severity = "critical" if share >= FULL_SHARE else "warning"
            yield alert("kv_high", severity, share=share, waterline=self._settings.waterline)
        if replica.preemptions:
            self._happened(
                "preempting", subject, "warning", now, {"count": replica.preemptions}, adding=True
            )
        weights, used = _kv_against_weights(endpoint, replica)
        if weights and used is not None and used > weights:
            yield alert("kv_above_weights", "notice", kv_bytes=used, weights_bytes=weights)
        if replica.waiting is not None:
            series = self._of_series("queue_growing", subject, self._settings.queue_seconds)
            series.add(now, replica.waiting)
            trend = series.growing(QUEUE_GROWTH)
            if trend is not None:
                yield alert(
                    "queue_growing",
                    "warning",
                    waiting=replica.waiting,
                    growth=round(trend.growth),
                    seconds=round(trend.seconds),
                    kv_share=share,
                )

    def _of_gpu(self, gpu: Gpu, seen: Observation) -> Iterator[Alert]:
        subject, now = f"gpu:{gpu.index}", seen.time
        if gpu.mig:  # its instances hold the memory
            return
        if gpu.free_bytes < FREE_BYTES:
            yield Alert(
                key="gpu_full",
                severity="warning",
                subject=subject,
                since=now,
                values={"free_bytes": gpu.free_bytes},
            )
        plan = _only_plan(seen)
        if plan is not None and gpu.used_bytes > (1 + PEAK_TOLERANCE) * plan.peak_bytes:
            yield Alert(
                key="above_plan",
                severity="warning",
                subject=subject,
                since=now,
                values={"used_bytes": gpu.used_bytes, "planned_bytes": plan.peak_bytes},
            )
        if gpu.processes is not None:
            self._gone(gpu, now)
        told = [one for one in gpu.processes or () if one.used_bytes is not None]
        for one in told:
            values: dict[str, Value] = {"pid": one.pid, "name": one.name}
            yield from self._leak(
                "gpu_leak", f"{subject}/{one.pid}", one.used_bytes or 0, now, values
            )
        if not told:
            yield from self._leak("gpu_growing", subject, gpu.used_bytes, now, {})

    def _gone(self, gpu: Gpu, now: float) -> None:
        """Take note of processes that were on a GPU and are not any more."""
        present = {one.pid: one.name for one in gpu.processes or ()}
        for pid, name in self._processes.get(gpu.uuid, {}).items():
            if pid not in present:
                self._happened(
                    "process_vanished",
                    f"gpu:{gpu.index}/{pid}",
                    "critical",
                    now,
                    {"pid": pid, "name": name},
                )
        self._processes[gpu.uuid] = present

    def _leak(
        self,
        key: str,
        subject: str,
        held_bytes: int,
        now: float,
        values: dict[str, Value],
    ) -> Iterator[Alert]:
        kept = self._of_series(key, subject, self._settings.leak_seconds)
        kept.add(now, held_bytes)
        trend = kept.growing(max(LEAK_BYTES, LEAK_SHARE * held_bytes))
        if trend is not None:
            yield Alert(
                key=key,
                severity="warning",
                subject=subject,
                since=now,
                values={
                    **values,
                    "growth_bytes": round(trend.growth),
                    "seconds": round(trend.seconds),
                    "held_bytes": held_bytes,
                },
            )

    def _of_series(self, key: str, subject: str, seconds: float) -> Series:
        self._touched.add((key, subject))
        return self._series.setdefault((key, subject), Series(seconds))

    def _happened(
        self,
        key: str,
        subject: str,
        severity: Severity,
        now: float,
        values: dict[str, Value],
        *,
        adding: bool = False,
    ) -> None:
        before = self._events.get((key, subject))
        if adding and before is not None:
            values = {
                name: value + old
                if isinstance(value, int) and isinstance(old := before.values.get(name), int)
                else value
                for name, value in values.items()
            }
        self._events[key, subject] = _Event(
            severity=severity, until=now + EVENT_SECONDS, values=values
        )

    def _of_events(self, now: float) -> list[Alert]:
        self._events = {key: event for key, event in self._events.items() if event.until > now}
        return [
            Alert(key=key, severity=event.severity, subject=subject, since=now, values=event.values)
            for (key, subject), event in self._events.items()
        ]


def _kv_against_weights(endpoint: Endpoint, replica: Replica) -> tuple[int | None, int | None]:
    """Bytes of the weights on a GPU, and of the KV pool's part that is in use."""
    facts, plan = endpoint.facts, endpoint.planned
    weights = facts.weights_bytes if facts is not None else None
    pool = facts.kv_bytes if facts is not None else None
    if plan is not None:
        weights = weights or plan.weights_bytes
        pool = pool or plan.kv_pool_bytes
    if pool is None or replica.kv_share is None:
        return weights, None
    return weights, round(replica.kv_share * pool)


def _only_plan(seen: Observation) -> Planned | None:
    """The prediction, where one server alone is on the GPUs that are seen."""
    plans = [endpoint.planned for endpoint in seen.endpoints]
    return plans[0] if len(plans) == 1 and seen.gpus else None
