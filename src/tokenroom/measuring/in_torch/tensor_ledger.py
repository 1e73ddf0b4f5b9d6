"""Bytes of every storage alive, operator by operator: exact on any device.

A dispatch mode sees each operator's results; a finaliser on the storage's Python object, which
lives as long as the storage does (PyTorch 2.1 and later), sees it go. The recorded peaks that the
model of activations was checked against were counted the same way. What an operator allocates and
frees within itself is not seen, nor is what a compiled graph does inside.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorLedger(TorchDispatchMode):
    """Storages created while the mode is on.

    Attributes:
        alive_bytes: Those that are alive.
        peak_bytes: The most of it since the last :meth:`restart`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive_bytes = 0
        self.peak_bytes = 0
        self._sizes: dict[int, int] = {}
        self._others: set[int] = set()

    def leave_out(self, tensors: list[torch.Tensor]) -> None:
        """Storages that count never, although an operator may return them."""
        self._others |= {tensor.untyped_storage()._cdata for tensor in tensors}

    def restart(self) -> None:
        """Begin a new peak at what is alive now."""
        self.peak_bytes = self.alive_bytes

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage was created here."""
        return tensor.untyped_storage()._cdata in self._sizes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and count what it made."""
        result = func(*args, **(kwargs or {}))
        given: set[int] | None = None
        for tensor in tree_leaves(result):
            if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._others:
                continue
            size = storage.nbytes()
            if key in self._sizes:  # resized in place, or the same again
                self._change(key, size - self._sizes[key])
                continue
            if given is None:
                # What ``torch.tensor(...)`` made is first seen as the argument of lift_fresh.
                fresh = func is torch.ops.aten.lift_fresh.default
                leaves = [] if fresh else tree_leaves((args, kwargs))
                given = {
                    item.untyped_storage()._cdata
                    for item in leaves
                    if isinstance(item, torch.Tensor) and item.layout is torch.strided
                }
            if key in given:  # a view of what was there before
                continue
            self._sizes[key] = 0
            self._change(key, size)
            weakref.finalize(storage, self._gone, key).atexit = False
        return result

    def _change(self, key: int, added: int) -> None:
        self._sizes[key] += added
        self.alive_bytes += added
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)

    def _gone(self, key: int) -> None:
        self.alive_bytes -= self._sizes.pop(key)
