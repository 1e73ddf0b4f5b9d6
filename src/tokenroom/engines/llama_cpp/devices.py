"""The accelerators of a node as ggml names and treats them, and what their drivers take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.engines.llama_cpp.placement import Backend
from tokenroom.engines.policy import Estimate
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.units import MIB

#: Vendor -> (family, name of a device, alignment of buffers, pinned host memory).
_FAMILIES: Final[Mapping[str, tuple[str, str, int, str]]] = {
    "nvidia": ("cuda", "CUDA", 128, "CUDA_Host"),
    "amd": ("rocm", "ROCm", 128, "ROCm_Host"),
    "apple": ("metal", "MTL", 32, ""),
    "intel": ("sycl", "SYCL", 128, "SYCL_Host"),
}
_OTHER: Final = ("vulkan", "Vulkan", 64, "Vulkan_Host")

#: Driver memory in use before llama.cpp allocates anything, in MiB: total less free in start-up
#: logs of llama.cpp (RTX 2000 Ada 180, RTX 3090 264, 291 and 368, RTX 4090 472).
_CONTEXT_MIB: Final = (180, 330, 480)
#: Taken while it runs, beyond its own buffers: the "unaccounted" column of its memory breakdown
#: less the above (RTX 4090: 451 to 456 in all), cuBLAS workspaces and kernels loaded on first use.
_RUNTIME_MIB: Final = (0, 120, 280)


def backends_of(node: Node, gpus: int) -> tuple[Backend, ...]:
    """The devices that llama.cpp would list, in order."""
    accelerator = node.accelerator
    family, prefix, alignment, pinned = _FAMILIES.get(accelerator.vendor, _OTHER)
    return tuple(
        Backend(
            name=f"{prefix}{index}",
            family=family,
            alignment=alignment,
            host_buffer=pinned,
            capability=accelerator.compute_capability,
        )
        for index in range(gpus)
    )


def maps_weights(accelerator: Accelerator, gpus: int) -> bool:
    """Whether weights stay mapped from the file by default.

    Integrated CUDA devices have no ``mmap_support`` (``ggml-cuda.cu``), others do.
    """
    return not (gpus and accelerator.vendor == "nvidia" and accelerator.unified_memory)


def processor(accelerator: Accelerator) -> str:
    """Kind of the host's processor, by which weights on it are repacked."""
    arm = accelerator.vendor == "apple" or (
        accelerator.unified_memory and accelerator.vendor == "nvidia"
    )
    return "arm" if arm else "x86"


def context_memory(accelerator: Accelerator) -> Estimate:
    """Driver memory of one device before anything is allocated.

    Metal counts none of it against the working set.
    """
    if accelerator.vendor == "apple":
        return Estimate(num_bytes=0, low_bytes=0, high_bytes=0, source="Metal keeps none")
    low, middle, high = _CONTEXT_MIB
    return Estimate(
        num_bytes=middle * MIB,
        low_bytes=low * MIB,
        high_bytes=high * MIB,
        phase="context",
        source="total less free in llama.cpp start-up logs: github.com/ggml-org/llama.cpp pulls "
        "22673 and issues 23281, 23679, 24608; github.com/ollama/ollama issue 17482",
    )


def runtime_memory(accelerator: Accelerator) -> Estimate:
    """What libraries and kernels take while it runs."""
    if accelerator.vendor == "apple":
        return Estimate(num_bytes=0, low_bytes=0, high_bytes=64 * MIB, source="Metal pipelines")
    low, middle, high = _RUNTIME_MIB
    return Estimate(
        num_bytes=middle * MIB,
        low_bytes=low * MIB,
        high_bytes=high * MIB,
        phase="runtime",
        source="unaccounted memory in the breakdown of github.com/ggml-org/llama.cpp pull 15860",
    )
