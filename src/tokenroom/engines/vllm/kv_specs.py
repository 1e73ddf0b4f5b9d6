"""vLLM's KV cache specs: what one layer stores in a block, and how many blocks a request holds.

One frozen class for each of the engine's own (v1/kv_cache_interface.py, 0.32 and 0.33; the
formulas are the same back to 0.11 where a class exists). Bytes are those of one block of one
layer on one rank, "pages" in the engine's words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final, NamedTuple, Self

from tokenroom.memory.kv_cache import element_bytes

PER_TOKEN: Final = 0
WINDOW: Final = 1
CHUNK: Final = 2
FIXED: Final = 3
ENCODER: Final = 4

WHOLE_SEQUENCE: Final = 0
"""Block size of a state without prefix caching: the engine sets it to max_model_len."""


def ceil_div(value: int, by: int) -> int:
    """The smallest whole number not below value / by."""
    return -(-value // by)


class RequestBounds(NamedTuple):
    """What bounds the blocks of one request, in tokens.

    Attributes:
        max_model_len: Longest sequence.
        max_in_flight_tokens: Tokens scheduled and not yet settled: max_num_batched_tokens times
            the batches in flight.
        max_encoder_tokens: The encoder budget (max_num_encoder_input_tokens), for cross attention.
    """

    max_model_len: int
    max_in_flight_tokens: int
    max_encoder_tokens: int = 0


class PageDemand(NamedTuple):
    """How many blocks a request of a spec holds, as numbers.

    Attributes:
        rule: PER_TOKEN, WINDOW, CHUNK, FIXED or ENCODER.
        block_size: Tokens a block (times the ranks that share a sequence, for PER_TOKEN).
        amount: Kept tokens before those in flight (WINDOW, CHUNK), blocks (FIXED), ranks that a
            sequence is divided over (PER_TOKEN).
    """

    rule: int
    block_size: int
    amount: int

    def pages(self, bounds: RequestBounds) -> int:
        """Blocks of the longest request.

        Full: ceil(ceil(len / ranks) / block). Window w: ceil(min(w - 1 + in flight, len) / block)
        + 1, since a window need not start with a block. Chunk c: ceil(min(c + in flight, len) /
        block). Source: ``max_memory_usage_bytes`` of each spec, v1/kv_cache_interface.py 0.32.
        """
        rule, block, amount = self
        if rule == PER_TOKEN:
            length = bounds[0]
            if amount > 1:
                length = -(-length // amount)
            return -(-length // block)
        if rule == FIXED:
            return amount
        if rule == ENCODER:
            return -(-bounds[2] // block)
        tokens = min(amount + bounds[1], bounds[0])
        pages = -(-tokens // block)
        return pages + 1 if rule == WINDOW else pages


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSpec(ABC):
    """What one layer keeps in the pool.

    Attributes:
        block_size: Tokens a block, or WHOLE_SEQUENCE.
        padded_page_bytes: Size the page is padded to, None for its own.
    """

    kind: ClassVar[str] = ""
    block_size: int
    padded_page_bytes: int | None = None

    @property
    @abstractmethod
    def own_page_bytes(self) -> int:
        """Bytes of a block of one layer before padding."""

    @property
    def page_bytes(self) -> int:
        """Bytes of a block of one layer."""
        return self.padded_page_bytes or self.own_page_bytes

    @property
    @abstractmethod
    def sharing_key(self) -> tuple[object, ...]:
        """Layers with equal keys need the same number of blocks, whatever their pages weigh.

        Source: ``UniformTypeKVCacheSpecs.is_uniform_type``, v1/kv_cache_interface.py 0.32.
        """

    @property
    def grows_with_block(self) -> bool:
        """Whether a larger block makes a larger page."""
        return True

    @property
    def may_be_padded(self) -> bool:
        """Whether a page that does not divide the largest may be padded to it."""
        return True

    @abstractmethod
    def demand(self, decode_context_parallel_size: int = 1) -> PageDemand:
        """How many blocks a request holds."""

    def with_block_size(self, block_size: int) -> Self:
        """The same layer with other blocks."""
        return replace(self, block_size=block_size)

    def padded_to(self, page_bytes: int) -> Self:
        """The same layer with a padded page."""
        return replace(self, padded_page_bytes=page_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    """Base of the specs that store a cell for each KV head and stored state.

    Attributes:
        num_kv_heads: KV heads on this rank (1 for latents).
        cell_bytes: Bytes of one stored state of one head, keys and values together.
        tokens_per_state: Tokens that one stored state stands for.
        dcp_sharded: Whether decode context parallelism divides its tokens over ranks.
    """

    num_kv_heads: int
    cell_bytes: int
    tokens_per_state: int = 1
    dcp_sharded: bool = True

    @property
    def own_page_bytes(self) -> int:
        """KV heads x states x cell."""
        return self.num_kv_heads * (self.block_size // self.tokens_per_state) * self.cell_bytes

    def _ranks(self, decode_context_parallel_size: int) -> int:
        return decode_context_parallel_size if self.dcp_sharded else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttentionSpec(AttentionSpec):
    """Full attention, and windowed layers that are allotted blocks as if full.

    Attributes:
        window: The window of a layer allotted in full, None otherwise.
        chunk: Its chunk likewise.
    """

    kind: ClassVar[str] = "full_attention"
    window: int | None = None
    chunk: int | None = None

    @property
    def sharing_key(self) -> tuple[object, ...]:
        """Every full layer with the same block, latent ones included."""
        return ("full", self.block_size, self.dcp_sharded)

    def demand(self, decode_context_parallel_size: int = 1) -> PageDemand:
        """All tokens, divided over the context-parallel ranks."""
        return PageDemand(PER_TOKEN, self.block_size, self._ranks(decode_context_parallel_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class MLAAttentionSpec(FullAttentionSpec):
    """Latent attention, and the key cache of a sparse indexer: one vector a state, no values.

    Attributes:
        layout: Cache type as the engine keeps it, since packed layouts do not mix.
        indexer: The key cache of an indexer.
        leads_index_group: A layer whose indexer others reuse.
        alignment: Bytes that a page is rounded up to, None for none.
    """

    kind: ClassVar[str] = "mla_attention"
    layout: str = ""
    indexer: bool = False
    leads_index_group: bool = False
    alignment: int | None = None

    @property
    def page_bytes(self) -> int:
        """The page, rounded up to the alignment of packed layouts."""
        if self.padded_page_bytes is not None or self.alignment is None:
            return self.padded_page_bytes or self.own_page_bytes
        return ceil_div(self.own_page_bytes, self.alignment) * self.alignment

    @property
    def may_be_padded(self) -> bool:
        """Sparse kernels index whole rows: no padding to a foreign size."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowSpec(AttentionSpec):
    """Attention to the last ``window`` tokens.

    Attributes:
        window: The window in tokens.
        extra_retained_tokens: Tokens kept below it for several draft modules.
    """

    kind: ClassVar[str] = "sliding_window"
    window: int
    extra_retained_tokens: int = 0

    @property
    def sharing_key(self) -> tuple[object, ...]:
        """Layers with the same window and block."""
        return ("window", self.window, self.block_size, self.dcp_sharded)

    def demand(self, decode_context_parallel_size: int = 1) -> PageDemand:
        """The window and what is in flight."""
        return PageDemand(WINDOW, self.block_size, self.window - 1 + self.extra_retained_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowMLASpec(SlidingWindowSpec):
    """Latent attention to a window, and the running states of DeepSeek-V4's compressors.

    Attributes:
        layout: Cache type as the engine keeps it.
        alignment: Bytes that a page is rounded up to, None for none.
    """

    kind: ClassVar[str] = "sliding_window_mla"
    layout: str = ""
    alignment: int | None = None

    @property
    def page_bytes(self) -> int:
        """The page, rounded up to the alignment of packed layouts."""
        if self.padded_page_bytes is not None or self.alignment is None:
            return self.padded_page_bytes or self.own_page_bytes
        return ceil_div(self.own_page_bytes, self.alignment) * self.alignment

    @property
    def sharing_key(self) -> tuple[object, ...]:
        """Latent layers with the same window and block."""
        return ("window_mla", self.window, self.block_size, self.dcp_sharded)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    """Attention within chunks (Llama 4).

    Attributes:
        chunk: The chunk in tokens.
    """

    kind: ClassVar[str] = "chunked_local_attention"
    chunk: int

    @property
    def sharing_key(self) -> tuple[object, ...]:
        """Layers with the same chunk and block."""
        return ("chunk", self.chunk, self.block_size, self.dcp_sharded)

    def demand(self, decode_context_parallel_size: int = 1) -> PageDemand:
        """A chunk and what is in flight."""
        return PageDemand(CHUNK, self.block_size, self.chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttentionSpec(AttentionSpec):
    """Attention to an encoder's output, stored once a request."""

    kind: ClassVar[str] = "cross_attention"

    @property
    def sharing_key(self) -> tuple[object, ...]:
        """Every cross-attention layer with the same block."""
        return ("cross", self.block_size, self.dcp_sharded)

    def demand(self, decode_context_parallel_size: int = 1) -> PageDemand:
        """The longest encoder output."""
        return PageDemand(ENCODER, self.block_size, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSpec(KVCacheSpec):
    """A state of fixed size, whatever the block.

    Attributes:
        shapes: Shapes of its tensors on this rank.
        dtypes: Their types.
        recurrence: Which recurrence it is.
        cache_mode: ``"none"``, ``"align"`` or ``"all"`` (mamba_cache_mode).
        speculative_blocks: Blocks for drafted tokens.
        checkpoint_blocks: Blocks for states within a prompt.
    """

    kind: ClassVar[str] = "mamba"
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    recurrence: str = ""
    cache_mode: str = "none"
    speculative_blocks: int = 0
    checkpoint_blocks: int = 0

    @property
    def own_page_bytes(self) -> int:
        """The sum over tensors."""
        return sum(
            prod(shape) * element_bytes(dtype)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        )

    @property
    def sharing_key(self) -> tuple[object, ...]:
        """Layers with the same page and extra blocks."""
        extra = (self.speculative_blocks, self.checkpoint_blocks)
        return ("mamba", self.block_size, self.page_bytes, *extra)

    @property
    def grows_with_block(self) -> bool:
        """States do not depend on the block."""
        return False

    def demand(self, decode_context_parallel_size: int = 1) -> PageDemand:
        """One block, or with prefix caching two and the checkpoints; drafted tokens besides.

        Mode ``all`` (before 0.32) keeps a state for every block of the sequence.
        """
        if self.cache_mode == "all":
            return PageDemand(PER_TOKEN, self.block_size, 1)
        if self.cache_mode == "align":
            return PageDemand(FIXED, 0, 2 + self.speculative_blocks + self.checkpoint_blocks)
        return PageDemand(FIXED, 0, 1 + self.speculative_blocks)
