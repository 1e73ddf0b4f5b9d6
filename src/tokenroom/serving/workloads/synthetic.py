"""Workloads that are drawn: arrivals of a process, or users who wait for their answers.

- Open: requests come at times of an :class:`~.arrivals.ArrivalProcess`, however slow the engine is.
  With several turns each arrival begins a conversation, whose further messages follow a pause after
  the answer (``think``) or after the message before (``gap``).
- Closed: a fixed number of users, each of whom has one request in flight at most and pauses after
  its answer. The load adapts to the engine, so an engine is never more than ``users`` behind.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import WorkloadError
from tokenroom.serving.request import Request
from tokenroom.serving.workloads import draws
from tokenroom.serving.workloads.arrivals import ArrivalProcess, AtOnce
from tokenroom.serving.workloads.conversations import Conversation, Talk, begin
from tokenroom.serving.workloads.distributions import Distribution
from tokenroom.serving.workloads.reshaping import check_span

MAX_USERS: Final = 1_000_000
"""Each is held in memory with what it says next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticWorkload:
    """A workload by its description; the same description gives the same requests everywhere.

    Attributes:
        talk: What requests are made of.
        process: When requests, or conversations, begin; None for a fixed number of users.
        users: How many users there are; None for a process.
        think: Pause in seconds after an answer, of a user or within a conversation.
        gap: Pause in seconds after a message within a conversation, instead of ``think``.
        requests: How many there are at most; None for no limit.
        duration_seconds: No request arrives at this time or later; None for no limit.
        seed: Of all draws.
    """

    talk: Talk
    process: ArrivalProcess | None = None
    users: int | None = None
    think: Distribution | None = None
    gap: Distribution | None = None
    requests: int | None = None
    duration_seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.process is None) == (self.users is None):
            raise WorkloadError("a workload has either an arrival process or a number of users")
        if self.users is not None and self.users < 1:
            raise WorkloadError(f"there are {self.users} users; there must be at least 1")
        if self.users is not None and self.users > MAX_USERS:
            raise WorkloadError(f"there are {self.users:,} users; there may be {MAX_USERS:,}")
        if self.requests is None and self.duration_seconds is None:
            raise WorkloadError("the workload has no end; give requests=1000 or duration=10m")
        if isinstance(self.process, AtOnce) and self.requests is None:
            raise WorkloadError("requests that come all at once need a number; give requests=1000")
        if self.requests is not None and self.requests < 1:
            raise WorkloadError(f"requests is {self.requests}; it must be at least 1")
        if self.talk.turns is not None and (self.think is None) == (self.gap is None):
            raise WorkloadError(
                "conversations need either a pause after each answer or one after each message; "
                "give think=20s or gap=40s"
            )
        if self.gap is not None and (self.users is not None or self.talk.turns is None):
            raise WorkloadError(
                "gap is the pause after a message within conversations; give turns=, or think= "
                "for a pause after answers"
            )

    @property
    def waits_for_answers(self) -> bool:
        """Whether times of arrival depend on how fast requests are served."""
        return self.think is not None or self.users is not None

    def start(self) -> SyntheticRun:
        """A run from the beginning."""
        return SyntheticRun(self)

    def __iter__(self) -> Iterator[Request]:
        """The requests in order of arrival, as if every answer took no time.

        Raises:
            WorkloadError: Users send as many as they get answers, and no number is given.
        """
        if self.users is not None and self.requests is None:
            raise WorkloadError(
                "how many requests users send in a time depends on how fast they are answered; "
                "give requests=1000 to list them"
            )
        return _unhindered(self.start())


