"""What happened in a run, small enough to be played back as a moving picture."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tokenroom.serving.record import RequestRecord, StepRecord

_FRAMES: Final = 2_000
_REQUESTS: Final = 2_000
_LATENCIES: Final = ("ttft", "tpot", "e2e")
_PERCENTS: Final = 100
_BEFORE_PEAK: Final = 2 / 3


class Frame(NamedTuple):
    """All engines together from one moment until the next frame.

    Attributes:
        seconds: The moment, from the start of the workload.
        waiting: Requests that waited.
        running: Requests that ran.
        used_blocks: KV blocks that were held.
    """

    seconds: float
    waiting: int
    running: int
    used_blocks: int


class Pause(NamedTuple):
    """A request out of the engine: when it lost its blocks, and when it ran again."""

    preempted_seconds: float
    resumed_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One request's way through the engine: its record, and the times it was sent out again."""

    record: RequestRecord
    pauses: tuple[Pause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """A run to be looked at.

    Attributes:
        frames: The engine over time, at most 2,000 of them.
        stays: Requests in the order in which they were first scheduled: all of them, or 2,000 that
            follow each other around the moment when the KV pool was fullest.
        left_out: Requests that are not among them.
        quantiles: Of each latency (``ttft``, ``tpot``, ``e2e``) the seconds that 0, 1, ..., 100%
            of the served requests do not exceed; none where there are none.
    """

    frames: tuple[Frame, ...]
    stays: tuple[Stay, ...]
    left_out: int
    quantiles: dict[str, tuple[float, ...]]


class PlaybackRecorder:
    """Takes in steps and requests as they end; what it holds grows with the requests."""

    __slots__ = (
        *("_engines", "_frames", "_latencies", "_now", "_out", "_pauses", "_peak", "_records"),
    )

    def __init__(self) -> None:
        self._frames = _Frames()
        self._engines: dict[tuple[int, int], StepRecord] = {}
        self._now = 0.0
        self._records: list[RequestRecord] = []
        self._latencies = {name: array("d") for name in _LATENCIES}
        self._pauses: defaultdict[int, list[Pause]] = defaultdict(list)
        self._out: dict[int, float] = {}
        self._peak = (-1, 0.0)

    def step(self, step: StepRecord) -> None:
        """Take in a step."""
        # steps of several engines come as they end, so that some begin before one that came earlier
        start = max(self._now, step.start_seconds)
        self._idle_until(start)
        self._engines[step.replica, step.rank] = step
        frame = self._frame(start)
        if frame.used_blocks > self._peak[0]:
            self._peak = (frame.used_blocks, start)
        for number in step.preempted_ids:
            self._out[number] = start
        for number in step.resumed_ids:
            self._pauses[number].append(Pause(self._out.pop(number, start), start))

    def _idle_until(self, seconds: float) -> None:
        """Note engines that have had nothing to do since their last step ended."""
        idle = [key for key, step in self._engines.items() if step.end_seconds < seconds]
        for key in sorted(idle, key=lambda key: self._engines[key].end_seconds):
            self._frame(max(self._now, self._engines.pop(key).end_seconds))

    def _frame(self, seconds: float) -> Frame:
        steps = self._engines.values()
        frame = Frame(
            seconds,
            sum(step.waiting for step in steps),
            sum(step.running for step in steps),
            sum(step.used_blocks for step in steps),
        )
        self._now = seconds
        self._frames.add(frame)
        return frame

    def request(self, record: RequestRecord) -> None:
        """Take in what became of a request."""
        self._records.append(record)
        if record.refused is not None:
            return
        for name, values in self._latencies.items():
            seconds = getattr(record, f"{name}_seconds")
            if seconds is not None:
                values.append(seconds)

    def result(self) -> Playback:
        """Everything taken in so far."""
        self._idle_until(math.inf)
        ordered = sorted(self._records, key=lambda record: (record.scheduled_seconds, record.id))
        chosen = self._around_peak(ordered)
        return Playback(
            frames=self._frames.result(),
            stays=tuple(
                Stay(record=record, pauses=tuple(self._pauses.get(record.id, ())))
                for record in chosen
            ),
            left_out=len(ordered) - len(chosen),
            quantiles={name: _quantiles(values) for name, values in self._latencies.items()},
        )

    def _around_peak(self, ordered: list[RequestRecord]) -> list[RequestRecord]:
        peak = self._peak[1]
        before = sum(record.scheduled_seconds < peak for record in ordered)
        first = max(0, min(before - round(_REQUESTS * _BEFORE_PEAK), len(ordered) - _REQUESTS))
        return ordered[first : first + _REQUESTS]


class _Frames:
    """The last frame of every stretch of time; stretches double when there are too many."""

    __slots__ = ("_frames", "_spacing")

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._spacing = 1e-3

    def add(self, frame: Frame) -> None:
        self._put(self._frames, frame)
        while len(self._frames) > _FRAMES:
            self._spacing *= 2
            fewer: list[Frame] = []
            for old in self._frames:
                self._put(fewer, old)
            self._frames = fewer

    def _put(self, frames: list[Frame], frame: Frame) -> None:
        if frames and frames[-1].seconds // self._spacing == frame.seconds // self._spacing:
            frames[-1] = frame
        else:
            frames.append(frame)

    def result(self) -> tuple[Frame, ...]:
        return tuple(self._frames)


def _quantiles(values: Sequence[float]) -> tuple[float, ...]:
    ordered = sorted(values)
    if not ordered:
        return ()
    last = len(ordered) - 1
    return tuple(ordered[round(last * share / _PERCENTS)] for share in range(_PERCENTS + 1))
