"""Tensors of an eagerly run step as they come and go, by name and in PyTorch's allocator."""

from __future__ import annotations

from tokenroom.engines.vllm.graph_pool import Block, Pool
from tokenroom.engines.vllm.profile_inputs import Terms


class Tape:
    """A record of allocations that knows its highest point.

    Attributes:
        pool: The allocator.
        held: Bytes allocated now.
        peak: The most that were.
        phase: What is going on now.
        peak_phase: What was going on at the peak.
        peak_terms: The tensors that lived then.
    """

    def __init__(self) -> None:
        self.pool = Pool()
        self._live: dict[int, tuple[str, Block]] = {}
        self.held = 0
        self.peak = 0
        self.phase = "layers"
        self.peak_phase = "layers"
        self.peak_terms: Terms = ()
        self._next = 0

    def take(self, name: str, num_bytes: int) -> int:
        """Allocate a tensor; its handle."""
        if num_bytes <= 0:
            return -1
        block = self.pool.take(num_bytes)
        self._next += 1
        self._live[self._next] = (name, block)
        self.held += block[0]
        if self.held > self.peak:
            self.peak, self.peak_phase = self.held, self.phase
            self.peak_terms = tuple((each, held[0]) for each, held in self._live.values())
        return self._next

    def free(self, *handles: int) -> None:
        """Let tensors go."""
        for handle in handles:
            if handle > 0:
                _, block = self._live.pop(handle)
                self.held -= block[0]
                self.pool.give_back(block)
