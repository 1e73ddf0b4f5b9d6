"""What a process takes of a GPU by merely using it, and by joining others.

Measured from the "worker init memory snapshot" of vLLM 0.19.0 on H100 SXM (llm-d-planner pull 205):
0.51 GiB on one GPU, 1.43 with two pipeline stages, 1.53 with two tensor-parallel ranks, 1.55 with
four, and 0.48 more for models with experts, which get a group of their own. Without a switch NCCL
opens fewer channels: two RTX 5090 had 1.13 GiB in use (club-3090 issue 1087), and two RTX 3090 at
most 0.71, since they start with utilisation 0.97 (issue 1120).
"""

from __future__ import annotations

from typing import Final

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.units import MIB

CUDA_CONTEXT_BYTES: Final = 522 * MIB
"""The context on H100."""
_MEASURED_MULTIPROCESSORS: Final = 132
"""The context holds local memory and stacks for every multiprocessor, so it grows with their
number; H100 has 132."""
WORLD_COMMUNICATOR_BYTES: Final = 942 * MIB
TENSOR_GROUP_BYTES: Final = 102 * MIB
EXPERT_GROUP_BYTES: Final = 492 * MIB
_UNSWITCHED_SHARE: Final = 0.37
"""Part of these that communicators take without an NVLink switch: what both pairs above leave
beside the context.
"""


def cuda_context_bytes(accelerator: Accelerator) -> int:
    """Bytes of the driver's context of one process, as measured where a profile tells it."""
    if accelerator.measured is not None:
        return accelerator.measured.context_bytes
    processors = accelerator.multiprocessors or _MEASURED_MULTIPROCESSORS
    if accelerator.vendor != "nvidia":
        return CUDA_CONTEXT_BYTES
    return CUDA_CONTEXT_BYTES * processors // _MEASURED_MULTIPROCESSORS


def context_source(accelerator: Accelerator, otherwise: str) -> str:
    """Where the figure of :func:`cuda_context_bytes` is from."""
    measured = accelerator.measured
    if measured is None:
        return otherwise
    return f"measured on the machine, profile {measured.profile} of {measured.created}"


def communicator_bytes(
    accelerator: Accelerator, *, ranks: int, tensor_ranks: int, expert_group: bool = False
) -> int:
    """Bytes of NCCL's communicators of one process.

    Args:
        accelerator: The GPU and its link.
        ranks: All processes of the deployment.
        tensor_ranks: Those that share each layer.
        expert_group: Experts have a group of their own.

    Where a profile of the machine tells what the communicator of so many ranks takes, that stands
    for the group of all ranks; the others are estimated still.
    """
    groups = 0
    measured = accelerator.measured
    world = measured.communicators.get(ranks) if measured is not None and ranks > 1 else None
    if ranks > 1 and world is None:
        groups += WORLD_COMMUNICATOR_BYTES
    if tensor_ranks > 1:
        groups += TENSOR_GROUP_BYTES
    if expert_group:
        groups += EXPERT_GROUP_BYTES
    if accelerator.vendor == "nvidia" and accelerator.link != "nvlink":
        groups = round(groups * _UNSWITCHED_SHARE)
    return groups + (world or 0)
