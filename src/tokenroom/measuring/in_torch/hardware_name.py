"""Which GPU of the catalogue a CUDA device is."""

from __future__ import annotations

import torch

from tokenroom.errors import HardwareError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import Catalogue


def accelerator_of(device: str, catalogue: Catalogue) -> Accelerator | None:
    """The catalogue's entry of a device, None for a CPU and for a GPU that it does not have."""
    if not device.startswith("cuda"):
        return None
    try:
        return catalogue.find(torch.cuda.get_device_name(device))
    except HardwareError:
        return None
