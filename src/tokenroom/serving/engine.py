"""One engine: its scheduler with a clock, and the steps that are decided and not yet done."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import ReceivesKv, Scheduler, SendsKv, StepPlan
from tokenroom.serving.sequence import Sequence, Status

Fetch = Callable[[int, int], object]
"""Hears which request has been given blocks for KV that is to come, and how many to fill."""
StepSeconds = Callable[[StepPlan], float]
"""How long a step takes that runs as planned."""

_NOT_YET = -1.0


class Accelerators(Protocol):
    """What runs an engine's steps."""

    @property
    def batches(self) -> int | None:
        """Steps that may be decided and not done; None for what the scheduler keeps."""

    @property
    def keeps_empty(self) -> bool:
        """Whether decisions to run nothing take a place among them, behind steps that run."""

    def run(self, plan: StepPlan, now: float) -> tuple[float, float]:
        """When a step begins that is decided now, and when its tokens are back."""


class OneByOne:
    """Steps follow each other: each begins when it is decided and the one before has ended.

    Args:
        step_seconds: How long they take.
    """

    __slots__ = ("_free", "_step_seconds")

    batches: None = None
    keeps_empty = False

    def __init__(self, step_seconds: StepSeconds) -> None:
        self._step_seconds = step_seconds
        self._free = 0.0

    def run(self, plan: StepPlan, now: float) -> tuple[float, float]:
        """When a step begins that is decided now, and when it ends."""
        seconds = checked(self._step_seconds(plan), plan)
        start = max(now, self._free)
        self._free = start + seconds
        return start, self._free


def checked(seconds: float, plan: StepPlan) -> float:
    """The time of a step.

    Raises:
        WorkloadError: It is negative or not finite.
    """
    if not 0 <= seconds < math.inf:
        raise WorkloadError(
            f"a step of {sum(plan.tokens)} tokens takes {shown(seconds)} s; steps take a "
            "finite time of 0 or more"
        )
    return seconds


class _Times:
    """When a request in the engine was first scheduled, and when its tokens came out."""

    __slots__ = ("first_token", "last_token", "scheduled")

    def __init__(self) -> None:
        self.scheduled = self.first_token = self.last_token = _NOT_YET


class _Step(NamedTuple):
    plan: StepPlan | None
    start_seconds: float
    end_seconds: float


