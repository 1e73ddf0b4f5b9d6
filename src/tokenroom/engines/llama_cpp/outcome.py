"""What a llama.cpp deployment comes to: its settings, what ``--fit`` made of them, the memory."""

from __future__ import annotations

from dataclasses import dataclass

from tokenroom.engines.llama_cpp.auto_fit import FitOutcome, auto_fit
from tokenroom.engines.llama_cpp.compute import ComputeBuffers
from tokenroom.engines.llama_cpp.defaults import ResolvedSettings, resolve
from tokenroom.engines.llama_cpp.devices import context_memory
from tokenroom.engines.llama_cpp.memory import (
    Decisions,
    Memory,
    initial_decisions,
    measure,
)
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings
from tokenroom.hardware.accelerator import Node
from tokenroom.models.spec import ModelSpec, MoEFFN


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a deployment comes to: settings, what fitting made of them, and the memory."""

    resolved: ResolvedSettings
    fitted: FitOutcome
    memory: Memory
    pipeline_given_up: bool = False


def outcome_of(spec: ModelSpec, node: Node, settings: LlamaCppSettings) -> Outcome:
    """Resolve every setting, let ``--fit`` lower what is free, and measure what results.

    Raises:
        DeploymentError: llama.cpp would refuse the settings or the model.
    """
    resolved = resolve(settings, spec, node)
    start = initial_decisions(resolved)
    fitted = FitOutcome(decisions=start)
    measured: dict[Decisions, Memory] = {}
    known: dict[object, ComputeBuffers] = {}

    def measure_once(decisions: Decisions) -> Memory:
        if decisions not in measured:
            measured[decisions] = measure(
                spec, node, resolved, decisions, known=None if decisions == start else known
            )
        return measured[decisions]

    if resolved.fit:
        fitted = auto_fit(
            resolved,
            start,
            measure_once,
            [_free_bytes(node)] * resolved.gpus,
            layers=spec.num_layers + len(spec.mtp_layers),
            experts=any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds),
        )
    memory = measure_once(start)
    if fitted.decisions != start:
        memory = measure(spec, node, resolved, fitted.decisions)
    given_up = False
    if memory.copies > 1 and any(
        memory.total_of(device) > _free_bytes(node) for device in range(memory.host)
    ):
        # "compute buffer allocation failed, retrying without pipeline parallelism"
        memory = measure(spec, node, resolved, fitted.decisions, pipeline=False)
        given_up = True
    return Outcome(resolved=resolved, fitted=fitted, memory=memory, pipeline_given_up=given_up)


def _free_bytes(node: Node) -> int:
    """Memory that an accelerator reports as free before anything is loaded."""
    context = context_memory(node.accelerator).num_bytes
    return node.accelerator.memory_bytes - context - node.used_bytes
