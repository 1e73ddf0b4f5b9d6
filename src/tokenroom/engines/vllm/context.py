"""What is in use on a rank before vLLM takes its first memory snapshot.

The CUDA context and the communicators of the distributed groups are set up first
(v1/worker/gpu_worker.py ``init_device``), so they count neither as weights nor as memory outside
PyTorch that the profile run adds; they only lessen what is free. Measured from "worker init memory
snapshot" of vLLM 0.19.0 on H100 SXM (llm-d-planner pull 205): 0.51 GiB on one GPU, 1.43 with two
pipeline stages, 1.53 with TP 2, 1.55 with TP 4, and 0.48 more for models with experts, which get a
group of their own. Without a switch NCCL opens fewer channels: two RTX 5090 had 1.13 GiB in use
(club-3090 issue 1087), and two RTX 3090 at most 0.71, since they start with utilisation 0.97 (issue
1120).
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.runner import has_experts
from tokenroom.models.spec import ModelSpec
from tokenroom.units import MIB

CUDA_CONTEXT_BYTES: Final = 522 * MIB
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


def context_bytes(spec: ModelSpec, inputs: ProfileInputs) -> int:
    """Bytes in use on a rank before the first snapshot, other processes left out."""
    accelerator = inputs.accelerator
    processors = accelerator.multiprocessors or _MEASURED_MULTIPROCESSORS
    context = CUDA_CONTEXT_BYTES
    if accelerator.vendor == "nvidia":
        context = CUDA_CONTEXT_BYTES * processors // _MEASURED_MULTIPROCESSORS
    groups = 0
    tensor, data = inputs.tensor_parallel_size, inputs.data_parallel_size
    if tensor * inputs.pipeline_parallel_size * data > 1:
        groups += WORLD_COMMUNICATOR_BYTES
    if tensor > 1:
        groups += TENSOR_GROUP_BYTES
    if tensor * data > 1 and has_experts(spec):
        groups += EXPERT_GROUP_BYTES
    if accelerator.vendor == "nvidia" and accelerator.link != "nvlink":
        groups = round(groups * _UNSWITCHED_SHARE)
    return context + groups
