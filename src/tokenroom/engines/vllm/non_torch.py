"""Memory a vLLM rank takes outside PyTorch between its first snapshot and KV cache sizing.

The first snapshot is taken when the CUDA context and the first communicator exist. After it come
kernels loaded on first use, driver memory of the graphs captured for the estimate, the
communicator that PyTorch opens for gathering logits, and the workspace of the fused all-reduce.
The driver's and NCCL's parts are in no source: they are measured, and marked so.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.vllm.collectives import fused_all_reduce_workspace_bytes
from tokenroom.engines.vllm.graphs import retained_graph_bytes
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import TopKTopP, VersionRules
from tokenroom.engines.vllm.runner import has_experts, runs_second_runner
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB, MIB

# Measured on H100 80GB. 0.19.0: 32 runs on one GPU left 0.24 to 0.26 GiB, of which the graphs
# captured for the estimate account for 0.01 to 0.04; two runs with pipeline parallelism 0.07,
# because the first communicator had loaded PyTorch's kernels before the snapshot. 0.11 to 0.17
# left 0.13 GiB on one GPU: no graph was captured yet, so attention kernels were not loaded.
_PYTORCH_KERNELS_BYTES: Final = 185 * MIB
_OTHER_KERNELS_BYTES: Final = 50 * MIB
_KERNELS_WITHOUT_ATTENTION_BYTES: Final = 133 * MIB

# NCCL of a rank by tensor-parallel size, what 12 runs of 0.19.0 left beside the fused
# all-reduce: 1.49 GiB for 2 ranks, 2.03 for 4. 0.11 left 0.50 for 2. Not measured past 4.
_COMMUNICATOR_BYTES: Final = {2: round(1.49 * GIB), 4: round(2.03 * GIB)}
_COMMUNICATOR_BYTES_LARGER: Final = round(2.5 * GIB)
_COMMUNICATOR_BYTES_BEFORE: Final = round(0.50 * GIB)

# Both granite runs left 0.21 GiB more than all others. Their vocabulary is no multiple of 16, so
# rows of logits are unaligned and the Triton sampling kernel differs; the figure is what 832
# bytes of local memory a resident thread take on 132 multiprocessors. Measured, cause inferred.
_LOCAL_MEMORY_BYTES_PER_THREAD: Final = 832
_THREADS_PER_MULTIPROCESSOR: Final = 2048
_ALIGNED_ELEMENTS: Final = 16

_RANGE_HOPPER_BYTES: Final = (-50 * MIB, 80 * MIB)
_RANGE_ONE_GPU_BYTES: Final = (-190 * MIB, 400 * MIB)
_RANGE_GROUP_SHARES: Final = (-0.75, 0.75)


def non_torch_memory(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Estimate:
    """What the engine logs as the non-torch increase of one rank.

    Exact for no part; the range covers the measured runs on Hopper, and is wide elsewhere.
    """
    ranks = inputs.tensor_parallel_size
    alone = ranks * inputs.pipeline_parallel_size * inputs.data_parallel_size == 1
    terms = [("kernels", _kernels_bytes(inputs, rules, alone=alone))]
    if retained := retained_graph_bytes(spec, inputs, rules):
        terms.append(("retained_graphs", retained))
    if local := _local_memory_bytes(spec, inputs, rules):
        terms.append(("kernel_local_memory", local))
    hopper = inputs.accelerator.architecture == "hopper"
    switched = hopper and inputs.accelerator.link != "pcie"
    group = ranks * (inputs.data_parallel_size if has_experts(spec) else 1)
    if group > 1:
        communicator = _COMMUNICATOR_BYTES_BEFORE
        if rules.fuses_all_reduce and switched:
            communicator = _COMMUNICATOR_BYTES.get(group, _COMMUNICATOR_BYTES_LARGER)
        terms.append(("communicator", communicator))
        if fused := fused_all_reduce_workspace_bytes(spec.hidden_size, inputs, rules):
            terms.append(("fused_all_reduce_workspace", fused))
    total = sum(size for _, size in terms)
    if hopper and (group == 1 or (switched and group in _COMMUNICATOR_BYTES)):
        low, high = _RANGE_HOPPER_BYTES
    elif group == 1:
        low, high = _RANGE_ONE_GPU_BYTES
    else:
        low, high = (round(total * share) for share in _RANGE_GROUP_SHARES)
    return Estimate(
        num_bytes=total,
        low_bytes=max(0, total + low),
        high_bytes=total + high,
        phase="profile run",
        terms=tuple(terms),
        source="measured on logs of vLLM 0.11 to 0.19 (H100 80GB); FlashInfer comm/trtllm_ar.py",
    )


def _kernels_bytes(inputs: ProfileInputs, rules: VersionRules, *, alone: bool) -> int:
    """Kernels that the driver loads on their first launch, after the first snapshot."""
    captured = rules.estimates_graphs and inputs.capture_sizes and not inputs.enforce_eager
    if not alone:
        return _OTHER_KERNELS_BYTES
    if not captured:
        return _KERNELS_WITHOUT_ATTENTION_BYTES
    return _PYTORCH_KERNELS_BYTES + _OTHER_KERNELS_BYTES


def _local_memory_bytes(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> int:
    if (
        rules.top_k_top_p is not TopKTopP.TRITON
        or spec.vocab_size % _ALIGNED_ELEMENTS == 0
        or not inputs.is_last_stage
        or runs_second_runner(spec, inputs, rules)
    ):
        return 0
    threads = (inputs.accelerator.multiprocessors or 0) * _THREADS_PER_MULTIPROCESSOR
    return threads * _LOCAL_MEMORY_BYTES_PER_THREAD
