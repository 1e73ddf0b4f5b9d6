"""The compute buffers of a context: the largest of the graphs that llama.cpp reserves for.

``llama_context::sched_reserve`` (``src/llama-context.cpp`` of llama.cpp 0c1e57098): a prompt of
``min(n_ctx, n_ubatch)`` tokens with the most outputs there may be, and one token a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenroom.engines.llama_cpp.model_graph import (
    Batch,
    GraphBuilder,
    GraphInputs,
)
from tokenroom.engines.llama_cpp.scheduler import ScheduleRules, compute_buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeBuffers:
    """Bytes of each device's compute buffer, accelerators first and the host last.

    Attributes:
        prompt: Needed by a prompt's micro-batch.
        generation: Needed by one token a sequence.
    """

    prompt: tuple[int, ...]
    generation: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """What llama.cpp allocates: reserved by the prompt's graph, which comes last."""
        return tuple(max(pair) for pair in zip(self.prompt, self.generation, strict=True))


def reserve(
    inputs: GraphInputs, rules: ScheduleRules, *, n_ctx: int, n_ubatch: int, outputs_max: int
) -> ComputeBuffers:
    """The compute buffers of a context.

    Args:
        inputs: Model and context.
        rules: Backends and offloading.
        n_ctx: Cells of all streams.
        n_ubatch: Tokens of a micro-batch.
        outputs_max: Most tokens of a batch whose logits are wanted (``n_outputs_max``).
    """
    sequences = inputs.caches.sequences
    tokens = min(n_ctx, n_ubatch)
    outputs = min(tokens, outputs_max)
    tokens = -(-tokens // sequences) * sequences
    return ComputeBuffers(
        prompt=_sizes(inputs, rules, Batch(tokens=tokens, sequences=sequences, outputs=outputs)),
        generation=_sizes(
            inputs, rules, Batch(tokens=sequences, sequences=sequences, outputs=sequences)
        ),
    )


def _sizes(inputs: GraphInputs, rules: ScheduleRules, batch: Batch) -> tuple[int, ...]:
    builder = GraphBuilder(inputs, batch)
    graph = builder.build()
    return tuple(compute_buffers(graph, builder.pinned, rules))
