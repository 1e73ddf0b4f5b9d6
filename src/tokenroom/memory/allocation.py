"""How a KV pool is shared out: contiguous, paged, or contiguous first and blocks after.

One workload (the lengths that requests reach) is passed through a pool first come, first served;
each request takes one step a token and holds from its first step on what its length will need. What
the pool then holds in use, reserved in vain (inside a request's reservation) and unreachable
(free, but not as the waiting request needs it) is exact arithmetic on bytes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final, TypeAlias

TABLE_ENTRY_BYTES: Final = 4
"""A block number in a block table: int32 in vLLM (v1/worker/block_table.py) and TensorRT-LLM
(``host_kv_cache_block_offsets``)."""

Cost: TypeAlias = Callable[[int], int]
"""Bytes that so many tokens of one request take."""


class Sharing(StrEnum):
    """How room is given to a request."""

    CONTIGUOUS = "contiguous"
    PAGED = "paged"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """The rule of one pool.

    Attributes:
        sharing: Contiguous, paged, or both.
        max_tokens: The longest request: what a contiguous reservation must hold unless
            ``knows_length``, and what a block table has entries for.
        block_size: Tokens of a block.
        first_tokens: Contiguous part of a hybrid reservation.
        knows_length: A contiguous reservation is as long as the request will become.
    """

    sharing: Sharing
    max_tokens: int
    block_size: int = 16
    first_tokens: int = 0
    knows_length: bool = False

    def reserved_tokens(self, tokens: int) -> int:
        """Tokens set aside for a request that reaches ``tokens``."""
        if self.sharing is Sharing.CONTIGUOUS:
            return tokens if self.knows_length else self.max_tokens
        first = self.first_tokens if self.sharing is Sharing.HYBRID else 0
        blocks = -(-max(0, tokens - first) // self.block_size)
        return first + blocks * self.block_size

    def table_entries(self) -> int:
        """Entries of one request's row in the block table, which is as wide as the longest."""
        if self.sharing is Sharing.CONTIGUOUS:
            return 0
        first = self.first_tokens if self.sharing is Sharing.HYBRID else 0
        return -(-max(0, self.max_tokens - first) // self.block_size)

    def contiguous_tokens(self, tokens: int) -> int:
        """Part of the reservation that must lie in one piece."""
        if self.sharing is Sharing.CONTIGUOUS:
            return self.reserved_tokens(tokens)
        return self.first_tokens if self.sharing is Sharing.HYBRID else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What a workload makes of a pool; bytes are means over the steps in which a request waits.

    When none ever waits they are those of all requests at once, and nothing is unreachable.

    Attributes:
        batch: Requests admitted at once before the first has to wait.
        mean_batch: Mean number running while others wait.
        pool_bytes: The pool.
        used_bytes: Tokens that requests will have written at their end.
        internal_waste_bytes: Reserved and never written: the rest of a last block, or of a
            reservation for the longest request.
        external_waste_bytes: Free, but not enough, or not in one piece, for the request that waits.
        free_bytes: Free while nothing waits for it.
        table_bytes: Block tables of the running requests.
    """

    batch: int
    mean_batch: float
    pool_bytes: int
    used_bytes: int
    internal_waste_bytes: int
    external_waste_bytes: int
    free_bytes: int
    table_bytes: int

    @property
    def reserved_bytes(self) -> int:
        """In use or reserved in vain."""
        return self.used_bytes + self.internal_waste_bytes

    @property
    def all_at_once(self) -> bool:
        """No request ever waits."""
        return self.free_bytes > 0 or not self.external_waste_bytes

    @property
    def used_share(self) -> float:
        """Share of the pool that holds tokens."""
        return self.used_bytes / self.pool_bytes if self.pool_bytes > 0 else 0.0


def largest_batch(pool_bytes: int, allocator: Allocator, tokens: int, cost: Cost) -> int:
    """How many requests of that length a pool holds at once."""
    each = cost(allocator.reserved_tokens(tokens))
    return max(0, pool_bytes) // each if each else 0


def occupancy(
    pool_bytes: int,
    allocator: Allocator,
    lengths: Sequence[int],
    cost: Cost,
    *,
    max_batch: int | None = None,
) -> Occupancy:
    """Pass a workload through a pool.

    A request that is larger than the whole pool is refused and passed over.

    Args:
        pool_bytes: The pool.
        allocator: How room is given.
        lengths: Tokens that each request reaches, in order of arrival, all waiting at first.
        cost: Bytes of so many tokens of one request; must not fall with tokens.
        max_batch: Most requests at once, None for no bound.
    """
    pool = max(0, pool_bytes)
    queue = [tokens for tokens in lengths if cost(allocator.reserved_tokens(tokens)) <= pool]
    states = list(_states(pool, allocator, queue, cost, max_batch))
    batch = states[0].running if states else 0
    saturated = [state for state in states if state.waiting]
    measured = saturated or states[:1]
    steps = sum(state.steps for state in measured) or 1

    def mean(values: Iterator[int]) -> int:
        return round(sum(values) / steps)

    used = mean(state.used_bytes * state.steps for state in measured)
    reserved = mean(state.reserved_bytes * state.steps for state in measured)
    running = sum(state.running * state.steps for state in measured)
    free = pool - reserved
    return Occupancy(
        batch=batch,
        mean_batch=running / steps,
        pool_bytes=pool,
        used_bytes=used,
        internal_waste_bytes=reserved - used,
        external_waste_bytes=free if saturated else 0,
        free_bytes=0 if saturated else free,
        table_bytes=round(running * allocator.table_entries() * TABLE_ENTRY_BYTES / steps),
    )


@dataclass(frozen=True, slots=True)
class _State:
    """The pool between two events: how many run, what they hold, for how many steps."""

    running: int
    waiting: int
    used_bytes: int
    reserved_bytes: int
    steps: int


def _states(
    pool: int, allocator: Allocator, queue: Sequence[int], cost: Cost, max_batch: int | None
) -> Iterator[_State]:
    """The states of a pool from the first fill until the last request has been admitted."""
    space = Space(pool)
    running: list[tuple[int, int, int, int, int]] = []  # end, number, tokens, address, in one piece
    used = place = now = 0
    while place < len(queue) or running:
        while place < len(queue) and (max_batch is None or len(running) < max_batch):
            tokens = queue[place]
            whole = cost(allocator.reserved_tokens(tokens))
            in_one = allocator.contiguous_tokens(tokens)
            piece = cost(in_one) if in_one else 0
            address = space.take(piece, whole - piece)
            if address is None:
                break
            heappush(running, (now + tokens, place, tokens, address, piece))
            used += cost(tokens)
            place += 1
        end = running[0][0]
        yield _State(len(running), len(queue) - place, used, space.taken, end - now)
        if place == len(queue):
            return
        now = end
        while running and running[0][0] == now:
            _, _, tokens, address, piece = heappop(running)
            space.give(address, piece, cost(allocator.reserved_tokens(tokens)) - piece)
            used -= cost(tokens)


class Space:
    """A pool with pieces taken first fit from the low end, and loose blocks from anywhere.

    Attributes:
        size: Of the pool, in bytes or whatever else pieces are counted in.
        taken: What of it is taken.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self._holes: list[tuple[int, int]] = [(0, size)] if size else []

    def take(self, piece: int, loose: int) -> int | None:
        """The address of a piece, with ``loose`` bytes of blocks beside; None when there is none.

        Blocks may lie anywhere, so they only need room in total. Pieces and blocks share the pool:
        blocks are kept where they hinder no piece, so they only count against the total.
        """
        if self.taken + piece + loose > self.size:
            return None
        address = 0
        if piece:
            for index, (start, length) in enumerate(self._holes):
                if length >= piece:
                    address = start
                    if length == piece:
                        del self._holes[index]
                    else:
                        self._holes[index] = (start + piece, length - piece)
                    break
            else:
                return None
        self.taken += piece + loose
        return address

    def give(self, address: int, piece: int, loose: int) -> None:
        """Free a piece, joined with free neighbours, and its blocks."""
        self.taken -= piece + loose
        if not piece:
            return
        insort(self._holes, (address, piece))
        joined: list[tuple[int, int]] = []
        for start, length in self._holes:
            if joined and joined[-1][0] + joined[-1][1] == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((start, length))
        self._holes = joined
