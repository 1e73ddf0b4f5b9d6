"""A trace file, whichever tool wrote it, as requests one after another in bounded memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.request import Request
from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.columns import Columns
from tokenroom.serving.workloads.opening import OpenedTrace
from tokenroom.serving.workloads.rows import SORTED_ROWS, Order, Row, requests_of, rows_in_order

if TYPE_CHECKING:
    from tokenroom.serving.workloads.delimited import CsvRows

FORMATS: Final[Mapping[str, str]] = {
    "azure": "Azure LLM inference trace (CSV)",
    "burstgpt": "BurstGPT (CSV)",
    "vidur": "Vidur processed trace (CSV)",
    "csv": "CSV",
    "mooncake": "Mooncake (JSON Lines)",
    "bailian": "Qwen on Bailian (JSON Lines)",
    "openai": "log of an OpenAI-style API (JSON Lines)",
    "jsonl": "JSON Lines",
    "benchmark": "vLLM's or SGLang's serving benchmark (JSON)",
    "parquet": "Parquet",
}
"""Formats by the name that ``--format`` takes, and what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How to read a trace.

    Attributes:
        format: One of :data:`FORMATS`; None to tell it from the content.
        columns: Names of columns or keys, where they are not known ones.
        skip_bad: Whether rows that are no requests are left out and counted.
        block_tokens: Tokens in a KV block of the deployment, for names of shared blocks; None for
            the trace's own.
        window: Rows within which disorder is put right.
        count_ids: Whether the trace's own block ids are counted.
    """

    format: str | None = None
    columns: Columns | None = None
    skip_bad: bool = False
    block_tokens: int | None = None
    window: int = SORTED_ROWS
    count_ids: bool = False


class TracedIds:
    """How often a trace's own block ids come again, as the authors of traces count it.

    Attributes:
        blocks: Ids of all requests, those of partly filled last blocks among them.
        hits: Those that an earlier request had.
    """

    __slots__ = ("_seen", "blocks", "hits")

    def __init__(self) -> None:
        self.blocks = self.hits = 0
        self._seen: set[int] = set()

    @property
    def hit_ratio(self) -> float | None:
        """Share of the ids that come again; None when there are none."""
        return self.hits / self.blocks if self.blocks else None

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows, their ids counted on the way."""
        seen = self._seen
        for row in rows:
            blocks = row[6]
            if blocks:
                self.blocks += len(blocks)
                self.hits += sum(map(seen.__contains__, blocks))
                seen.update(blocks)
            yield row


