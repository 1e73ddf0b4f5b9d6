"""A replay of PyTorch's caching allocator while vLLM captures graphs of a model.

Graphs are captured into one private pool, largest batch first; what the pool grows by follows
from the sizes and order of the tensors of a layer and from the allocator's rules
(c10/cuda/CUDACachingAllocator.cpp: 512-byte rounding; requests up to 1 MiB from 2 MiB segments,
below 10 MiB from 20 MiB segments, larger ones in segments of their own rounded to 2 MiB; best
fit; a block is split when at least 512 bytes, or more than 1 MiB, remain).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tokenroom.units import MIB

Block: TypeAlias = tuple[int, int, int, int]  # size, segment, offset, 1 in the small pool

_ROUNDING: Final = 512
_SMALL_REQUEST: Final = MIB
_SMALL_SEGMENT: Final = 2 * MIB
_LARGE_REQUEST: Final = 10 * MIB
_LARGE_SEGMENT: Final = 20 * MIB
_SEGMENT_ROUNDING: Final = 2 * MIB
_REPLAYED_LAYERS: Final = 4  # the pool is steady after the first few


class Pool:
    """The private pool of a graph capture.

    Attributes:
        num_bytes: What its segments take from the driver.
    """

    __slots__ = ("_free", "_segments", "num_bytes")

    def __init__(self) -> None:
        self.num_bytes = 0
        self._segments = 0
        self._free: list[Block] = []

    def take(self, num_bytes: int) -> Block:
        """A block of at least that many bytes, from a free one or from a new segment."""
        size = max(_ROUNDING, -(-num_bytes // _ROUNDING) * _ROUNDING)
        small = int(size <= _SMALL_REQUEST)
        fitting = [block for block in self._free if block[3] == small and block[0] >= size]
        if fitting:
            block = min(fitting)
            self._free.remove(block)
        else:
            block = (self._segment(size, small), self._segments, 0, small)
            self._segments += 1
        rest = block[0] - size
        if rest >= _ROUNDING if small else rest > _SMALL_REQUEST:
            self._free.append((rest, block[1], block[2] + size, small))
            return (size, block[1], block[2], small)
        return block

    def give_back(self, block: Block) -> None:
        """Free a block; it merges with free neighbours of its segment."""
        size, segment, offset, small = block
        for other in [each for each in self._free if each[1] == segment]:
            if other[2] + other[0] == offset:
                offset = other[2]
            elif offset + size != other[2]:
                continue
            size += other[0]
            self._free.remove(other)
        self._free.append((size, segment, offset, small))

    def _segment(self, size: int, small: int) -> int:
        if small:
            segment = _SMALL_SEGMENT
        elif size < _LARGE_REQUEST:
            segment = _LARGE_SEGMENT
        else:
            segment = -(-size // _SEGMENT_ROUNDING) * _SEGMENT_ROUNDING
        self.num_bytes += segment
        return segment


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTensors:
    """Bytes that the tensors of one layer take for one token on one rank.

    Attributes:
        hidden: The residual stream.
        queries: Queries; the attention output is as large.
        keys: Keys; values are as large.
        gate_up: Output of the first feed-forward product, 0 where experts keep their own buffers.
        activated: Its activation, in the type it is written in.
        normed: Input of the products, in the type it is written in.
        quantized: Integer copies are made by an operator of their own.
        router: Router logits, 0 without experts.
        in_place_residual: The residual add is fused with the norm that follows and written over
            the product's output (not where the output is scaled first, as in Granite).
        all_reduce_above: All-reduces of more bytes than this have an output of their own; None
            without tensor parallelism.
        accumulators: Split-KV accumulators of attention inside full graphs.
    """

    hidden: int
    queries: int
    keys: int
    gate_up: int
    activated: int
    normed: int
    quantized: bool = False
    router: int = 0
    in_place_residual: bool = True
    all_reduce_above: int | None = None
    accumulators: int = 0


def replay(pool: Pool, tensors: LayerTensors, tokens: int, layers: int, *, full: bool) -> None:
    """Allocate and free what a step of that many tokens does, in the compiled code's order.

    A piece runs from the attention output of one layer to the queries of the next
    (compilation/backends.py ``split_graph``); its arguments are freed when it returns.
    """
    hidden = tokens * tensors.hidden
    residual = pool.take(hidden)
    passed = _project(pool, tensors, tokens)
    depth = min(layers, _REPLAYED_LAYERS)
    for index in range(depth):
        fused, queries, keys, attended = passed
        if full and tensors.accumulators:
            for size in (tensors.accumulators, tensors.accumulators >> 7):
                pool.give_back(pool.take(tokens * size))
        for block in (fused, queries, keys):
            pool.give_back(block)
        carried = _reduced(pool, tensors, hidden, _attention_product(pool, tensors, tokens))
        output = _reduced(pool, tensors, hidden, _feed_forward(pool, tensors, tokens))
        updated = carried if tensors.in_place_residual else pool.take(hidden)
        freed = [output] if tensors.in_place_residual else [output, carried]
        if index < depth - 1:
            normed = _norm(pool, tensors, tokens)
            for block in freed:
                pool.give_back(block)
            passed = _project(pool, tensors, tokens, normed)
            freed = [attended, residual]
            residual = updated
        else:
            freed += [updated, attended, residual, pool.take(hidden)]
        for block in freed:
            pool.give_back(block)


def _norm(pool: Pool, tensors: LayerTensors, tokens: int) -> Block:
    normed = pool.take(tokens * tensors.normed)
    if not tensors.quantized:
        return normed
    quantized = pool.take(tokens * tensors.normed // 2)
    pool.give_back(normed)
    return quantized


def _project(
    pool: Pool, tensors: LayerTensors, tokens: int, normed: Block | None = None
) -> tuple[Block, Block, Block, Block]:
    """Queries, keys and values together, rotated queries and keys, and the attention output."""
    normed = normed or _norm(pool, tensors, tokens)
    fused = pool.take(tokens * (tensors.queries + 2 * tensors.keys))
    pool.give_back(normed)
    queries = pool.take(tokens * tensors.queries)
    keys = pool.take(tokens * tensors.keys)
    return fused, queries, keys, pool.take(tokens * tensors.queries)


def _attention_product(pool: Pool, tensors: LayerTensors, tokens: int) -> Block:
    if tensors.normed == tensors.hidden and not tensors.quantized:
        return pool.take(tokens * tensors.hidden)
    quantized = pool.take(tokens * tensors.queries // 2)
    output = pool.take(tokens * tensors.hidden)
    pool.give_back(quantized)
    return output


def _feed_forward(pool: Pool, tensors: LayerTensors, tokens: int) -> Block:
    normed = _norm(pool, tensors, tokens)
    if tensors.router:
        router = pool.take(tokens * tensors.router)
        output = pool.take(tokens * tensors.hidden)
        pool.give_back(router)
        pool.give_back(normed)
        return output
    gate_up = pool.take(tokens * tensors.gate_up)
    pool.give_back(normed)
    activated = pool.take(tokens * tensors.activated)
    if tensors.quantized:
        quantized = pool.take(tokens * tensors.activated // 2)
        pool.give_back(activated)
        activated = quantized
    pool.give_back(gate_up)
    output = pool.take(tokens * tensors.hidden)
    pool.give_back(activated)
    return output


def _reduced(pool: Pool, tensors: LayerTensors, hidden: int, product: Block) -> Block:
    """The product summed over ranks: in place where the all-reduce is fused with the norm."""
    if tensors.all_reduce_above is None or hidden <= tensors.all_reduce_above:
        return product
    output = pool.take(hidden)
    pool.give_back(product)
    return output
