"""A request as a scheduler holds it: how far it has come and which blocks it has."""

from __future__ import annotations

from enum import IntEnum

from tokenroom.serving.kv_group import NEVER
from tokenroom.serving.request import Request


class Status(IntEnum):
    """Where a request stands."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3
    ABORTED = 4


class Sequence:
    """The progress of one request; only its scheduler changes it.

    Attributes:
        request: What arrived.
        status: Where it stands.
        order: How many were added before it; of those that arrive at one time it is the later.
        tokens: Prompt and answer so far.
        last_tokens: Prompt and answer when it ends.
        computed: Tokens whose KV is computed, or scheduled to be.
        in_flight: Scheduled tokens whose step has not returned.
        quiet_tokens: Computed tokens up to which it gets one token after another and its blocks
            need no change; 0 while its prompt is computed.
        commit_at: Computed tokens at which its next full blocks are cached.
        blocks: Its blocks in each KV group; the null block for those not kept.
        cached: Blocks of each group that are cached, or that were never to be.
        released: Leading blocks of each group that were given back, or never kept.
        own_name: Names of its own blocks count down from here.
        junction: Tokens of a prefix that some KV groups have and others have not, 0 if none.
        hit_tokens: Tokens that were in the cache when it was first let in; None before.
        preemptions: How often it was preempted.
    """

    __slots__ = (
        "arrival_seconds",
        "blocks",
        "cached",
        "commit_at",
        "computed",
        "hit_tokens",
        "in_flight",
        "junction",
        "last_tokens",
        "order",
        "own_name",
        "preemptions",
        "priority",
        "prompt_tokens",
        "quiet_tokens",
        "released",
        "request",
        "status",
        "tokens",
    )

    def __init__(
        self, request: Request, max_model_len: int, groups: int, order: int, own_name: int
    ) -> None:
        self.request = request
        self.order = order
        self.priority = request.priority
        self.arrival_seconds = request.arrival_seconds
        self.prompt_tokens = request.prompt_tokens
        self.status = Status.WAITING
        self.tokens = request.prompt_tokens
        self.last_tokens = min(request.prompt_tokens + request.output_tokens, max_model_len)
        self.computed = 0
        self.in_flight = 0
        self.quiet_tokens = 0
        self.commit_at = NEVER
        self.blocks: list[list[int]] = [[] for _ in range(groups)]
        self.cached = [0] * groups
        self.released = [0] * groups
        self.own_name = own_name
        self.junction = 0
        self.hit_tokens: int | None = None
        self.preemptions = 0

    @property
    def ended(self) -> bool:
        """Whether it is done with, finished or aborted."""
        return self.status >= Status.FINISHED

    def block_name(self, index: int) -> int:
        """The hash of a full block of the hash block size: a shared one, or its own."""
        shared = self.request.block_hashes
        return shared[index] if index < len(shared) else self.own_name - index
