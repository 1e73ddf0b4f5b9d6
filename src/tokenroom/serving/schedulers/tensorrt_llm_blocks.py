"""The blocks of TensorRT-LLM's requests: what they need, find, get and leave behind.

Follows ``KVCacheManager`` of ``cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp`` and
``prepare_resources`` of ``tensorrt_llm/_torch/pyexecutor/resource_manager.py``,
NVIDIA/TensorRT-LLM in 2026, for one pool of full attention without drafts and beams.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenroom.serving.block_tree import BlockTree
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.tensorrt_llm_config import TensorRtLlmSchedulerConfig
from tokenroom.serving.sequence import Sequence


class TensorRtLlmSequence(Sequence):
    """A request as TensorRT-LLM holds it.

    Attributes:
        prefill_end: Tokens that are computed as a prompt: those it had when it was let in.
        reusable_tokens: What the capacity scheduler expects it to find in the cache.
        decodes: All of its prompt is computed, or scheduled to be.
    """

    __slots__ = ("decodes", "prefill_end", "reusable_tokens")

    def __init__(self, request: Request, max_seq_len: int, order: int, own_name: int) -> None:
        super().__init__(request, max_seq_len, 1, order, own_name)
        self.prefill_end = self.tokens
        self.reusable_tokens = 0
        self.decodes = False


class Reuse(NamedTuple):
    """What of a request that has not begun is in the tree (``analyzePrefixReuse``).

    Attributes:
        held: Its blocks that others hold already, so that it takes none for them.
        tokens: Tokens of the blocks that are there, the last of a whole prompt counted too.
        first_new: The name of its first full block that is not there, None if all are.
    """

    held: list[int]
    tokens: int
    first_new: int | None


class TensorRtLlmBlocks:
    """The pool and what its requests hold of it.

    Attributes:
        tree: The blocks.

    Args:
        config: The scheduler's settings.

    Raises:
        DeploymentError: See :class:`~tokenroom.serving.block_tree.BlockTree`.
    """

    __slots__ = ("_reuses", "_size", "tree")

    def __init__(self, config: TensorRtLlmSchedulerConfig) -> None:
        self.tree = BlockTree(config.num_blocks)
        self._size = config.tokens_per_block
        self._reuses = config.enable_block_reuse

    def whole(self, sequence: Sequence) -> int:
        """Blocks that it holds in the end, the place of its last token included."""
        return -(-sequence.last_tokens // self._size)

    def remaining(self, sequence: Sequence) -> int:
        """Blocks that it takes until its end (``getRemainingBlocksToCompletion``)."""
        return self.whole(sequence) - len(sequence.blocks[0])

    def next_step(self, sequence: TensorRtLlmSequence) -> int:
        """Blocks that its next step takes, reuse aside (``getNeededBlocksOneStep``)."""
        if not sequence.blocks[0]:
            return -(-sequence.tokens // self._size)
        return int(sequence.decodes and sequence.computed % self._size == 0)

    def reuse(self, sequence: Sequence) -> Reuse:
        """What a request that has no block would find, and whose blocks those are.

        Its last token is always computed. TensorRT-LLM counts a block whose last token that is
        among those it need not take, although it has to copy it, and fails when none is left; here
        it counts as one that it takes.
        """
        if not self._reuses:
            return Reuse([], 0, None)
        find, holders, name = self.tree.find, self.tree.holders, sequence.block_name
        full = sequence.tokens // self._size
        recoverable = (sequence.tokens - 1) // self._size
        held: list[int] = []
        for index in range(full):
            block = find(name(index))
            if block is None:
                return Reuse(held, index * self._size, name(index))
            if holders[block] and index < recoverable:
                held.append(block)
        return Reuse(held, full * self._size, None)

    def claim(self, sequence: TensorRtLlmSequence) -> None:
        """Give a prompt what it finds in the tree; notes how many tokens that saves.

        Of a block of which it needs all but the last token it gets a copy, or the block itself
        where nobody holds it and nothing follows it (``loadOrAllocateBlocks``).
        """
        sequence.prefill_end = tokens = sequence.tokens
        if not self._reuses:
            return
        tree, size, name = self.tree, self._size, sequence.block_name
        found: list[int] = []
        for index in range((tokens - 1) // size):
            block = tree.find(name(index))
            if block is None:
                break
            found.append(block)
        tree.claim(found)
        matched = len(found) * size
        if tokens % size == 0 and matched == tokens - size:
            last = tree.find(name(len(found)))
            if last is not None:
                matched = tokens - 1
                if tree.make_private(last):
                    tree.claim([last])
                    found.append(last)
        sequence.blocks[0] = found
        sequence.computed = matched

    def fill(self, sequence: TensorRtLlmSequence) -> None:
        """Give a prompt the other blocks that it needs, for all of its tokens at once."""
        missing = -(-sequence.prefill_end // self._size) - len(sequence.blocks[0])
        sequence.blocks[0] += self.tree.allocate(missing)

    def add_tokens(self, sequences: list[TensorRtLlmSequence]) -> None:
        """Give each the place of its next token (``addToken``)."""
        size, allocate = self._size, self.tree.allocate
        for sequence in sequences:
            if sequence.computed % size == 0:
                sequence.blocks[0] += allocate(1)
            sequence.computed += 1

    def store(self, sequence: Sequence, tokens: int) -> None:
        """Let blocks that so many computed tokens fill be found by others."""
        if self._reuses:
            self.tree.store(sequence.block_name, sequence.blocks[0], tokens // self._size)

    def free(self, sequence: TensorRtLlmSequence) -> None:
        """Take back its blocks, its last first; they may still be found (``releaseBlocks``)."""
        self.store(sequence, min(sequence.computed, sequence.tokens - 1))
        self.tree.release(reversed(sequence.blocks[0]))
        sequence.blocks[0] = []
        sequence.computed = 0
        sequence.decodes = False
