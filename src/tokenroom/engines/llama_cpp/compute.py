"""The compute buffers of a context: the largest of the graphs that llama.cpp reserves for.

``llama_context::sched_reserve`` (``src/llama-context.cpp`` of llama.cpp 0c1e57098): a prompt of
``min(n_ctx, n_ubatch)`` tokens with the most outputs there may be, and one token a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tokenroom.engines.llama_cpp.model_graph import (
    Batch,
    GraphBuilder,
    GraphInputs,
)
from tokenroom.engines.llama_cpp.scheduler import ScheduleRules, compute_buffers


@dataclass(frozen=True, kw_only=True)
class ComputeBuffers:
    """Bytes of each device's compute buffer, accelerators first and the host last.

    Attributes:
        inputs: Model and context.
        rules: Backends and offloading.
        n_ctx: Cells of all streams.
        n_ubatch: Tokens of a micro-batch.
        outputs_max: Most tokens of a batch whose logits are wanted (``n_outputs_max``).
    """

    inputs: GraphInputs
    rules: ScheduleRules
    n_ctx: int
    n_ubatch: int
    outputs_max: int

    @cached_property
    def prompt(self) -> tuple[int, ...]:
        """Needed by a prompt's micro-batch."""
        sequences = self.inputs.caches.sequences
        tokens = min(self.n_ctx, self.n_ubatch)
        outputs = min(tokens, self.outputs_max)
        tokens = -(-tokens // sequences) * sequences
        return self._sizes(Batch(tokens=tokens, sequences=sequences, outputs=outputs))

    @cached_property
    def generation(self) -> tuple[int, ...]:
        """Needed by one token a sequence."""
        sequences = self.inputs.caches.sequences
        return self._sizes(Batch(tokens=sequences, sequences=sequences, outputs=sequences))

    @property
    def sizes(self) -> tuple[int, ...]:
        """What llama.cpp allocates: the most of any graph it reserves for."""
        return tuple(max(pair) for pair in zip(self.prompt, self.generation, strict=True))

    def size_of(self, device: int) -> int:
        """What one device's buffer takes; on accelerators the prompt decides."""
        on_host = device == len(self.rules.backends)
        return self.sizes[device] if on_host else self.prompt[device]

    def _sizes(self, batch: Batch) -> tuple[int, ...]:
        builder = GraphBuilder(self.inputs, batch)
        graph = builder.build()
        return tuple(compute_buffers(graph, builder.pinned, self.rules))
