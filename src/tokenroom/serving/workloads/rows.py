"""From a trace's rows to requests: checked, in order, named and counted from the first one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from tokenroom.serving.request import Request
from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.block_names import renamed_blocks
from tokenroom.serving.workloads.values import MAX_LENGTH_TOKENS, MAX_SPAN_SECONDS

Row = tuple[int, float, int, int, int | None, int, Sequence[int] | None]
"""Line, arrival in seconds, prompt and output tokens, session, priority, block ids or None."""

SORTED_ROWS: Final = 10_000
"""Rows within which disorder is put right; a trace written by several workers needs few."""


class Order:
    """What became of the order of a trace's rows.

    Attributes:
        moved: Rows that stood after a later one and were put before it.
    """

    __slots__ = ("moved",)

    def __init__(self) -> None:
        self.moved = 0


class Begun(NamedTuple):
    """Rows in order of which some have been given out.

    Attributes:
        held: Those that have not, in order.
        started: Arrival of the first row, in seconds.
        horizon: Arrival of the last one that was given out.
    """

    held: list[Row]
    started: float
    horizon: float


def rows_in_order(
    rows: Iterable[Row],
    bad: BadRows,
    order: Order,
    *,
    trace_block_tokens: int | None,
    window: int = SORTED_ROWS,
    begun: Begun | None = None,
) -> Iterator[Row]:
    """Rows in order of arrival, timed from the first one.

    Args:
        rows: What a reader found, in the file's order.
        bad: Where impossible rows go.
        order: Where rows put in order are counted.
        trace_block_tokens: Tokens in a block that the rows' ids name.
        window: Rows held back to put them in order.
        begun: What was read of them before, if some was given out.

    Raises:
        WorkloadError: A row is impossible, or earlier than a row more than a window before it, and
            bad rows are not left out.
    """
    held: list[Row] = [] if begun is None else begun.held
    disorder = False
    horizon = -MAX_SPAN_SECONDS * 100 if begun is None else begun.horizon
    latest = held[-1][1] if held else horizon
    started = 0.0 if begun is None else begun.started
    arrival_of = itemgetter(1)

    def timed(batch: list[Row]) -> Iterator[Row]:
        for line, arrival, prompt, output, session, priority, blocks in batch:
            seconds = arrival - started
            if seconds > MAX_SPAN_SECONDS:
                bad.refuse(
                    line,
                    "time",
                    f"it arrives {seconds / 86400:,.0f} days after the first; times of a workload "
                    "span at most 100 years, so its times may be in another unit (--columns "
                    "arrival=NAME:ms)",
                )
                continue
            yield line, seconds, prompt, output, session, priority, blocks

    first = begun is None
    for row in rows:
        _, arrival, prompt, output, _, _, blocks = row
        if not (
            0 < prompt <= MAX_LENGTH_TOKENS
            and 0 < output <= MAX_LENGTH_TOKENS
            and arrival >= horizon
            and (blocks is None or _fits(blocks, prompt, trace_block_tokens))
        ):
            bad.refuse(row[0], *_wrong(row, horizon, trace_block_tokens, window))
            continue
        if arrival < latest:
            disorder = True
            order.moved += 1
        else:
            latest = arrival
        held.append(row)
        if len(held) >= 2 * window:
            if disorder:
                held.sort(key=arrival_of)
                disorder = False
            if first:
                started, first = held[0][1], False
            ready = held[:window]
            del held[:window]
            horizon = ready[-1][1]
            yield from timed(ready)
    held.sort(key=arrival_of)
    if first and held:
        started = held[0][1]
    yield from timed(held)


def requests_of(
    rows: Iterable[Row], *, trace_block_tokens: int | None, block_tokens: int | None
) -> Iterator[Request]:
    """Requests of rows in order, counted from 0.

    Args:
        rows: What :func:`rows_in_order` gives.
        trace_block_tokens: Tokens in a block that the rows' ids name.
        block_tokens: Tokens in a block of the deployment.
    """
    for count, (_, seconds, prompt, output, session, priority, blocks) in enumerate(rows):
        names: tuple[int, ...] = ()
        if blocks is not None and trace_block_tokens is not None:
            names = renamed_blocks(
                blocks,
                prompt,
                trace_block_tokens=trace_block_tokens,
                block_tokens=block_tokens or trace_block_tokens,
            )
        yield Request(
            id=count,
            arrival_seconds=seconds,
            prompt_tokens=prompt,
            output_tokens=output,
            priority=priority,
            block_hashes=names,
            session=session,
        )


def _fits(blocks: Sequence[int], prompt: int, trace_block_tokens: int | None) -> bool:
    return trace_block_tokens is None or len(blocks) * trace_block_tokens <= (
        prompt + trace_block_tokens - 1
    )


def _wrong(
    row: Row, horizon: float, trace_block_tokens: int | None, window: int
) -> tuple[str, str]:
    """The reason and the sentence of an impossible row."""
    _, arrival, prompt, output, _, _, blocks = row
    for name, tokens in (("input", prompt), ("output", output)):
        if tokens < 0:
            return "length", f"its {name} length is {tokens}, which is negative"
        if tokens > MAX_LENGTH_TOKENS:
            return "length", (
                f"its {name} length is {tokens:,}; no model takes more than "
                f"{MAX_LENGTH_TOKENS:,} tokens"
            )
    if prompt == 0:
        return "length", "its input length is 0; a request has at least 1 token in"
    if output == 0:
        return "no_output", "its output length is 0, so the request failed or gave nothing"
    if blocks is not None and not _fits(blocks, prompt, trace_block_tokens):
        return "blocks", (
            f"it has {len(blocks)} block ids of {trace_block_tokens} tokens for an input of "
            f"{prompt:,} tokens"
        )
    return "order", (
        f"it arrives {horizon - arrival:,.6g} s before a row more than {window:,} rows above it; "
        "sort the trace by time"
    )
