"""One of vLLM's engines while its KV pool has room for all who run: the same steps, found sooner.

Where nobody loses blocks, no prompt begins like another and a step has tokens for everyone who
runs, a step is decided by counts alone: all whose prompts are computed get one token each, the
prompt that is divided and then waiting ones get what is left of tokens and blocks
(:mod:`~tokenroom.serving.schedulers.vllm` and
:mod:`~tokenroom.serving.schedulers.vllm_transfers`). So it is known of a request when it is let
in with which step it ends, and steps up to where anything happens follow each other at once.
Decisions, times and records are those of :class:`~tokenroom.serving.engine.Engine` with those
schedulers to the last bit; what is not covered raises :class:`NoRoomError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tokenroom.serving.compiled.coverage import covers
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.step_table import StepTable


class NoRoomError(Exception):
    """What comes is not covered."""


class RoomyRequest:
    """One in the engine.

    Attributes:
        request: What arrived.
        prompt_tokens: Of it.
        last_tokens: Prompt and answer when it ends.
        computed: Tokens of the prompt whose KV is computed, or scheduled to be.
        scheduled: When the first step began that computes any of it, in seconds.
        first_token: When its first token was out.
    """

    __slots__ = (
        "computed",
        "first_token",
        "last_tokens",
        "prompt_tokens",
        "request",
        "scheduled",
    )

    first_token: float
    scheduled: float

    def __init__(self, request: Request, last_tokens: int) -> None:
        self.request = request
        self.prompt_tokens = request.prompt_tokens
        self.last_tokens = last_tokens
        self.computed = 0


_NOBODY: Final[Sequence[RoomyRequest]] = ()


class _Step(NamedTuple):
    """A decided step.

    Attributes:
        number: Which one of the engine's it is.
        firsts: Requests that get their first token with it.
        admitted: Those that it computes first.
        start: When it begins, in seconds.
        end: When its tokens are out.
    """

    number: int
    firsts: Sequence[RoomyRequest]
    admitted: Sequence[RoomyRequest]
    start: float
    end: float


def is_covered(config: object, table: StepTable) -> bool:
    """Whether a scheduler with these settings is one whose steps are found so."""
    return (
        covers(config, table)
        and isinstance(config, VllmSchedulerConfig)
        and not config.long_prefill_token_threshold
        and config.enable_chunked_prefill
        and config.max_num_seqs <= config.step_tokens
    )


class RoomyEngine:
    """An engine in virtual time, as a :class:`~tokenroom.serving.replica.Replica` has it.

    Attributes:
        number: Which engine of its server it is.
        num_running: Requests that run, by the last decision and what ended since.
        used_blocks: KV blocks that were held at the last decision.
        prompt_tokens_ahead: Tokens of prompts whose first answer token is not out.
        max_running: Requests that ran at once, at most, over steps.
        max_waiting: The most requests that waited, likewise.
        max_used_blocks: The most blocks that were held, likewise.
        busy_seconds: Time in which steps ran.
        waited_seconds: Of that, the time of each request that waited.

    Args:
        config: Settings that :func:`is_covered`.
        table: How long steps take.
        comes: When the next thing happens outside of the engine, infinity for never.
        replica: Which server it is of.
        keeps: Blocks of requests that have ended are held until they are given back.
    """

    number = 0

    def __init__(
        self,
        config: VllmSchedulerConfig,
        table: StepTable,
        comes: Callable[[], float],
        *,
        replica: int = 0,
        keeps: bool = False,
    ) -> None:
        self.num_running = self.used_blocks = self.prompt_tokens_ahead = 0
        self.max_running = self.max_waiting = self.max_used_blocks = 0
        self.busy_seconds = self.waited_seconds = 0.0
        self._config = config
        self._table = table
        self._comes = comes
        self._replica = replica
        self._keeps = keeps
        self._batches = config.max_concurrent_batches
        self._block = block = config.groups[0].block_tokens
        self._usable = config.num_blocks - 1
        self._spare = int(config.watermark * config.num_blocks)
        self._used = 0
        self._inbox: list[Request] = []
        self._waiting: deque[RoomyRequest] = deque()
        self._divided: RoomyRequest | None = None
        self._decoding = self._contexts = 0
        # Decoding requests by when they need a block: where step and phase add up to whole blocks.
        self._phases = [0] * block
        self._ending: dict[int, list[RoomyRequest]] = {}
        self._kept: dict[int, RoomyRequest] = {}
        self._decode_seconds: dict[int, Callable[[float], float]] = {}
        self._steps: deque[_Step] = deque()
        self._decided = 0
        self._free = 0.0

    @property
    def in_flight(self) -> int:
        """Requests that wait or run."""
        return self.num_running + self.num_waiting

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return len(self._inbox) + self._queued

    @property
    def used_share(self) -> float:
        """Share of the KV blocks that were held at the last decision."""
        return self.used_blocks / self._usable

    @property
    def keeps_any(self) -> bool:
        """Whether it keeps anything for others to read."""
        return bool(self._kept)

    @property
    def _queued(self) -> int:
        """Requests that wait for their turn."""
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Let a request come in."""
        self.prompt_tokens_ahead += request.prompt_tokens
        self._inbox.append(request)

    def take_in(self) -> list[RequestRecord]:
        """Queue what has come in; nothing is refused.

        Raises:
            NoRoomError: It would be, or it names blocks that it may share.
        """
        for request in self._inbox:
            self._waiting.append(self._taken_in(request))
        self._inbox.clear()
        return []

    def begin(self, now: float) -> float | None:
        """Decide steps up to one with which a request ends, or before which something comes.

        Returns:
            When the oldest of them ends that has not; None with nothing to run.

        Raises:
            NoRoomError: The pool has no room for all who run.
        """
        steps, ending, batches = self._steps, self._ending, self._batches
        while len(steps) < batches and self._decide(now):
            pass
        comes = self._comes() if steps else 0.0
        if len(steps) == batches and not self._has_prompts():
            self._decode_on(comes)
        while steps and steps[0].end < comes and steps[0].number not in ending:
            ended = self._pop()
            while len(steps) < batches and self._decide(ended.end):
                pass
        return steps[0].end if steps else None

    def end(self) -> list[RequestRecord]:
        """End the oldest step; gives the records of requests that ended with it."""
        step = self._pop()
        finished = self._ending.pop(step.number, None)
        if finished is None:
            return []
        self.num_running -= len(finished)
        for sequence in finished:
            if self._keeps:
                self._kept[sequence.request.id] = sequence
            else:
                self._give_back(sequence)
        return [self._record(sequence, step.end) for sequence in finished]

    def keeps(self, request_id: int) -> bool:
        """Whether it keeps what it computed of a request."""
        return request_id in self._kept

    def release(self, request_id: int) -> None:
        """Give back what is kept of a request that has ended: it has been read."""
        self._give_back(self._kept.pop(request_id))

    def awaits(self, request_id: int) -> bool:
        """Whether KV of a request is on its way to it: of none."""
        return False

    def deliver(self, request_id: int) -> None:
        """Let the KV of a request's prompt arrive, which none awaits here."""
        raise KeyError(request_id)

    def _taken_in(self, request: Request) -> RoomyRequest:
        config = self._config
        whole = min(request.prompt_tokens + request.output_tokens, config.max_model_len)
        blocks = -(-whole // self._block)
        refused = request.prompt_tokens >= config.max_model_len or blocks >= config.num_blocks
        if refused or request.block_hashes:
            raise NoRoomError
        return RoomyRequest(request, whole)

    def _hold(self, blocks: int) -> None:
        """Give so many more blocks to those who run, of which somebody else has to lose none."""
        self._used += blocks
        if self._used > self._usable:
            raise NoRoomError

    def _fits(self, tokens: int) -> bool:
        """Whether there are free blocks for so many tokens of one who waits."""
        spare = self._spare if self.num_running else 0
        return -(-tokens // self._block) <= self._usable - self._used - spare

    def _give_back(self, sequence: RoomyRequest) -> None:
        """Take back the blocks of a request; of its last token nothing is computed."""
        self._used -= -(-(sequence.last_tokens - 1) // self._block)

    def _begun(self, admitted: list[RoomyRequest]) -> Iterator[tuple[RoomyRequest, int, int]]:
        """Prompts that the next step computes: tokens, and those before them; notes new ones."""
        budget = self._config.step_tokens - self._decoding
        if self._divided is not None:
            chunk = self._chunk(self._divided, budget)
            budget -= chunk[1]
            yield chunk
        while budget and self._has_next(budget):
            sequence = self._waiting.popleft()
            self.num_running += 1
            admitted.append(sequence)
            chunk = self._chunk(sequence, budget)
            budget -= chunk[1]
            yield chunk

    def _chunk(self, sequence: RoomyRequest, budget: int) -> tuple[RoomyRequest, int, int]:
        context, size = sequence.computed, self._block
        tokens = min(sequence.prompt_tokens - context, budget)
        sequence.computed = context + tokens
        self._divided = sequence if sequence.computed < sequence.prompt_tokens else None
        self._hold(-(-sequence.computed // size) - -(-context // size))
        return sequence, tokens, context

    def _has_prompts(self) -> bool:
        """Whether the next step may compute any of a prompt."""
        return self._divided is not None or self._has_next(
            self._config.step_tokens - self._decoding
        )

    def _has_next(self, budget: int) -> bool:
        """Whether one who waits can be let in, for so many tokens of a step."""
        config = self._config
        if not self._waiting or self.num_running >= config.max_num_seqs:
            return False
        tokens = self._waiting[0].prompt_tokens
        return self._fits(tokens if config.scheduler_reserve_full_isl else min(tokens, budget))

    def _reserve(self) -> None:
        """Give blocks to those who need them before their turn: to nobody."""

    def _decide(self, now: float) -> bool:
        """Decide the next step; False for nothing to run."""
        firsts: list[RoomyRequest] = []
        admitted: list[RoomyRequest] = []
        chunks: list[tuple[int, int]] = []
        rows, contexts = self._decoding, self._contexts
        self._hold(self._phases[-self._decided % self._block])
        if self._has_prompts():
            for sequence, tokens, context in self._begun(admitted):
                if tokens > 1:
                    chunks.append((tokens, context))
                else:
                    rows += 1
                    contexts += context
                if sequence.computed == sequence.prompt_tokens:
                    firsts.append(sequence)
        self._reserve()
        self.used_blocks = self._used
        if not rows and not chunks:
            return False
        if chunks:
            seconds = self._table.seconds(rows, contexts, chunks)
        else:
            seconds = self._seconds_of(rows)(contexts / rows)
        self._advance(firsts)
        start = max(now, self._free)
        self._free = end = start + seconds
        self._steps.append(_Step(self._decided, firsts, admitted, start, end))
        self._decided += 1
        self._note(end - start)
        return True

    def _seconds_of(self, count: int) -> Callable[[float], float]:
        found = self._decode_seconds.get(count)
        if found is None:
            found = self._decode_seconds[count] = self._table.decode_seconds(count)
        return found

    def _decode_on(self, comes: float) -> None:
        """Let steps follow each other in which all who run decode, as :meth:`_decide` does.

        They are under way all the time, so that the next begins when the last ends; up to the last
        step of a request, and up to when something comes.
        """
        steps, ending, phases = self._steps, self._ending, self._phases
        rows, size, number, end = self._decoding, self._block, self._decided, self._free
        if not rows:
            return
        seconds_at, contexts, used, begun = self._seconds_of(rows), self._contexts, self._used, end
        oldest = steps[0]
        while number not in ending and oldest.end < comes and oldest.number not in ending:
            self._pop()
            start = end
            end = start + seconds_at(contexts / rows)
            used += phases[-number % size]
            if used > self._usable:
                raise NoRoomError
            contexts += rows
            steps.append(_Step(number, _NOBODY, _NOBODY, start, end))
            number += 1
            oldest = steps[0]
        if number > self._decided:
            self._decided, self._free, self._contexts = number, end, contexts
            self._used = self.used_blocks = used
            self._note(end - begun)

    def _advance(self, firsts: list[RoomyRequest]) -> None:
        """Go on by a step: each who decodes by a token, and after it those with a first one."""
        number, phases, size = self._decided, self._phases, self._block
        self._contexts += self._decoding
        for sequence in self._ending.get(number, ()):
            computed = sequence.last_tokens - 1
            self._decoding -= 1
            self._contexts -= computed
            phases[(computed - number - 1) % size] -= 1
        for sequence in firsts:
            prompt = sequence.prompt_tokens
            more = sequence.last_tokens - 1 - prompt
            self._ending.setdefault(number + more, []).append(sequence)
            if more:
                self._decoding += 1
                self._contexts += prompt
                phases[(prompt - number - 1) % size] += 1

    def _note(self, seconds: float) -> None:
        """Count a step that takes so long."""
        waiting = self._queued
        self.busy_seconds += seconds
        self.waited_seconds += seconds * waiting
        if self.num_running > self.max_running:
            self.max_running = self.num_running
        if waiting > self.max_waiting:
            self.max_waiting = waiting
        if self.used_blocks > self.max_used_blocks:
            self.max_used_blocks = self.used_blocks

    def _pop(self) -> _Step:
        """End the oldest step, without what ends with it."""
        step = self._steps.popleft()
        for sequence in step.admitted:
            sequence.scheduled = step.start
        for sequence in step.firsts:
            sequence.first_token = step.end
            self.prompt_tokens_ahead -= sequence.prompt_tokens
        return step

    def _record(self, sequence: RoomyRequest, now: float) -> RequestRecord:
        request = sequence.request
        return RequestRecord(
            id=request.id,
            session=request.session,
            arrival_seconds=request.arrival_seconds,
            scheduled_seconds=sequence.scheduled,
            first_token_seconds=sequence.first_token,
            finish_seconds=now,
            prompt_tokens=request.prompt_tokens,
            output_tokens=sequence.last_tokens - request.prompt_tokens,
            cached_tokens=0,
            preemptions=0,
            replica=self._replica,
        )
