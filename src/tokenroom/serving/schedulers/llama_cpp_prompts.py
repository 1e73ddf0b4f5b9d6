"""Prompts that llama-server keeps: in its slots, and in host memory beside them.

Follows ``server_tokens::get_common_prefix`` and ``server_prompt_cache`` of ``tools/server``,
llama.cpp 0c1e57098. Prompts are compared by names of blocks of :data:`BLOCK_TOKENS` tokens, where
llama-server compares tokens: what two prompts have in common is rounded down to such blocks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tokenroom.serving.sequence import Sequence

BLOCK_TOKENS: Final = 16
"""Tokens that one entry of ``Request.block_hashes`` adds."""
_CELL_BYTES: Final = 12
"""What a saved cell says beside keys and values: its place, and the one sequence that it is of
(``state_write_meta`` of ``src/llama-kv-cache.cpp``)."""
_LEAST_KEPT: Final = 0.25
"""Share of a kept prompt that a new one must have in common with it to take it over."""


class Prompt(NamedTuple):
    """The first tokens of a request, as a cache holds them.

    Attributes:
        owner: Whose tokens they are.
        tokens: How many.
    """

    owner: Sequence
    tokens: int

    def in_common(self, other: Sequence, tokens: int) -> int:
        """Tokens from the start on that are those of another request, among its first ones."""
        most = min(self.tokens, tokens)
        if other is self.owner:
            return most
        mine, theirs = self.owner.request.block_hashes, other.request.block_hashes
        # Each name stands for all that comes before, so those in common are the first ones.
        low, high = 0, min(len(mine), len(theirs), most // BLOCK_TOKENS)
        while low < high:
            middle = (low + high + 1) // 2
            if mine[middle - 1] == theirs[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low * BLOCK_TOKENS

    def is_within(self, other: Prompt) -> bool:
        """Whether the other one begins with all of it, as far as whole blocks tell."""
        if self.tokens > other.tokens:
            return False
        common = self.in_common(other.owner, other.tokens)
        return common >= max(BLOCK_TOKENS, self.tokens - self.tokens % BLOCK_TOKENS) or (
            other.owner is self.owner
        )


class PromptStore:
    """Prompts in host memory (``--cache-ram``), the oldest first to go.

    Args:
        limit_bytes: What they may take.
        token_bytes: What a token of one takes: its cells in every layer.
    """

    __slots__ = ("_limit_tokens", "prompts")

    def __init__(self, limit_bytes: int, token_bytes: int) -> None:
        self._limit_tokens = limit_bytes // (token_bytes + _CELL_BYTES)
        self.prompts: list[Prompt] = []

    def save(self, prompt: Prompt) -> None:
        """Keep a copy, unless a longer one with the same start is kept already (``alloc``)."""
        if not prompt.tokens or prompt.tokens > self._limit_tokens:
            return
        if any(prompt.is_within(kept) for kept in self.prompts):
            return
        self.prompts = [kept for kept in self.prompts if not kept.is_within(prompt)]
        held = sum(kept.tokens for kept in self.prompts)
        while held + prompt.tokens > self._limit_tokens:
            held -= self.prompts.pop(0).tokens
        self.prompts.append(prompt)

    def take_better(self, held: Prompt | None, wanted: Sequence) -> Prompt | None:
        """Take out what serves a new request better than what its slot holds (``load``).

        Better is what has more in common with it, and of which more is then kept.
        """
        asked = wanted.prompt_tokens
        kept_share, common_share = -1.0, 0.0
        if held is not None and held.tokens:
            common = held.in_common(wanted, asked)
            kept_share, common_share = common / held.tokens, common / asked
        best = None
        for prompt in self.prompts:
            common = prompt.in_common(wanted, asked)
            kept = common / prompt.tokens
            if kept >= _LEAST_KEPT and kept > kept_share and common / asked > common_share:
                best, kept_share, common_share = prompt, kept, common / asked
        if best is None:
            return held
        self.prompts.remove(best)
        return best