class Trace:
    """The requests of a trace file; each iteration reads it anew (a pipe can be read once).

    Attributes:
        path: The file.
        format: Its format, a key of :data:`FORMATS`.
        trace_block_tokens: Tokens in a block that its ids name; None when it has no ids.
        bad: Rows left out in the last reading.
        order: Rows put in order in the last reading.
        ids: The trace's own block ids in the last reading; None when they are not counted.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: TraceOptions = TraceOptions(),
    ) -> None:
        """Look into a file; nothing is read but its start.

        Raises:
            WorkloadError: It cannot be read, or its start is of no known form.
        """
        if options.format is not None and options.format not in FORMATS:
            raise WorkloadError(
                f"the format is {shown(options.format)}; it may be {', '.join(FORMATS)}"
            )
        if options.block_tokens is not None and options.block_tokens < 1:
            raise WorkloadError(
                f"the block size is {options.block_tokens}; it must be at least 1 token"
            )
        if options.window < 1:
            raise WorkloadError(f"the window is {options.window}; it must be at least 1 row")
        from tokenroom.serving.workloads.documents import BLOCK_TOKENS

        self.path = Path(path)
        self.options = options
        opened = OpenedTrace(self.path)
        try:
            self.format = _format(opened, options)
        except BaseException:
            opened.close()
            raise
        self._once = opened.once
        self._held: OpenedTrace | None = opened if opened.once else None
        if not opened.once:
            opened.close()
        self.trace_block_tokens = BLOCK_TOKENS.get(self.format)
        self.bad = BadRows(self.path.name, skip=options.skip_bad)
        self.order = Order()
        self.ids: TracedIds | None = None
        self._opened: OpenedTrace | None = None
        self._share = 0.0
        self._total_bytes = opened.total_bytes

    @property
    def block_tokens(self) -> int | None:
        """Tokens in the blocks that the requests' ``block_hashes`` name; None without names."""
        if self.trace_block_tokens is None:
            return None
        return self.options.block_tokens or self.trace_block_tokens

    @property
    def progress(self) -> tuple[int, int | None]:
        """Bytes of the file that the reading under way has taken, and its size if it has one."""
        if self._opened is not None:
            return self._opened.read_bytes, self._total_bytes
        return round(self._share * (self._total_bytes or 0)), self._total_bytes

    def __iter__(self) -> Iterator[Request]:
        """The requests in order of arrival, the first at 0.

        Raises:
            WorkloadError: A row is no request and ``skip_bad`` is not set; or none is one.
        """
        return requests_of(
            self.rows(),
            trace_block_tokens=self.trace_block_tokens,
            block_tokens=self.options.block_tokens,
        )

    def rows(self) -> Iterator[Row]:
        """The same as rows, timed from the first one.

        Raises:
            WorkloadError: A row is no request and ``skip_bad`` is not set; or none is one.
        """
        self.begin()
        rows = self._rows(arrivals=True)
        if self.options.count_ids and self.trace_block_tokens is not None:
            self.ids = TracedIds()
            rows = self.ids.counted(rows)
        empty = True
        for row in rows_in_order(
            rows,
            self.bad,
            self.order,
            trace_block_tokens=self.trace_block_tokens,
            window=self.options.window,
        ):
            empty = False
            yield row
        if empty:
            self.refuse_nothing()

    def begin(self) -> None:
        """Count bad rows and rows put in order anew."""
        self.bad = BadRows(self.path.name, skip=self.options.skip_bad)
        self.order = Order()

    def refuse_nothing(self) -> NoReturn:
        """Say that no row is a request.

        Raises:
            WorkloadError: Always.
        """
        left_out = sum(self.bad.counts.values())
        raise WorkloadError(
            f"{self.path.name} has no request"
            + (f"; all of its {left_out:,} rows were left out as bad" if left_out else "")
            + "; give a trace with at least one"
        )

    def lengths(self) -> Iterator[tuple[int, int]]:
        """Prompt and output tokens of each row, whether or not the trace has times."""
        self.begin()
        rows = self._rows(arrivals=False)
        for row in rows_in_order(rows, self.bad, Order(), trace_block_tokens=None, window=1):
            yield row[2], row[3]

    @property
    def is_csv(self) -> bool:
        """Whether it is text in columns."""
        return self.format in ("azure", "burstgpt", "vidur", "csv")

    @contextmanager
    def csv(self, *, arrivals: bool = True) -> Iterator[CsvRows]:
        """The rows of a file of columns, for as long as it is open.

        Args:
            arrivals: Whether arrival times are needed.

        Raises:
            WorkloadError: A column is missing, or it is a pipe that was read.
        """
        from tokenroom.serving.workloads.delimited import CsvRows

        with self._text() as text:
            yield CsvRows(text, self.bad, self.options.columns, arrivals=arrivals)

    @contextmanager
    def _text(self) -> Iterator[TextIOWrapper]:
        if self._once and self._held is None:
            raise WorkloadError(
                f"{self.path} is a pipe, which can be read once; write its content to a file"
            )
        opened, self._held = self._held or OpenedTrace(self.path), None
        self._opened = opened
        try:
            yield opened.text()
        finally:
            self._share = 1.0
            self._opened = None
            opened.close()

    def _rows(self, *, arrivals: bool) -> Iterator[Row]:
        columns = self.options.columns
        if self.format == "parquet":
            if self._once:
                raise WorkloadError(
                    f"{self.path} is a pipe, and Parquet is read from its end; write it to a file"
                )
            from tokenroom.serving.workloads.parquet import parquet_rows

            yield from parquet_rows(
                self.path, self.bad, columns, arrivals=arrivals, progress=self._shared
            )
            return
        if self.is_csv:
            with self.csv(arrivals=arrivals) as rows:
                yield from rows
            return
        with self._text() as text:
            if self.format == "benchmark":
                from tokenroom.serving.workloads.benchmark_runs import benchmark_rows

                yield from benchmark_rows(text, self.bad, arrivals=arrivals)
            else:
                from tokenroom.serving.workloads.documents import json_rows

                yield from json_rows(text, self.bad, self.format, columns, arrivals=arrivals)

    def _shared(self, share: float) -> None:
        self._share = share


def _format(opened: OpenedTrace, options: TraceOptions) -> str:
    """What the start of a file tells, against what is said of it."""
    from tokenroom.serving.workloads import benchmark_runs, delimited, documents

    said = options.format
    if opened.head.startswith(b"PAR1") or said == "parquet":
        return said or "parquet"
    wide = opened.head[:2] in (b"\xff\xfe", b"\xfe\xff")
    encoding = "utf-16" if wide else "utf-8-sig"
    start = opened.head.decode(encoding, "replace").lstrip()
    first = re.split("[\r\n]", start, maxsplit=1)[0]
    if first[:1] not in ("{", "["):
        if said is not None and said not in (*delimited.SIGNATURES, "csv"):
            raise WorkloadError(
                f"{opened.name} is said to be of format {said}, which is JSON, but begins with "
                f"{shown(first[:40])}; leave --format out"
            )
        header = delimited.header_of(first, opened.name)
        if said in delimited.SIGNATURES and options.columns is None:
            delimited.check_signature(opened.name, said, header)
        return said or next(
            (kind for kind, names in delimited.SIGNATURES.items() if names <= set(header)), "csv"
        )
    if said in (*delimited.SIGNATURES, "csv"):
        raise WorkloadError(
            f"{opened.name} is said to be of format {said}, which is CSV, but begins with "
            f"{shown(first[:40])}; leave --format out"
        )
    record = _first_object(first)
    if said is not None:
        if isinstance(record, dict) and options.columns is None:
            documents.check_keys(opened.name, said, record)
        return said
    if record is None or benchmark_runs.is_benchmark(record):
        # an object over several lines, or one longer than the start that was looked at
        return "benchmark"
    return documents.json_format(record)


def _first_object(line: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
