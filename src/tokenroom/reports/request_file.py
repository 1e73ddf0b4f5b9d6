"""Records of requests as a file that grows as they end: CSV, JSON Lines or Parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Protocol

from tokenroom.errors import TokenroomError, shown
from tokenroom.files import naming
from tokenroom.serving.record import RequestRecord

FIELDS: Final = (
    *("id", "session", "arrival_seconds", "scheduled_seconds", "first_token_seconds"),
    *("finish_seconds", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions"),
    *("refused", "replica", "ttft_seconds", "tpot_seconds", "e2e_seconds"),
)
"""Columns, or keys, of a record; a refused request has no times but its arrival."""

_TIMES: Final = frozenset(
    name for name in FIELDS if name.endswith("_seconds") and name != "arrival_seconds"
)


class RequestsHeard(Protocol):
    """What writes records as they end."""

    def request(self, record: RequestRecord) -> None:
        """Write what became of a request."""

    def end(self) -> None:
        """Hear that this was the last one."""


class RequestWriter:
    """Writes records to a file in one of the two forms.

    Args:
        file: The file, or what goes on with one.
        path: Its name.
        as_csv: CSV with a heading; otherwise JSON Lines.
    """

    def __init__(self, file: IO[str] | _Continued, path: Path, *, as_csv: bool) -> None:
        self._file, self._path = file, path
        self._rows = csv.writer(file, lineterminator="\n") if as_csv else None
        if self._rows is not None:
            self._rows.writerow(FIELDS)

    def request(self, record: RequestRecord) -> None:
        """Write what became of a request.

        Raises:
            TokenroomError: The file that is gone on with holds something else there.
            OSError: It cannot be written.
        """
        row = values(record)
        with naming(self._path):
            if self._rows is not None:
                self._rows.writerow(row)
            else:
                self._file.write(json.dumps(dict(zip(FIELDS, row, strict=True))) + "\n")

    def end(self) -> None:
        """Hear that this was the last one.

        Raises:
            TokenroomError: The file that is gone on with holds more.
        """
        if isinstance(self._file, _Continued):
            self._file.end()


@contextmanager
def request_file(path: Path, *, resume: bool = False) -> Iterator[RequestsHeard]:
    """What writes records to a file, in the form that its suffix says.

    Args:
        path: The file.
        resume: Go on with what an earlier run of the same question wrote: what is there is
            compared with what would be written, and what is missing is written.

    Raises:
        TokenroomError: The suffix is none of .csv, .jsonl and .parquet, pyarrow is not installed,
            or a Parquet file is to be gone on with.
        OSError: It cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        if resume:
            raise TokenroomError(
                f"{path.name} is a Parquet file, which cannot be gone on with; leave --resume out, "
                "or name a file that ends in .csv"
            )
        from tokenroom.reports.request_parquet import parquet_requests

        with parquet_requests(path) as requests:
            yield requests
        return
    if suffix not in (".csv", ".jsonl"):
        raise TokenroomError(
            f"the file of requests {shown(path.name)} ends in {shown(path.suffix)}; it may end in "
            ".csv, .jsonl or .parquet"
        )
    there = resume and path.exists()
    file = path.open("r+" if there else "w", encoding="utf-8", newline="")
    try:
        with naming(path):
            known = RequestWriter(
                _Continued(file, path) if there else file, path, as_csv=suffix == ".csv"
            )
        yield known
    finally:
        with naming(path):
            file.close()


class _Continued:
    """A file that an earlier run began: the same text is read over, further text is written."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file, self._path = file, path
        self._reads = True
        self._lines = 0

    def write(self, text: str) -> int:
        self._lines += 1
        if not self._reads:
            return self._file.write(text)
        found = self._file.read(len(text))
        if found == text:
            return len(text)
        if not text.startswith(found):
            raise TokenroomError(
                f"line {self._lines} of {self._path} is not what this run finds, so that another "
                "question, or another version, wrote it; leave --resume out, or name another file"
            )
        self._reads = False
        self._file.seek(0, os.SEEK_END)  # reading ended there, maybe within a line that was cut off
        return len(found) + self._file.write(text[len(found) :])

    def end(self) -> None:
        if self._reads and self._file.read(1):
            raise TokenroomError(
                f"{self._path} holds more than the {self._lines} lines that this run finds, so "
                "that another question wrote it; leave --resume out, or name another file"
            )


def values(record: RequestRecord) -> list[object]:
    """What a record holds, field by field of :data:`FIELDS`."""
    if record.refused is None:
        return [getattr(record, name) for name in FIELDS]
    return [None if name in _TIMES else getattr(record, name) for name in FIELDS]
