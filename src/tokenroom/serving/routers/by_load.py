"""Routers that look at what targets have to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tokenroom.serving.request import Request
from tokenroom.serving.routers.router import Target

_PUBLISHED_EVERY_SECONDS: Final = 0.1


class LeastLoad:
    """The target with the least ``waiting_weight * waiting + running``.

    vLLM counted so with a weight of 4 up to 0.26 (``get_core_engine_for_request`` of
    ``vllm/v1/engine/core_client.py``). Of equals, each is first in turn.

    Args:
        waiting_weight: Running requests that one waiting request counts for.
    """

    __slots__ = ("_first", "_waiting_weight")

    looks_at_load = True

    def __init__(self, waiting_weight: float) -> None:
        self._waiting_weight = waiting_weight
        self._first = 0

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The least loaded one."""
        weight = self._waiting_weight
        self._first += 1
        return least(
            targets, self._first - 1, lambda one: weight * one.num_waiting + one.num_running
        )

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Nothing: loads are read when they are needed."""


class PowerOfTwo:
    """The less loaded of two targets that are drawn.

    Source: ``power_of_two.rs`` of sgl-project/sglang's router, which counts the requests it sent
    that have not ended; Mitzenmacher, "The power of two choices in randomized load balancing",
    IEEE TPDS 12(10), 2001.

    Args:
        seed: Of the draws.
    """

    __slots__ = ("_draws",)

    looks_at_load = True

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The better of two."""
        count = len(targets)
        first = int(self._draws.random() * count)
        if count == 1:
            return first
        second = (first + 1 + int(self._draws.random() * (count - 1))) % count
        return second if targets[second].in_flight < targets[first].in_flight else first

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Nothing: it counts what it sent."""


class VllmBalancer:
    """What chooses among the data-parallel ranks of a vLLM server.

    Ranks tell a coordinator how many requests run and wait there, and it tells front ends, at most
    every 100 ms (``vllm/v1/engine/coordinator.py``); here at the end of the first step after that.
    Meanwhile the front end counts what it sends as waiting. Up to 0.26 the least
    ``4 * waiting + running`` is chosen. From 0.27 on the score is ``waiting + running``, or the
    requests in flight if they are more; those that wait count up to three times more, the fuller
    the KV pool is beyond a half. Source: ``get_core_engine_for_request`` of
    ``vllm/v1/engine/core_client.py``, 0.26 and 0.32, with one front end.

    Args:
        counts_in_flight: It is 0.27 or later.
    """

    __slots__ = ("_counts", "_counts_in_flight", "_first", "_told_at", "_untold")

    looks_at_load = True

    def __init__(self, *, counts_in_flight: bool) -> None:
        self._counts_in_flight = counts_in_flight
        self._counts: list[list[float]] = []
        self._first = 0
        self._told_at = 0.0
        self._untold = False

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The rank with the least score, by what it is told of."""
        if not self._counts:
            self._counts = [[0, 0, 0.0] for _ in targets]
        if self._untold:
            self.stepped(targets, now)
        chosen = least(targets, self._first, self._score)
        self._counts[chosen][0] += 1
        if self._counts_in_flight:
            self._first += 1
        return chosen

    def _score(self, target: Target) -> float:
        waiting, running, used = self._counts[target.number]
        if not self._counts_in_flight:
            return 4 * waiting + running
        score = max(float(target.in_flight), waiting + running)
        return score + waiting * 6.0 * max(0.0, used - 0.5)

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Hear the ranks' counts, if enough time has passed."""
        self._untold = now - self._told_at < _PUBLISHED_EVERY_SECONDS
        if not self._untold:
            self._told_at = now
            self._counts = [[one.num_waiting, one.num_running, one.used_share] for one in targets]


def least(targets: Sequence[Target], first: int, score: Callable[[Target], float]) -> int:
    """The place of the target with the least score; of equals, the next one from ``first`` on."""
    count = len(targets)
    return min(((first + step) % count for step in range(count)), key=lambda at: score(targets[at]))
