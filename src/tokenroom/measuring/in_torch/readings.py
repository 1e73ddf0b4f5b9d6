"""What PyTorch tells of a model, of a CUDA device, and of itself."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import torch

from tokenroom.measuring.in_torch.storages import StorageSet
from tokenroom.measuring.record import AllocatorState, Weights


def weights_of(model: torch.nn.Module) -> Weights:
    """Parameters and buffers, each storage once; those on the meta device take nothing."""
    parameters, buffers = StorageSet(), StorageSet()
    by_dtype: Counter[str] = Counter()
    tied = 0
    for parameter in model.parameters():
        if parameter.device.type != "meta" and parameters.add(parameter):
            name = str(parameter.dtype).removeprefix("torch.")
            by_dtype[name] += parameter.untyped_storage().nbytes()
    for _, parameter in model.named_parameters(remove_duplicate=False):
        tied += parameter.numel() * parameter.element_size()
    for buffer in model.buffers():
        if buffer.device.type != "meta":
            buffers.add(buffer)
    devices = Counter(parameters.by_device())
    devices.update(buffers.by_device())
    if not devices and any(True for _ in model.parameters()):
        devices["meta"] = 0
    return Weights(
        parameter_bytes=parameters.allocated_bytes,
        buffer_bytes=buffers.allocated_bytes,
        by_device=dict(devices),
        by_dtype=dict(by_dtype),
        tied_bytes=max(0, tied - parameters.allocated_bytes),
    )


def allocator_state(device: str, reserved_peak: int, allocated_peak: int) -> AllocatorState:
    """Counters of a CUDA device as they stand, with the peaks that were seen."""
    free, total = torch.cuda.mem_get_info(device)
    return AllocatorState(
        device=device,
        total_bytes=total,
        used_bytes=total - free,
        reserved_bytes=torch.cuda.memory_reserved(device),
        allocated_bytes=torch.cuda.memory_allocated(device),
        peak_reserved_bytes=reserved_peak,
        peak_allocated_bytes=allocated_peak,
    )


def library_versions() -> dict[str, str]:
    """Versions of PyTorch, its CUDA, and transformers where it is installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
    with suppress(PackageNotFoundError):
        found["transformers"] = version("transformers")
    return found
