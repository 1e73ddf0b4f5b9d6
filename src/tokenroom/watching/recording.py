"""Recordings: one observation a line, written as it is made, so that nothing taken is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

from tokenroom.errors import WatchError
from tokenroom.watching.observation import Observation
from tokenroom.watching.observation_json import observation_json, read_observation

_BEGINS: Final = b'{"schema_version":'
_LINE_BYTES: Final = 8 * 2**20
"""A line beyond it is no observation."""


class Recorder:
    """Appends observations to a file.

    A file that a crash left with half a line is continued on a new one.

    Args:
        path: The file; made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._file: TextIO | None = None

    def __enter__(self) -> Recorder:
        """Open the file.

        Raises:
            WatchError: It holds something else, or cannot be written.
        """
        try:
            mends = self._ends_within_a_line()
            self._file = self.path.open("a", encoding="utf-8", newline="\n")
        except OSError as error:
            raise WatchError(
                f"{self.path} cannot be written: {error.strerror or error}; name another file"
            ) from error
        if mends:
            self._file.write("\n")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, seen: Observation) -> None:
        """Append one observation, and see that it leaves this process.

        Raises:
            WatchError: It cannot be written.
        """
        assert self._file is not None
        line = json.dumps(observation_json(seen), ensure_ascii=True, separators=(",", ":"))
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise WatchError(
                f"{self.path} cannot be written: {error.strerror or error}; what was recorded "
                f"before is kept"
            ) from error
        self.count += 1

    def _ends_within_a_line(self) -> bool:
        """Whether the file that is there was cut off; refuses one that is no recording."""
        if not self.path.exists() or not self.path.is_file() or not self.path.stat().st_size:
            return False
        with self.path.open("rb") as file:
            first = file.readline(_LINE_BYTES)
            file.seek(-1, os.SEEK_END)
            cut = file.read(1) != b"\n"
        if _observation(first) is None and not (cut and first.startswith(_BEGINS)):
            raise WatchError(
                f"{self.path} is there and no recording; name another file for --record"
            )
        return cut


class Recording:
    """What a file holds.

    Attributes:
        skipped: Lines that were no observation, as far as it was read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0

    def observations(self) -> Iterator[Observation]:
        """Each observation, in the order of writing.

        Raises:
            WatchError: The file cannot be read, or holds none.
        """
        self.skipped = 0
        found = False
        try:
            with self.path.open("rb") as file:
                while line := file.readline(_LINE_BYTES):
                    seen = _observation(line)
                    if seen is None:
                        self.skipped += bool(line.strip())
                        continue
                    found = True
                    yield seen
        except OSError as error:
            raise WatchError(
                f"{self.path} cannot be read: {error.strerror or error}; name a recording"
            ) from error
        if not found:
            raise WatchError(
                f"{self.path} holds no observation; record one with tokenroom watch --record FILE"
            )

    def span(self) -> tuple[float, float]:
        """Times of the first and the last observation.

        Raises:
            WatchError: As :meth:`observations`.
        """
        times = [seen.time for seen in self.observations()]
        return min(times), max(times)


def _observation(line: bytes) -> Observation | None:
    try:
        return read_observation(json.loads(line))
    except (ValueError, RecursionError, WatchError):
        return None
