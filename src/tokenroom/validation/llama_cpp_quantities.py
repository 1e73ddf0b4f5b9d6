"""llama.cpp's figures: caches as a whole, and buffers by device (``cuda0_model_mib``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tokenroom.fitting import FitResult

_BUFFER: Final = re.compile(r"(\w+?)_(model|kv|compute)_mib")


def _caches(result: FitResult, *, recurrent: bool) -> Iterator[Any]:
    plan: Any = result.plan
    for cache in plan.memory.caches.layers:
        if (cache.kind == "recurrent") is recurrent:
            yield cache


def _tensor(place: int, *, recurrent: bool = False) -> Callable[[FitResult], float]:
    """Bytes of the keys (0) or values (1) of every layer, or of both parts of the states."""

    def read(result: FitResult) -> float:
        found = [cache.tensors for cache in _caches(result, recurrent=recurrent)]
        return float(sum(sizes[place] for sizes in found if len(sizes) > place))

    return read


def _total(*, recurrent: bool) -> Callable[[FitResult], float]:
    def read(result: FitResult) -> float:
        return float(sum(sum(cache.tensors) for cache in _caches(result, recurrent=recurrent)))

    return read


def _window(quantity: str) -> Callable[[FitResult], float | None]:
    """Figures of the layers with a window, and of the others, in models that have both."""

    def read(result: FitResult) -> float | None:
        plan: Any = result.plan
        cells = plan.memory.caches.window_cells
        caches = list(_caches(result, recurrent=False))
        windowed = [cache for cache in caches if "window" in cache.kind or "swa" in cache.kind]
        others = [cache for cache in caches if cache not in windowed]
        figures = {
            "swa_cells": cells,
            "swa_layers": len(windowed),
            "swa_kv_mib": sum(sum(cache.tensors) for cache in windowed),
            "non_swa_kv_mib": sum(sum(cache.tensors) for cache in others),
        }
        return float(figures[quantity]) if windowed else None

    return read


def _cells(result: FitResult) -> float:
    plan: Any = result.plan
    return float(plan.memory.caches.cells)


CACHE_READINGS: Final[Mapping[str, Callable[[FitResult], float | None]]] = {
    "k_mib": _tensor(0),
    "v_mib": _tensor(1),
    "kv_total_mib": _total(recurrent=False),
    "kv_cells": _cells,
    "kv_layers": lambda result: float(sum(1 for _ in _caches(result, recurrent=False))),
    "rs_total_mib": _total(recurrent=True),
    "rs_conv_mib": _tensor(0, recurrent=True),
    "rs_ssm_mib": _tensor(1, recurrent=True),
    **{name: _window(name) for name in ("swa_cells", "swa_layers", "swa_kv_mib", "non_swa_kv_mib")},
}
"""Figures of the cache as a whole, which the placement of weights does not touch."""


def buffer_reading(quantity: str) -> Callable[[FitResult], float | None] | None:
    """The buffer that a quantity such as ``cuda0_compute_mib`` names; None when it names none."""
    if quantity in ("output_buffer_mib", "output_mib"):
        return lambda result: _named(result, "output", "")
    match = _BUFFER.fullmatch(quantity)
    if match is None:
        return None
    device, kind = match[1], match[2]
    return lambda result: _named(result, kind, device)


def _named(result: FitResult, kind: str, device: str) -> float | None:
    """Bytes of the buffers of that kind whose name is the device's; None when there is none."""
    plan: Any = result.plan
    sizes = {
        name.lower().removesuffix("_mapped"): size
        for name, size in plan.memory.buffers().get(kind, {}).items()
    }
    if not device:
        return float(sum(sizes.values()))
    if device == "host":
        return next((float(size) for name, size in sizes.items() if name.endswith("_host")), None)
    return float(sizes[device]) if device in sizes else None
