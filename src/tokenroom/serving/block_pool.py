"""The KV blocks of one engine: who holds them, which are free, which are found again by a hash.

Follows ``vllm/v1/core/block_pool.py`` and ``FreeKVCacheBlockQueue`` of
``vllm/v1/core/kv_cache_utils.py``, vLLM 0.32, in which block goes out next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tokenroom.errors import DeploymentError, shown

NULL_BLOCK: Final = 0
"""The block that stands for one that is not kept; it is never handed out."""


class BlockPool:
    """Blocks 1 to ``num_blocks - 1``; block 0 is the null block, as in vLLM.

    Free blocks stand in one queue. Blocks without a hash return to its front, last freed first
    out; blocks with a hash return to its end, so that the longest unused is evicted first. The
    queue is a ring through block 0, linked by index, since any block may leave it when a prefix
    is found again.

    Args:
        num_blocks: Blocks of the pool, the null block included.
        groups: KV groups that share it; a hash names a block of one group.

    Raises:
        DeploymentError: Fewer than two blocks.
    """

    __slots__ = (
        "_cached",
        "_group",
        "_hash",
        "_next",
        "_previous",
        "holders",
        "num_blocks",
        "num_free",
    )

    def __init__(self, num_blocks: int, groups: int = 1) -> None:
        if num_blocks < 2:
            raise DeploymentError(
                f"num_blocks is {shown(num_blocks)}; it must be 2 or more, one is never handed out"
            )
        self.num_blocks = num_blocks
        self.num_free = num_blocks - 1
        self.holders = [0] * num_blocks
        self._next = [*range(1, num_blocks), 0]
        self._previous = [num_blocks - 1, *range(num_blocks - 1)]
        self._hash: list[int | None] = [None] * num_blocks
        self._group = [0] * num_blocks
        # Equal content may be in several blocks: the first that was cached is the one found.
        self._cached: list[dict[int, int | list[int]]] = [{} for _ in range(groups)]

    def allocate(self, count: int) -> list[int]:
        """Take blocks from the front of the queue; what their hashes named is forgotten.

        The caller has checked ``num_free``.
        """
        following, hashes, holders = self._next, self._hash, self.holders
        block = following[NULL_BLOCK]
        taken = []
        for _ in range(count):
            taken.append(block)
            holders[block] = 1
            if hashes[block] is not None:
                self._forget(block)
            block = following[block]
        following[NULL_BLOCK] = block
        self._previous[block] = NULL_BLOCK
        self.num_free -= count
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Count one more holder of each; those that were free leave the queue."""
        following, previous, holders = self._next, self._previous, self.holders
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if not holders[block]:
                before, after = previous[block], following[block]
                following[before] = after
                previous[after] = before
                self.num_free -= 1
            holders[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Count one holder less of each, in the order in which they may be evicted."""
        holders, hashes = self.holders, self._hash
        front: list[int] = []
        back: list[int] = []
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            holders[block] -= 1
            if not holders[block]:
                (front if hashes[block] is None else back).append(block)
        if front:
            self._link(NULL_BLOCK, front, self._next[NULL_BLOCK])
        if back:
            self._link(self._previous[NULL_BLOCK], back, NULL_BLOCK)

    def _link(self, before: int, blocks: Sequence[int], after: int) -> None:
        following, previous = self._next, self._previous
        for block in blocks:
            following[before] = block
            previous[block] = before
            before = block
        following[before] = after
        previous[after] = before
        self.num_free += len(blocks)

    def remember(self, block: int, group: int, name: int) -> None:
        """Let a block be found by its hash, in place of one that it had."""
        if self._hash[block] is not None:
            self._forget(block)
        self._hash[block] = name
        self._group[block] = group
        cached = self._cached[group]
        same = cached.setdefault(name, block)
        if isinstance(same, list):
            same.append(block)
        elif same != block:
            cached[name] = [same, block]

    def find(self, group: int, name: int) -> int | None:
        """The block of a group that a hash names, held or free; None if there is none."""
        found = self._cached[group].get(name)
        return found[0] if isinstance(found, list) else found

    def name_of(self, block: int) -> int | None:
        """The hash by which a block is found, None for none."""
        return self._hash[block]

    def _forget(self, block: int) -> None:
        name = self._hash[block]
        assert name is not None
        self._hash[block] = None
        cached = self._cached[self._group[block]]
        same = cached[name]
        if isinstance(same, list):
            same.remove(block)
            if not same:
                del cached[name]
        else:
            del cached[name]

    def free_blocks(self) -> Iterator[int]:
        """Free blocks, the next to go out first."""
        block = self._next[NULL_BLOCK]
        while block != NULL_BLOCK:
            yield block
            block = self._next[block]
