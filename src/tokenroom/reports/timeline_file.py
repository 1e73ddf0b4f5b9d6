"""A run as a trace that Perfetto and Chrome show: steps, requests, queue and KV pool.

The form is Chrome's "Trace Event Format" (JSON object form): complete events (``X``) for steps,
nestable asynchronous ones (``b``, ``e``) for requests, counters (``C``); times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from tokenroom.errors import TokenroomError, shown
from tokenroom.files import naming
from tokenroom.serving.record import RequestRecord, StepRecord

_REQUESTS: Final = 1
_FIRST_SERVER: Final = 2
_LANES: Final = 1000  # rows of a rank: more than a pipeline has stages


def check_timeline_file(path: Path) -> None:
    """Refuse a file of another form.

    Raises:
        TokenroomError: The suffix is not .json.
    """
    if path.suffix.lower() != ".json":
        raise TokenroomError(
            f"the timeline {shown(path.name)} ends in {shown(path.suffix)}; it may end in .json"
        )


@contextmanager
def timeline_file(path: Path) -> Iterator[TimelineWriter]:
    """What writes a run to a file as it goes; the file is whole however the run ends.

    Raises:
        TokenroomError: The suffix is not .json.
        OSError: It cannot be written.
    """
    check_timeline_file(path)
    file = path.open("w", encoding="utf-8")
    try:
        with naming(path):
            file.write('{"displayTimeUnit":"ms","traceEvents":[')
            writer = TimelineWriter(file, path)
        yield writer
    finally:
        with naming(path):
            try:
                file.write("\n]}\n")
            finally:
                file.close()


class TimelineWriter:
    """Events of a run, written as they happen."""

    __slots__ = ("_counts", "_file", "_lanes", "_path", "_separator", "_servers")

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file, self._path = file, path
        self._separator = "\n"
        self._counts: dict[tuple[int, str], int] = {}
        self._lanes: dict[tuple[int, int], list[float]] = {}
        self._servers: set[int] = set()
        self._name(_REQUESTS, "requests")

    def _name(self, process: int, name: str) -> None:
        self._write({"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}})

    def step(self, step: StepRecord) -> None:
        """Write a step, and the counts that it changed."""
        server = _FIRST_SERVER + step.replica
        if server not in self._servers:
            self._servers.add(server)
            self._name(server, "engine" if not step.replica else f"engine {step.replica + 1}")
        start = _microseconds(step.start_seconds)
        self._write(
            {
                "ph": "X",
                "pid": server,
                "tid": self._lane(step),
                "name": "step",
                "ts": start,
                "dur": round(_microseconds(step.end_seconds) - start, 3),
                "args": {"tokens": step.tokens, "requests": step.sequences},
            }
        )
        for name in ("running", "waiting", "used_blocks"):
            count = getattr(step, name)
            of_rank = name if not step.rank else f"{name} of rank {step.rank}"
            if self._counts.get((server, of_rank)) != count:
                self._counts[server, of_rank] = count
                self._write(
                    {"ph": "C", "pid": server, "name": of_rank, "ts": start, "args": {name: count}}
                )

    def _lane(self, step: StepRecord) -> int:
        """The row of a step: each rank has rows of its own, as many as its steps overlap."""
        ends = self._lanes.setdefault((step.replica, step.rank), [])
        lane = next((at for at, end in enumerate(ends) if end <= step.start_seconds), len(ends))
        ends[lane : lane + 1] = [step.end_seconds]
        return 1 + step.rank * _LANES + lane

    def request(self, record: RequestRecord) -> None:
        """Write a request that has ended: its wait, its prompt and its answer."""
        if record.refused is not None:
            return
        times = (
            record.arrival_seconds,
            record.scheduled_seconds,
            record.first_token_seconds,
            record.finish_seconds,
        )
        lengths = {"prompt_tokens": record.prompt_tokens, "output_tokens": record.output_tokens}
        for at, name in enumerate(("waiting", "prompt", "answer")):
            event = {"cat": "request", "id": record.id, "pid": _REQUESTS, "tid": 1, "name": name}
            start, end = _microseconds(times[at]), _microseconds(times[at + 1])
            self._write({"ph": "b", **event, "ts": start, "args": lengths})
            self._write({"ph": "e", **event, "ts": end})

    def _write(self, event: dict[str, Any]) -> None:
        with naming(self._path):
            self._file.write(self._separator + json.dumps(event, separators=(",", ":")))
        self._separator = ",\n"


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
