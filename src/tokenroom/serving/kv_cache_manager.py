"""Gives requests their KV blocks and takes them back, group by group.

Follows ``allocate_slots`` of ``vllm/v1/core/kv_cache_manager.py`` and the managers of
``vllm/v1/core/single_type_kv_cache_manager.py``, vLLM 0.32, for deployments without context
parallelism and transfers of KV.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tokenroom.serving.block_pool import NULL_BLOCK, BlockPool
from tokenroom.serving.kv_group import NEVER, STATES, Kind, KvGroup
from tokenroom.serving.prefix_cache import Hit, PrefixCache
from tokenroom.serving.sequence import Sequence

_MOST_STATES: Final = 2
"""States that a request holds: the newest and the one it is computed from
(``MambaSpec.max_memory_usage_bytes`` of ``vllm/v1/kv_cache_interface.py``)."""


class KvCacheManager:
    """The blocks of one engine and the requests that hold them.

    Attributes:
        pool: The blocks.
        prefix_cache: What prompts are looked up in; None without prefix caching.

    Args:
        num_blocks: Blocks of the pool, the null block included.
        groups: KV groups that share it.
        max_model_len: The longest context.
        max_in_flight_tokens: Tokens that may be scheduled and not settled at a time.
        enable_prefix_caching: Blocks may be found again.
        retention_interval_tokens: See :class:`~tokenroom.serving.prefix_cache.PrefixCache`.
        lookahead_tokens: Slots that a request holds beyond its tokens, for what drafts.
        reread_groups: See :class:`~tokenroom.serving.prefix_cache.PrefixCache`.

    Raises:
        DeploymentError: See :class:`~tokenroom.serving.prefix_cache.PrefixCache` and
            :class:`~tokenroom.serving.block_pool.BlockPool`.
    """

    __slots__ = (
        "_aligned",
        "_alike",
        "_commits_every",
        "_fresh_states",
        "_groups",
        "_lookahead",
        "_max_model_len",
        "_most_blocks",
        "_reread",
        "_sizes",
        "_states",
        "_window_groups",
        "_windows",
        "pool",
        "prefix_cache",
    )

    def __init__(
        self,
        *,
        num_blocks: int,
        groups: tuple[KvGroup, ...],
        max_model_len: int,
        max_in_flight_tokens: int,
        enable_prefix_caching: bool,
        retention_interval_tokens: int | None,
        lookahead_tokens: int = 0,
        reread_groups: Iterable[int] = (),
    ) -> None:
        self.pool = BlockPool(num_blocks, len(groups))
        self.prefix_cache = (
            PrefixCache(self.pool, groups, retention_interval_tokens, reread_groups)
            if enable_prefix_caching
            else None
        )
        self._groups = groups
        self._sizes = tuple(group.block_tokens for group in groups)
        self._max_model_len = max_model_len
        self._lookahead = lookahead_tokens
        self._reread = frozenset(groups[index] for index in reread_groups)
        self._most_blocks = tuple(
            group.most_blocks(max_in_flight_tokens, max_model_len) for group in groups
        )
        # Of groups alike a request has equally many blocks, so what they need is worked out once.
        alike: dict[KvGroup, list[int]] = {}
        for index, group in enumerate(groups):
            alike.setdefault(group, []).append(index)
        self._alike = tuple((group, tuple(members)) for group, members in alike.items())
        self._windows = tuple(
            (group, members[0]) for group, members in self._alike if group.kind is not Kind.FULL
        )
        self._window_groups = tuple(
            index for index, group in enumerate(groups) if group.kind is not Kind.FULL
        )
        self._states = tuple(index for index, group in enumerate(groups) if group.kind in STATES)
        self._aligned = tuple(group.kind is Kind.ALIGNED_MAMBA for group in groups)
        # Blocks are cached at multiples of the groups' common block, where hits can end; where one
        # block more is found and given back, at each of theirs.
        self._commits_every = NEVER
        if (cache := self.prefix_cache) is not None:
            every = cache.hash_block_tokens if self._reread else cache.alignment_tokens
            self._commits_every = every
        self._fresh_states: set[tuple[int, int | None]] = set()

    def start_step(self) -> None:
        """Forget which states this step writes: the next one may read them."""
        self._fresh_states.clear()

    def longest_hit(self, sequence: Sequence) -> Hit:
        """What of a waiting request is in the cache; notes where it parts from others."""
        if self.prefix_cache is None:
            return Hit([[] for _ in self._groups], 0, 0)
        hit = self.prefix_cache.longest_hit(sequence)
        sequence.junction = hit.longest_tokens if hit.longest_tokens > hit.tokens else 0
        return hit

    def blocks_held_at_most(self, tokens: int) -> int:
        """Blocks that a request of so many tokens needs at most, with nothing of it cached."""
        tokens = min(tokens + self._lookahead, self._max_model_len)
        return sum(
            min(-(-tokens // size), _MOST_STATES if aligned else most)
            for size, most, aligned in zip(
                self._sizes, self._most_blocks, self._aligned, strict=True
            )
        )

    def admit(
        self,
        sequence: Sequence,
        new_tokens: int,
        hit: Hit,
        *,
        whole: bool,
        spare_blocks: int,
        reserved_blocks: int = 0,
        is_computed: bool = True,
    ) -> bool:
        """Give a waiting request what it hit and room for its first tokens, if there is room.

        Args:
            sequence: The request.
            new_tokens: Tokens that it computes in this step.
            hit: What :meth:`longest_hit` said in this step.
            whole: Its whole prompt must fit, not only this chunk
                (``scheduler_reserve_full_isl``).
            spare_blocks: Blocks that must stay free (``watermark``).
            reserved_blocks: Blocks that must stay free beside those that it takes at once.
            is_computed: Its tokens are computed in this step; otherwise their KV comes from
                elsewhere, and they are cached when :meth:`filled` is told.
        """
        if any(
            hit.blocks[index]
            and (index, self.pool.name_of(hit.blocks[index][-1])) in self._fresh_states
            for index in self._states
        ):
            return False  # a state that this very step writes can be read from the next one on
        free = self.pool.num_free - spare_blocks
        if whole and self._wanted(sequence.tokens, hit, self._most_blocks) > free:
            return False
        end = hit.tokens + new_tokens
        if self._wanted(end + self._lookahead, hit, None) > free - reserved_blocks:
            return False
        if any(hit.blocks):
            for index, group in enumerate(self._groups):
                unseen = group.unseen_tokens(hit.tokens) // group.block_tokens
                seen = hit.blocks[index][unseen:]
                self.pool.touch(seen)
                sequence.blocks[index] = [NULL_BLOCK] * unseen + seen
                sequence.cached[index] = unseen + len(seen)
                sequence.released[index] = unseen
        sequence.commit_at = self._next_commit(hit.tokens)
        self._grow(sequence, min(end + self._lookahead, self._max_model_len))
        if is_computed:
            self._settle(sequence, end, hit.tokens)
        return True

    def admit_filled(
        self, sequence: Sequence, new_tokens: int, *, whole: bool, spare_blocks: int
    ) -> bool:
        """Give a waiting request, whose first blocks came from elsewhere, room for more tokens.

        Arguments are those of :meth:`admit`.
        """
        end = sequence.computed + new_tokens
        free = self.pool.num_free - spare_blocks
        if whole and self.blocks_missing(sequence) > free:
            return False
        room = min(end + self._lookahead, self._max_model_len)
        wanted = sum(
            max(-(-room // size) - len(blocks), 0)
            for size, blocks in zip(self._sizes, sequence.blocks, strict=True)
        )
        if wanted > free:
            return False
        self._grow(sequence, room)
        self._settle(sequence, end, sequence.computed)
        return True

    def filled(self, sequence: Sequence) -> None:
        """Take in that the KV of all tokens of a request has come from elsewhere."""
        self._settle(sequence, sequence.tokens, sequence.tokens)

    def blocks_missing(self, sequence: Sequence) -> int:
        """Blocks that a request still needs for all of its tokens."""
        tokens = min(sequence.tokens, self._max_model_len)
        return sum(
            max(min(-(-tokens // size), most) - len(blocks), 0)
            for size, most, blocks in zip(
                self._sizes, self._most_blocks, sequence.blocks, strict=True
            )
        )

    def _wanted(self, tokens: int, hit: Hit, most_blocks: tuple[int, ...] | None) -> int:
        """Free blocks that a waiting request would take to hold so many tokens."""
        tokens = min(tokens, self._max_model_len)
        holders = self.pool.holders
        wanted = 0
        for index, group in enumerate(self._groups):
            size = group.block_tokens
            required = -(-tokens // size)
            if most_blocks is not None:
                required = min(required, most_blocks[index])
            unseen = group.unseen_tokens(hit.tokens) // size
            blocks = hit.blocks[index]
            more = max(required - max(unseen, len(blocks)), 0)
            wanted += min(more, 1) if self._aligned[index] else more
            # What it hit may be free: it then leaves the queue.
            wanted += sum(block != NULL_BLOCK and not holders[block] for block in blocks[unseen:])
        return wanted

    def extend(self, sequence: Sequence, end: int) -> bool:
        """Give a running request room for its tokens up to ``end``, if there is room.

        Blocks that its layers no longer look at are freed first, whether or not there is.
        """
        pool = self.pool
        settled = sequence.computed - sequence.in_flight
        released = sequence.released
        for group, first in self._windows:
            if group.unseen_tokens(settled) // group.block_tokens > released[first]:
                for index in self._window_groups:
                    self._release_unseen(sequence, index, settled)
                break
        room = min(end + self._lookahead, self._max_model_len)
        wanted = 0
        for group, members in self._alike:
            more = -(-room // group.block_tokens) - len(sequence.blocks[members[0]])
            if more > 0:
                wanted += len(members) * (1 if self._aligned[members[0]] else more)
        if wanted:
            if wanted > pool.num_free:
                return False
            self._grow(sequence, room)
        self._settle(sequence, end, settled)
        return True

    def _grow(self, sequence: Sequence, room: int) -> None:
        for size, blocks, aligned in zip(self._sizes, sequence.blocks, self._aligned, strict=True):
            more = -(-room // size) - len(blocks)
            if more > 0:
                if aligned:  # only the state at the end of the chunk is written
                    blocks += [NULL_BLOCK] * (more - 1)
                    more = 1
                blocks += self.pool.allocate(more)

    def _release_unseen(self, sequence: Sequence, index: int, settled: int) -> None:
        group = self._groups[index]
        blocks = sequence.blocks[index]
        freed = []
        last = min(group.unseen_tokens(settled) // group.block_tokens, len(blocks))
        for position in range(last - 1, sequence.released[index] - 1, -1):
            block = blocks[position]
            if block != NULL_BLOCK:
                freed.append(block)
                blocks[position] = NULL_BLOCK
        sequence.released[index] = max(last, sequence.released[index])
        if freed:
            self.pool.release(freed)

    def commit(self, sequence: Sequence, computed: int) -> None:
        """Cache the blocks that are full with so many tokens computed.

        Source: ``cache_blocks`` of ``vllm/v1/core/kv_cache_coordinator.py``.
        """
        cache = self.prefix_cache
        assert cache is not None
        aligned = computed - computed % cache.alignment_tokens
        remember = self.pool.remember
        for group, members in self._alike:
            first = sequence.cached[members[0]]
            end = aligned // group.block_tokens
            if aligned and group in self._reread:
                reach = min(computed, aligned + group.block_tokens)
                end = reach // group.block_tokens
                self._name_tail(sequence, group, members, reach)
            if first >= end:
                continue
            scale = group.block_tokens // cache.hash_block_tokens
            for position in cache.kept(sequence, group, first, end):
                name = sequence.block_name((position + 1) * scale - 1)
                for index in members:
                    block = sequence.blocks[index][position]
                    if block != NULL_BLOCK:
                        remember(block, index, name)
                        if index in self._states:
                            self._fresh_states.add((index, name))
            for index in members:
                sequence.cached[index] = end
        sequence.commit_at = self._next_commit(computed)

    def _name_tail(
        self, sequence: Sequence, group: KvGroup, members: tuple[int, ...], reach: int
    ) -> None:
        """Name the block in which a prompt ends by the last hash in it, until it is full.

        No lookup comes upon that name, but a block with one is evicted after those without.
        Source: ``_cache_partial_tail_block`` of ``FullAttentionManager``, vLLM 0.32.
        """
        cache = self.prefix_cache
        assert cache is not None
        size, finer = group.block_tokens, cache.hash_block_tokens
        boundary = sequence.prompt_tokens // finer * finer
        if group.kind is not Kind.FULL or not boundary % size or boundary > reach:
            return
        for index in members:
            blocks = sequence.blocks[index]
            place = boundary // size
            if place < len(blocks) and self.pool.name_of(blocks[place]) is None:
                self.pool.remember(blocks[place], index, sequence.block_name(boundary // finer - 1))

    def _next_commit(self, computed: int) -> int:
        every = self._commits_every
        return NEVER if every == NEVER else (computed // every + 1) * every

    def _settle(self, sequence: Sequence, end: int, settled: int) -> None:
        """Cache what is full by ``end`` and note up to where nothing changes."""
        known = min(end, sequence.tokens)
        if known >= sequence.commit_at:
            self.commit(sequence, known)
        if self._states and self.prefix_cache is not None:
            self._mark_last_state(sequence, known)
        if end < sequence.tokens:
            sequence.quiet_tokens = 0
            return
        quiet = min(sequence.commit_at, sequence.last_tokens) - 1
        for group, members in self._alike:
            quiet = min(quiet, len(sequence.blocks[members[0]]) * group.block_tokens)
        for group, _ in self._windows:
            unseen = group.unseen_tokens(settled) // group.block_tokens
            quiet = min(quiet, group.releases_at(unseen + 1))
        sequence.quiet_tokens = quiet

    def _mark_last_state(self, sequence: Sequence, computed: int) -> None:
        """Keep others from the last state of a prompt while its request still works on it.

        Source: ``MambaManager._cache_partial_tail_block``, which names it anew in each such step.
        """
        cache = self.prefix_cache
        assert cache is not None
        size = cache.alignment_tokens
        boundary = (sequence.prompt_tokens - 1) // size * size
        if not boundary or computed - computed % size != boundary:
            return
        for index in self._states:
            if self._aligned[index] and sequence.blocks[index][boundary // size - 1] != NULL_BLOCK:
                name = sequence.block_name(boundary // cache.hash_block_tokens - 1)
                self._fresh_states.add((index, name))

    def free(self, sequence: Sequence) -> None:
        """Take back all blocks of a request, its last first."""
        for index, blocks in enumerate(sequence.blocks):
            self.pool.release(reversed(blocks))
            sequence.blocks[index] = []
            sequence.cached[index] = sequence.released[index] = 0
        sequence.quiet_tokens = 0
        sequence.commit_at = NEVER
