"""Which blocks a graph needs to reach its largest size: runs of alike ones are cut short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenroom.engines.llama_cpp.placement import Placement
from tokenroom.engines.llama_cpp.tensors import ModelTensors
from tokenroom.models.spec import ModelSpec

#: Repeats of a pattern of blocks that are always kept, and after how many memory looks the same.
_LEAST_REPEATS: Final = 4
_CYCLE: Final = 6
#: The longest pattern looked for.
_LONGEST: Final = 8

BlockKey = tuple[object, ...]


def block_keys(
    spec: ModelSpec, tensors: ModelTensors, placement: Placement
) -> tuple[BlockKey, ...]:
    """What a graph is told of every block: equal keys make equal parts of it.

    Types of weights matter only in host memory, from where they are copied for large batches.
    """
    host = placement.host
    numbers: dict[object, int] = {}
    shapes = {
        id(layer): numbers.setdefault((layer.mixers, layer.ffn), len(numbers))
        for layer, _ in spec.layer_kinds
    }

    def key(index: int) -> BlockKey:
        parts = []
        for stem, tensor in tensors.blocks[index].items():
            device = placement.device_of(index, stem)
            copied = (tensor.kind, tensor.num_bytes) if host and device == host else None
            parts.append((stem, device, copied, tensor.bias_elements))
        return shapes[id(spec.layers[index])], placement.layer_devices[index], tuple(parts)

    return tuple(key(index) for index in range(len(tensors.blocks)))


def kept_blocks(keys: Sequence[BlockKey], *, exact: bool = True) -> tuple[int, ...]:
    """Indices of the blocks to build.

    A run is a pattern of up to eight blocks that repeats with the same tensors on the same devices.
    Free memory looks the same after every few repeats, so as many are kept as leave the same
    remainder: the allocator then ends in the same state. Two repeats do when a few KiB more or
    less make no difference.
    """
    last = len(keys) - 1  # picks the outputs
    keys = keys[:last]
    least, cycle = (_LEAST_REPEATS, _CYCLE) if exact else (1, 1)
    kept: list[int] = []
    at = 0
    while at < last:
        best_period, best_times = 1, 1
        for period in range(1, _LONGEST + 1):
            times = 1
            while keys[at : at + period] == keys[at + times * period : at + (times + 1) * period]:
                times += 1
                if at + (times + 1) * period > last:
                    break
            if times > least and times * period > best_times * best_period:
                best_period, best_times = period, times
        repeats = best_times
        if best_times > least + cycle:
            repeats = least + ((best_times - least) % cycle if exact else 1)
        kept.extend(range(at, at + best_period * repeats))
        at += best_period * best_times
    return (*kept, last)
