"""Memory outside PyTorch as vLLM counted it before 0.11, communicators included.

Until 0.10.2 the memory in use was first looked at before the communicators were opened, so that
they count here (worker/worker.py ``init_device``, v1/worker/gpu_worker.py); 0.6.4 (V0) and 0.8 (V1)
counted everything that is in use on the GPU, the CUDA context included. The driver's and NCCL's
parts are in no source: they are measured, and marked so.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import Accounting
from tokenroom.engines.vllm.runner import has_experts
from tokenroom.memory.process_context import cuda_context_bytes
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB, MIB

# "non_torch_memory takes" of V0 0.7 and 0.8 on one GPU: 0.16 GiB on H100 (vLLM pull 12126), 0.03
# and 0.05 on GeForce (vLLM issue 13882, WeClone issue 101).
_KERNELS_HOPPER_BYTES: Final = round(0.16 * GIB)
_KERNELS_BYTES: Final = round(0.05 * GIB)

# The same with several: 0.25 GiB for TP 2 on RTX 4090 (vLLM issue 13061), 0.34 to 0.43 for TP 4 on
# A100 PCIe (16570), 0.33 for two stages on RTX 5090 (14452), 0.20 for TP 8 on RTX 3090 (pull
# 14447); 2.53 for TP 8 on H20, whose links go through a switch (13074).
_COMMUNICATOR_BYTES: Final = round(0.25 * GIB)
_COMMUNICATOR_SWITCHED_BYTES: Final = {2: round(1.5 * GIB), 4: round(2.0 * GIB)}
_COMMUNICATOR_SWITCHED_LARGER_BYTES: Final = round(2.4 * GIB)

# Until 0.4 a first all-reduce opened PyTorch's communicator even on one GPU: block counts of six
# models on RTX A6000 (84 multiprocessors, vLLM pull 4454) leave 0.38 GiB with kernels, and of one
# over two T4 (40 of them, vLLM issue 5248) 0.21.
_EARLY_COMMUNICATOR_BYTES_PER_MULTIPROCESSOR: Final = 4 * MIB

_USUAL_MULTIPROCESSORS: Final = 132
"""Of H100, for GPUs whose number is not known."""

_RANGE_BYTES: Final = (round(-0.15 * GIB), round(0.3 * GIB))
_RANGE_SHARES: Final = (-0.6, 0.75)


def context_left_out(inputs: ProfileInputs, accounting: Accounting) -> int:
    """What is in use on the GPU and not counted: context and other processes, unless all is."""
    if accounting is Accounting.TOTAL:
        return 0
    return cuda_context_bytes(inputs.accelerator) + inputs.others_bytes


def non_torch_since_start(
    spec: ModelSpec,
    inputs: ProfileInputs,
    accounting: Accounting,
    *,
    communicates_alone: bool = False,
) -> Estimate:
    """Kernels and communicators; context and other processes where the version counted them.

    Args:
        spec: The model.
        inputs: The rank's settings.
        accounting: What the version counts.
        communicates_alone: One GPU opens a communicator, too.
    """
    hopper = inputs.accelerator.architecture == "hopper"
    terms = [("kernels", _KERNELS_HOPPER_BYTES if hopper else _KERNELS_BYTES)]
    if accounting is Accounting.TOTAL:
        terms.append(("cuda_context", cuda_context_bytes(inputs.accelerator)))
    data = inputs.data_parallel_size if has_experts(spec) else 1
    group = inputs.tensor_parallel_size * data
    count = inputs.accelerator.multiprocessors or _USUAL_MULTIPROCESSORS
    if communicates_alone:
        early = _EARLY_COMMUNICATOR_BYTES_PER_MULTIPROCESSOR * count
        terms.append(("communicators", early))
    elif group * inputs.pipeline_parallel_size > 1:
        communicator = _COMMUNICATOR_BYTES
        if hopper and group > 1 and inputs.accelerator.link != "pcie":
            communicator = _COMMUNICATOR_SWITCHED_BYTES.get(
                group, _COMMUNICATOR_SWITCHED_LARGER_BYTES
            )
        terms.append(("communicators", communicator))
    own = sum(size for _, size in terms)
    low, high = _RANGE_BYTES
    if group > 1:
        low, high = (round(own * share) for share in _RANGE_SHARES)
    if accounting is Accounting.TOTAL and inputs.others_bytes:
        terms.append(("other_processes", inputs.others_bytes))
    total = sum(size for _, size in terms)
    return Estimate(
        num_bytes=total,
        low_bytes=max(0, total + low),
        high_bytes=total + high,
        phase="profile run",
        terms=tuple(terms),
        source="measured on logs of vLLM 0.6.4 to 0.8.5 (H100, H20, A100, RTX 3090 to 5090)",
    )