class Engine:
    """A scheduler in virtual time.

    Requests come in at any time (:meth:`add`) and reach the scheduler with its next decision.
    :meth:`begin` decides as many steps as may wait for each other: one, or under asynchronous
    scheduling also the one after it, as ``step_with_batch_queue`` of vLLM
    (``vllm/v1/engine/core.py``) does; a pipeline has its own number. :meth:`end` ends the oldest.

    Attributes:
        scheduler: What decides.
        number: Which engine of its server it is.
        replica: Which server it is of.
        batches: Steps that may be decided and not done.
        prompt_tokens_ahead: Tokens of prompts whose first answer token is not out.
        num_running: Requests that run, by the last decision and what ended since.
        used_blocks: KV blocks that were held at the last decision.

    Args:
        scheduler: What decides.
        accelerators: What runs the steps.
        number: Which engine of its server it is.
        replica: Which server it is of.
        usable_blocks: KV blocks that requests can hold; 0 where nobody asks how full it is.
        sends: The scheduler again, where it keeps what it computed until it is read.
        receives: The scheduler again, where KV of prompts comes from elsewhere.
        fetch: Hears whose KV is to come.
        observe: Called with each step when it has ended.
    """

    __slots__ = (
        "_accelerators",
        "_arriving",
        "_ended_at",
        "_fetch",
        "_inbox",
        "_kept",
        "_observe",
        "_receives",
        "_sends",
        "_steps",
        "_times",
        "_usable_blocks",
        "batches",
        "num_running",
        "number",
        "prompt_tokens_ahead",
        "replica",
        "scheduler",
        "used_blocks",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        accelerators: Accelerators,
        *,
        number: int = 0,
        replica: int = 0,
        usable_blocks: int = 0,
        sends: SendsKv | None = None,
        receives: ReceivesKv | None = None,
        fetch: Fetch | None = None,
        observe: Callable[[StepRecord], object] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.number = number
        self.replica = replica
        self.num_running = self.used_blocks = self.prompt_tokens_ahead = 0
        self._usable_blocks = usable_blocks
        self._accelerators = accelerators
        self.batches = accelerators.batches or (2 if scheduler.plans_ahead else 1)
        self._sends = sends
        self._kept: dict[int, Sequence] = {}
        self._receives = receives
        self._arriving: dict[int, Sequence] = {}
        self._fetch = fetch
        self._observe = observe
        self._inbox: deque[Request] = deque()
        self._steps: deque[_Step] = deque()
        self._times: dict[Sequence, _Times] = {}
        self._ended_at = _NOT_YET

    @property
    def in_flight(self) -> int:
        """Requests that wait or run."""
        return self.scheduler.unfinished + len(self._inbox)

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return self.in_flight - self.num_running

    @property
    def used_share(self) -> float:
        """Share of the KV blocks that were held at the last decision."""
        return self.used_blocks / self._usable_blocks if self._usable_blocks else 0.0

    def add(self, request: Request) -> None:
        """Let a request come in."""
        self.prompt_tokens_ahead += request.prompt_tokens
        self._inbox.append(request)

    def take_in(self) -> list[RequestRecord]:
        """Hand the scheduler what has come in; gives the records of what it refuses."""
        refused = []
        while self._inbox:
            request = self._inbox.popleft()
            why = self.scheduler.refusal(request)
            if why is None:
                self._times[self.scheduler.add(request)] = _Times()
            else:
                self.prompt_tokens_ahead -= request.prompt_tokens
                refused.append(_refused(request, why, self.replica))
        return refused

    def begin(self, now: float) -> float | None:
        """Decide what can be decided; when the oldest step ends, None with nothing to run."""
        steps = self._steps
        while len(steps) < self.batches:
            if (plan := self.decide()) is not None:
                steps.append(_Step(plan, *self._accelerators.run(plan, now)))
            elif self._accelerators.keeps_empty and any(step.plan is not None for step in steps):
                steps.append(_Step(None, now, steps[-1].end_seconds))
            else:
                break
        return steps[0].end_seconds if steps else None

    def end(self) -> list[RequestRecord]:
        """End the oldest step; gives the records of requests that ended with it."""
        plan, start, end = self._steps.popleft()
        return [] if plan is None else self.complete(plan, start, end)

    def decide(self) -> StepPlan | None:
        """What the scheduler decides to run next; None for nothing."""
        plan = self.scheduler.schedule()
        self.num_running, self.used_blocks = plan.num_running, plan.used_blocks
        if self._receives is not None and self._fetch is not None:
            for sequence, blocks in self._receives.wanted():
                self._arriving[sequence.request.id] = sequence
                self._fetch(sequence.request.id, blocks)
        awaits = plan.transfers is not None and plan.transfers.waits
        return plan if plan.sequences or awaits else None

    def complete(
        self, plan: StepPlan, start_seconds: float, end_seconds: float
    ) -> list[RequestRecord]:
        """Take in the tokens of a step; gives the records of requests that ended with it."""
        finished = self.scheduler.complete(plan)
        self.num_running -= len(finished)
        if not plan.sequences:
            return []  # it waited for transfers alone
        gaps = self._emit(plan, start_seconds, end_seconds)
        if self._observe is not None:
            self._observe(
                StepRecord(
                    start_seconds=start_seconds,
                    end_seconds=end_seconds,
                    tokens=sum(plan.tokens),
                    sequences=len(plan.sequences),
                    running=plan.num_running,
                    waiting=plan.num_waiting,
                    used_blocks=plan.used_blocks,
                    preempted=len(plan.preempted),
                    gaps=gaps,
                    preempted_ids=_ids(plan.preempted),
                    resumed_ids=_ids(plan.resumed),
                    replica=self.replica,
                    rank=self.number,
                )
            )
        if self._sends is not None:
            self._kept |= {sequence.request.id: sequence for sequence in finished}
        return [self._record(sequence, end_seconds) for sequence in finished]

    def release(self, request_id: int) -> None:
        """Give back what is kept of a request that has ended: it has been read."""
        assert self._sends is not None
        self._sends.release(self._kept.pop(request_id))

    def deliver(self, request_id: int) -> None:
        """Let the KV of a request's prompt arrive."""
        assert self._receives is not None
        self._receives.arrived(self._arriving.pop(request_id))

    @property
    def keeps_any(self) -> bool:
        """Whether it keeps anything for others to read."""
        return bool(self._kept)

    def keeps(self, request_id: int) -> bool:
        """Whether it keeps what it computed of a request."""
        return request_id in self._kept

    def awaits(self, request_id: int) -> bool:
        """Whether KV of a request is on its way to it."""
        return request_id in self._arriving

    def _emit(self, plan: StepPlan, start: float, clock: float) -> list[tuple[float, int]]:
        """Note the time of the tokens that came out; gives the times between two of a request."""
        times, before = self._times, self._ended_at
        for sequence in plan.admitted:
            times[sequence].scheduled = start
        silent = set(plan.silent)
        steady = 0
        others: dict[float, int] = {}
        for sequence in plan.sequences:
            if silent and sequence in silent:
                continue
            of_it = times.get(sequence)
            if of_it is None:
                continue  # it ended while this step was under way already
            last = of_it.last_token
            of_it.last_token = clock
            if last == before and last != _NOT_YET:
                steady += 1
            elif last == _NOT_YET:
                of_it.first_token = clock
                self.prompt_tokens_ahead -= sequence.prompt_tokens
            else:
                others[clock - last] = others.get(clock - last, 0) + 1
        self._ended_at = clock
        gaps = list(others.items())
        if steady:
            gaps.append((clock - before, steady))
        return gaps

    def _record(self, sequence: Sequence, now: float) -> RequestRecord:
        times, request = self._times.pop(sequence), sequence.request
        if sequence.status is Status.ABORTED:
            if times.first_token == _NOT_YET:
                self.prompt_tokens_ahead -= request.prompt_tokens
            return _refused(request, Refusal.CONTEXT_FULL, self.replica, now)
        return RequestRecord(
            id=request.id,
            session=request.session,
            arrival_seconds=request.arrival_seconds,
            scheduled_seconds=times.scheduled,
            first_token_seconds=times.first_token,
            finish_seconds=times.last_token,
            prompt_tokens=request.prompt_tokens,
            output_tokens=sequence.tokens - request.prompt_tokens,
            cached_tokens=sequence.hit_tokens or 0,
            preemptions=sequence.preemptions,
            replica=self.replica,
        )


def _ids(sequences: list[Sequence]) -> tuple[int, ...]:
    return tuple([sequence.request.id for sequence in sequences]) if sequences else ()


def _refused(
    request: Request, why: Refusal, replica: int, at: float | None = None
) -> RequestRecord:
    """Of one that is not served, or ended with an error at a time after its arrival."""
    arrival = request.arrival_seconds
    at = arrival if at is None else at
    return RequestRecord(
        id=request.id,
        session=request.session,
        arrival_seconds=arrival,
        scheduled_seconds=at,
        first_token_seconds=at,
        finish_seconds=at,
        prompt_tokens=request.prompt_tokens,
        output_tokens=0,
        cached_tokens=0,
        preemptions=0,
        refused=why,
        replica=replica,
    )
