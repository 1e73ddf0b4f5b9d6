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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

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


class CsvRows:
    """The rows of a CSV file with a header.

    Attributes:
        plain: Rows hold a time and two lengths, and nothing else that is asked for.
        numbered: Lines and what stands in them; the problem where that is no row of CSV. It may be
            read from between two rows.
        records: What reads a row field by field.
        places: Where a row holds its time, its prompt's and its answer's length.
        width: How many columns the header names.

    Args:
        text: The file's content.
        bad: Where rows go that cannot be read.
        asked: Names of columns, where they are told.
        arrivals: Whether arrival times are needed; without them every row arrives at 0.

    Raises:
        WorkloadError: A column is missing.
    """

    __slots__ = ("_bad", "_header", "_most", "numbered", "places", "plain", "records", "width")

    def __init__(
        self,
        text: io.TextIOWrapper,
        bad: BadRows,
        asked: Columns | None,
        *,
        arrivals: bool = True,
    ) -> None:
        head, above = text.readline(), 1
        while head and not head.strip():
            head, above = text.readline(), above + 1
        header = header_of(head, bad.name)
        columns = find_columns(header, asked, name=bad.name, arrivals=arrivals)
        at = {field: header.index(column) for field, column in columns.names.items()}
        self._bad = bad
        self._header = header
        self.width = len(header)
        self._most = max(at.values())
        self.records = Records(columns, arrivals=arrivals)
        self.places = at.get("arrival", 0), at["input"], at["output"]
        self.plain = arrivals and "session" not in at and "priority" not in at
        self.numbered = _numbered(csv.reader(text, delimiter=_delimiter(head)), above, bad)

    def __iter__(self) -> Iterator[Row]:
        """The rows that have not been read.

        Raises:
            WorkloadError: A row cannot be read and is not left out.
        """
        yield from self.read(self.numbered)

    def read(self, numbered: Iterable[tuple[int, list[str] | csv.Error]]) -> Iterator[Row]:
        """Lines as rows.

        Raises:
            WorkloadError: A row cannot be read and is not left out.
        """
        time_at, in_at, out_at = self.places
        time: Callable[[str], float] | None = None
        for line, row in numbered:
            if isinstance(row, csv.Error):
                self._bad.refuse(line, "text", f"it is no row of CSV ({row})")
                continue
            if time is not None and len(row) <= self.width:  # the quick way, for millions of rows
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
            if len(row) <= self._most or any(value.strip() for value in row[self.width :]):
                sentence = f"it has {len(row)} columns where the header has {self.width}"
                self._bad.refuse(line, "missing", sentence)
                continue
            found = self.records.read(dict(zip(self._header, row, strict=False)), line, self._bad)
            if found is not None:
                yield found
            times = self.records.times
            time = times.read if self.plain and times is not None else None


def _numbered(reader: Any, above: int, bad: BadRows) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Rows with the lines that they end in; the problem in place of one that is no CSV."""
    with bad.until_damage(lambda: reader.line_num + above):
        while True:
            try:
                for row in reader:
                    yield reader.line_num + above, row
                return
            except csv.Error as problem:
                yield reader.line_num + above, problem


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
