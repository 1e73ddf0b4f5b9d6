"""A replica over time: rates between two scrapes, latencies over a window, totals of the watch.

A counter that fell was set back by a new process, and then counts from 0, as Prometheus's ``rate``
takes it (promql/functions.go, ``extrapolatedRate``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from tokenroom.watching.histograms import Histogram, added, latency
from tokenroom.watching.observation import Latency, Replica, Totals
from tokenroom.watching.snapshots import HISTOGRAMS, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happened between two scrapes.

    Attributes:
        time: Of the later one, in seconds since the epoch.
        seconds: Between them.
        counters: How much each grew.
        histograms: What each took up.
    """

    time: float
    seconds: float
    counters: Mapping[str, float]
    histograms: Mapping[str, Histogram]


def step_between(before: Snapshot, after: Snapshot, *, seconds: float, time: float) -> Step:
    """What happened from one scrape to the next, restarts of the server allowed for."""
    return Step(
        time=time,
        seconds=seconds,
        counters={
            name: value - old if (old := before.counters.get(name, 0.0)) <= value else value
            for name, value in after.counters.items()
        },
        histograms={
            name: histogram.since(before.histograms.get(name))
            for name, histogram in after.histograms.items()
        },
    )


class ReplicaWindow:
    """What is kept of one replica.

    Args:
        window_seconds: Latencies and hit rates are of so long.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._last: tuple[float, Snapshot] | None = None
        self._steps: deque[Step] = deque()
        self._totals: dict[str, float] = {}

    def add(self, snapshot: Snapshot, time: float, *, restarted: bool = False) -> Replica:
        """Take up a scrape and say what is known with it.

        Args:
            snapshot: The scrape.
            time: When, in seconds since the epoch.
            restarted: The process is another one than at the scrape before.
        """
        step = None
        if self._last is not None and time > self._last[0]:
            before = self._last[1]
            if restarted:
                before = Snapshot(model=snapshot.model, rank=snapshot.rank)
            step = step_between(before, snapshot, seconds=time - self._last[0], time=time)
            self._steps.append(step)
            for name, grown in step.counters.items():
                self._totals[name] = self._totals.get(name, 0.0) + grown
        elif self._last is None:
            self._totals = dict.fromkeys(snapshot.counters, 0.0)
        self._last = (time, snapshot)
        while self._steps and self._steps[0].time <= time - self._window_seconds:
            self._steps.popleft()
        return self._replica(snapshot, step)

    def fell(self, snapshot: Snapshot) -> bool:
        """Whether a counter of a scrape is below what it was."""
        if self._last is None:
            return False
        before = self._last[1].counters
        return any(value < before.get(name, 0.0) for name, value in snapshot.counters.items())

    def _replica(self, snapshot: Snapshot, step: Step | None) -> Replica:
        def rate(name: str) -> float | None:
            if step is None or name not in step.counters:
                return None
            return step.counters[name] / step.seconds

        def total(name: str) -> int | None:
            value = self._totals.get(name)
            return None if value is None else round(value)

        latencies: dict[str, Latency | None] = {
            name: latency(
                added(one.histograms[name] for one in self._steps if name in one.histograms)
            )
            for name in HISTOGRAMS
        }
        preempted = None if step is None else step.counters.get("preemptions")
        used, pool = snapshot.kv_used_tokens, snapshot.kv_pool_tokens
        share = snapshot.kv_share
        if share is None and used is not None and pool:
            share = used / pool
        if used is None and share is not None and pool is not None:
            used = round(share * pool)
        return Replica(
            model=snapshot.model,
            rank=snapshot.rank,
            running=snapshot.running,
            waiting=snapshot.waiting,
            kv_share=share,
            kv_used_tokens=used,
            kv_pool_tokens=pool,
            prompt_tokens_per_second=rate("prompt_tokens"),
            generation_tokens_per_second=rate("generation_tokens"),
            requests_per_second=rate("requests"),
            preemptions=None if preempted is None else round(preempted),
            prefix_hit_share=self._hit_share(snapshot),
            ttft=latencies["ttft"],
            itl=latencies["itl"],
            tpot=latencies["tpot"],
            queue=latencies["queue"],
            e2e=latencies["e2e"],
            totals=Totals(
                prompt_tokens=total("prompt_tokens"),
                generation_tokens=total("generation_tokens"),
                requests=total("requests"),
                preemptions=total("preemptions"),
            ),
        )

    def _hit_share(self, snapshot: Snapshot) -> float | None:
        """The share of the window's prompts that was cached; the engine's own where it counts none.

        Where the engine counts and nothing was looked up in the window there is no share.
        """
        hits = sum(one.counters.get("prefix_hits", 0.0) for one in self._steps)
        queries = sum(
            one.counters["prefix_queries"]
            if "prefix_queries" in one.counters
            else _hits_and_misses(one.counters)
            for one in self._steps
        )
        counted = "prefix_hits" in snapshot.counters
        if counted:
            return min(1.0, hits / queries) if queries > 0 else None
        own = snapshot.prefix_hit_share
        return own if own is not None and 0 <= own <= 1 else None  # V0 has -1 for none


def _hits_and_misses(counters: Mapping[str, float]) -> float:
    """What was looked up in the prefix cache, of engines that count what was not found."""
    return counters.get("prefix_hits", 0.0) + counters.get("prefix_misses", 0.0)
