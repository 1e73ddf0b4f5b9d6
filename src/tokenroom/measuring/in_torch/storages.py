"""Tensors found in any object, and the storages behind them, each counted once.

A cache is whatever holds tensors: transformers' ``Cache`` objects of every class (5.24
``cache_utils.py``), pairs of them for encoder and decoder, states of recurrent models, quantised
tensors that are subclasses of ``torch.Tensor`` (quanto) or tuples with their meta data (HQQ), and
the tuples of tuples of versions before 4.36. So nothing is asked of the class: attributes,
sequences and mappings are walked, and layers are told by the first index on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from tokenroom.measuring.record import CacheCount, CacheLayer

_TRAITS = (
    "nbits",
    "q_group_size",
    "residual_length",
    "axis_key",
    "max_cache_len",
    "sliding_window",
)
_STATES = ("conv", "recurrent", "ssm", "rnn", "state")
_PLAIN: tuple[Any, ...] = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    torch.dtype,
)
_PLAIN += (torch.device, torch.Size)


class Found(NamedTuple):
    """A tensor and how it was reached.

    Attributes:
        path: Attribute names, keys and indices.
        tensor: The tensor.
        owner: The innermost object on the way that is no container, None for none.
    """

    path: tuple[str | int, ...]
    tensor: torch.Tensor
    owner: Any


class View(NamedTuple):
    """The part of a storage that one tensor addresses."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    element_bytes: int

    @property
    def num_bytes(self) -> int:
        """Distinct elements that are addressed; a repeated one (stride 0) counts once."""
        count = 1
        for size, step in zip(self.shape, self.stride, strict=True):
            if size == 0:
                return 0
            count *= size if step else 1
        return count * self.element_bytes


def tensors_in(value: Any) -> Iterator[Found]:
    """Every tensor that can be reached from an object, once by every object that holds it.

    Modules are not entered: a cache may know its model, whose weights are no cache.
    """
    yield from _walk(value, (), None, frozenset())


def _walk(
    value: Any, path: tuple[str | int, ...], owner: Any, above: frozenset[int]
) -> Iterator[Found]:
    if isinstance(value, torch.Tensor):
        inner = getattr(type(value), "__tensor_flatten__", None)
        if inner is None:
            yield Found(path, value, owner)
            return
        for name in value.__tensor_flatten__()[0]:
            yield from _walk(getattr(value, name), (*path, name), owner, above)
        return
    if isinstance(value, (*_PLAIN, torch.nn.Module)) or callable(value) or id(value) in above:
        return
    above |= {id(value)}
    if isinstance(value, Mapping):
        for key, item in value.items():
            step = key if isinstance(key, int) else str(key)
            yield from _walk(item, (*path, step), owner, above)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index), owner, above)
    else:
        for name in _attributes(value):
            yield from _walk(getattr(value, name, None), (*path, name), value, above)


def _attributes(value: Any) -> Iterator[str]:
    yield from list(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def view_of(tensor: torch.Tensor) -> View:
    """Where in its storage a tensor lies."""
    return View(
        tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size()
    )


class StorageSet:
    """Storages, each counted once, with the views that were seen of them."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._devices: dict[int, str] = {}
        self._views: dict[int, set[View]] = {}
        self._alive: list[torch.UntypedStorage] = []  # so that no other gets its address

    def add(self, tensor: torch.Tensor) -> bool:
        """Count a tensor's storage; False when it had been."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._views.setdefault(key, set()).add(view_of(tensor))
        if key in self._sizes:
            return False
        self._alive.append(storage)
        self._sizes[key] = storage.nbytes()
        self._devices[key] = str(tensor.device)
        return True

    @property
    def allocated_bytes(self) -> int:
        """Sizes of the storages."""
        return sum(self._sizes.values())

    @property
    def viewed_bytes(self) -> int:
        """What the views address, of each storage at most all of it."""
        return sum(
            min(size, sum(view.num_bytes for view in self._views[key]))
            for key, size in self._sizes.items()
        )

    def by_device(self) -> dict[str, int]:
        """Allocated bytes by device."""
        found: dict[str, int] = {}
        for key, size in self._sizes.items():
            found[self._devices[key]] = found.get(self._devices[key], 0) + size
        return found


def count_cache(cache: Any) -> CacheCount:
    """Bytes that a cache holds, layer by layer.

    Args:
        cache: Any cache object of transformers, or tuples of tensors.
    """
    grouped: dict[tuple[str, int | None], list[Found]] = {}
    for found in tensors_in(cache):
        index = next((step for step in found.path if isinstance(step, int)), None)
        part = "cross" if any("cross" in str(step) for step in found.path) else "self"
        grouped.setdefault((part, index), []).append(found)
    whole, counters = StorageSet(), StorageSet()
    layers = [
        _layer(part, index, tensors, whole, counters) for (part, index), tensors in grouped.items()
    ]
    unfilled = sum(layer.viewed_bytes - layer.filled_bytes for layer in layers)
    return CacheCount(
        class_name=type(cache).__name__,
        layers=tuple(layers),
        allocated_bytes=whole.allocated_bytes,
        viewed_bytes=whole.viewed_bytes,
        filled_bytes=whole.viewed_bytes - unfilled,
        counter_bytes=counters.allocated_bytes,
        by_device=whole.by_device(),
    )


def _layer(
    part: str,
    index: int | None,
    tensors: list[Found],
    whole: StorageSet,
    all_counters: StorageSet,
) -> CacheLayer:
    kept, states, counters = StorageSet(), StorageSet(), StorageSet()
    dtypes: dict[str, None] = {}
    for found in tensors:
        tensor = found.tensor
        if tensor.numel() <= 1 and not tensor.is_floating_point():
            if all_counters.add(tensor):
                counters.add(tensor)
            continue
        whole.add(tensor)
        names = [step for step in found.path if isinstance(step, str)]
        is_state = any(word in name for name in names[-1:] + names[:1] for word in _STATES)
        (states if is_state else kept).add(tensor)
        if tensor.numel():
            dtypes[str(tensor.dtype).removeprefix("torch.")] = None
    owner = tensors[0].owner
    tokens, share = _occupancy(owner, tensors, part)
    return CacheLayer(
        index=index,
        part=part,
        class_name=type(owner).__name__ if owner is not None else "tuple",
        devices=tuple({**kept.by_device(), **states.by_device()}),
        dtypes=tuple(dtypes),
        allocated_bytes=kept.allocated_bytes,
        viewed_bytes=kept.viewed_bytes,
        filled_bytes=round(kept.viewed_bytes * share),
        state_bytes=states.allocated_bytes,
        counter_bytes=counters.allocated_bytes,
        tokens=tokens,
        traits={
            name: value
            for name in _TRAITS
            if isinstance(value := getattr(owner, name, None), int) and not isinstance(value, bool)
        },
    )


def _occupancy(owner: Any, tensors: list[Found], part: str) -> tuple[int | None, float]:
    """Tokens that a layer has seen, and which share of its positions hold one.

    A layer laid out in advance (``StaticLayer``) has ``max_cache_len`` positions; all others hold
    what they have.
    """
    length = getattr(owner, "get_seq_length", None)
    if length is None:
        shaped = next((item.tensor for item in tensors if item.tensor.dim() == 4), None)
        return (None if shaped is None else int(shaped.shape[-2])), 1.0
    try:
        seen = int(length())
    except (TypeError, AttributeError, ValueError):  # recurrent layers, whole caches
        return None, 1.0
    positions = getattr(owner, "max_cache_len", None)
    return seen, min(1.0, seen / positions) if positions else 1.0
