"""The contract of a scheduler: what the simulator asks of it, and what one step runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.sequence import Sequence


class Transfer(NamedTuple):
    """Blocks that move between the GPUs and the host.

    Attributes:
        job: Its number.
        blocks: How many.
    """

    job: int
    blocks: int


@dataclass(slots=True)
class Transfers:
    """What moves between the GPUs and the host with a step.

    Attributes:
        loads: From the host, from the step's beginning on.
        stores: To the host, from the beginning of the next step on.
        awaited: Those that must have ended before the step begins.
        waits: Some are under way, so that there is something to wait for with nothing to compute.
        ended: Those that ended by the step's end; who runs the step notes them.
    """

    loads: list[Transfer]
    stores: list[Transfer]
    awaited: set[int]
    waits: bool
    ended: list[int] = field(default_factory=list)


class StepPlan:
    """What one step runs, and what the scheduler looked like when it had decided so.

    Attributes:
        sequences: Scheduled requests, in the scheduler's order.
        tokens: Tokens that each computes.
        contexts: Tokens of each that were computed before.
        silent: Those of them whose prompt goes on; all others get an answer token.
        drafted: Drafted tokens among those of a request, which the step verifies.
        admitted: Those that run for the first time.
        resumed: Those that run again after a preemption.
        preempted: Requests that lost their blocks, in that order.
        used_blocks: Blocks that are held.
        num_running: Requests that run.
        num_waiting: Requests that wait.
        passes: What the model computes one after another, of an engine that divides its steps;
            empty for all at once.
        transfers: What moves between the GPUs and the host; None where nothing ever does.
    """

    __slots__ = (
        "admitted",
        "contexts",
        "drafted",
        "num_running",
        "num_waiting",
        "passes",
        "preempted",
        "resumed",
        "sequences",
        "silent",
        "tokens",
        "transfers",
        "used_blocks",
    )

    def __init__(self) -> None:
        self.sequences: list[Sequence] = []
        self.tokens: list[int] = []
        self.contexts: list[int] = []
        self.silent: list[Sequence] = []
        self.drafted: dict[Sequence, int] = {}
        self.admitted: list[Sequence] = []
        self.resumed: list[Sequence] = []
        self.preempted: list[Sequence] = []
        self.used_blocks = 0
        self.num_running = 0
        self.num_waiting = 0
        self.passes: tuple[StepPlan, ...] = ()
        self.transfers: Transfers | None = None

    def prefills(self) -> list[tuple[int, int]]:
        """Chunks of prompts: tokens and the context before them."""
        return [
            (tokens, context)
            for tokens, context in zip(self._undrafted(), self.contexts, strict=True)
            if tokens > 1
        ]

    def decode_contexts(self) -> list[int]:
        """Tokens in the cache of each request that computes one token, beside drafted ones."""
        return [
            context
            for tokens, context in zip(self._undrafted(), self.contexts, strict=True)
            if tokens == 1
        ]

    def _undrafted(self) -> list[int]:
        """Tokens that each request computes, drafted ones left out."""
        if not self.drafted:
            return self.tokens
        return [
            tokens - self.drafted.get(sequence, 0)
            for sequence, tokens in zip(self.sequences, self.tokens, strict=True)
        ]


class Scheduler(Protocol):
    """What decides, step by step, which requests compute how many tokens."""

    def add(self, request: Request) -> Sequence:
        """Queue a request."""

    def abort(self, sequence: Sequence) -> None:
        """End a request early, wherever it stands."""

    def schedule(self) -> StepPlan:
        """Decide the next step."""

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in what a step returned, in the order of scheduling; gives what it finished."""

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request would not be served at all; None if it would."""

    @property
    def plans_ahead(self) -> bool:
        """Whether a step is decided before the one before it has returned."""

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""


class SendsKv(Scheduler, Protocol):
    """A scheduler that keeps what it has computed of a request until somebody has read it."""

    def release(self, sequence: Sequence) -> None:
        """Give back the blocks of a request that has ended: they have been read."""


class ReceivesKv(Scheduler, Protocol):
    """A scheduler whose requests get the KV of their prompts from elsewhere."""

    def wanted(self) -> list[tuple[Sequence, int]]:
        """Requests that have been given blocks since the last call, and how many to fill."""

    def arrived(self, sequence: Sequence) -> None:
        """Hear that the blocks of a request are filled."""
