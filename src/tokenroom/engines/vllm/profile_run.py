"""Everything a rank's profile run and capture take, by the engine that runs it.

V1 and V0 differ in what they allocate and, version by version, in what they count as memory
outside PyTorch; :func:`profile_run` is the one place that chooses between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokenroom.engines.policy import Estimate
from tokenroom.engines.vllm.activation import (
    activation_peak,
    decode_activation,
    persistent_buffers,
)
from tokenroom.engines.vllm.context import context_bytes
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.graphs import GraphEstimate, cuda_graph_memory
from tokenroom.engines.vllm.non_torch import non_torch_memory
from tokenroom.engines.vllm.old_accounting import context_left_out, non_torch_since_start
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import Accounting, VersionRules
from tokenroom.models.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProfile:
    """What a rank takes besides weights and KV cache, in bytes.

    Attributes:
        activation: The peak of the profile run.
        graphs: CUDA graphs.
        non_torch: Memory outside PyTorch that the engine counts.
        buffers_bytes: Buffers the runner keeps.
        context_bytes: In use on the GPU, but not counted by the engine.
    """

    activation: Estimate
    graphs: GraphEstimate
    non_torch: Estimate
    buffers_bytes: int
    context_bytes: int


def profile_run(
    engine: EngineGeneration, spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules
) -> RankProfile:
    """The profile of one rank under the engine and version.

    Args:
        engine: Which engine runs the model.
        spec: The model.
        inputs: The rank's settings.
        rules: Of the version.
    """
    if engine is EngineGeneration.V0:
        from tokenroom.engines.vllm.v0_graphs import v0_graph_memory  # few ask about it
        from tokenroom.engines.vllm.v0_profile import v0_activation
        from tokenroom.engines.vllm.v0_rules import v0_rules

        old = v0_rules(rules.version)
        return RankProfile(
            activation=v0_activation(spec, inputs, rules, old),
            graphs=v0_graph_memory(spec, inputs, rules),
            non_torch=non_torch_since_start(
                spec, inputs, old.accounting, communicates_alone=old.communicates_alone
            ),
            buffers_bytes=0,
            context_bytes=context_left_out(inputs, old.accounting),
        )
    if rules.accounting is Accounting.AFTER_GROUPS:
        non_torch = non_torch_memory(spec, inputs, rules)
        left_out = context_bytes(spec, inputs) + inputs.others_bytes
    else:
        non_torch = non_torch_since_start(spec, inputs, rules.accounting)
        left_out = context_left_out(inputs, rules.accounting)
    return RankProfile(
        activation=activation_peak(spec, inputs, rules),
        graphs=cuda_graph_memory(spec, inputs, rules),
        non_torch=non_torch,
        buffers_bytes=persistent_buffers(spec, inputs, rules).num_bytes,
        context_bytes=left_out,
    )


def decode_peak(
    engine: EngineGeneration, spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules
) -> Estimate:
    """What a step that decodes ``max_num_seqs`` requests at once allocates."""
    if engine is EngineGeneration.V0:
        from tokenroom.engines.vllm.v0_profile import v0_step

        return v0_step(spec, replace(inputs, max_num_batched_tokens=inputs.max_num_seqs), rules)
    return decode_activation(spec, inputs, rules)
