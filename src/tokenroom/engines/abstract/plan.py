"""How an allocation policy divides the memory, and what a workload makes of the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor
from typing import Final

from tokenroom.engines.abstract.resolve import Resolved, typical_tokens
from tokenroom.engines.abstract.settings import AbstractSettings
from tokenroom.engines.abstract.stages import request_cost, step_terms
from tokenroom.engines.ledger_lines import estimated, exact, weight_parts
from tokenroom.engines.policy import Deployment, KVGroup, Notice, Refusal, StageMemory
from tokenroom.memory.activations import terms_bytes
from tokenroom.memory.allocation import (
    TABLE_ENTRY_BYTES,
    Occupancy,
    Sharing,
    largest_batch,
    occupancy,
)
from tokenroom.memory.ledger import Line

_SOURCE: Final = "memory/allocation.py"


@dataclass(frozen=True, kw_only=True)
class AbstractPlan:
    """How a policy shares out the pool; see :class:`tokenroom.engines.policy.MemoryPlan`."""

    deployment: Deployment
    stages: tuple[StageMemory, ...]
    refusal: Refusal | None

    @property
    def _resolved(self) -> Resolved:
        resolved: Resolved = self.deployment.resolved
        return resolved

    @cached_property
    def governing(self) -> int:
        """Index of the stage whose pool holds the fewest longest requests."""
        rooms = [
            stage.available_bytes / max(1, self._cost(index)(self.max_model_len))
            for index, stage in enumerate(self.stages)
        ]
        return rooms.index(min(rooms))

    def _cost(self, stage: int) -> Callable[[int], int]:
        return request_cost(self.deployment, stage)

    @property
    def _pool_bytes(self) -> int:
        return max(0, self.stages[self.governing].available_bytes)

    @property
    def max_model_len(self) -> int:
        """The longest request in tokens."""
        return self._resolved.allocator.max_tokens

    @property
    def max_num_seqs(self) -> int:
        """Most requests at once."""
        held = self.requests_of(min(self._resolved.lengths, default=1))
        return self._resolved.max_num_seqs or max(1, held)

    @property
    def kv_block_size(self) -> int:
        """Tokens of a block; of the one piece a request gets, when it is contiguous."""
        allocator = self._resolved.allocator
        if allocator.sharing is Sharing.CONTIGUOUS:
            return allocator.max_tokens
        return allocator.block_size

    @property
    def kv_blocks(self) -> int:
        """Blocks that the pool would hold of one request."""
        return self.kv_pool_tokens // self.kv_block_size

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens of the pool: requests of full length times that length."""
        return floor(self.max_concurrency * self.max_model_len)

    @property
    def max_concurrency(self) -> float:
        """Requests of full length that the pool holds, as a fraction."""
        each = self._cost(self.governing)(self._resolved.allocator.max_tokens)
        return self._pool_bytes / each if each else 0.0

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """All layers share one table."""
        cost = self._cost(self.governing)
        size = self.kv_block_size
        return (
            KVGroup(
                kind=self._resolved.allocator.sharing.value,
                num_layers=self.deployment.spec.num_layers,
                block_size=size,
                page_bytes=cost(size) // max(1, self.deployment.spec.num_layers),
            ),
        )

    @property
    def pool_is_exact(self) -> bool:
        """The pool's size was given."""
        return self._resolved.kv_cache_memory_bytes is not None

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Requests of the workload that the pool can never hold."""
        allocator = self._resolved.allocator
        cost = self._cost(self.governing)
        never = sum(
            cost(allocator.reserved_tokens(tokens)) > self._pool_bytes
            for tokens in self._resolved.lengths
        )
        if never and self.refusal is None:
            return (Notice(key="requests_never_fit", values={"count": never}),)
        return ()

    @cached_property
    def occupancy(self) -> Occupancy:
        """What the workload makes of the pool of the governing stage."""
        return occupancy(
            self._pool_bytes,
            self._resolved.allocator,
            self._resolved.lengths,
            self._cost(self.governing),
            max_batch=self._resolved.max_num_seqs,
        )

    def requests_of(self, tokens: int) -> int:
        """Requests of that length the pool holds; of the workload, where lengths are given."""
        if self._resolved.describes_lengths:
            return self.occupancy.batch
        return largest_batch(
            self._pool_bytes, self._resolved.allocator, tokens, self._cost(self.governing)
        )

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes set aside for one request of that length on the governing stage."""
        return self._cost(self.governing)(self._resolved.allocator.reserved_tokens(tokens))

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of a step that decodes that many requests."""
        return terms_bytes(step_terms(self.deployment, self.governing, max(1, requests), requests))

    def max_model_len_that_fits(self) -> int:
        """The longest request of which the pool holds one, 0 when the weights do not fit."""
        if self.refusal is not None and self.refusal.cause == "weights_too_big":
            return 0
        spec = self.deployment.spec
        asked: AbstractSettings = self.deployment.asked
        allocator, cost = self._resolved.allocator, self._cost(self.governing)
        typical = typical_tokens(asked)
        first = allocator.first_tokens
        low, high = 0, max(spec.max_position_embeddings or 0, self.max_model_len)
        while low < high:
            middle = (low + high + 1) // 2
            if asked.first_tokens is None:  # the piece follows the lengths, which this cuts
                first = middle if typical is None else min(typical, middle)
            longest = replace(allocator, max_tokens=middle, first_tokens=first)
            if cost(longest.reserved_tokens(middle)) <= self._pool_bytes_at(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def _pool_bytes_at(self, max_model_len: int) -> int:
        """The pool beside the step that such a length makes, which its prompt may fill."""
        if self._resolved.kv_cache_memory_bytes is not None:
            return self._pool_bytes
        stage = self.stages[self.governing]
        tokens = min(self._resolved.max_num_batched_tokens, max_model_len)
        peak = terms_bytes(step_terms(self.deployment, self.governing, tokens, 1))
        return stage.available_bytes + stage.activation.num_bytes - peak

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing stage, then what the workload makes of the pool."""
        return tuple(_explain(self))


