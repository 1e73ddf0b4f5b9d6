"""Requests that wait, in the order in which they are let in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

from tokenroom.serving.sequence import Sequence


class RequestQueue(Protocol):
    """Waiting requests: ``vllm/v1/core/sched/request_queue.py``, vLLM 0.32."""

    def __len__(self) -> int: ...

    def add(self, sequence: Sequence) -> None:
        """Queue a new request."""

    def put_back(self, sequence: Sequence) -> None:
        """Queue one that was preempted, before those that came later."""

    def first(self) -> Sequence:
        """The one that is next."""

    def pop(self) -> Sequence:
        """Take out the one that is next."""

    def remove(self, sequences: Iterable[Sequence]) -> None:
        """Take out these, wherever they stand."""


class FcfsQueue:
    """First come, first served; a preempted request is put at the front."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue at the end."""
        self._waiting.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """Queue at the front."""
        self._waiting.appendleft(sequence)

    def first(self) -> Sequence:
        """The one at the front."""
        return self._waiting[0]

    def pop(self) -> Sequence:
        """Take out the one at the front."""
        return self._waiting.popleft()

    def remove(self, sequences: Iterable[Sequence]) -> None:
        """Take out these; the others keep their order."""
        for sequence in sequences:
            self._waiting.remove(sequence)


class PriorityQueue:
    """The lowest priority number first, then the earliest arrival, then the first added."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int, Sequence]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, sequence: Sequence) -> None:
        """Queue by priority."""
        heappush(
            self._heap,
            (sequence.priority, sequence.arrival_seconds, sequence.order, sequence),
        )

    def put_back(self, sequence: Sequence) -> None:
        """Queue by priority: nothing comes before the more urgent."""
        self.add(sequence)

    def first(self) -> Sequence:
        """The most urgent."""
        return self._heap[0][-1]

    def pop(self) -> Sequence:
        """Take out the most urgent."""
        return heappop(self._heap)[-1]

    def remove(self, sequences: Iterable[Sequence]) -> None:
        """Take out these."""
        gone = set(sequences)
        self._heap = [entry for entry in self._heap if entry[-1] not in gone]
        heapify(self._heap)
