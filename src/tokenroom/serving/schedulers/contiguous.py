"""Continuous batching over reservations: each request has its cache in one piece from the start.

What engines did before paging: iteration-level scheduling as Orca's (OSDI 2022), with a piece of
memory for the longest request, or for as long as the request will become ("Orca (Max)" and "Orca
(Oracle)" of the vLLM paper, SOSP 2023, section 6.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenroom.errors import DeploymentError, shown
from tokenroom.memory.allocation import Allocator, Sharing, Space
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.request_queue import FcfsQueue
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.sequence import Sequence, Status

_COUNTS = ("pool_tokens", "max_model_len", "max_num_batched_tokens", "max_num_seqs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContiguousSchedulerConfig:
    """The pool and what a step may hold.

    Attributes:
        pool_tokens: Tokens of the KV pool.
        max_model_len: The longest context.
        max_num_batched_tokens: Most tokens of a step.
        max_num_seqs: Most requests that run at a time.
        knows_length: A request reserves what it will need; otherwise ``max_model_len`` tokens.
        asynchronous: A step is decided before the one before it has returned.

    Raises:
        DeploymentError: A count below 1.
    """

    pool_tokens: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    knows_length: bool = False
    asynchronous: bool = True

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise DeploymentError(
                    f"{name} is {shown(getattr(self, name))}; it must be 1 or more"
                )


class ContiguousScheduler:
    """Running requests first, then waiting ones while pieces, places and tokens last.

    Pieces are taken first fit from the low end of the pool. The first request that finds none lets
    all behind it wait. Nobody is ever preempted: what a request may need is its own.

    Attributes:
        config: Its settings.
        running: Requests that run, in the order in which they were let in.
        waiting: Requests that wait.
        space: The pool, in tokens.
        pieces: Where the piece of each running request begins.
    """

    __slots__ = ("_added", "_allocator", "config", "pieces", "running", "space", "waiting")

    def __init__(self, config: ContiguousSchedulerConfig) -> None:
        self.config = config
        self.running: list[Sequence] = []
        self.waiting = FcfsQueue()
        self.space = Space(config.pool_tokens)
        self._allocator = Allocator(
            sharing=Sharing.CONTIGUOUS,
            max_tokens=config.max_model_len,
            knows_length=config.knows_length,
        )
        self.pieces: dict[Sequence, int] = {}
        self._added = 0

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self.running) + len(self.waiting)

    @property
    def plans_ahead(self) -> bool:
        """Whether a step is decided before the one before it has returned."""
        return self.config.asynchronous

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request would not be served at all; None if it would."""
        config = self.config
        if request.prompt_tokens >= config.max_model_len:
            return Refusal.TOO_LONG
        tokens = min(request.prompt_tokens + request.output_tokens, config.max_model_len)
        if self._allocator.reserved_tokens(tokens) > config.pool_tokens:
            return Refusal.BEYOND_POOL
        return None

    def add(self, request: Request) -> Sequence:
        """Queue a request."""
        sequence = Sequence(request, self.config.max_model_len, 0, self._added, -1)
        self._added += 1
        self.waiting.add(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """End a request early, wherever it stands; one that has ended stays so."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
            self._give_back(sequence)
        elif sequence.status is Status.WAITING:
            self.waiting.remove([sequence])
        else:
            return
        sequence.status = Status.ABORTED

    def schedule(self) -> StepPlan:
        """Decide the next step: running requests first, then waiting ones, as tokens remain."""
        plan = StepPlan()
        budget = self.config.max_num_batched_tokens
        for sequence in self.running:
            if not budget:
                break
            budget -= self._compute(plan, sequence, budget)
        waiting, running = self.waiting, self.running
        while budget and waiting and len(running) < self.config.max_num_seqs:
            sequence = waiting.first()
            piece = self._allocator.reserved_tokens(sequence.last_tokens)
            address = self.space.take(piece, 0)
            if address is None:
                break
            waiting.pop()
            self.pieces[sequence] = address
            running.append(sequence)
            sequence.status = Status.RUNNING
            sequence.hit_tokens = 0
            plan.admitted.append(sequence)
            budget -= self._compute(plan, sequence, budget)
        plan.used_blocks = self.space.taken
        plan.num_running = len(running)
        plan.num_waiting = len(waiting)
        return plan

    def _compute(self, plan: StepPlan, sequence: Sequence, budget: int) -> int:
        """Schedule what is left of a prompt, or one token more; gives how many tokens that is."""
        context = sequence.computed
        end = min(max(sequence.prompt_tokens, context + 1), sequence.last_tokens - 1)
        tokens = min(end - context, budget)
        if tokens <= 0:
            return 0  # its last token is on its way
        plan.sequences.append(sequence)
        plan.tokens.append(tokens)
        plan.contexts.append(context)
        sequence.computed = context + tokens
        if sequence.computed < sequence.prompt_tokens:
            plan.silent.append(sequence)
        return tokens

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step, in the order of scheduling; gives what it finished."""
        silent = set(plan.silent)
        finished = []
        for sequence in plan.sequences:
            if sequence.ended or sequence in silent:
                continue
            sequence.tokens += 1
            if sequence.tokens >= sequence.last_tokens:
                self._give_back(sequence)
                sequence.status = Status.FINISHED
                finished.append(sequence)
        if finished:
            self.running = [sequence for sequence in self.running if not sequence.ended]
        return finished

    def _give_back(self, sequence: Sequence) -> None:
        piece = self._allocator.reserved_tokens(sequence.last_tokens)
        self.space.give(self.pieces.pop(sequence), piece, 0)
