"""Which waiting requests SGLang lets into a step of prompts, and how much of each.

Follows ``PrefillAdder`` (``managers/schedule_policy.py``) and ``PrefillBudget``
(``mem_cache/prefill_budget.py``) of SGLang 0.5.23, for one pool of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from tokenroom.serving.radix_cache import RadixCache, RadixSequence

CLIP_MAX_NEW_TOKENS: Final = 4096
"""Most tokens of an answer that room is kept for (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""

_LAST_TOKENS: Final = 1
"""Tokens that stay free for each request that runs (``IGNORE_EOS_RESERVE_TOKENS``)."""


class Verdict(Enum):
    """What follows from looking at a request (``AddReqResult``)."""

    CONTINUE = auto()
    NO_TOKEN = auto()
    """The pool has no room."""
    OTHER = auto()
    """The step is full."""


class PrefillAdder:
    """One step of prompts in the making.

    Attributes:
        admitted: Requests whose prompts it computes, in order.
        chunked: The one whose prompt goes on after it.

    Args:
        cache: The pool.
        running: Requests that decode.
        new_token_ratio: Share of the rest of their answers that room is kept for.
        max_prefill_tokens: Most tokens of the step.
        chunked_prefill_size: Most tokens of it where prompts may be divided; None where not.
        prefill_max_requests: Most prompts of the step; None for any number.
        mixed_tokens: Tokens of answers that the step computes beside the prompts.
    """

    __slots__ = (
        "_cache",
        "_chunk_left",
        "_input_left",
        "_most_requests",
        "_now_offset",
        "_ratio",
        "_running",
        "_states",
        "_total_offset",
        "admitted",
        "chunked",
    )

    def __init__(
        self,
        cache: RadixCache,
        running: Sequence[RadixSequence],
        *,
        new_token_ratio: float,
        max_prefill_tokens: int,
        chunked_prefill_size: int | None,
        prefill_max_requests: int | None,
        mixed_tokens: int,
    ) -> None:
        self._cache = cache
        self._running = running
        self._ratio = new_token_ratio
        self._most_requests = prefill_max_requests
        self._input_left = max_prefill_tokens - mixed_tokens
        self._chunk_left = (
            None if chunked_prefill_size is None else chunked_prefill_size - mixed_tokens
        )
        kept: float = 0
        for sequence in running:
            kept += self._room_for_answer(sequence)
        self._total_offset = mixed_tokens + kept
        self._now_offset = mixed_tokens
        self._states: list[tuple[float, int]] | None = None
        self.admitted: list[RadixSequence] = []
        self.chunked: RadixSequence | None = None

    def _room_for_answer(self, sequence: RadixSequence) -> float:
        ratio = 1.0 if sequence.ignore_eos else self._ratio
        return min(sequence.max_new_tokens - sequence.answered, CLIP_MAX_NEW_TOKENS) * ratio

    @property
    def _total_left(self) -> float:
        return self._cache.obtainable_tokens - self._total_offset

    @property
    def _now_left(self) -> int:
        return self._cache.obtainable_tokens - self._now_offset

    def verdict(self) -> Verdict:
        """Whether another request may be looked at."""
        if self._total_left <= 0 or self._now_left <= 0:
            return Verdict.NO_TOKEN
        if self._input_left <= 0 or (self._chunk_left is not None and self._chunk_left <= 0):
            return Verdict.OTHER
        return Verdict.CONTINUE

    def go_on(self, sequence: RadixSequence) -> RadixSequence | None:
        """Compute the next chunk of a prompt; gives the request while its prompt goes on still."""
        assert self._chunk_left is not None
        room = min(self._chunk_left, int(self._total_left))
        if room <= 0:
            room = self._chunk_left  # it must go on, or it would never give back what it holds
        left = sequence.tokens - sequence.prefix
        new = min(left, room)
        sequence.extend_end = sequence.prefix + new
        self.admitted.append(sequence)
        answer = min(sequence.max_new_tokens, CLIP_MAX_NEW_TOKENS) if left <= room else 0
        self._reserve(new, answer)
        return sequence if left > room else None

    def add(self, sequence: RadixSequence) -> Verdict:
        """Let in a request whose prefix was looked up, if there is room; whether to go on."""
        if self._most_requests is not None and len(self.admitted) >= self._most_requests:
            return Verdict.OTHER
        if sequence.ignore_eos and not self._cache.enabled:
            return self._add_of_known_length(sequence)
        cache = self._cache
        new = sequence.tokens - sequence.prefix
        answer = min(max(sequence.max_new_tokens - sequence.answered, 0), CLIP_MAX_NEW_TOKENS)
        protected = sequence.last_node
        if protected is not None:
            cache.tree.lock(protected)  # what it has found is not to be counted as free
        try:
            if new + answer + cache.page_tokens >= self._total_left:
                return Verdict.NO_TOKEN
            paged = cache.pages(new)
            if self._chunk_left is None and self.admitted and paged >= self._input_left:
                return Verdict.OTHER
            answer = min(sequence.max_new_tokens, CLIP_MAX_NEW_TOKENS)
            if self._chunk_left is not None and paged > self._chunk_left:
                page = cache.page_tokens
                end = (sequence.prefix + self._chunk_left // page * page) // page * page
                new, answer = end - sequence.prefix, 0
                if new <= 0:
                    return Verdict.OTHER
                self.chunked = sequence
            cache.lock_prefix(sequence)
            self._commit(sequence, new, answer)
        finally:
            if protected is not None:
                cache.tree.unlock(protected)
        return self.verdict()

    def _add_of_known_length(self, sequence: RadixSequence) -> Verdict:
        """Let in a request without cached prefixes whose answer has a length known beforehand.

        It is let in when the pool holds everybody to the end, as each that ends gives back its
        tokens (``add_one_req_ignore_eos``).
        """
        cache = self._cache
        new = sequence.tokens - sequence.prefix
        paged = cache.pages(new) + cache.page_tokens
        if paged > min(self._now_left, self._total_left):
            return Verdict.NO_TOKEN
        if self._states is None:
            self._states = []
            for other in (sequence, *self._running, *self.admitted):
                state = self._state(other)
                if state[0] > 0:
                    self._states.append(state)
            self._states.sort(key=lambda state: state[0])
        elif (state := self._state(sequence))[0] > 0:
            at = 0
            for at in range(len(self._states)):
                if state[0] <= self._states[at][0]:
                    break
            self._states.insert(at, state)
        left: float = self._now_left - paged
        freed = 0
        for index, (tokens_left, occupied) in enumerate(self._states):
            count = len(self._states) - index
            if left + freed - tokens_left * count <= _LAST_TOKENS * count:
                return Verdict.NO_TOKEN
            freed += occupied
        answer = min(sequence.max_new_tokens, CLIP_MAX_NEW_TOKENS)
        if self._chunk_left is not None and new > self._chunk_left:
            if self._chunk_left <= 0:
                return Verdict.OTHER
            new, answer = self._chunk_left, 0
            self.chunked = sequence
        self._commit(sequence, new, answer)
        return self.verdict()

    def _state(self, sequence: RadixSequence) -> tuple[float, int]:
        """What is left of an answer, and the tokens that are free when it has ended."""
        ratio = 1.0 if sequence.ignore_eos else self._ratio
        return sequence.max_new_tokens * ratio - sequence.answered, sequence.tokens

    def _commit(self, sequence: RadixSequence, new: int, answer: int) -> None:
        sequence.extend_end = sequence.prefix + new
        self.admitted.append(sequence)
        self._reserve(new, answer)

    def _reserve(self, new: int, answer: int) -> None:
        paged = self._cache.pages(new)
        self._now_offset += paged + self._cache.page_tokens
        self._total_offset += paged + self._cache.page_tokens + answer
        self._input_left -= paged
        if self._chunk_left is not None:
            self._chunk_left -= paged
