"""Static batching: a batch is assembled, padded and run to the end of its longest answer.

What serving was before iteration-level scheduling (Orca, OSDI 2022, figure 3), and what
transformers' ``generate`` does with a batch (``generation/utils.py`` ``_sample``, 5.24: rows that
have ended are computed on as padding until all have).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenroom.errors import DeploymentError, shown
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.request_queue import FcfsQueue
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.sequence import Sequence, Status

_COUNTS = ("batch_size", "max_model_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticSchedulerConfig:
    """What bounds a batch.

    Attributes:
        batch_size: Most requests of a batch, each with a cache of ``max_model_len`` tokens.
        max_model_len: The longest padded prompt and the longest answer of a batch together.

    Raises:
        DeploymentError: A count below 1.
    """

    batch_size: int
    max_model_len: int

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise DeploymentError(
                    f"{name} is {shown(getattr(self, name))}; it must be 1 or more"
                )


class StaticScheduler:
    """One batch at a time, of those who wait when the one before has ended.

    Prompts are computed in one step, padded to the longest. Then each step computes one token of
    every row, whether its answer goes on or not. A request is over when its batch is: its last
    token is told then, those before it as they are computed.

    Attributes:
        config: What bounds a batch.
        batch: The requests that run.
        waiting: Requests that wait.
    """

    __slots__ = ("_added", "_length", "_steps", "_width", "batch", "config", "waiting")

    def __init__(self, config: StaticSchedulerConfig) -> None:
        self.config = config
        self.batch: list[Sequence] = []
        self.waiting = FcfsQueue()
        self._added = 0
        self._width = 0  # tokens of the longest prompt
        self._length = 0  # tokens of the longest answer
        self._steps = 0  # that have been decided of this batch

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self.batch) + len(self.waiting)

    @property
    def plans_ahead(self) -> bool:
        """No: what ends a batch is seen when a step has returned."""
        return False

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request would not be served at all; None if it would."""
        too_long = request.prompt_tokens >= self.config.max_model_len
        return Refusal.TOO_LONG if too_long else None

    def add(self, request: Request) -> Sequence:
        """Queue a request."""
        sequence = Sequence(request, self.config.max_model_len, 0, self._added, -1)
        self._added += 1
        self.waiting.add(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """End a request early; in a running batch its row is computed on."""
        if sequence.status is Status.WAITING:
            self.waiting.remove([sequence])
        if not sequence.ended:
            sequence.status = Status.ABORTED
        if all(one.ended for one in self.batch):
            self.batch = []

    def schedule(self) -> StepPlan:
        """Decide the next step of the batch, or of the next one."""
        plan = StepPlan()
        if not self.batch:
            self._assemble(plan)
        batch = self.batch
        plan.sequences = list(batch)
        first = self._steps == 0
        if batch:
            self._steps += 1
        tokens, context = (self._width, 0) if first else (1, self._width + self._steps - 2)
        plan.tokens = [tokens] * len(batch)
        plan.contexts = [context] * len(batch)
        ends = self._steps >= self._length
        # The last token of an answer comes with the end of the batch.
        plan.silent = [
            one for one in batch if one.ended or (not ends and one.tokens + 1 >= one.last_tokens)
        ]
        plan.used_blocks = len(batch)
        plan.num_running = len(batch)
        plan.num_waiting = len(self.waiting)
        return plan

    def _assemble(self, plan: StepPlan) -> None:
        """Take waiting requests in their order while the batch has room for the next."""
        config, waiting = self.config, self.waiting
        self._width = self._length = self._steps = 0
        while waiting and len(self.batch) < config.batch_size:
            sequence = waiting.first()
            width = max(self._width, sequence.prompt_tokens)
            length = max(self._length, sequence.last_tokens - sequence.prompt_tokens)
            if width + length > config.max_model_len:
                break
            self._width, self._length = width, length
            sequence.status = Status.RUNNING
            sequence.hit_tokens = 0
            self.batch.append(waiting.pop())
            plan.admitted.append(sequence)

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step; gives the batch when it has ended."""
        silent = set(plan.silent)
        for sequence in plan.sequences:
            if sequence not in silent and not sequence.ended:
                sequence.tokens += 1
        if not self.batch or self._steps < self._length:
            return []
        finished = [one for one in self.batch if not one.ended]
        for sequence in finished:
            sequence.status = Status.FINISHED
        self.batch = []
        return finished
