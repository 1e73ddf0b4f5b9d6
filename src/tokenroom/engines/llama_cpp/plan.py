"""How llama.cpp fills every device: the plan of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tokenroom.engines.llama_cpp.caches import padded_cells
from tokenroom.engines.llama_cpp.limits import longest_context
from tokenroom.engines.llama_cpp.memory import Memory
from tokenroom.engines.llama_cpp.notices import plan_notices, plan_remarks
from tokenroom.engines.llama_cpp.outcome import Outcome
from tokenroom.engines.policy import Deployment, KVGroup, Notice, Refusal, StageMemory
from tokenroom.memory.ledger import Line


@dataclass(frozen=True, kw_only=True)
class LlamaCppPlan:
    """How llama.cpp fills every device; see :class:`tokenroom.engines.policy.MemoryPlan`.

    Attributes:
        deployment: What was planned.
        outcome: Decisions and memory.
        stages: The accelerators, then the host.
        refusal: Why it would not start, None when it does.
    """

    deployment: Deployment
    outcome: Outcome
    stages: tuple[StageMemory, ...]
    refusal: Refusal | None

    pool_is_exact: Final = True
    kv_block_size: Final = 1

    @property
    def memory(self) -> Memory:
        """Every buffer of every device."""
        return self.outcome.memory

    @property
    def max_model_len(self) -> int:
        """Tokens that one slot may hold ("n_ctx_slot")."""
        return self.memory.decisions.n_ctx_seq

    @property
    def max_num_seqs(self) -> int:
        """Slots."""
        return self.outcome.resolved.n_seq_max

    @property
    def kv_blocks(self) -> int:
        """Cells of all streams ("n_ctx")."""
        return self.memory.decisions.n_ctx

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens that the cells of all streams hold."""
        return self.memory.decisions.n_ctx

    @property
    def max_concurrency(self) -> float:
        """Slots, which share the cells when the cache is unified."""
        return float(self.outcome.resolved.n_seq_max)

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """Layers that cache alike; the page is a cell of one layer, or a sequence's state."""
        groups: dict[tuple[str, int], int] = {}
        for cache in self.memory.caches.layers:
            page = cache.num_bytes // max(1, cache.cells * cache.streams)
            groups[cache.kind, page] = groups.get((cache.kind, page), 0) + 1
        return tuple(
            KVGroup(kind=kind, num_layers=count, block_size=1, page_bytes=page)
            for (kind, page), count in groups.items()
        )

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """What to say under the verdict: where the model lies and how fast that is."""
        return plan_remarks(self)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this division of memory makes worth knowing."""
        return plan_notices(self)

    @cached_property
    def governing(self) -> int:
        """Index of the accelerator with the least room; the host when there is none."""
        devices = self.stages[:-1] or self.stages
        return min(range(len(devices)), key=lambda index: devices[index].free_bytes)

    def requests_of(self, tokens: int) -> int:
        """How many requests of that length the cells hold at once."""
        caches = self.memory.caches
        if all(cache.kind == "recurrent" for cache in caches.layers):
            return caches.sequences
        if tokens > self.max_model_len:
            return 0
        if caches.streams > 1:
            return caches.streams
        return caches.cells // max(1, tokens)

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes that one request of that length holds on the governing device."""
        held = 0
        for cache in self.memory.caches.layers:
            if self.memory.cache_device(cache.layer) != self.governing:
                continue
            each = cache.num_bytes // max(1, cache.cells * cache.streams)
            held += each * (1 if cache.kind == "recurrent" else min(tokens, cache.cells))
        return held

    def activation_bytes_of(self, requests: int) -> int:
        """The compute buffer of the governing device, which is there whatever runs."""
        return self.memory.compute.sizes[self.governing]

    def max_model_len_that_fits(self) -> int:
        """The longest context of a slot with which it starts when it is asked for.

        At most the length trained for, or what is asked for now where that is longer.
        """
        trained = padded_cells(self.outcome.resolved.n_ctx_train)
        return longest_context(self.deployment, max(trained, self.max_model_len))

    def explain(self) -> tuple[Line, ...]:
        """The ledger of every device, line by line."""
        from tokenroom.engines.llama_cpp.explain import explain_plan

        return explain_plan(self)
