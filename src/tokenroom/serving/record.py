"""What became of a request, and what one step of the engine looked like."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Refusal(StrEnum):
    """Why a request is not served."""

    TOO_LONG = "too_long"
    """Its prompt leaves no room for an answer in ``max_model_len`` (the front end of vLLM says
    so)."""
    BEYOND_STEP = "beyond_step"
    """Its prompt is longer than a step, and prompts are not divided (TensorRT-LLM's
    ``max_num_tokens``)."""
    CONTEXT_FULL = "context_full"
    """It was being served when the cells that all share had run out, on which llama-server ends
    all requests with an error."""
    BEYOND_POOL = "beyond_pool"
    """The KV pool does not hold it even when it is alone: it would wait for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What became of one request; times are seconds from the start of the workload.

    Attributes:
        id: The request's.
        session: The request's.
        arrival_seconds: When it arrived.
        scheduled_seconds: When the first step that computed something of it began.
        first_token_seconds: When its first token came out.
        finish_seconds: When its last token came out.
        prompt_tokens: Length of the prompt.
        output_tokens: Tokens that came out: fewer than asked for where the context ended.
        cached_tokens: Tokens of the prompt that were in the cache when it was first let in.
        preemptions: How often it was preempted.
        refused: Why it was not served; its times are then that of its arrival, or of the error that
            ended it. None if it was.
        replica: The server of a fleet that wrote its answer.
    """

    id: int
    session: int | None
    arrival_seconds: float
    scheduled_seconds: float
    first_token_seconds: float
    finish_seconds: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int
    refused: Refusal | None = None
    replica: int = 0

    @property
    def ttft_seconds(self) -> float:
        """From its arrival to its first token."""
        return self.first_token_seconds - self.arrival_seconds

    @property
    def tpot_seconds(self) -> float | None:
        """Mean time of each token after the first; None of an answer of one token."""
        if self.output_tokens < 2:
            return None
        return (self.finish_seconds - self.first_token_seconds) / (self.output_tokens - 1)

    @property
    def e2e_seconds(self) -> float:
        """From its arrival to its last token."""
        return self.finish_seconds - self.arrival_seconds


class StepRecord(NamedTuple):
    """One step, as it ended.

    Attributes:
        start_seconds: When it began.
        end_seconds: When its tokens came out.
        tokens: Tokens that it computed.
        sequences: Requests of which it computed them.
        running: Requests that ran when it was decided.
        waiting: Requests that waited then.
        used_blocks: KV blocks that were held then.
        preempted: Requests that lost their blocks when it was decided.
        gaps: Times between two tokens of a request that ended with it, and how many.
        preempted_ids: Which requests lost their blocks, in that order.
        resumed_ids: Requests that ran again in it after they had lost their blocks.
        replica: The server of a fleet that ran it.
        rank: Its engine: which data-parallel copy.
    """

    start_seconds: float
    end_seconds: float
    tokens: int
    sequences: int
    running: int
    waiting: int
    used_blocks: int
    preempted: int
    gaps: list[tuple[float, int]]
    preempted_ids: tuple[int, ...] = ()
    resumed_ids: tuple[int, ...] = ()
    replica: int = 0
    rank: int = 0
