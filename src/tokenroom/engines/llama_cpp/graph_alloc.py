"""Room that the tensors of a graph take when memory of dead ones is used again.

A port of ggml's graph allocator (``ggml/src/ggml-alloc.c`` of llama.cpp 0c1e57098:
``ggml_dyn_tallocr_*`` and ``ggml_gallocr_alloc_graph_impl``): best fit into freed blocks, a source
that dies is written over where the operation allows, views keep their source alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenroom.engines.llama_cpp.tensor_graph import IN_PLACE, AllocationState, Tensor

_ENDLESS = 1 << 62


class BlockAllocator:
    """One growing buffer with free blocks; ``max_bytes`` is how far it ever reached."""

    __slots__ = ("_alignment", "_free", "max_bytes")

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._free: list[list[int]] = [[0, _ENDLESS]]  # [offset, bytes], by offset
        self.max_bytes = 0

    def padded(self, num_bytes: int) -> int:
        """Bytes rounded up to the alignment."""
        return -(-num_bytes // self._alignment) * self._alignment

    def take(self, num_bytes: int) -> int:
        """Offset of room for that many bytes."""
        size = self.padded(num_bytes)
        best, fit = -1, _ENDLESS
        free = self._free
        for index in range(len(free) - 1):
            room = free[index][1]
            if size <= room <= fit:
                best, fit = index, room
        block = free[best]  # -1: the last block, which grows the buffer
        offset = block[0]
        block[0] += size
        block[1] -= size
        if block[1] == 0:
            del free[best]
        self.max_bytes = max(self.max_bytes, offset + size)
        return offset

    def give_back(self, offset: int, num_bytes: int) -> None:
        """Free room, merged with the free blocks beside it."""
        size = self.padded(num_bytes)
        free = self._free
        for index, block in enumerate(free):
            if block[0] + block[1] == offset:
                block[1] += size
                if index + 1 < len(free) and block[0] + block[1] == free[index + 1][0]:
                    block[1] += free[index + 1][1]
                    del free[index + 1]
                return
            if offset + size == block[0]:
                block[0] = offset
                block[1] += size
                if index and free[index - 1][0] + free[index - 1][1] == block[0]:
                    free[index - 1][1] += block[1]
                    del free[index]
                return
        at = 0
        while at < len(free) and free[at][0] < offset:
            at += 1
        free.insert(at, [offset, size])


def allocate(
    nodes: Sequence[tuple[Tensor, int]],
    leafs: Sequence[tuple[Tensor, int]],
    alignments: Sequence[int],
    alloc_bytes: Callable[[int, Tensor], int],
) -> list[int]:
    """Bytes that each buffer needs for a graph.

    Args:
        nodes: Tensors in evaluation order, each with the buffer it lies in.
        leafs: Tensors without sources that are to be allocated first, each with its buffer.
        alignments: Alignment of each buffer.
        alloc_bytes: Bytes a tensor takes in a buffer (``get_alloc_size`` of the buffer type).
    """
    buffers = [BlockAllocator(alignment) for alignment in alignments]

    def state_of(tensor: Tensor) -> AllocationState:
        state = tensor.state
        if state is None:
            state = tensor.state = AllocationState()
        return state

    def place_tensor(tensor: Tensor, place: int) -> None:
        if tensor.view_of is not None or tensor.place is not None:
            return
        state = state_of(tensor)
        if state.allocated:
            return
        state.allocated = True
        if tensor.op in IN_PLACE and write_over(tensor, state):
            return
        state.place = place
        state.offset = buffers[place].take(alloc_bytes(place, tensor))

    def write_over(tensor: Tensor, state: AllocationState) -> bool:
        for parent in tensor.src:
            held = state_of(parent)
            # Views are never the allocator's own, so what they show is not written over.
            if (
                not held.allocated
                or parent.is_output
                or held.children != 1
                or held.views != 0
                or tensor.kind != parent.kind
                or tensor.ne != parent.ne
                or tensor.strides != parent.strides
            ):
                continue
            state.place, state.offset = held.place, held.offset
            held.allocated = False
            buffer = buffers[state.place]
            had = buffer.padded(alloc_bytes(state.place, parent))
            needs = buffer.padded(alloc_bytes(state.place, tensor))
            if had > needs:
                buffer.give_back(state.offset + needs, had - needs)
            return True
        return False

    def free(tensor: Tensor, state: AllocationState) -> None:
        if tensor.is_output:
            return
        buffers[state.place].give_back(state.offset, alloc_bytes(state.place, tensor))
        state.allocated = False

    for leaf, place in leafs:
        place_tensor(leaf, place)
    for node, place in nodes:
        if node.view_of is not None and node.op != "none":
            state_of(node.view_of).views += 1
        if node.is_input:
            place_tensor(node, place)
        for source in node.src:
            state_of(source).children += 1
            if source.is_input:
                place_tensor(source, place)
    for node, place in nodes:
        for source in node.src:
            place_tensor(source, place)
        place_tensor(node, place)
        for source in node.src:
            state = state_of(source)
            state.children -= 1
            if state.children or state.views:
                continue
            base = source.view_of
            if base is not None:
                base_state = state_of(base)
                base_state.views -= 1
                if not base_state.views and not base_state.children and base_state.allocated:
                    free(base, base_state)
            elif state.allocated:
                free(source, state)
    return [buffer.max_bytes for buffer in buffers]