class SyntheticRun:
    """One run, as arrivals of the simulator: what follows what is decided as it goes."""

    __slots__ = (
        *("_begun", "_coming", "_created", "_following", "_shared", "_talking", "_timed"),
        "_workload",
    )

    def __init__(self, workload: SyntheticWorkload) -> None:
        """Begin a run."""
        self._workload = workload
        self._created = 0
        self._begun = 0
        self._talking: dict[int, Conversation] = {}
        alone = workload.talk.turns is None and workload.users is None
        self._shared = draws.stream(workload.seed, "lengths") if alone else None
        self._timed = self._by_process() if workload.users is None else self._first_of_users()
        self._coming = next(self._timed, None)
        self._following: list[tuple[float, int, Request]] = []

    def next_seconds(self) -> float | None:
        """When the next request arrives; None at the end, or while all wait for answers."""
        coming = None if self._coming is None else self._coming.arrival_seconds
        if self._following and (coming is None or self._following[0][0] < coming):
            return self._following[0][0]
        return coming

    def pop(self) -> Request:
        """The next request."""
        coming = self._coming
        if coming is None or (self._following and self._following[0][0] < coming.arrival_seconds):
            return heapq.heappop(self._following)[2]
        self._coming = next(self._timed, None)
        return coming

    def ended(self, request_id: int, seconds: float) -> None:
        """Let a user, or a conversation, go on after a pause."""
        workload = self._workload
        conversation = self._talking.pop(request_id, None)
        if conversation is None:
            return
        at = seconds + self._pause(conversation)
        if self._over(at):
            return
        request = self._next(conversation, at)
        if request is None and workload.users is not None:
            request = self._next(self._conversation(), at)
        if request is not None:
            heapq.heappush(self._following, (at, request.id, request))

    def _by_process(self) -> Iterator[Request]:
        """Requests whose time is known beforehand, in order of arrival."""
        workload = self._workload
        assert workload.process is not None
        process = workload.process.times(draws.stream(workload.seed, "arrivals"))
        later: list[tuple[float, int, Conversation]] = []
        start = next(process)
        while not self._over(min(start, later[0][0] if later else start)):
            if later and later[0][0] <= start:
                seconds, _, conversation = heapq.heappop(later)
            else:
                seconds, conversation = start, self._conversation()
                start = next(process)
            request = self._next(conversation, seconds)
            if request is None:
                continue
            yield request
            if workload.gap is not None:
                pause = max(0.0, workload.gap.draw(conversation.random))
                heapq.heappush(later, (seconds + pause, conversation.number, conversation))

    def _first_of_users(self) -> Iterator[Request]:
        """Each user's first request, after a first pause: users do not all begin at once."""
        workload = self._workload
        assert workload.users is not None
        self._begun = workload.users  # what follows is numbered behind everyone's first
        begun = (self._numbered(number) for number in range(1, workload.users + 1))
        coming: Iterable[tuple[float, int, Conversation]] = (
            (self._pause(each), each.number, each) for each in begun
        )
        if workload.think is not None:  # otherwise all come at once, and none is begun in vain
            coming = sorted(coming)
        for seconds, _, conversation in coming:
            if self._over(seconds):
                return
            request = self._next(conversation, seconds)
            assert request is not None  # a conversation has a first turn
            yield request

    def _pause(self, conversation: Conversation) -> float:
        think = self._workload.think
        return 0.0 if think is None else max(0.0, think.draw(conversation.random))

    def _conversation(self) -> Conversation:
        self._begun += 1
        return self._numbered(self._begun)

    def _numbered(self, number: int) -> Conversation:
        return begin(self._workload.talk, number, self._workload.seed, self._shared)

    def _next(self, conversation: Conversation, seconds: float) -> Request | None:
        check_span(seconds)
        request = conversation.turn(self._created, seconds)
        if request is not None:
            self._created += 1
            if self._workload.waits_for_answers:
                self._talking[request.id] = conversation
        return request

    def _over(self, seconds: float) -> bool:
        workload = self._workload
        if workload.requests is not None and self._created >= workload.requests:
            return True
        return workload.duration_seconds is not None and seconds >= workload.duration_seconds


def _unhindered(run: SyntheticRun) -> Iterator[Request]:
    """The requests of a run in which every answer takes no time, in order of arrival.

    The lengths, and what requests share, are those of any run; the times are the earliest there
    can be.
    """
    while run.next_seconds() is not None:
        request = run.pop()
        yield request
        run.ended(request.id, request.arrival_seconds)
