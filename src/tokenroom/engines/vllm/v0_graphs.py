"""Memory of the graphs that vLLM's V0 engine captured, after and outside its budget.

Whole decode steps were captured for up to 35 batch sizes (``capture_model``, worker/model_runner.py
0.4.1 to 0.10.2). Each was run twice before, so that the default pool and the graphs' pool hold a
step's tensors each; the driver's part is that of V1's full graphs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tokenroom.engines.vllm.graphs import GraphEstimate, cuda_graph_memory
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.engines.vllm.v0_profile import captured_step_bytes
from tokenroom.models.spec import ModelSpec
from tokenroom.units import KIB

_CAPTURED_COLLECTIVE_BYTES: Final = 470 * KIB
"""What NCCL keeps for an all-reduce in a graph: 2464 MiB that graphs took for a model of 60 layers
over four RTX 4090 (vLLM issue 7553, 0.5.4), less what the others take, over 120 x 35 of them."""

_RANGE_SHARES: Final = (-0.5, 0.7)
"""0.21 GiB for Llama 3.2 1B on H100 (vLLM pull 11349), 0.64 for a 7B model in 4 bits (WeClone
issue 101) and 3.34 for a 49B one (vLLM issue 15664) lie within."""


def v0_graph_memory(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> GraphEstimate:
    """What capturing takes; V0 never reserved anything for it."""
    estimate = cuda_graph_memory(spec, inputs, rules)
    if not estimate.modes:
        return estimate
    driver = sum(mode.mean_bytes * mode.count for mode in estimate.modes)
    actual = driver + 2 * captured_step_bytes(spec, inputs, rules)
    ranks = inputs.tensor_parallel_size
    if ranks > 2 and inputs.accelerator.link == "pcie":
        # The custom all-reduce serves more than two GPUs only over NVLink
        # (distributed/device_communicators/custom_all_reduce.py).
        layers = -(-spec.num_layers // inputs.pipeline_parallel_size)
        actual += 2 * layers * len(inputs.capture_sizes) * _CAPTURED_COLLECTIVE_BYTES
    low, high = _RANGE_SHARES
    return replace(
        estimate,
        actual_bytes=actual,
        low_bytes=round(actual * (1 + low)),
        high_bytes=round(actual * (1 + high)),
        source="vLLM worker/model_runner.py capture_model (V0); driver memory as of V1's graphs",
    )
