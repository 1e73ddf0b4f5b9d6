"""What is in use on a rank before vLLM takes its first memory snapshot.

The CUDA context and the communicators of the distributed groups are set up first
(v1/worker/gpu_worker.py ``init_device``), so they count neither as weights nor as memory outside
PyTorch that the profile run adds; they only lessen what is free.
"""

from __future__ import annotations

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.runner import has_experts
from tokenroom.memory.process_context import communicator_bytes, cuda_context_bytes
from tokenroom.models.spec import ModelSpec


def context_bytes(spec: ModelSpec, inputs: ProfileInputs) -> int:
    """Bytes in use on a rank before the first snapshot, other processes left out."""
    tensor, data = inputs.tensor_parallel_size, inputs.data_parallel_size
    return cuda_context_bytes(inputs.accelerator) + communicator_bytes(
        inputs.accelerator,
        ranks=tensor * inputs.pipeline_parallel_size * data,
        tensor_ranks=tensor,
        expert_group=tensor * data > 1 and has_experts(spec),
    )
