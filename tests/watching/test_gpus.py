"""NVML by its own library: its documented errors here, and GPUs by a stand-in for its calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tokenroom.watching.gpus import GpuReader

GIB = 2**30


def raising(code: int) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise pynvml.NVMLError(code)

    return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The driver's calls: GPU 0 is whole, GPU 1 divided with an instance in place 2."""
    memory = SimpleNamespace(total=80 * GIB, used=60 * GIB, free=19 * GIB, reserved=GIB)
    instance = SimpleNamespace(total=10 * GIB, used=4 * GIB, free=6 * GIB, reserved=0)
    process = SimpleNamespace(pid=2**22 + 5, usedGpuMemory=59 * GIB)
    hidden = SimpleNamespace(pid=2**22 + 1, usedGpuMemory=None)

    def instance_handle(handle: str, number: int) -> str:
        if (handle, number) != ("gpu1", 2):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "mig"

    made = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
        "nvmlDeviceGetMigMode": lambda handle: [int(handle == "gpu1")] * 2,
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": instance_handle,
        "nvmlDeviceGetMemoryInfo": lambda handle, version=None: (
            instance if handle == "mig" else memory
        ),
        "nvmlDeviceGetUtilizationRates": lambda handle: (
            raising(pynvml.NVML_ERROR_NOT_SUPPORTED)()
            if handle == "mig"
            else SimpleNamespace(gpu=97, memory=40)
        ),
        "nvmlDeviceGetUUID": lambda handle: f"uuid-{handle}",
        "nvmlDeviceGetName": lambda _: b"NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: (
            [process, hidden] if handle == "gpu0" else []
        ),
        "nvmlSystemGetProcessName": lambda _: "/usr/bin/python3",
    }
    for name, call in made.items():
        monkeypatch.setattr(pynvml, name, call)
    return made


def test_this_machine_says_what_it_has() -> None:
    reader = GpuReader()
    found = reader.read()
    reader.close()
    # Machines of developers and of continuous integration have no driver; some have a GPU.
    assert (reader.error is None) == bool(found)
    assert reader.error in (None, "no_library", "no_driver", "none", "not_supported")


@pytest.mark.usefixtures("calls")
def test_gpus_instances_and_processes() -> None:
    reader = GpuReader()
    whole, divided, instance = reader.read()
    assert reader.error is None
    assert (whole.index, whole.name, whole.mig) == ("0", "NVIDIA H100 80GB HBM3", False)
    assert (whole.total_bytes, whole.used_bytes) == (80 * GIB, 60 * GIB)
    assert (whole.free_bytes, whole.reserved_bytes, whole.busy_share) == (19 * GIB, GIB, 0.97)
    assert whole.processes is not None
    assert [one.used_bytes for one in whole.processes] == [None, 59 * GIB]  # by their numbers
    assert whole.processes[0].name == "python3"
    assert divided.mig is True
    assert (instance.index, instance.uuid, instance.mig) == ("1:2", "uuid-mig", None)
    assert (instance.used_bytes, instance.busy_share) == (4 * GIB, None)


def test_what_a_gpu_does_not_tell_is_not_known(
    calls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetComputeRunningProcesses",
    ):
        monkeypatch.setattr(pynvml, name, raising(pynvml.NVML_ERROR_NOT_SUPPORTED))

    def memory(handle: str, version: Any = None) -> Any:
        if version is not None:  # drivers before 510
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return calls["nvmlDeviceGetMemoryInfo"](handle)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    first, _ = GpuReader().read()
    assert (first.mig, first.busy_share, first.processes, first.reserved_bytes) == (None,) * 4
    assert first.used_bytes == 60 * GIB


@pytest.mark.parametrize(
    ("code", "key"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no_library"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "no_driver"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no_permission"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "version_mismatch"),
        (pynvml.NVML_ERROR_UNKNOWN, "unknown"),
    ],
)
def test_documented_errors_of_the_start(
    code: int, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", raising(code))
    reader = GpuReader()
    assert reader.read() == ()
    assert reader.error == key


def test_a_gpu_that_is_lost_is_said_and_comes_back(
    calls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = GpuReader()
    assert len(reader.read()) == 3
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetUtilizationRates", raising(pynvml.NVML_ERROR_GPU_IS_LOST)
    )
    assert reader.read() == ()
    assert reader.error == "lost"
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetUtilizationRates", calls["nvmlDeviceGetUtilizationRates"]
    )
    assert len(reader.read()) == 3
    assert reader.error is None


def test_a_driver_without_gpus(calls: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    reader = GpuReader()
    assert reader.read() == ()
    assert reader.error == "none"


def test_without_the_binding_the_rest_is_still_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    reader = GpuReader()
    assert reader.read() == ()
    assert reader.error == "no_binding"
