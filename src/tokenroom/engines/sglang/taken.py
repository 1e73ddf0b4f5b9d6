"""Memory in use on a rank that is neither weights nor pools.

Before the baseline is measured: the CUDA context and the communicators. After it: kernels loaded on
first use and the workspaces of attention backends. The driver's and NCCL's parts are in no source:
they are measured. Eight ranks on H200 had 2.01 GiB of communicators and 2.5 GiB in use before
weights (0.5.3, sgl-project/sglang pull 11716); four L4, which have no NVLink, 0.13 GiB (0.4.3);
pipeline stages alone 0.16 GiB (pull 12362).
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.memory.process_context import communicator_bytes, cuda_context_bytes
from tokenroom.units import MIB

_EIGHT_RANKS_BYTES: Final = 2058 * MIB
_UNSWITCHED_BYTES: Final = 133 * MIB
_PIPELINE_BYTES: Final = 164 * MIB
_LONE_RANGE: Final = (-100 * MIB, 250 * MIB)
_GROUP_RANGE: Final = (-400 * MIB, 900 * MIB)

LOADING_BYTES: Final = 100 * MIB
"""Kernels and segments that loading leaves beside the weights: what "mem usage" of "Load weight
end" shows above them in four logs (0.07 to 0.14 GiB: Qwen3-0.6B, gemma-3-4b, Llama-3.1-8B,
QwQ-32B)."""

_KERNELS_BYTES: Final = 60 * MIB
_ALL_REDUCE_BYTES: Final = 80 * MIB
_OTHER_WORKSPACE_BYTES: Final = 64 * MIB
_WORKSPACE_BYTES: Final = {
    "flashinfer": 512 * MIB,  # SGLANG_FLASHINFER_WORKSPACE_SIZE and its integer buffers
    "trtllm_mha": 512 * MIB,
    "trtllm_mla": 150 * MIB,
    "cutlass_mla": 150 * MIB,
    "fa3": 32 * MIB,
    "fa4": 32 * MIB,
    "aiter": 384 * MIB,
}


def context_bytes(accelerator: Accelerator, tp: int, pp: int) -> int:
    """What a rank uses before the engine measures free memory, other processes left out."""
    total = cuda_context_bytes(accelerator)
    switched = accelerator.vendor != "nvidia" or accelerator.link == "nvlink"
    if tp > 1 and not switched:
        total += _UNSWITCHED_BYTES
    elif tp >= 8:
        total += _EIGHT_RANKS_BYTES
    elif tp > 1:
        total += communicator_bytes(accelerator, ranks=tp, tensor_ranks=tp)
    return total + (_PIPELINE_BYTES if pp > 1 else 0)


def context_range(tp: int, pp: int) -> tuple[int, int]:
    """How far :func:`context_bytes` was measured to be off, below and above."""
    return _LONE_RANGE if tp * pp == 1 else _GROUP_RANGE


def runtime_memory(backend: str, tp: int) -> Estimate:
    """Kernels and workspaces outside weights and pools; ``"loading"`` comes with the weights.

    Args:
        backend: Attention backend.
        tp: Tensor-parallel ranks: all-reduce buffers come with more than one.
    """
    workspace = _WORKSPACE_BYTES.get(backend, _OTHER_WORKSPACE_BYTES)
    terms = [
        ("loading", LOADING_BYTES),
        ("kernels", _KERNELS_BYTES),
        ("workspace", workspace),
    ]
    if tp > 1:
        terms.append(("all_reduce_buffers", _ALL_REDUCE_BYTES))
    total = sum(size for _, size in terms)
    return Estimate(
        num_bytes=total,
        low_bytes=total // 2,
        high_bytes=2 * total,
        phase="attention backend",
        terms=tuple(terms),
        source="measured on logs of SGLang 0.4.3 to 0.5.6; layers/attention/*_backend.py",
    )
