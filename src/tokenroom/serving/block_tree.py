"""TensorRT-LLM's KV blocks: a queue of free ones, and a tree of those that prompts find again.

Follows ``WindowBlockManager`` of ``cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp`` and
``evictionPolicy.cpp``, NVIDIA/TensorRT-LLM in 2026, with every block at the default priority and no
block in host memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from tokenroom.errors import DeploymentError, shown

BlockName = Callable[[int], int]
"""Names everything up to the end of a request's i-th full block."""


class BlockTree:
    """Blocks 0 to ``num_blocks - 1``.

    A block that nobody holds waits at the end of the queue, whether it is in the tree or not, and
    the first of the queue is handed out next. Its tokens are then lost, and whatever follows them
    in the tree can no longer be reached: those blocks leave the tree too, but keep their places.

    Args:
        num_blocks: Blocks of the pool.

    Raises:
        DeploymentError: Fewer than one block.
    """

    __slots__ = ("_children", "_name", "_named", "_parent", "_queue", "holders", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise DeploymentError(f"num_blocks is {shown(num_blocks)}; it must be 1 or more")
        self.num_blocks = num_blocks
        self.holders = [0] * num_blocks
        self._queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._named: dict[int, int] = {}
        self._name: list[int | None] = [None] * num_blocks
        self._parent: list[int | None] = [None] * num_blocks
        self._children: list[set[int]] = [set() for _ in range(num_blocks)]

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._queue)

    def free_blocks(self) -> Iterator[int]:
        """Free blocks, the next to go out first."""
        return iter(self._queue)

    def allocate(self, count: int) -> list[int]:
        """Take blocks from the front of the queue; the caller has checked ``num_free``."""
        taken = []
        for _ in range(count):
            block, _ = self._queue.popitem(last=False)
            self._leave(block)
            self.holders[block] = 1
            taken.append(block)
        return taken

    def claim(self, blocks: Iterable[int]) -> None:
        """Count one more holder of each; those that were free leave the queue."""
        for block in blocks:
            if not self.holders[block]:
                del self._queue[block]
            self.holders[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Count one holder less of each, in the order in which they may be taken again."""
        for block in blocks:
            self.holders[block] -= 1
            if not self.holders[block]:
                self._queue[block] = None

    def find(self, name: int) -> int | None:
        """The block of a name in the tree, held or free; None if there is none."""
        return self._named.get(name)

    def name_of(self, block: int) -> int | None:
        """The name by which a block is found, None for none."""
        return self._name[block]

    def make_private(self, block: int) -> bool:
        """Take a block that nobody holds and nothing follows out of the tree, if it is such."""
        if self.holders[block] or self._children[block]:
            return False
        self._leave(block)
        return True

    def store(self, name: BlockName, blocks: list[int], count: int) -> None:
        """Let the first ``count`` blocks of a request be found, as far as others are not already.

        Where the tree has the same tokens in another block, that one stays, and what follows is
        hung behind it (``storeBlocks``).
        """
        before: int | None = None
        index = 0
        while index < count and (known := self._named.get(name(index))) is not None:
            before = known
            index += 1
        for position in range(index, count):
            block = blocks[position]
            own = name(position)
            self._name[block] = own
            self._named[own] = block
            self._parent[block] = before
            if before is not None:
                self._children[before].add(block)
            before = block

    def _leave(self, block: int) -> None:
        """Take a block and all that follows it out of the tree."""
        if self._name[block] is None:
            return
        parent = self._parent[block]
        if parent is not None:
            self._children[parent].discard(block)
        leaving = [block]
        while leaving:
            each = leaving.pop()
            name = self._name[each]
            assert name is not None
            del self._named[name]
            self._name[each] = self._parent[each] = None
            leaving.extend(self._children[each])
            self._children[each].clear()
