"""The figures in PyTorch's out-of-memory errors (c10/cuda/CUDACachingAllocator.cpp)."""

from __future__ import annotations

import re
from typing import Final

from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import AMOUNT, Sighting

_PROCESS: Final = re.compile(rf"Process \d+ has ({AMOUNT}) memory in use")


def held_bytes(found: Sighting) -> float | None:
    """What PyTorch holds, allocated or kept."""
    for name in ("allocated", "already", "mps"):
        if (allocated := found.size_bytes(name)) is not None:
            return allocated + (found.size_bytes("unallocated") or 0.0)
    return None


def total_bytes(found: Sighting) -> float | None:
    """The GPU's memory."""
    for name in ("total", "capacity", "allowed"):
        if (size := found.size_bytes(name)) is not None:
            return size
    return None


def own_bytes(found: Sighting, held: float) -> float | None:
    """What the process that failed holds in all; None where the error does not say.

    In a container it is not called "this process": it is the process that holds the least of those
    that hold as much as PyTorch does.
    """
    if (own := found.size_bytes("own")) is not None:
        return own or None
    others = [
        found._replace(values={"size": size}).size_bytes("size") or 0.0
        for size in _PROCESS.findall(found.text)
    ]
    return min((size for size in others if size >= held), default=None)


def free_bytes(found: Sighting) -> float | None:
    """What of it was free."""
    for name in ("free", "left", "alone"):
        if (size := found.size_bytes(name)) is not None:
            return size
    return None


def telling(report: Report) -> list[Sighting]:
    """The errors, those with figures first.

    That cuBLAS or the runtime found no room, too, is told by when it happened.
    """
    if report.engine in ("llama.cpp", "ollama"):
        return report.of("torch_oom")
    found = report.of("torch_oom", "cuda_oom", "cublas_alloc")
    return sorted(found, key=lambda found: (-len(found.values), found.kind != "torch_oom"))
