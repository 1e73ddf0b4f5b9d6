"""An engine in virtual time: requests arrive, the scheduler decides steps, steps take time.

One engine, step by step, with nothing drawn: the same workload gives the same records to the last
bit. Requests are read as they arrive and records are given out as they end, so that memory holds
no more than what is in the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import Scheduler, StepPlan
from tokenroom.serving.sequence import Sequence

StepSeconds = Callable[[StepPlan], float]
"""How long a step takes that runs as planned."""

_NOT_YET = -1.0


class _Times:
    """When a request in the engine was first scheduled, and when its tokens came out."""

    __slots__ = ("first_token", "last_token", "scheduled")

    def __init__(self) -> None:
        self.scheduled = self.first_token = self.last_token = _NOT_YET


def simulate(
    arrivals: Arrivals,
    scheduler: Scheduler,
    step_seconds: StepSeconds,
    *,
    observe: Callable[[StepRecord], object] | None = None,
    delay_seconds: Callable[[Request], float] | None = None,
) -> Iterator[RequestRecord]:
    """Serve a workload; gives each request's record when it ends, in that order.

    A request that arrives during a step waits for the next decision. Under asynchronous
    scheduling that is made when the step before begins, as vLLM's ``step_with_batch_queue``
    (``vllm/v1/engine/core.py``) does: it also waits for the step that is prepared already.

    Args:
        arrivals: The requests.
        scheduler: What decides the steps.
        step_seconds: How long a planned step takes.
        observe: Called with each step when it has ended.
        delay_seconds: What passes between the arrival of a request and its reaching the scheduler.

    Raises:
        WorkloadError: Requests are out of order, a step takes a negative or no finite time, or the
            scheduler holds requests that it never schedules.
    """
    engine = _Engine(scheduler, step_seconds, observe)
    entering: list[tuple[float, int, Request]] = []
    serial = 0
    while True:
        while (due := arrivals.next_seconds()) is not None and due <= engine.clock:
            request = arrivals.pop()
            delay = 0.0 if delay_seconds is None else delay_seconds(request)
            heappush(entering, (request.arrival_seconds + delay, serial, request))
            serial += 1
        while entering and entering[0][0] <= engine.clock:
            request = heappop(entering)[2]
            refused = scheduler.refusal(request)
            if refused is None:
                engine.add(request)
            else:
                arrivals.ended(request.id, engine.clock)
                yield _refused(request, refused)
        if arrivals.next_seconds() is not None and _is_due(arrivals, engine.clock):
            continue  # a user whose request was refused asks again at once
        if engine.busy:
            for record in engine.step():
                arrivals.ended(record.id, record.finish_seconds)
                yield record
            if not engine.stalled:
                continue
        times = [entering[0][0]] if entering else []
        if (due := arrivals.next_seconds()) is not None:
            times.append(due)
        if not times:
            if engine.busy:
                raise WorkloadError(
                    f"{scheduler.unfinished} requests wait and none can be scheduled; the engine "
                    "would hang: give it a larger KV pool or step budget"
                )
            return
        engine.clock = max(engine.clock, min(times))


def _is_due(arrivals: Arrivals, clock: float) -> bool:
    due = arrivals.next_seconds()
    return due is not None and due <= clock


def _ids(sequences: list[Sequence]) -> tuple[int, ...]:
    return tuple([sequence.request.id for sequence in sequences]) if sequences else ()


def _refused(request: Request, why: Refusal) -> RequestRecord:
    at = request.arrival_seconds
    return RequestRecord(
        id=request.id,
        session=request.session,
        arrival_seconds=at,
        scheduled_seconds=at,
        first_token_seconds=at,
        finish_seconds=at,
        prompt_tokens=request.prompt_tokens,
        output_tokens=0,
        cached_tokens=0,
        preemptions=0,
        refused=why,
    )


class _Engine:
    """The scheduler with a clock, and with the step that is prepared while another runs."""

    __slots__ = (
        "_ahead",
        "_ended_at",
        "_observe",
        "_prepared",
        "_scheduler",
        "_step_seconds",
        "_times",
        "clock",
        "stalled",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        step_seconds: StepSeconds,
        observe: Callable[[StepRecord], object] | None,
    ) -> None:
        self._scheduler = scheduler
        self._step_seconds = step_seconds
        self._observe = observe
        self._ahead = scheduler.plans_ahead
        self._prepared: StepPlan | None = None
        self._times: dict[Sequence, _Times] = {}
        self._ended_at = _NOT_YET
        self.clock = 0.0
        self.stalled = False

    @property
    def busy(self) -> bool:
        """Whether there is anything to decide or to run."""
        return self._prepared is not None or self._scheduler.unfinished > 0

    def add(self, request: Request) -> None:
        """Let a request reach the scheduler."""
        self._times[self._scheduler.add(request)] = _Times()

    def step(self) -> list[RequestRecord]:
        """Decide a step, and run it or the one that was decided before; who ended with it."""
        plan = self._scheduler.schedule()
        if self._ahead:
            running, self._prepared = self._prepared, plan if plan.sequences else None
            # With nothing to run meanwhile, what was just decided starts at once.
            self.stalled = running is None and self._prepared is None
            return [] if running is None else self._run(running)
        self.stalled = not plan.sequences
        return [] if self.stalled else self._run(plan)

    def _run(self, plan: StepPlan) -> list[RequestRecord]:
        seconds = self._step_seconds(plan)
        if not 0 <= seconds < math.inf:
            raise WorkloadError(
                f"a step of {sum(plan.tokens)} tokens takes {shown(seconds)} s; steps take a "
                "finite time of 0 or more"
            )
        start, self.clock = self.clock, self.clock + seconds
        finished = self._scheduler.complete(plan)
        gaps = self._emit(plan, start)
        if self._observe is not None:
            self._observe(
                StepRecord(
                    start_seconds=start,
                    end_seconds=self.clock,
                    tokens=sum(plan.tokens),
                    sequences=len(plan.sequences),
                    running=plan.num_running,
                    waiting=plan.num_waiting,
                    used_blocks=plan.used_blocks,
                    preempted=len(plan.preempted),
                    gaps=gaps,
                    preempted_ids=_ids(plan.preempted),
                    resumed_ids=_ids(plan.resumed),
                )
            )
        return [self._record(sequence) for sequence in finished]

    def _emit(self, plan: StepPlan, start: float) -> list[tuple[float, int]]:
        """Note the time of the tokens that came out; gives the times between two of a request."""
        times, clock, before = self._times, self.clock, self._ended_at
        for sequence in plan.admitted:
            times[sequence].scheduled = start
        silent = set(plan.silent)
        steady = 0
        others: dict[float, int] = {}
        for sequence in plan.sequences:
            if silent and sequence in silent:
                continue
            of_it = times[sequence]
            last = of_it.last_token
            of_it.last_token = clock
            if last == before and last != _NOT_YET:
                steady += 1
            elif last == _NOT_YET:
                of_it.first_token = clock
            else:
                others[clock - last] = others.get(clock - last, 0) + 1
        self._ended_at = clock
        gaps = list(others.items())
        if steady:
            gaps.append((clock - before, steady))
        return gaps

    def _record(self, sequence: Sequence) -> RequestRecord:
        times, request = self._times.pop(sequence), sequence.request
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
        )
