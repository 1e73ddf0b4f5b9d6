"""SGLang's tree of cached prefixes: what is found, split, locked and dropped.

Follows ``UnifiedTreeCore`` and ``FullComponent`` (``mem_cache/unified_cache/unified_tree_core.py``,
``components/full.py``, SGLang 0.5.23) for full attention without host tiers. Nodes stand for runs
of tokens; which slots of the pool they have is left out, since no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

_STALE_PER_NODE: Final = 4
_SMALL_HEAP: Final = 64


class TokenNames(Protocol):
    """Tokens that can be told apart without being known.

    Attributes:
        names: What the first blocks of tokens are called: equal names mean equal tokens from the
            start on (``Request.block_hashes``).
        own_name: What all tokens after them are called, unlike anybody else's.
    """

    names: tuple[int, ...]
    own_name: int


class Node:
    """A run of tokens that is cached.

    Attributes:
        parent: The run before it; None for the root.
        children: The runs after it, by the name of their first page.
        names: Names of the tokens from the start on.
        own_name: The name of those past ``names``.
        start: Tokens before it.
        end: Tokens up to its end.
        locks: Requests that hold it, or a run after it.
        touched: When it was last used, as a count of uses.
    """

    __slots__ = ("children", "end", "locks", "names", "own_name", "parent", "start", "touched")

    def __init__(
        self,
        parent: Node | None,
        names: tuple[int, ...],
        own_name: int,
        start: int,
        end: int,
        touched: int,
    ) -> None:
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.names = names
        self.own_name = own_name
        self.start = start
        self.end = end
        self.locks = 0
        self.touched = touched


class RadixTree:
    """Runs of tokens by what they hold.

    Attributes:
        root: The empty run.
        evictable_tokens: Tokens of runs that nobody holds.
        protected_tokens: Tokens of runs that somebody holds.
        num_nodes: Runs, the root not counted.

    Args:
        page_tokens: Tokens of a page; runs are whole pages.
        name_tokens: Tokens that one name stands for, a multiple of ``page_tokens``.
    """

    __slots__ = (
        "_heap",
        "_name_tokens",
        "_page_tokens",
        "_serial",
        "_time",
        "evictable_tokens",
        "num_nodes",
        "protected_tokens",
        "root",
    )

    def __init__(self, page_tokens: int, name_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._name_tokens = name_tokens
        self._time = self._serial = 0
        self._heap: list[tuple[int, int, Node]] = []
        self.root = Node(None, (), 0, 0, 0, 0)
        self.num_nodes = 0
        self.evictable_tokens = 0
        self.protected_tokens = 0

    def match(self, key: TokenNames, length: int) -> Node:
        """The last run of the longest cached prefix, which ends at its ``end``.

        A run that is found in part is split, and everything up to there counts as used.

        Args:
            key: The tokens.
            length: How many of them are looked up.
        """
        length -= length % self._page_tokens
        node = self.root
        if not length:
            return node
        while node.end < length:
            child = node.children.get(self._page_name(key, node.end))
            if child is None:
                break
            end = self._common(child, key, length)
            if end < child.end:
                node = self._split(child, end)
                break
            node = child
        now = self._tick()
        touched: Node | None = node
        while touched is not None:
            touched.touched = now
            touched = touched.parent
        self._offer(node)
        return node

    def insert(self, key: TokenNames, length: int, owned_from: int) -> tuple[Node, int]:
        """Cache the first tokens; gives their last run and how many need no slot any more.

        Those are the tokens from ``owned_from`` on that were cached already: the request that
        computed them once more takes the cached ones.

        Args:
            key: The tokens.
            length: How many of them, whole pages.
            owned_from: Tokens before that the request did not compute itself.
        """
        node = self.root
        node.touched = self._tick()
        duplicates = 0
        while node.end < length:
            start = node.end
            child = node.children.get(self._page_name(key, start))
            if child is None:
                break
            child.touched = self._tick()
            end = self._common(child, key, length)
            if end < child.end:
                node = self._split(child, end)
            else:
                node = child
                self._offer(node)
            duplicates += max(0, node.end - max(start, owned_from))
        if node.end < length:
            leaf = Node(node, key.names, key.own_name, node.end, length, self._tick())
            self._tick()  # its time of creation
            node.children[self._page_name(key, node.end)] = leaf
            self.evictable_tokens += length - node.end
            self.num_nodes += 1
            node = leaf
            self._offer(node)
        return node, duplicates

    def lock(self, node: Node) -> None:
        """Hold a run and all before it."""
        held: Node | None = node
        while held is not None and held.parent is not None:
            if not held.locks:
                tokens = held.end - held.start
                self.evictable_tokens -= tokens
                self.protected_tokens += tokens
            held.locks += 1
            held = held.parent

    def unlock(self, node: Node) -> None:
        """Hold it no longer."""
        held: Node | None = node
        while held is not None and held.parent is not None:
            held.locks -= 1
            if not held.locks:
                tokens = held.end - held.start
                self.evictable_tokens += tokens
                self.protected_tokens -= tokens
                self._offer(held)
            held = held.parent

    def evict(self) -> int:
        """Drop the run used longest ago that nobody holds and nothing follows; gives its tokens.

        0 when there is none.
        """
        heap = self._heap
        while heap:
            touched, _, node = heappop(heap)
            if not _may_go(node, touched):
                continue
            parent = node.parent
            assert parent is not None
            tokens = node.end - node.start
            del parent.children[self._page_name(node, node.start)]
            node.parent = None
            self.evictable_tokens -= tokens
            self.num_nodes -= 1
            self._offer(parent)
            return tokens
        return 0

    def nodes(self) -> Iterator[Node]:
        """All runs, those of a branch from its start on."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def order_by_weight(self, ends: Iterable[Node]) -> list[int]:
        """Indices of requests, depth first, the branch with the most of them first.

        Source: ``_dfs_weight_order`` of ``mem_cache/base_prefix_cache.py``.
        """
        ending: dict[Node, list[int]] = {}
        for index, node in enumerate(ends):
            ending.setdefault(node, []).append(index)
        weights: dict[Node, int] = {}
        for node in reversed([self.root, *self.nodes()]):
            weights[node] = len(ending.get(node, ())) + sum(
                weights[child] for child in node.children.values()
            )
        order: list[int] = []
        stack = [(self.root, False)]
        while stack:
            node, seen = stack.pop()
            if seen:
                order.extend(ending.get(node, ()))
                continue
            children = sorted(node.children.values(), key=lambda child: -weights[child])
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children))
        return order

    def _tick(self) -> int:
        self._time += 1
        return self._time

    def _page_name(self, key: TokenNames, start: int) -> int:
        block = start // self._name_tokens
        return key.names[block] if block < len(key.names) else key.own_name

    def _common(self, node: Node, key: TokenNames, length: int) -> int:
        """Up to where a run and some tokens that begin it are alike, within ``length``."""
        end = min(node.end, length)
        if node.own_name == key.own_name:
            return end
        size = self._name_tokens
        mine, theirs = node.names, key.names
        low = node.start // size + 1  # blocks that are known to be alike
        high = min(len(mine), len(theirs), -(-end // size))
        if mine is theirs or mine[high - 1] == theirs[high - 1]:
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            if mine[middle - 1] == theirs[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return min(end, low * size)

    def _split(self, child: Node, end: int) -> Node:
        """Divide a run; gives its first part."""
        parent = child.parent
        assert parent is not None
        first = Node(parent, child.names, child.own_name, child.start, end, self._tick())
        self._tick()  # its time of creation
        first.locks = child.locks
        parent.children[self._page_name(child, child.start)] = first
        child.parent = first
        child.start = end
        first.children[self._page_name(child, end)] = child
        child.touched = self._tick()
        self.num_nodes += 1
        self._offer(child)
        return first

    def _offer(self, node: Node) -> None:
        """Note a run that may be dropped, under the time of its last use."""
        if node.locks or node.children or node.parent is None:
            return
        self._serial += 1
        heappush(self._heap, (node.touched, self._serial, node))
        if len(self._heap) > _SMALL_HEAP + _STALE_PER_NODE * self.num_nodes:
            self._heap = [entry for entry in self._heap if _may_go(entry[2], entry[0])]
            heapify(self._heap)


def _may_go(node: Node, touched: int) -> bool:
    """Whether nobody holds a run, nothing follows it, and it was not used since."""
    return (
        node.touched == touched and not node.locks and not node.children and node.parent is not None
    )
