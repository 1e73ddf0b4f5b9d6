"""What was measured of a running model: plain figures in bytes, without any tensor in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """What a forward pass does.

    A pass over several new tokens of a sequence, or over the first, is prefill; one new token over
    a cache is decode.
    """

    PREFILL = "prefill"
    DECODE = "decode"


class Meter(StrEnum):
    """What tells the peak of a pass."""

    TENSORS = "tensors"
    """Every storage that an operator makes or frees, exact in bytes on any device; workspaces
    inside one operator are not seen."""
    ALLOCATOR = "allocator"
    """The counters of PyTorch's CUDA caching allocator: blocks, workspaces included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayer:
    """One layer of a cache.

    Attributes:
        index: Its place, None for tensors outside any layer.
        part: ``"self"``, or ``"cross"`` for keys and values of an encoder.
        class_name: Of the layer object; ``"tuple"`` in a legacy cache.
        devices: Where its tensors are.
        dtypes: Types of the tensors that hold keys, values or states.
        allocated_bytes: Storages behind its keys, values and quantised data.
        viewed_bytes: What their shapes address of these.
        filled_bytes: What holds tokens: less than viewed where a static layer is not full.
        state_bytes: Storages of convolution and recurrent states.
        counter_bytes: Counters and other single integers beside.
        tokens: Tokens that it has seen, None when it does not say.
        traits: Whole numbers that its class was made with, as ``nbits`` or ``max_cache_len``.
    """

    index: int | None
    part: str
    class_name: str
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    allocated_bytes: int
    viewed_bytes: int
    filled_bytes: int
    state_bytes: int
    counter_bytes: int
    tokens: int | None
    traits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCount:
    """A whole cache.

    Attributes:
        class_name: Of the cache object.
        layers: Layer by layer.
        allocated_bytes: All storages of keys, values and states, each counted once however many
            layers share it.
        viewed_bytes: What shapes address of them, shared storages counted once.
        filled_bytes: What holds tokens or states.
        counter_bytes: Counters beside.
        by_device: ``allocated_bytes`` by device.
    """

    class_name: str
    layers: tuple[CacheLayer, ...]
    allocated_bytes: int
    viewed_bytes: int
    filled_bytes: int
    counter_bytes: int
    by_device: Mapping[str, int]

    @property
    def state_bytes(self) -> int:
        """Convolution and recurrent states, which do not grow with the context."""
        return sum(layer.state_bytes for layer in self.layers)

    @property
    def tokens(self) -> int | None:
        """The most tokens that a layer has seen, without those of an encoder; None: none says."""
        own = [layer for layer in self.layers if layer.part == "self"]
        seen = [layer.tokens for layer in own if layer.tokens is not None]
        return max(seen, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward pass.

    Attributes:
        phase: Prefill or decode.
        batch: Sequences.
        query_tokens: New tokens of each.
        cached_tokens: Tokens of each that passes before brought, as far as the cache says.
        logits_positions: Positions of each that got logits, None when there are none.
        padded: The attention mask hides positions.
        position_rows: Rows of positions that the caller gave, None when it gave none.
        held_bytes: What was alive at its start, beyond what was there on entry and the cache:
            inputs, and results of passes before that the caller keeps.
        peak_bytes: The most that was alive while it ran, beyond what was there on entry.
        after_peak_bytes: The same from its end to the next pass: sampling.
        cache: The cache at its end, None when there is none.
        cache_before_bytes: What the cache held at its start.
    """

    phase: Phase
    batch: int
    query_tokens: int
    cached_tokens: int
    logits_positions: int | None
    padded: bool
    position_rows: int | None
    held_bytes: int
    peak_bytes: int
    after_peak_bytes: int
    cache: CacheCount | None
    cache_before_bytes: int

    @property
    def key_tokens(self) -> int:
        """Tokens of each sequence that are attended to."""
        return self.cached_tokens + self.query_tokens

    @property
    def cache_bytes(self) -> int:
        """The cache at its end, states included."""
        return 0 if self.cache is None else self.cache.allocated_bytes + self.cache.counter_bytes

    @property
    def released_bytes(self) -> int:
        """By how much the cache shrank."""
        return max(0, self.cache_before_bytes - self.cache_bytes)

    @property
    def transient_bytes(self) -> int:
        """Peak above weights, the cache as it stands afterwards and what the caller held."""
        return self.peak_bytes - self.held_bytes - self.cache_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorState:
    """Counters of one CUDA device.

    Attributes:
        device: Its name in PyTorch, as ``"cuda:0"``.
        total_bytes: ``mem_get_info``'s total.
        used_bytes: What is not free, by the driver: other processes count too.
        reserved_bytes: What the caching allocator took from the driver.
        allocated_bytes: What tensors hold of it.
        peak_reserved_bytes: The most of ``reserved_bytes`` since entry.
        peak_allocated_bytes: The most of ``allocated_bytes`` since entry.
    """

    device: str
    total_bytes: int
    used_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    peak_reserved_bytes: int
    peak_allocated_bytes: int

    @property
    def gap_bytes(self) -> int:
        """Reserved and in no tensor: what the caching allocator keeps for later."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def outside_bytes(self) -> int:
        """Used and not reserved: CUDA context, kernels, NCCL, and other processes."""
        return self.used_bytes - self.reserved_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters and buffers of a model, each storage counted once.

    Attributes:
        parameter_bytes: All parameters.
        buffer_bytes: All buffers, such as rotary frequencies.
        by_device: Both by device.
        by_dtype: Parameters by type.
        tied_bytes: What parameters that share storage would take more on their own.
    """

    parameter_bytes: int
    buffer_bytes: int
    by_device: Mapping[str, int]
    by_dtype: Mapping[str, int]
    tied_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that was measured of a model.

    Attributes:
        model: Its name.
        class_name: Its class.
        config: Its configuration as a mapping.
        dtype: Type of most parameters.
        attention: ``attn_implementation``, None when it has none.
        meter: What told the peaks.
        device: Where most weights are.
        weights: Parameters and buffers.
        passes: Forward passes in order.
        allocators: Of each CUDA device that holds weights, at the end; empty on a CPU, which has no
            such counters.
        versions: Of the libraries.
    """

    model: str
    class_name: str
    config: Mapping[str, object]
    dtype: str
    attention: str | None
    meter: Meter
    device: str
    weights: Weights
    passes: tuple[Pass, ...]
    allocators: tuple[AllocatorState, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def widest(self, phase: Phase) -> Pass | None:
        """The pass of a phase with the highest transient peak, None when there was none.

        Passes in which the cache shrank, as windows do after a long prompt, come last: what they
        let go of is none of their own.
        """
        found = [done for done in self.passes if done.phase is phase]
        steady = [done for done in found if done.released_bytes == 0]
        found = steady or found
        return max(found, key=lambda done: done.transient_bytes, default=None)

    @property
    def largest_cache_bytes(self) -> int:
        """The cache when it was largest."""
        return max((done.cache_bytes for done in self.passes), default=0)

    @property
    def kv_exceeds_weights(self) -> bool:
        """The cache took more than the weights at some time."""
        held = self.weights.parameter_bytes + self.weights.buffer_bytes
        return self.largest_cache_bytes > held
