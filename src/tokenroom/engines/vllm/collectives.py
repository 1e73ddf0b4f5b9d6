"""What a vLLM rank sets aside to exchange tensors with the other ranks of its group."""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.units import KIB, MIB

_FUSED_MESSAGE_BYTES: Final = {
    (9, 0): {2: 64 * MIB, 4: 2 * MIB, 8: 512 * KIB},
    (10, 0): {2: 64 * MIB, 4: 32 * MIB, 8: MIB},
    (10, 3): {2: 64 * MIB, 4: 64 * MIB, 8: 2 * MIB},
}
# By capability and ranks: compilation/passes/fusion/allreduce_rms_fusion.py
# FI_ALLREDUCE_FUSION_MAX_SIZE_MB (0.19.0).

_LAMPORT_BUFFERS: Final = 3


def fused_all_reduce_bytes(inputs: ProfileInputs, rules: VersionRules) -> int:
    """Largest message whose all-reduce is fused with the norm after it, 0 for none.

    On by default with tensor parallelism alone, on Hopper and datacentre Blackwell
    (config/vllm.py ``enable_allreduce_rms_fusion``); it needs the ranks to reach each other's
    memory, which a PCIe card does not.
    """
    if (
        not rules.fuses_all_reduce
        or inputs.enforce_eager
        or inputs.pipeline_parallel_size > 1
        or inputs.data_parallel_size > 1
        or inputs.accelerator.link == "pcie"
    ):
        return 0
    by_ranks = _FUSED_MESSAGE_BYTES.get(inputs.accelerator.compute_capability or (0, 0), {})
    return by_ranks.get(inputs.tensor_parallel_size, 0)


def fused_all_reduce_workspace_bytes(
    hidden_size: int, inputs: ProfileInputs, rules: VersionRules
) -> int:
    """FlashInfer's workspace for those messages, allocated outside PyTorch.

    Ranks x tokens x hidden size x 2 bytes for the exchange and three times that for the
    Lamport buffers (flashinfer/comm/trtllm_ar.py
    ``trtllm_create_ipc_workspace_for_all_reduce_fusion``, 0.6.6), where tokens are what the
    largest message holds, at most the token budget.
    """
    message = fused_all_reduce_bytes(inputs, rules)
    tokens = min(message // (2 * hidden_size), inputs.max_num_batched_tokens)
    exchange = inputs.tensor_parallel_size * tokens * hidden_size * 2
    return exchange * (1 + _LAMPORT_BUFFERS)
