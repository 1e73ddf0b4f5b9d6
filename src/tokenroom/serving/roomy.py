"""Serving by vLLM's scheduler while its KV pool has room for all: the same steps, found sooner.

Where nobody waits for blocks and no prompt begins like another, a step is decided by tokens and
requests alone (:mod:`~tokenroom.serving.schedulers.vllm`): running requests first, then waiting
ones as budget and ``max_num_seqs`` allow. While all of them decode, steps follow each other alike,
so that only their times are left to be added up. Records are those of
:func:`~tokenroom.serving.simulator.simulate` to the last bit; what is not covered is told, and
served step by step instead.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.compiled.coverage import covers
from tokenroom.serving.engine import checked
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.sequence import Sequence
from tokenroom.serving.step_table import StepTable


class _Request(Sequence):
    """One in the engine, with times of its own and the blocks of all its tokens."""

    __slots__ = ("first_token", "scheduled", "whole_blocks")

    first_token: float
    scheduled: float
    whole_blocks: int


class _Step(NamedTuple):
    """A decided step.

    Attributes:
        getting: Requests that get a token with it.
        admitted: Those that it computes first.
        start: When it begins, in seconds.
        end: When its tokens are out.
    """

    getting: list[_Request]
    admitted: list[_Request]
    start: float
    end: float


class _NoRoomError(Exception):
    """What comes is not covered."""


def is_covered(config: object, table: StepTable) -> bool:
    """Whether a scheduler with these settings is one whose steps are found so."""
    return (
        covers(config, table)
        and isinstance(config, VllmSchedulerConfig)
        and not config.long_prefill_token_threshold
        and config.enable_chunked_prefill
    )


class RoomyServing:
    """One run of a workload; see the module.

    Attributes:
        max_running: Requests that ran at once, at most.
        mean_waiting: Requests that waited, on average over the time of steps.
        max_waiting: The most of them.
        max_used_blocks: KV blocks that were held, at most.

    Args:
        config: Settings that :func:`is_covered`.
        table: How long steps take.
        delay_seconds: What passes between the arrival of a request and its reaching the engine.
    """

    def __init__(
        self,
        config: VllmSchedulerConfig,
        table: StepTable,
        delay_seconds: Callable[[Request], float],
    ) -> None:
        self.max_running = self.max_waiting = self.max_used_blocks = 0
        self._config = config
        self._table = table
        self._delay_seconds = delay_seconds
        self._block = config.groups[0].block_tokens
        self._batches = config.max_concurrent_batches
        self._room = config.num_blocks - 1 - int(config.watermark * config.num_blocks)
        self._promised = 0
        self._running: list[_Request] = []
        self._waiting: deque[_Request] = deque()
        self._entering: list[tuple[float, int, Request]] = []
        self._inbox: list[Request] = []
        self._steps: deque[_Step] = deque()
        self._free = 0.0
        self._added = 0
        self._busy_seconds = self._waited_seconds = 0.0
        self._ended_at = 0.0

    @property
    def mean_waiting(self) -> float:
        """Requests that waited, on average over the time of steps."""
        return self._waited_seconds / self._busy_seconds if self._busy_seconds else 0.0

    def serve(self, arrivals: Arrivals) -> list[RequestRecord] | None:
        """Records of a workload in the order of their end; None where it is not covered.

        Arrivals have then been read from.
        """
        try:
            return self._serve(arrivals)
        except _NoRoomError:
            return None

    def _serve(self, arrivals: Arrivals) -> list[RequestRecord]:
        records: list[RequestRecord] = []
        begins: float | None = None
        while True:
            entering = self._entering[0][0] if self._entering else math.inf
            due = arrivals.next_seconds()
            ends = self._steps[0].end if self._steps and begins is None else math.inf
            if (
                due is not None
                and due < entering
                and due < ends
                and (begins is None or due <= begins)
            ):
                self._accept(arrivals.pop(), due)
            elif ends < math.inf and ends <= entering:
                for record in self._end():
                    arrivals.ended(record.id, ends)
                    records.append(record)
                begins = ends
            elif entering < math.inf and (begins is None or entering <= begins):
                now, _, request = heappop(self._entering)
                self._inbox.append(request)
                if begins is None and not self._steps:
                    begins = now
            elif begins is not None:
                self._begin(begins)
                begins = None
                self._leap(entering if due is None else min(due, entering))
            else:
                return records

    def _accept(self, request: Request, now: float) -> None:
        reaches = now + self._delay_seconds(request)
        heappush(self._entering, (reaches, self._added, request))
        self._added += 1

    def _begin(self, now: float) -> None:
        """Let in what has come, and decide as many steps as may wait for each other."""
        for request in self._inbox:
            self._waiting.append(self._taken_in(request))
        self._inbox.clear()
        while len(self._steps) < self._batches and self._decide(now):
            pass

    def _taken_in(self, request: Request) -> _Request:
        config = self._config
        whole = min(request.prompt_tokens + request.output_tokens, config.max_model_len)
        blocks = -(-whole // self._block)
        refused = request.prompt_tokens >= config.max_model_len or blocks >= config.num_blocks
        if refused or request.block_hashes:
            raise _NoRoomError
        sequence = _Request(request, config.max_model_len, 0, 0, 0)
        sequence.first_token = -1.0
        sequence.whole_blocks = blocks
        return sequence

    def _decide(self, now: float) -> bool:
        """Decide the next step, as ``VllmScheduler.schedule`` does; False for nothing to run."""
        plan = StepPlan()
        getting: list[_Request] = []
        gets, tokens, contexts = getting.append, plan.tokens.append, plan.contexts.append
        budget = self._config.step_tokens
        for sequence in self._running:
            if not budget:
                break
            context = sequence.computed
            if context >= sequence.prompt_tokens:  # it decodes, up to the token before its last
                if context >= sequence.last_tokens - 1:
                    continue
                new = 1
                gets(sequence)
            else:
                new = min(sequence.prompt_tokens - context, budget)
                if context + new == sequence.prompt_tokens:
                    gets(sequence)
            budget -= new
            tokens(new)
            contexts(context)
            sequence.computed = context + new
        admitted = []
        while budget and self._waiting and len(self._running) < self._config.max_num_seqs:
            sequence = self._waiting.popleft()
            self._promised += sequence.whole_blocks
            if self._promised > self._room:
                raise _NoRoomError
            self._running.append(sequence)
            admitted.append(sequence)
            new = min(sequence.prompt_tokens, budget)
            if new == sequence.prompt_tokens:
                gets(sequence)
            budget -= new
            tokens(new)
            contexts(0)
            sequence.computed = new
        if not plan.tokens:
            return False
        seconds = checked(self._table(plan), plan)
        start = max(now, self._free)
        self._free = start + seconds
        self._note(start, len(self._waiting))
        self._steps.append(_Step(getting, admitted, start, self._free))
        return True

    def _note_held(self) -> None:
        """Blocks that are held, which grow until a request ends."""
        size = self._block
        used = sum(-(-sequence.computed // size) for sequence in self._running)
        self.max_used_blocks = max(self.max_used_blocks, used)

    def _note(self, start: float, waiting: int) -> None:
        """Count a step, or several that follow each other, up to where the last ends."""
        seconds = self._free - max(start, self._ended_at)
        self._ended_at = self._free
        self._busy_seconds += seconds
        self._waited_seconds += seconds * waiting
        self.max_running = max(self.max_running, len(self._running))
        self.max_waiting = max(self.max_waiting, waiting)

    def _end(self) -> list[RequestRecord]:
        """End the oldest step; gives the records of requests that end with it."""
        getting, admitted, start, end = self._steps.popleft()
        for sequence in admitted:
            sequence.scheduled = start
        finished = []
        for sequence in getting:
            sequence.tokens += 1
            if sequence.first_token < 0:
                sequence.first_token = end
            if sequence.tokens >= sequence.last_tokens:
                finished.append(sequence)
        if not finished:
            return []
        self._note_held()
        for sequence in finished:
            self._promised -= sequence.whole_blocks
        self._running = [each for each in self._running if each.tokens < each.last_tokens]
        return [_record(sequence, end) for sequence in finished]

    def _leap(self, comes: float) -> None:
        """Let steps in which all decode follow each other, until one ends or somebody comes.

        Args:
            comes: When the next request arrives or reaches the engine.
        """
        running, steps = self._running, self._steps
        count = len(running)
        if (
            len(steps) < self._batches
            or count > self._config.step_tokens
            or (self._waiting and count < self._config.max_num_seqs)
        ):
            return
        left: float = math.inf
        for sequence in running:
            if sequence.computed < sequence.prompt_tokens:
                return
            left = min(left, sequence.last_tokens - 1 - sequence.computed)
        if left < 1:
            return
        seconds_at = self._table.decode_seconds(count)
        contexts = sum(sequence.computed for sequence in running)
        issued = ended = 0
        getting: list[_Request] = list(running)
        first = self._free  # steps are under way, so that the next begins when the last ends
        while issued < left and steps[0].end < comes:
            if steps[0].getting is getting:
                steps.popleft()
                ended += 1
            else:
                self._end()  # nobody's last: all have a step before them
            start = self._free
            self._free = start + seconds_at(contexts / count)
            steps.append(_Step(getting, [], start, self._free))
            contexts += count
            issued += 1
        if issued:
            self._note(first, len(self._waiting))
            for sequence in running:
                sequence.computed += issued
                sequence.tokens += ended


def _record(sequence: _Request, now: float) -> RequestRecord:
    request = sequence.request
    return RequestRecord(
        id=request.id,
        session=request.session,
        arrival_seconds=request.arrival_seconds,
        scheduled_seconds=sequence.scheduled,
        first_token_seconds=sequence.first_token,
        finish_seconds=now,
        prompt_tokens=request.prompt_tokens,
        output_tokens=sequence.tokens - request.prompt_tokens,
        cached_tokens=0,
        preemptions=0,
    )
