"""Names of KV blocks that requests may share, at the block size of a deployment.

A name says *everything* up to the end of its block, as ``Request.block_hashes`` asks: equal names
mean equal tokens from the start on. A block that the tokens do not fill has no name, since engines
cache full blocks only (``vllm/v1/core/kv_cache_utils.py``: ``get_request_block_hasher`` stops at
the last full block).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

_MASK: Final = 2**60 - 1
_OWNER_SHIFT: Final = 40
"""Blocks of one owner are told apart by the token they end at, below 2**40."""


def renamed_blocks(
    ids: Sequence[int], prompt_tokens: int, *, trace_block_tokens: int, block_tokens: int
) -> tuple[int, ...]:
    """A trace's block ids as names of blocks of another size.

    A block of the new size is named by the trace's block that its last token lies in, by the
    blocks before that one, and by where in it the token lies. So what two requests share in the
    trace they share at any size, down to the last block of the new size inside of it; a trace does
    not tell of equal tokens beyond the last id that two requests share.

    Args:
        ids: One id for each block of the prompt, a partly filled last one among them.
        prompt_tokens: Length of the prompt.
        trace_block_tokens: Tokens in a block of the trace.
        block_tokens: Tokens in a block of the deployment.
    """
    names: list[int] = []
    for number, chain in enumerate(chained(ids)):
        start = number * trace_block_tokens
        end = min(start + trace_block_tokens, prompt_tokens)
        first_end = -(-(start + 1) // block_tokens) * block_tokens
        base = chain * trace_block_tokens - start - 1
        names.extend(range(base + first_end, base + end + 1, block_tokens))
    return tuple(names)


def chained(ids: Sequence[int]) -> Iterator[int]:
    """A number for each id of a request that stands for it and for all ids before it.

    Traces say that an id does so by itself; chained anew it does.
    """
    chain = 0
    for block in ids:
        chain = hash((chain, block)) & _MASK
        yield chain


def owned_blocks(owner: int, first_token: int, tokens: int, block_tokens: int) -> list[int]:
    """Names of the full blocks that end after ``first_token`` and not after ``tokens``.

    Args:
        owner: Who wrote the tokens: a conversation or a shared prompt, each with its own number.
        first_token: Tokens before the owner's.
        tokens: All tokens, the owner's last.
        block_tokens: Tokens in a block.
    """
    base = owner << _OWNER_SHIFT
    first_end = (first_token // block_tokens + 1) * block_tokens
    return list(range(base + first_end, base + tokens + 1, block_tokens))
