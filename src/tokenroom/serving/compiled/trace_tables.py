"""Traces as arrays: the same requests that :class:`~tokenroom.serving.workloads.trace.Trace` gives.

Rows of columns are read some thousand at a time. As long as they are plain (whole numbers within
bounds, times that rise) they go into arrays as they are; from the first one on that is not, they
are read row by row as always, so that what is refused, left out, put in order and said is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from csv import Error
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import numpy as np

from tokenroom.serving.compiled.sources import MASK, Delay, delayed
from tokenroom.serving.compiled.state import ENTERING, NO_SESSION
from tokenroom.serving.workloads.block_names import chained
from tokenroom.serving.workloads.delimited import CsvRows
from tokenroom.serving.workloads.rows import Begun, Row, rows_in_order
from tokenroom.serving.workloads.trace import Trace
from tokenroom.serving.workloads.values import MAX_LENGTH_TOKENS, MAX_SPAN_SECONDS

_AT_ONCE: Final = 4096


class _Plain(NamedTuple):
    """Rows that are as they should be, in order."""

    arrival: Any
    prompt: Any
    output: Any


def tables_of_trace(trace: Trace, delay: Delay, block_tokens: int) -> Iterator[tuple[Any, Any]]:
    """The requests of a trace as :class:`~.sources.OpenSource` takes them.

    Args:
        trace: It.
        delay: What passes before requests reach the scheduler.
        block_tokens: Tokens in a block of the deployment.

    Raises:
        WorkloadError: A row is no request and rows are not left out; or none is one.
    """
    count = 0
    for table, names in _tables(trace, block_tokens):
        table["id"] = np.arange(count, count + len(table))
        count += len(table)
        delayed(table, delay)
        yield table, names


def _tables(trace: Trace, block_tokens: int) -> Iterator[tuple[Any, Any]]:
    if not trace.is_csv:
        yield from _tables_of_rows(trace.rows(), trace.trace_block_tokens, block_tokens)
        return
    trace.begin()
    empty = True
    with trace.csv() as rows:
        for found in _tables_of_csv(trace, rows) if rows.plain else _in_order(trace, rows):
            empty = False
            yield found
    if empty:
        trace.refuse_nothing()


def _in_order(
    trace: Trace, rows: Iterable[Row], begun: Begun | None = None
) -> Iterator[tuple[Any, Any]]:
    window = trace.options.window
    ordered = rows_in_order(
        rows, trace.bad, trace.order, trace_block_tokens=None, window=window, begun=begun
    )
    return _tables_of_rows(ordered, None, 1)


def _tables_of_rows(
    rows: Iterator[Row], trace_block_tokens: int | None, block_tokens: int
) -> Iterator[tuple[Any, Any]]:
    """Rows in order as tables; each id of a request is one name of its blocks."""
    size = trace_block_tokens or 1
    while some := list(islice(rows, _AT_ONCE)):
        names: list[int] = []
        table = np.zeros(len(some), ENTERING)
        found = []
        for _, seconds, prompt, output, session, _, ids in some:
            shared = () if ids is None or trace_block_tokens is None else ids
            found.append(
                (
                    *(seconds, NO_SESSION if session is None else session, len(names)),
                    *(len(shared), prompt, output, min(prompt, len(shared) * size) // block_tokens),
                )
            )
            names += [name & MASK for name in chained(shared)]
        fields = ("arrival", "session", "names", "num_names", "prompt", "output", "named_blocks")
        for field, column in zip(fields, zip(*found, strict=True), strict=True):
            table[field] = column
        table["name_tokens"] = size
        yield table, np.array(names, np.uint64).view(np.int64)


def _tables_of_csv(trace: Trace, rows: CsvRows) -> Iterator[tuple[Any, Any]]:
    """Plain rows as tables, given out when as many have come as a trace's disorder may span."""
    window = trace.options.window
    first = next(iter(rows), None)  # it tells how times are written
    if first is None:
        return
    started = first[1]
    held = _Plain(*(np.array([value]) for value in first[1:4]))
    if not _is_plain(held, started, started):
        yield from _in_order(trace, chain([first], rows))
        return
    count, given, last = 1, 0, started
    while lines := list(islice(rows.numbered, _AT_ONCE)):
        more = _columns(lines, rows)
        if more is None or not _is_plain(more, float(held.arrival[-1]), started):
            if given:
                begun = Begun(list(_rows_of(held)), started, last)
                yield from _in_order(trace, rows.read(chain(lines, rows.numbered)), begun)
            else:
                again = chain(_rows_of(held), rows.read(chain(lines, rows.numbered)))
                yield from _in_order(trace, again)
            return
        held = _Plain(*(np.concatenate(pair) for pair in zip(held, more, strict=True)))
        count += len(lines)
        ready = (count // window - 1) * window - given
        if ready > 0:
            last = float(held.arrival[ready - 1])
            yield _table(held, slice(ready), started)
            held = _Plain(*(column[ready:] for column in held))
            given += ready
    yield _table(held, slice(None), started)


def _columns(lines: list[tuple[int, list[str] | Error]], rows: CsvRows) -> _Plain | None:
    """The columns of lines, None where one of them is no row of three numbers."""
    times = rows.records.times
    assert times is not None
    assert times.read is not None
    time_at, in_at, out_at = rows.places
    read: Any = [row for _, row in lines]
    try:
        if max(map(len, read)) > rows.width:
            return None
        return _Plain(
            np.array([times.read(row[time_at]) for row in read], float),
            np.array([int(row[in_at]) for row in read], np.int64),
            np.array([int(row[out_at]) for row in read], np.int64),
        )
    except (ValueError, IndexError, TypeError, OverflowError):
        return None


def _is_plain(columns: _Plain, latest: float, started: float) -> bool:
    """Whether times rise and everything is within bounds."""
    arrival, prompt, output = columns
    return bool(
        arrival[0] >= latest
        and (arrival[1:] >= arrival[:-1]).all()
        and arrival[-1] - started <= MAX_SPAN_SECONDS
        and min(prompt.min(), output.min()) > 0
        and max(prompt.max(), output.max()) <= MAX_LENGTH_TOKENS
    )


def _rows_of(columns: _Plain) -> Iterator[Row]:
    for arrival, prompt, output in zip(*(column.tolist() for column in columns), strict=True):
        yield 0, arrival, prompt, output, None, 0, None


def _table(columns: _Plain, part: slice, started: float) -> tuple[Any, Any]:
    arrival = columns.arrival[part]
    table = np.zeros(len(arrival), ENTERING)
    table["arrival"] = arrival - started
    table["session"] = NO_SESSION
    table["prompt"] = columns.prompt[part]
    table["output"] = columns.output[part]
    table["name_tokens"] = 1
    return table, np.zeros(0, np.int64)
