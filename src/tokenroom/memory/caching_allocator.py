"""What PyTorch's CUDA caching allocator charges for a series of tensors that stay.

``torch.cuda.memory_allocated`` counts blocks, not tensors: a block is cut from a segment only when
more than a mebibyte would be left over, so a tensor of 259 MiB is charged 260. Over the layers of a
model that adds up to tens of mebibytes. Rules: PyTorch 2.9 ``c10/cuda/CUDACachingAllocator.cpp``
(``round_size``, ``get_allocation_size``, ``should_split``) with its default settings.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from tokenroom.units import MIB

_ROUNDING: Final = 512
_SMALL: Final = MIB
_LARGE_SEGMENT: Final = 20 * MIB
_OWN_SEGMENT: Final = 10 * MIB
_SEGMENT_ROUNDING: Final = 2 * MIB


def round_up(size: int, multiple: int) -> int:
    """``size`` rounded up to a multiple."""
    return -(-size // multiple) * multiple


def allocated_bytes(sizes: Iterable[int]) -> int:
    """Bytes charged for tensors allocated in this order and never freed.

    Tensors of at most 1 MiB are cut from 2 MiB segments in steps of 512 bytes; others below 10 MiB
    from segments of 20 MiB, larger ones from segments of their own, rounded up to 2 MiB. The
    smallest free block that fits is used first.

    Args:
        sizes: Bytes of each tensor.
    """
    free: list[int] = []
    total = 0
    for size in sizes:
        wanted = round_up(size, _ROUNDING)
        if wanted <= _SMALL:
            total += wanted
            continue
        place = bisect_left(free, wanted)
        if place < len(free):
            block = free.pop(place)
        elif wanted < _OWN_SEGMENT:
            block = _LARGE_SEGMENT
        else:
            block = round_up(wanted, _SEGMENT_ROUNDING)
        if block - wanted > _SMALL:
            insort(free, block - wanted)
            block = wanted
        total += block
    return total
