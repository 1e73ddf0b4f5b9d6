"""Chunks of KV in the host's memory: which are there, which go when others need room.

Follows ``CPUOffloadingManager`` of ``vllm/v1/kv_offload/cpu/manager.py`` and its default
``LRUCachePolicy`` (``policies/lru.py``), vLLM 0.32.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from tokenroom.errors import DeploymentError, shown

_BEING_WRITTEN: Final = -1


class HostTier:
    """So many chunks, found by name; the longest unused goes first.

    A chunk that is being written is not read and does not go; one that is being read does not go.

    Args:
        capacity: Chunks that it holds.

    Raises:
        DeploymentError: It holds a negative number.
    """

    __slots__ = ("_idle", "_readers", "capacity")

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise DeploymentError(f"the host's memory holds {shown(capacity)} chunks; give 0 up")
        self.capacity = capacity
        # Name to the transfers that read it, or that it is being written; the longest unused first.
        self._readers: OrderedDict[int, int] = OrderedDict()
        self._idle = 0

    def __len__(self) -> int:
        return len(self._readers)

    def has(self, name: int) -> bool:
        """Whether a chunk is there, or being written."""
        return name in self._readers

    def is_ready(self, name: int) -> bool:
        """Whether a chunk is there to be read."""
        return self._readers.get(name, _BEING_WRITTEN) != _BEING_WRITTEN

    def read(self, names: Iterable[int]) -> None:
        """Keep chunks, which are there, while a transfer reads them."""
        for name in names:
            self._idle -= not self._readers[name]
            self._readers[name] += 1

    def was_read(self, names: Iterable[int]) -> None:
        """Hear that a transfer has read chunks."""
        for name in names:
            self._readers[name] -= 1
            self._idle += not self._readers[name]

    def write(self, names: Sequence[int]) -> list[int] | None:
        """Make room for chunks; gives those that are to be written, None without room for them.

        Those that are there stay, whether or not there is room for the others.
        """
        new = [name for name in names if name not in self._readers]
        going = len(new) - (self.capacity - len(self._readers))
        if going > 0 and not self._let_go(going, set(names)):
            return None
        for name in new:
            self._readers[name] = _BEING_WRITTEN
        return new

    def was_written(self, names: Iterable[int]) -> None:
        """Hear that a transfer has written chunks."""
        for name in names:
            self._readers[name] = 0
            self._idle += 1

    def used(self, names: Iterable[int]) -> None:
        """Count chunks as just used, in this order; those that are gone are left out."""
        for name in names:
            if name in self._readers:
                self._readers.move_to_end(name)

    def _let_go(self, count: int, protected: set[int]) -> bool:
        if count > self._idle:
            return False
        going: list[int] = []
        for name, readers in self._readers.items():
            if not readers and name not in protected:
                going.append(name)
                if len(going) == count:
                    break
        if len(going) < count:
            return False
        for name in going:
            del self._readers[name]
        self._idle -= count
        return True
