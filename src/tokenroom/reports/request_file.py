"""Records of requests as a file that grows as they end: CSV, or JSON Lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tokenroom.errors import TokenroomError, shown
from tokenroom.serving.record import RequestRecord

FIELDS: Final = (
    *("id", "session", "arrival_seconds", "scheduled_seconds", "first_token_seconds"),
    *("finish_seconds", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions"),
    *("refused", "ttft_seconds", "tpot_seconds", "e2e_seconds"),
)
"""Columns, or keys, of a record; a refused request has no times but its arrival."""

_TIMES: Final = frozenset(
    name for name in FIELDS if name.endswith("_seconds") and name != "arrival_seconds"
)


@contextmanager
def request_file(path: Path) -> Iterator[Callable[[RequestRecord], None]]:
    """What writes records to a file, in the form that its suffix says.

    Raises:
        TokenroomError: The suffix is neither .csv nor .jsonl.
        OSError: It cannot be written.
    """
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise TokenroomError(
            f"the file of requests {shown(path.name)} ends in {shown(path.suffix)}; it may end in "
            ".csv or .jsonl"
        )
    with path.open("w", encoding="utf-8", newline="") as file:
        yield _csv(file) if path.suffix.lower() == ".csv" else _json_lines(file)


def _values(record: RequestRecord) -> list[object]:
    if record.refused is None:
        return [getattr(record, name) for name in FIELDS]
    return [None if name in _TIMES else getattr(record, name) for name in FIELDS]


def _csv(file: IO[str]) -> Callable[[RequestRecord], None]:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(FIELDS)
    return lambda record: writer.writerow(_values(record))


def _json_lines(file: IO[str]) -> Callable[[RequestRecord], None]:
    def write(record: RequestRecord) -> None:
        file.write(json.dumps(dict(zip(FIELDS, _values(record), strict=True))) + "\n")

    return write
