"""Rows of a CSV trace: Azure's, BurstGPT's, Vidur's, or any whose columns are named.

Azure 2023 (github.com/Azure/AzurePublicDataset, ``AzureLLMInferenceTrace_*.csv``): ``TIMESTAMP`` as
a date with seven digits of a second, ``ContextTokens``, ``GeneratedTokens``; lines end in CRLF.
BurstGPT (github.com/HPMLL/BurstGPT): ``Timestamp`` in seconds, ``Request tokens``, ``Response
tokens`` (0 where the request failed), ``Session ID`` in later releases. Vidur
(github.com/microsoft/vidur, ``data/processed_traces``): ``arrived_at`` in seconds,
``num_prefill_tokens``, ``num_decode_tokens``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Final

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.columns import Columns, find_columns
from tokenroom.serving.workloads.records import Records
from tokenroom.serving.workloads.rows import Row

SIGNATURES: Final = {
    "azure": frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
    "burstgpt": frozenset({"Timestamp", "Request tokens", "Response tokens"}),
    "vidur": frozenset({"arrived_at", "num_prefill_tokens", "num_decode_tokens"}),
}
"""Columns that tell a known format."""

_DELIMITERS: Final = ",\t;|"


def header_of(line: str, name: str) -> list[str]:
    """The names of the columns in a file's first line.

    Raises:
        WorkloadError: It is none.
    """
    try:
        row = next(csv.reader([line], delimiter=_delimiter(line)), [])
    except csv.Error as problem:
        raise WorkloadError(
            f"{name}, line 1: it is no header of CSV ({problem}); begin the file with the names of "
            "its columns"
        ) from None
    return [column.strip() for column in row]


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def csv_rows(
    text: io.TextIOWrapper, bad: BadRows, asked: Columns | None, *, arrivals: bool = True
) -> Iterator[Row]:
    """The rows of a CSV file with a header.

    Args:
        text: The file's content.
        bad: Where rows go that cannot be read.
        asked: Names of columns, where they are told.
        arrivals: Whether arrival times are needed; without them every row arrives at 0.

    Raises:
        WorkloadError: A column is missing; or a row cannot be read and is not left out.
    """
    head, above = text.readline(), 1
    while head and not head.strip():
        head, above = text.readline(), above + 1
    header = header_of(head, bad.name)
    columns = find_columns(header, asked, name=bad.name, arrivals=arrivals)
    records = Records(columns, arrivals=arrivals)
    at = {field: header.index(column) for field, column in columns.names.items()}
    time_at, in_at, out_at = at.get("arrival", 0), at["input"], at["output"]
    plain = arrivals and "session" not in at and "priority" not in at
    time: Callable[[str], float] | None = None
    reader = csv.reader(text, delimiter=_delimiter(head))
    with bad.until_damage(lambda: reader.line_num + above):
        while True:
            try:
                for row in reader:
                    line = reader.line_num + above
                    if time is not None:  # the quick way, for millions of rows
                        try:
                            yield (
                                *(line, time(row[time_at]), int(row[in_at])),
                                *(int(row[out_at]), None, 0, None),
                            )
                            continue
                        except (ValueError, IndexError):
                            pass  # the careful way says what is wrong
                    if not any(value.strip() for value in row):
                        continue
                    if len(row) <= max(at.values()):
                        sentence = f"it has {len(row)} columns where the header has {len(header)}"
                        bad.refuse(line, "missing", sentence)
                        continue
                    found = records.read(dict(zip(header, row, strict=False)), line, bad)
                    if found is not None:
                        yield found
                    time = records.times.read if plain and records.times is not None else None
                return
            except csv.Error as problem:
                bad.refuse(reader.line_num + above, "text", f"it is no row of CSV ({problem})")


def check_signature(name: str, kind: str, header: list[str]) -> None:
    """Refuse a file that is said to be of a format whose columns it lacks.

    Raises:
        WorkloadError: Columns are missing.
    """
    missing = SIGNATURES[kind] - set(header)
    if missing:
        raise WorkloadError(
            f"{name} is said to be of format {kind}, but has no column "
            f"{', '.join(map(shown, sorted(missing)))}; leave --format out, or name its columns "
            "with --columns"
        )
