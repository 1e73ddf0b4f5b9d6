"""The KV blocks: who holds them, which go out next, which are found by their names.

The same as :class:`tokenroom.serving.block_pool.BlockPool`, over arrays. A block whose name only
its own request can look for has none until that request is preempted.
"""

from __future__ import annotations

from typing import Any

from tokenroom.serving.compiled.jit import called, merged
from tokenroom.serving.compiled.state import LISTED, UNNAMED

_MIX = 0x4F1BBCDCBFA53E0B  # 2^63 over the golden ratio, odd: Knuth, volume 3, section 6.4


@merged
def bucket_of(buckets: Any, name: int) -> int:
    """The bucket of a name; there are a power of two of them."""
    mixed = name * _MIX
    return (mixed ^ (mixed >> 29)) & (len(buckets) - 1)


@merged
def allocate(engine: Any, blocks: Any, buckets: Any) -> int:
    """Take the block at the front of the queue; what its name meant is forgotten."""
    block = blocks[0].after
    after = blocks[block].after
    blocks[0].after = after
    blocks[after].before = 0
    blocks[block].holders = 1
    kind = blocks[block].kind
    if kind != UNNAMED:
        if kind == LISTED:
            unlist(engine, blocks, buckets, block)
        blocks[block].kind = UNNAMED
    engine.free_blocks -= 1
    return int(block)


@merged
def touch(engine: Any, blocks: Any, block: int) -> None:
    """Count one more holder; a block that was free leaves the queue."""
    if not blocks[block].holders:
        before, after = blocks[block].before, blocks[block].after
        blocks[before].after = after
        blocks[after].before = before
        engine.free_blocks -= 1
    blocks[block].holders += 1


@merged
def link(engine: Any, blocks: Any, before: int, block: int) -> None:
    """Put a free block into the queue."""
    after = blocks[before].after
    blocks[before].after = block
    blocks[block].before = before
    blocks[block].after = after
    blocks[after].before = block
    engine.free_blocks += 1


@called
def release(engine: Any, blocks: Any, table: Any, count: int) -> None:
    """Count one holder less of a request's blocks, its last first.

    Those without a name go to the front of the queue, in this order; the others to its end.
    """
    front = 0
    for index in range(count - 1, -1, -1):
        block = table[index]
        blocks[block].holders -= 1
        if blocks[block].holders:
            continue
        if blocks[block].kind == UNNAMED:
            link(engine, blocks, front, block)
            front = block
        else:
            link(engine, blocks, blocks[0].before, block)


@merged
def enlist(engine: Any, blocks: Any, buckets: Any, block: int, name: int) -> None:
    """Let a block be found by a name, after those of the same name that were there before."""
    blocks[block].name = name
    blocks[block].kind = LISTED
    blocks[block].chain = 0
    engine.listed += 1
    bucket = bucket_of(buckets, name)
    other = buckets[bucket]
    if not other:
        buckets[bucket] = block
        return
    while blocks[other].chain:
        other = blocks[other].chain
    blocks[other].chain = block


@merged
def unlist(engine: Any, blocks: Any, buckets: Any, block: int) -> None:
    """Let a block no longer be found."""
    engine.listed += 1
    bucket = bucket_of(buckets, blocks[block].name)
    other = buckets[bucket]
    if other == block:
        buckets[bucket] = blocks[block].chain
        return
    while blocks[other].chain != block:
        other = blocks[other].chain
    blocks[other].chain = blocks[block].chain


@merged
def find(blocks: Any, buckets: Any, name: int) -> int:
    """The first block that was listed under a name, 0 for none."""
    block = buckets[bucket_of(buckets, name)]
    while block and blocks[block].name != name:
        block = blocks[block].chain
    return int(block)
