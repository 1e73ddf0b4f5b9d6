"""How much of a prompt is in the cache already, and which blocks are worth keeping there.

Follows ``find_longest_cache_hit`` and ``reachable_block_mask`` of the managers in
``vllm/v1/core/single_type_kv_cache_manager.py`` and the fixed point of
``vllm/v1/core/kv_cache_coordinator.py``, vLLM 0.32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd, lcm
from typing import NamedTuple

from tokenroom.errors import DeploymentError, shown
from tokenroom.serving.block_pool import NULL_BLOCK, BlockPool
from tokenroom.serving.kv_group import STATES, Kind, KvGroup
from tokenroom.serving.sequence import Sequence


class Hit(NamedTuple):
    """What of a request is in the cache.

    Attributes:
        blocks: Its blocks in each KV group, the null block where one is not needed.
        tokens: Tokens that need not be computed.
        longest_tokens: Tokens that at least one group has.
    """

    blocks: list[list[int]]
    tokens: int
    longest_tokens: int


class PrefixCache:
    """Looks prompts up in the blocks of a pool.

    Attributes:
        alignment_tokens: Hits end on multiples of this.
        hash_block_tokens: Tokens that one entry of ``Request.block_hashes`` adds.

    Args:
        pool: The blocks.
        groups: Their KV groups.
        retention_interval_tokens: Sliding windows and states are kept at the ends of segments of
            so many tokens; 0 for only where a prompt would be read again, None for everywhere
            (``--prefix-cache-retention-interval``).
        reread_groups: Groups of which the last block that is found is computed anew, since what
            drafts needs the model's states of it (EAGLE and MTP, ``use_eagle_block_drop``).

    Raises:
        DeploymentError: An interval that is negative or no multiple of the groups' common block
            or without a group that has one, or a chunked local group beside groups of other block
            sizes.
    """

    __slots__ = (
        "_alike",
        "_groups",
        "_pool",
        "_reread",
        "_retention",
        "alignment_tokens",
        "hash_block_tokens",
    )

    def __init__(
        self,
        pool: BlockPool,
        groups: tuple[KvGroup, ...],
        retention_interval_tokens: int | None = None,
        reread_groups: Iterable[int] = (),
    ) -> None:
        sizes = [group.block_tokens for group in groups]
        self.alignment_tokens = lcm(*sizes)
        states = any(group.kind in STATES for group in groups)
        self.hash_block_tokens = gcd(*sizes)
        if states and len(set(sizes)) > 1:
            raise DeploymentError(
                f"KV groups have block_tokens {shown(sorted(set(sizes)))}; with prefix caching, "
                "Mamba states need the same in every group"
            )
        if len(set(sizes)) > 1 and any(group.kind is Kind.CHUNKED_LOCAL for group in groups):
            raise DeploymentError(
                f"KV groups have block_tokens {shown(sorted(set(sizes)))}; with prefix caching, "
                "chunked local attention needs the same in every group"
            )
        if retention_interval_tokens is not None and (
            retention_interval_tokens < 0 or retention_interval_tokens % self.alignment_tokens
        ):
            raise DeploymentError(
                f"prefix_cache_retention_interval is {shown(retention_interval_tokens)}; "
                f"it must be a multiple of {self.alignment_tokens}, 0 included"
            )
        if retention_interval_tokens and not any(
            group.kind is Kind.SLIDING_WINDOW or group.kind in STATES for group in groups
        ):
            raise DeploymentError(
                f"prefix_cache_retention_interval is {retention_interval_tokens}, which only "
                "sliding windows and Mamba states have; the model has none, leave it out"
            )
        self._pool = pool
        self._groups = groups
        self._retention = retention_interval_tokens
        self._reread = frozenset(groups[index] for index in reread_groups)
        alike: dict[KvGroup, list[int]] = {}
        for index, group in enumerate(groups):
            alike.setdefault(group, []).append(index)
        # Full attention first: whatever it has, it has from the start on.
        self._alike = sorted(alike.items(), key=lambda item: item[0].kind is not Kind.FULL)

    def longest_hit(self, sequence: Sequence) -> Hit:
        """Blocks of the longest prefix that every group has, at most all tokens but the last.

        The last token is always computed, since its logits are needed: a prompt that is cached
        whole loses its last block. Each kind of group takes the candidate length or shortens it,
        until none does. Where the last block is computed anew for what drafts, a group looks one
        block further and gives it back, once for each candidate.
        """
        found: list[list[int]] = [[] for _ in self._groups]
        lengths = [0] * len(self._groups)
        looked_up = False
        longest = 0
        length = sequence.tokens - 1
        single = len(self._groups) == 1
        once = single or (len(self._alike) == 2 and self._alike[0][0].kind is Kind.FULL)
        reread: set[KvGroup] = set()  # groups that gave a block back at this candidate
        while True:
            candidate = length
            for group, members in self._alike:
                if group.kind is Kind.FULL and looked_up:
                    candidate = min(candidate, lengths[members[0]])
                    continue
                drops = group in self._reread and group not in reread
                limit = candidate
                if drops and not single:  # one block more is found, which is given back
                    limit = min(limit + group.block_tokens, self._named_tokens(sequence))
                blocks = _FINDERS[group.kind](self, sequence, group, members, limit, drops)
                before, candidate = candidate, len(blocks[0]) * group.block_tokens
                if group.kind is Kind.FULL:
                    candidate -= candidate % self.alignment_tokens
                if drops:
                    reread.add(group)
                elif candidate < before:
                    reread.clear()
                for member, its_blocks in zip(members, blocks, strict=True):
                    found[member] = its_blocks
                    lengths[member] = candidate
                longest = max(longest, candidate)
            looked_up = True
            if candidate >= length:
                break
            length = candidate
            if once:
                break
        for group, members in self._alike:
            if group.kind is Kind.FULL:
                for member in members:
                    del found[member][-(-length // group.block_tokens) :]
        return Hit(found, length, longest)

    def _named_tokens(self, sequence: Sequence) -> int:
        return sequence.tokens // self.hash_block_tokens * self.hash_block_tokens

    def _in_all(self, sequence: Sequence, index: int, scale: int, members: list[int]) -> list[int]:
        """The blocks that every one of these groups has at an index; empty where one has none."""
        name = sequence.block_name((index + 1) * scale - 1)
        blocks = []
        for member in members:
            block = self._pool.find(member, name)
            if block is None:
                return []
            blocks.append(block)
        return blocks

    def _full(
        self, sequence: Sequence, group: KvGroup, members: list[int], length: int, drops: bool
    ) -> list[list[int]]:
        scale = group.block_tokens // self.hash_block_tokens
        found: list[list[int]] = [[] for _ in members]
        for index in range(length // group.block_tokens):
            blocks = self._in_all(sequence, index, scale, members)
            if not blocks:
                break
            for its_blocks, block in zip(found, blocks, strict=True):
                its_blocks.append(block)
        return [its_blocks[:-1] for its_blocks in found] if drops else found

    def _sliding_window(
        self, sequence: Sequence, group: KvGroup, members: list[int], length: int, drops: bool
    ) -> list[list[int]]:
        size = group.block_tokens
        scale = size // self.hash_block_tokens
        need = _window_blocks(group) + drops
        most = length // size
        found = [[NULL_BLOCK] * most for _ in members]
        run = 0
        for index in range(most - 1, -1, -1):
            blocks = self._in_all(sequence, index, scale, members)
            if not blocks:
                run = 0
                continue
            if not run and (index + 1 - drops) * size % self.alignment_tokens:
                continue
            for its_blocks, block in zip(found, blocks, strict=True):
                its_blocks[index] = block
            run += 1
            if run >= need:
                end = index + run
                break
        else:
            # What starts at the first token is whole even where it is shorter than the window.
            end = self._aligned_blocks(run, size)
        if drops and end:
            end = self._aligned_blocks(end - 1, size)
        return [its_blocks[:end] for its_blocks in found]

    def _aligned_blocks(self, blocks: int, size: int) -> int:
        while blocks * size % self.alignment_tokens:
            blocks -= 1
        return blocks

    def _chunked_local(
        self, sequence: Sequence, group: KvGroup, members: list[int], length: int, drops: bool
    ) -> list[list[int]]:
        size = group.block_tokens
        scale = size // self.hash_block_tokens
        first = group.unseen_tokens(length) // size
        found = [[NULL_BLOCK] * first for _ in members]
        for index in range(first, length // size):
            blocks = self._in_all(sequence, index, scale, members)
            if not blocks:
                break
            for its_blocks, block in zip(found, blocks, strict=True):
                its_blocks.append(block)
        return found

    def _mamba(
        self, sequence: Sequence, group: KvGroup, members: list[int], length: int, drops: bool
    ) -> list[list[int]]:
        size = group.block_tokens
        scale = size // self.hash_block_tokens
        for index in range(length // size - 1, -1, -1):
            blocks = self._in_all(sequence, index, scale, members)
            if blocks and not (index + 1) * size % self.alignment_tokens:
                return [[NULL_BLOCK] * index + [block] for block in blocks]
        return [[] for _ in members]

    def kept(self, sequence: Sequence, group: KvGroup, first: int, end: int) -> Iterable[int]:
        """Of the full blocks ``first`` to ``end``, those that a later prompt could come upon.

        Full and chunked local attention are kept whole. Of windows and states only what ends on a
        boundary serves: every segment's, and where this prompt would be read again (its last
        token is computed anew) or was seen to part from another.
        """
        states = group.kind in STATES
        if group.kind is not Kind.SLIDING_WINDOW and not states:
            return range(first, end)
        beyond = int(group in self._reread)  # the block that is found and given back
        need = 1 if states else _window_blocks(group) + beyond
        size = group.block_tokens
        kept: set[int] = set()
        segment = self.alignment_tokens if self._retention is None else self._retention
        if segment:
            per_segment = segment // size
            if need >= per_segment:
                return range(first, end)
            kept.update(
                index
                for index in range(max(first, beyond), end)
                if (index - beyond) % per_segment >= per_segment - need
            )
        if self._retention is not None:
            boundaries = self._read_again(sequence.prompt_tokens)
            if sequence.junction:
                boundaries.append(sequence.junction)
            for boundary in boundaries:
                last = boundary // self.alignment_tokens * self.alignment_tokens // size + beyond
                kept.update(range(max(first, last - need), min(end, last)))
        return sorted(kept)

    def _read_again(self, prompt_tokens: int) -> list[int]:
        """Tokens up to which a later prompt that repeats this one, or goes on from it, can hit.

        Source: ``replay_boundaries`` of ``vllm/v1/core/kv_cache_coordinator.py``, vLLM 0.32.
        """
        if not self._reread:
            return [prompt_tokens - 1]
        size = self.alignment_tokens
        ends = ((prompt_tokens - 1) // size * size, prompt_tokens // size * size)
        return [max(end - size, 0) for end in ends]


def _window_blocks(group: KvGroup) -> int:
    """Blocks in a row that the next token's window reaches back over."""
    assert group.window_tokens is not None
    return -(-(group.window_tokens - 1) // group.block_tokens)


_Finder = Callable[[PrefixCache, Sequence, KvGroup, list[int], int, bool], list[list[int]]]
_FINDERS: dict[Kind, _Finder] = {
    Kind.FULL: PrefixCache._full,
    Kind.SLIDING_WINDOW: PrefixCache._sliding_window,
    Kind.CHUNKED_LOCAL: PrefixCache._chunked_local,
    Kind.MAMBA: PrefixCache._mamba,
    Kind.ALIGNED_MAMBA: PrefixCache._mamba,
}
