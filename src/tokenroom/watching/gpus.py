"""What NVIDIA's driver tells of GPUs, MIG instances and processes, by its library (NVML).

Through ``nvidia-ml-py``, the driver's own binding. A figure that a GPU, a driver or a virtual
machine does not tell is None; only a driver that does not answer at all is an error, and then
everything else is still watched. The meaning of each call is NVML's API reference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tokenroom.watching.observation import Gpu, GpuProcess

_MIG_ENABLED: Final = 1


class GpuReader:
    """The GPUs of this machine.

    Attributes:
        error: Why there is none to be seen, as a key of ``watch.gpus``; None while there are.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self._nvml: Any = None

    def read(self) -> tuple[Gpu, ...]:
        """Every GPU, and every instance of those that are divided; none with :attr:`error` set."""
        if self._nvml is None and not self._begin():
            return ()
        nvml = self._nvml
        try:
            found = tuple(
                gpu
                for index in range(nvml.nvmlDeviceGetCount())
                for gpu in _gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index), str(index))
            )
        except nvml.NVMLError as error:
            self.error = _reason(nvml, error)
            self.close()  # the driver may have been loaded anew
            return ()
        self.error = None if found else "none"
        return found

    def close(self) -> None:
        """Let go of the library."""
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._nvml = None

    def _begin(self) -> bool:
        try:
            import pynvml
        except ModuleNotFoundError:
            self.error = "no_binding"
            return False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.error = _reason(pynvml, error)
            return False
        self._nvml = pynvml
        return True


def _reason(nvml: Any, error: Any) -> str:
    """A documented error of the library as a key of ``watch.gpus``."""
    reasons = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no_library",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "no_driver",
        nvml.NVML_ERROR_NO_PERMISSION: "no_permission",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "version_mismatch",
        nvml.NVML_ERROR_GPU_IS_LOST: "lost",
        nvml.NVML_ERROR_NOT_SUPPORTED: "not_supported",
    }
    return reasons.get(error.value, "unknown")


def _gpu(nvml: Any, handle: Any, index: str) -> Iterator[Gpu]:
    """One GPU with its instances behind it."""
    modes = _told(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle))
    divided = None if modes is None else modes[0] == _MIG_ENABLED
    yield _device(nvml, handle, index, mig=divided)
    if not divided:
        return
    for number in range(_told(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        ask = partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if (instance := _told(nvml, ask)) is not None:
            yield _device(nvml, instance, f"{index}:{number}", mig=None)


def _device(nvml: Any, handle: Any, index: str, *, mig: bool | None) -> Gpu:
    memory = _told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    reserved = None
    if memory is None:  # drivers before 510
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    else:
        reserved = memory.reserved
    busy = _told(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        mig=mig,
        total_bytes=memory.total,
        used_bytes=memory.used,
        free_bytes=memory.free,
        reserved_bytes=reserved,
        busy_share=None if busy is None else busy.gpu / 100,
        processes=_processes(nvml, handle),
    )


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...] | None:
    found = _told(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    if found is None:
        return None
    return tuple(
        GpuProcess(pid=one.pid, name=_program(nvml, one.pid), used_bytes=one.usedGpuMemory)
        for one in sorted(found, key=lambda one: one.pid)
    )


def _program(nvml: Any, pid: int) -> str | None:
    """The program of a process: what it calls itself, else its file's name."""
    with contextlib.suppress(OSError):
        # Engines name their workers here (VLLM::EngineCore, sglang::scheduler).
        title = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode("utf-8", "replace")
        if title:
            return title.rsplit("/", 1)[-1]
    name = _told(nvml, lambda: nvml.nvmlSystemGetProcessName(pid))
    return None if not name else _text(name).rsplit("/", 1)[-1]


def _told(nvml: Any, ask: Callable[[], Any]) -> Any:
    """What a call gives, None where this GPU or driver does not tell it."""
    try:
        return ask()
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_UNINITIALIZED):
            raise
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
