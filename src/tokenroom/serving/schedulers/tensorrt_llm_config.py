"""Settings of TensorRT-LLM that decide what a step runs, by its own names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tokenroom.errors import DeploymentError, shown

_COUNTS = ("num_blocks", "tokens_per_block", "max_seq_len", "max_batch_size", "max_num_tokens")


class CapacityPolicy(StrEnum):
    """``capacity_scheduler_policy``: who may run, by the blocks that are free."""

    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    """A request is let in where all blocks up to its last token are to be had."""
    MAX_UTILIZATION = "MAX_UTILIZATION"
    """A request is let in where its prompt fits; the last ones are paused when blocks run out."""
    STATIC_BATCH = "STATIC_BATCH"
    """Requests are let in as in the first, but only when no other one decodes."""


class ChunkingPolicy(StrEnum):
    """``context_chunking_policy``: how prompts share the tokens of a step."""

    FIRST_COME_FIRST_SERVED = "FIRST_COME_FIRST_SERVED"
    EQUAL_PROGRESS = "EQUAL_PROGRESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtLlmSchedulerConfig:
    """Settings of ``trtllm-serve`` and its ``scheduler_config``.

    Attributes:
        num_blocks: Blocks of the KV pool.
        tokens_per_block: Tokens of a block.
        max_seq_len: The longest context.
        max_batch_size: Most requests that are active at a time.
        max_num_tokens: Most tokens of a step.
        enable_block_reuse: Blocks are found again by what they hold.
        enable_chunked_prefill: A prompt may be computed over several steps.
        capacity_scheduler_policy: Who may run.
        context_chunking_policy: How prompts share the tokens of a step.
        enable_prefix_aware_scheduling: Requests wait for a prefix that another one is computing,
            and what is in the cache counts neither as blocks nor as tokens of a step.
        credits_reuse: The second half of that, which 1.3 brought.
        overlaps: A step is decided before the one before it has returned
            (``disable_overlap_scheduler`` is off).

    Raises:
        DeploymentError: A count below 1, or an unknown policy.
    """

    num_blocks: int
    tokens_per_block: int
    max_seq_len: int
    max_batch_size: int
    max_num_tokens: int
    enable_block_reuse: bool = True
    enable_chunked_prefill: bool = False
    capacity_scheduler_policy: CapacityPolicy = CapacityPolicy.GUARANTEED_NO_EVICT
    context_chunking_policy: ChunkingPolicy = ChunkingPolicy.FIRST_COME_FIRST_SERVED
    enable_prefix_aware_scheduling: bool = True
    credits_reuse: bool = True
    overlaps: bool = True

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise DeploymentError(
                    f"{name} is {shown(getattr(self, name))}; it must be 1 or more"
                )
        for name, kind in (
            ("capacity_scheduler_policy", CapacityPolicy),
            ("context_chunking_policy", ChunkingPolicy),
        ):
            value = getattr(self, name)
            if value not in tuple(kind):
                raise DeploymentError(f"{name} is {shown(value)}; it may be {', '.join(kind)}")
