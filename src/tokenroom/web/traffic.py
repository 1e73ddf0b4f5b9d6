"""A workload that a client describes or sends, as arrivals, within what one run may cost."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from tokenroom.errors import WorkloadError
from tokenroom.serving.arrivals import Arrivals, OpenLoop
from tokenroom.serving.request import Request
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving.workloads.reshaping import (
    check_time_scale,
    limited,
    sped_up,
    windowed,
)
from tokenroom.serving.workloads.synthetic import SyntheticWorkload
from tokenroom.serving.workloads.written_values import window_of

if TYPE_CHECKING:
    from tokenroom.web.questions import SimulateQuestion

MAX_REQUESTS: Final = 20_000
"""Requests of one run; the command line has no such limit."""
MAX_TRACE_BYTES: Final = 11 * 2**20
"""Size of a trace as it is sent; it may be packed."""

_OF_NAME: Final = re.compile(r"[^\w.-]")
_PARQUET: Final = b"PAR1"


class Traffic(NamedTuple):
    """A workload that is ready to be served.

    Attributes:
        name: The trace's name, or the description.
        arrivals: Its requests.
        waits_for_answers: Whether a fixed number of users send them.
        total: How many there are; None where that depends on how fast they are served.
    """

    name: str
    arrivals: Arrivals
    waits_for_answers: bool
    total: int | None


@contextmanager
def traffic_of(question: SimulateQuestion, block_tokens: int) -> Iterator[Traffic]:
    """The workload that a question holds; a trace lies in a private file until it is served.

    Args:
        question: What a client asks.
        block_tokens: Tokens in the blocks that shared prefixes are named by.

    Raises:
        WorkloadError: It cannot be read or meant, or is larger than one run may be.
    """
    check_workload(question)
    if question.workload is not None:
        yield _drawn(question, question.workload, block_tokens)
        return
    with TemporaryDirectory(prefix="tokenroom-") as folder:
        yield _traced(question, Path(folder), block_tokens)


def check_workload(question: SimulateQuestion) -> None:
    """Refuse what can be refused before anything is read or drawn.

    Raises:
        WorkloadError: There is no workload or more than one, its description cannot be meant, or
            the bytes of its trace cannot be taken.
    """
    names = ("workload", "trace", "trace_base64")
    given = [name for name in names if getattr(question, name) is not None]
    if len(given) != 1:
        raise WorkloadError(
            f"{' and '.join(given) or 'no workload'} {'are' if given else 'is'} given; give one of "
            "workload, such as poisson:rate=5,input=1024,output=256, trace, and trace_base64"
        )
    drawn = given == ["workload"]
    unused = ("format", "columns", "trace_name", "skip_bad") if drawn else ("seed",)
    for name in unused:
        if getattr(question, name) not in (None, False):
            raise WorkloadError(
                f"{name} does not go with {'a drawn workload' if drawn else 'a trace'}; leave it "
                "out"
            )
    scale = question.time_scale
    if scale is not None:
        check_time_scale(scale, "time_scale")
    if drawn:
        _described(question)
    else:
        _trace_bytes(question)


def _described(question: SimulateQuestion, block_tokens: int = 16) -> SyntheticWorkload:
    """The description that a question holds, with its seed; it may name no file."""
    assert question.workload is not None
    workload = parse_workload(question.workload, block_tokens=block_tokens, allow_files=False)
    if question.seed is not None:
        workload = replace(workload, seed=question.seed)
    if workload.users is not None and workload.users > MAX_REQUESTS:
        raise WorkloadError(
            f"workload has {workload.users:,} users; at most {MAX_REQUESTS:,} are simulated here"
        )
    return workload


def _trace_bytes(question: SimulateQuestion) -> bytes:
    """What the trace that was sent holds."""
    if question.trace is not None:
        content = question.trace.encode("utf-8", "surrogatepass")
    else:
        assert question.trace_base64 is not None
        try:
            content = base64.b64decode(question.trace_base64, validate=True)
        except ValueError as problem:
            raise WorkloadError(f"trace_base64 is no base64 ({problem}); send it whole") from None
    if len(content) > MAX_TRACE_BYTES:
        raise WorkloadError(
            f"the trace has {len(content):,} bytes, and {MAX_TRACE_BYTES:,} may be sent; pack it "
            "with gzip, or send a part of it"
        )
    if content.startswith(_PARQUET):
        raise WorkloadError("the trace is Parquet, which is not read here; send CSV or JSON Lines")
    return content


def _drawn(question: SimulateQuestion, text: str, block_tokens: int) -> Traffic:
    workload = _described(question, block_tokens)
    if not workload.waits_for_answers:
        counted = _counted(_part(workload, question))
        return Traffic(text, OpenLoop(_part(workload, question)), False, counted)
    for name in ("window", "time_scale"):
        if getattr(question, name) is not None:
            raise WorkloadError(
                f"{name} is of arrivals that are known beforehand, and users wait for their "
                "answers; leave it out"
            )
    given = [count for count in (workload.requests, question.limit) if count is not None]
    total = min(given) if given else None
    if total is not None:
        _check_total(total)
    workload = replace(workload, requests=MAX_REQUESTS + 1 if total is None else total)
    arrivals = _Bounded(workload.start())
    # with a time of its own a workload may end before it has sent them all
    told = total if workload.duration_seconds is None else None
    return Traffic(text, arrivals, workload.users is not None, told)


def _traced(question: SimulateQuestion, folder: Path, block_tokens: int) -> Traffic:
    from tokenroom.serving.workloads.columns import parse_columns
    from tokenroom.serving.workloads.trace import Trace, TraceOptions

    name = _OF_NAME.sub("_", question.trace_name or "")[-100:].lstrip(".")
    path = folder / (name or "trace")
    path.write_bytes(_trace_bytes(question))
    trace = Trace(
        path,
        TraceOptions(
            format=question.format,
            columns=None if question.columns is None else parse_columns(question.columns),
            skip_bad=question.skip_bad,
            block_tokens=block_tokens,
        ),
    )
    total = _counted(_part(trace, question))
    return Traffic(path.name, OpenLoop(_part(trace, question)), False, total)


def _part(requests: Iterable[Request], question: SimulateQuestion) -> Iterable[Request]:
    """The part that is asked for, in the speed that is asked for."""
    if question.window is not None:
        requests = windowed(requests, *window_of(question.window, "window"))
    if question.time_scale is not None:
        requests = sped_up(requests, 1 / question.time_scale)
    return requests if question.limit is None else limited(requests, question.limit)


def _counted(requests: Iterable[Request]) -> int:
    """How many there are; reading them beforehand also finds a bad row before the run begins."""
    total = sum(1 for _ in islice(requests, MAX_REQUESTS + 1))
    _check_total(total)
    return total


def _check_total(total: int) -> None:
    if total > MAX_REQUESTS:
        raise WorkloadError(
            f"the workload has more than the {MAX_REQUESTS:,} requests that are simulated here; "
            "give limit, a window, or fewer requests"
        )


class _Bounded:
    """Arrivals that are not known beforehand, and may be no more than one run may have."""

    __slots__ = ("_arrivals", "_count", "ended", "next_seconds")

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._count = 0
        self.next_seconds = arrivals.next_seconds
        self.ended = arrivals.ended

    def pop(self) -> Request:
        self._count += 1
        _check_total(self._count)
        return self._arrivals.pop()
