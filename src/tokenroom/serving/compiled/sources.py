"""Where the compiled engine's requests come from: some at a time, as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.compiled.state import ENTERING, NO_SESSION
from tokenroom.serving.request import Request

_AT_ONCE: Final = 4096


class Batch(NamedTuple):
    """Requests in the order of their arrival, and up to when they are all.

    Attributes:
        entering: :data:`~.state.ENTERING` of them; ``names`` count from the beginning of these.
        names: Names of blocks that they may share, one request's after another's.
        horizon: No request that comes later arrives before this time, in seconds.
    """

    entering: Any
    names: Any
    horizon: float


class Source(Protocol):
    """Gives requests when the engine needs them.

    Attributes:
        given: Requests that were given out.
        last_arrival: When the last of them arrives, in seconds.
        names_prefixes: Some of them says which of its blocks others may have.
    """

    given: int
    last_arrival: float
    names_prefixes: bool

    def take(self, clock: float) -> Batch:
        """Those that have arrived by ``clock``, and maybe some that come later."""

    def ended(self, done: Any, clock: float) -> None:
        """Hear of :data:`~.state.ENDED` requests at once."""


class Delay(NamedTuple):
    """What passes between the arrival of a request and its reaching the scheduler.

    Attributes:
        request_seconds: Of every request.
        token_seconds: For each token of its prompt.
    """

    request_seconds: float
    token_seconds: float


def entering(requests: Iterable[Request], delay: Delay, block_tokens: int) -> tuple[Any, Any]:
    """Requests as :data:`~.state.ENTERING`, and the names of their blocks."""
    rows = []
    names: list[int] = []
    for request in requests:
        shared = request.block_hashes
        rows.append(
            (
                0.0,
                request.arrival_seconds,
                request.id,
                NO_SESSION if request.session is None else request.session,
                len(names),
                len(shared),
                request.prompt_tokens,
                request.output_tokens,
                len(shared),
                block_tokens,
            )
        )
        names += [name & MASK for name in shared] if shared else ()
    table = np.array(rows, ENTERING)
    delayed(table, delay)
    return table, np.array(names, np.uint64).view(np.int64)


def delayed(table: Any, delay: Delay) -> None:
    """Note when requests reach the scheduler."""
    table["enters"] = table["arrival"] + (
        delay.request_seconds + table["prompt"] * delay.token_seconds
    )


MASK: Final = 2**64 - 1
"""Names are told apart by 64 bits."""


class OpenSource:
    """Requests that arrive when they do, whatever becomes of those before.

    Attributes:
        given: Requests that were given out.
        last_arrival: When the last of them arrives, in seconds.
        names_prefixes: Some of them says which of its blocks others may have.

    Args:
        tables: They as :data:`~.state.ENTERING` with the names of their blocks, in order.
    """

    __slots__ = ("_tables", "given", "last_arrival", "names_prefixes")

    def __init__(self, tables: Iterator[tuple[Any, Any]]) -> None:
        self._tables = tables
        self.given = 0
        self.last_arrival = 0.0
        self.names_prefixes = False

    def take(self, clock: float) -> Batch:
        """The next ones."""
        table, names = next(self._tables, (np.zeros(0, ENTERING), np.zeros(0, np.int64)))
        if not len(table):
            return Batch(table, names, math.inf)
        self.given += len(table)
        self.last_arrival = float(table["arrival"][-1])
        self.names_prefixes |= len(names) > 0
        return Batch(table, names, self.last_arrival)

    def ended(self, done: Any, clock: float) -> None:
        """Nothing: nobody waits."""


class AwaitedSource:
    """Requests of users who wait for their answers.

    Attributes:
        given: Requests that were given out.
        last_arrival: When the last of them arrived, in seconds.
        names_prefixes: Some of them says which of its blocks others may have.

    Args:
        arrivals: They.
        delay: What passes before they reach the scheduler.
        block_tokens: Tokens in the blocks that their names are of.
    """

    __slots__ = (
        "_arrivals",
        "_block_tokens",
        "_delay",
        "given",
        "last_arrival",
        "names_prefixes",
    )

    def __init__(self, arrivals: Arrivals, delay: Delay, block_tokens: int) -> None:
        self._arrivals = arrivals
        self._delay = delay
        self._block_tokens = block_tokens
        self.given = 0
        self.last_arrival = 0.0
        self.names_prefixes = False

    def take(self, clock: float) -> Batch:
        """Those that have arrived."""
        due = []
        while (seconds := self._arrivals.next_seconds()) is not None and seconds <= clock:
            due.append(self._arrivals.pop())
        if due:
            self.last_arrival = due[-1].arrival_seconds
        table, names = entering(due, self._delay, self._block_tokens)
        self.given += len(table)
        self.names_prefixes |= len(names) > 0
        return Batch(table, names, math.inf if seconds is None else seconds)

    def ended(self, done: Any, clock: float) -> None:
        """Let those whose answer it is go on."""
        for request, finish, refused in zip(
            done["id"].tolist(), done["finish"].tolist(), done["refused"].tolist(), strict=True
        ):
            self._arrivals.ended(request, clock if refused else finish)


def tables_of(arrivals: Arrivals, delay: Delay, block_tokens: int) -> Iterator[tuple[Any, Any]]:
    """Requests that do not depend on answers, as :class:`OpenSource` takes them."""
    requests = _popped(arrivals)
    while some := list(islice(requests, _AT_ONCE)):
        yield entering(some, delay, block_tokens)


def _popped(arrivals: Arrivals) -> Iterator[Request]:
    while arrivals.next_seconds() is not None:
        yield arrivals.pop()
