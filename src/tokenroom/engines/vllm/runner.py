"""Which of vLLM's two model runners a model runs on."""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.engines.vllm.rules import SecondRunner, VersionRules
from tokenroom.models.spec import Attention, LatentAttention, ModelSpec, MoEFFN

_contents: Final[Remembered[tuple[bool, bool]]] = Remembered()


def runs_second_runner(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> bool:
    """Whether the rank runs v1/worker/gpu/model_runner.py (config/vllm.py)."""
    if rules.second_runner is SecondRunner.NEVER:
        return False
    if inputs.second_runner is not None:
        return inputs.second_runner
    return takes_second_runner(spec, rules)


def takes_second_runner(spec: ModelSpec, rules: VersionRules) -> bool:
    """Whether the version gives the model to the second runner when nothing stands against it."""
    choice = rules.second_runner
    if choice in (SecondRunner.NEVER, SecondRunner.ALWAYS):
        return choice is SecondRunner.ALWAYS
    listed = spec.architecture in rules.second_runner_architectures
    if choice is SecondRunner.LISTED:
        return listed
    experts, states = _contents.get(spec, None, lambda: (has_experts(spec), _has_states(spec)))
    if choice is SecondRunner.LISTED_PLAIN:
        return listed and not experts and spec.quantization is None
    return listed or not (experts or states)


def has_experts(spec: ModelSpec) -> bool:
    """Whether any layer routes tokens to experts."""
    return any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds)


def _has_states(spec: ModelSpec) -> bool:
    return any(
        not isinstance(mixer, Attention | LatentAttention)
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
    )
