"""What one CUDA device holds: by the driver, and by PyTorch's caching allocator."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

import torch


class Counters(Protocol):
    """Where memory is read from.

    Attributes:
        told_by: ``"process"`` when ``used_bytes`` is of this process alone, ``"device"`` when it is
            of all.
    """

    told_by: str

    def used_bytes(self) -> int:
        """What the driver has given out."""

    def reserved_bytes(self) -> int:
        """What the allocator took of it."""

    def allocated_bytes(self) -> int:
        """What tensors hold of that."""

    def restart(self) -> None:
        """Let go of what is cached, and begin new peaks."""

    def peak_bytes(self) -> tuple[int, int]:
        """The most that was reserved and allocated since."""


class CudaCounters:
    """The counters of a CUDA device; see :class:`Counters`."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        torch.empty(1, device=self._device)  # so that there is a context, and no kernel yet
        self._handle, self.told_by = None, "device"
        self._find()

    def _find(self) -> None:
        """NVML's handle of the device, where the binding is installed and tells processes."""
        with suppress(Exception):  # the binding's errors are its own; without it all is still told
            import pynvml

            pynvml.nvmlInit()
            uuid = str(torch.cuda.get_device_properties(self._device).uuid)
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            if self._own() is not None:
                self.told_by = "process"

    def _own(self) -> int | None:
        """What NVML says of this process; in containers it may know it by another number."""
        import pynvml

        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
            if process.pid == os.getpid() and process.usedGpuMemory is not None:
                return int(process.usedGpuMemory)
        return None

    def used_bytes(self) -> int:
        """By NVML of this process, else by ``mem_get_info`` of all."""
        torch.cuda.synchronize(self._device)
        if self.told_by == "process":
            own = self._own()
            if own is not None:
                return own
        free, total = torch.cuda.mem_get_info(self._device)
        return int(total - free)

    def reserved_bytes(self) -> int:
        """``torch.cuda.memory_reserved``."""
        return int(torch.cuda.memory_reserved(self._device))

    def allocated_bytes(self) -> int:
        """``torch.cuda.memory_allocated``."""
        return int(torch.cuda.memory_allocated(self._device))

    def restart(self) -> None:
        """Empty the cache and restart the peaks."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> tuple[int, int]:
        """``max_memory_reserved`` and ``max_memory_allocated``."""
        reserved = torch.cuda.max_memory_reserved(self._device)
        return int(reserved), int(torch.cuda.max_memory_allocated(self._device))


def driver_version() -> str | None:
    """The driver's version, None where NVML does not tell it."""
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    return None