def refusal_of(plan: AbstractPlan) -> Refusal | None:
    """Why the policy could not serve one request of full length, None when it could."""
    for stage in plan.stages:
        held = stage.weights_bytes + stage.context_bytes
        if held > stage.total_bytes:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=held,
                available_bytes=stage.total_bytes,
            )
    stage = plan.stages[plan.governing]
    resolved: Resolved = plan.deployment.resolved
    needed = plan.kv_bytes_of(resolved.allocator.max_tokens)
    if stage.available_bytes <= 0:
        return Refusal(
            cause="no_room_for_kv",
            phase="kv_init",
            needed_bytes=stage.budget_bytes - stage.available_bytes,
            available_bytes=stage.budget_bytes,
            values={"request_bytes": needed},
        )
    if needed > stage.available_bytes:
        return Refusal(
            cause="kv_below_one_request",
            phase="kv_init",
            needed_bytes=needed,
            available_bytes=stage.available_bytes,
            values={
                "max_model_len": plan.max_model_len,
                "longest": plan.max_model_len_that_fits(),
            },
        )
    return None


def _explain(plan: AbstractPlan) -> Iterator[Line]:
    resolved: Resolved = plan.deployment.resolved
    stage = plan.stages[plan.governing]
    allocator = resolved.allocator
    yield exact(
        "weights",
        stage.weights_bytes,
        "sum of the parts the rank holds, as stored",
        {"tensor_parallel_size": resolved.tensor_parallel_size, "dtype": resolved.dtype},
        plan.deployment.spec.source or "the model's configuration",
        parts=weight_parts(stage.weights),
    )
    yield estimated("activation_peak", stage.activation, "widest layer of a prefill step")
    yield exact("context", stage.context_bytes, "CUDA context and communicators", {}, "measured")
    yield exact(
        "kv_pool",
        stage.kv_pool_bytes,
        "kv_cache_memory_bytes"
        if plan.pool_is_exact
        else "total x gpu_memory_utilization - context - weights - activation_peak",
        {"total": stage.total_bytes, "gpu_memory_utilization": resolved.gpu_memory_utilization},
        _SOURCE,
    )
    reserved = {
        Sharing.CONTIGUOUS: "length" if allocator.knows_length else "max_model_len",
        Sharing.PAGED: "ceil(length / block_size) x block_size",
        Sharing.HYBRID: "first_tokens + ceil((length - first_tokens) / block_size) x block_size",
    }[allocator.sharing]
    filled = plan.occupancy
    yield exact(
        "used",
        filled.used_bytes,
        "sum over the running requests of bytes(length)",
        {"requests": len(resolved.lengths), "running": round(filled.mean_batch, 2)},
        _SOURCE,
    )
    yield exact(
        "reserved",
        filled.reserved_bytes,
        f"sum over the running requests of bytes({reserved})",
        {"block_size": plan.kv_block_size, "max_model_len": allocator.max_tokens},
        _SOURCE,
    )
    yield exact("internal_waste", filled.internal_waste_bytes, "reserved - used", {}, _SOURCE)
    yield exact(
        "external_waste",
        filled.external_waste_bytes,
        "pool - reserved while a request waits",
        {},
        _SOURCE,
    )
    yield exact(
        "block_table",
        filled.table_bytes,
        "running requests x entries of the longest x 4 bytes",
        {"entries": allocator.table_entries(), "entry_bytes": TABLE_ENTRY_BYTES},
        "vLLM v1/worker/block_table.py",
    )
