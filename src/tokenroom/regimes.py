"""Regimes of a load, found on its own curve of throughput against clients.

The elasticity of throughput, e = d log(throughput) / d log(clients), says what one percent more
clients brings. By Little's law throughput is clients over the time a request takes, so what does
not become throughput (1 - e) becomes that time: e / (1 - e) is the gain over the price. At e = 1/2
they are equal, where throughput over response time is largest: Kleinrock's power (L. Kleinrock,
"Power and deterministic rules of thumb for probabilistic problems in computer communications",
ICC 1979). Around that knee:

- latency: the gain is at least twice the price (e >= 2/3);
- balanced: within a factor of two (1/3 <= e < 2/3);
- throughput: less than half (e < 1/3), while all requests run;
- overload: requests wait, for room (KV pool, max_num_seqs) or for prompts that fill every step, and
  more clients bring waiting only.

The slope at a load is taken between 1/sqrt(2) and sqrt(2) times as many clients, within what runs
without waiting: one doubling, over which steps that hold whole chunks of prompts even out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor, log, sqrt
from typing import Final

from tokenroom.objectives import largest_that
from tokenroom.serving_speed import ServingSpeed

REGIMES: Final = ("latency", "balanced", "throughput", "overload")

_LATENCY: Final = 2 / 3
_BALANCED: Final = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Regimes:
    """Where each regime of a deployment and its requests ends, in clients.

    Attributes:
        latency: The last of the latency regime; 0 when already one client is beyond it.
        balanced: The last of the balanced one; as many as ``latency`` when there is none.
        throughput: The last before requests wait; as many as ``balanced`` when there is none.
    """

    latency: int
    balanced: int
    throughput: int

    def of(self, concurrency: int) -> str:
        """The regime of a load, one of :data:`REGIMES`."""
        ends = (self.latency, self.balanced, self.throughput)
        return next(
            (name for name, end in zip(REGIMES, ends, strict=False) if concurrency <= end),
            REGIMES[-1],
        )

    @property
    def spans(self) -> tuple[tuple[str, int, int | None], ...]:
        """Regimes that hold any load: name, first and last; overload has no last."""
        starts = (1, self.latency + 1, self.balanced + 1, self.throughput + 1)
        ends = (self.latency, self.balanced, self.throughput, None)
        return tuple(
            (name, start, end)
            for name, start, end in zip(REGIMES, starts, ends, strict=True)
            if end is None or end >= start
        )


def regimes_of(result: ServingSpeed) -> Regimes:
    """The regimes of a deployment and its requests, whatever its clients.

    A regime ends where the slope first falls below its bound; experts that few tokens share make it
    rise again in larger loads, which stay in the later regime.
    """
    result = replace(result, num_prompts=None)  # of a steady load, whatever was benchmarked

    @lru_cache(maxsize=256)
    def throughput(clients: int) -> float:
        return result.at(clients).output_tokens_per_second.value

    def steep(clients: int, least: float) -> bool:
        low, high = max(1, floor(clients / sqrt(2))), min(full, ceil(clients * sqrt(2)))
        if low == high:  # only one load runs without waiting
            return True
        return log(throughput(high) / throughput(low)) >= least * log(high / low)

    def end(least: float) -> int:
        before = 0
        for clients in (*(2**power for power in range(full.bit_length())), full):
            if not steep(clients, least):
                return largest_that(clients - 1, lambda count: steep(count, least), before)
            before = clients
        return full

    room = result.fit.requests_running
    unbound = largest_that(room, lambda clients: not result.at(clients).predicted.prompts_bound)
    full = max(1, unbound)
    return Regimes(latency=end(_LATENCY), balanced=end(_BALANCED), throughput=full)
