"""The context manager: hooks on a model's forward, and what they saw as plain figures.

with measure(model) as seen:
    model.generate(**inputs, max_new_tokens=32)
print(seen.measured.largest_cache_bytes)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import torch

from tokenroom.errors import MeasurementError, shown
from tokenroom.measuring.in_torch.readings import allocator_state, library_versions, weights_of
from tokenroom.measuring.in_torch.storages import StorageSet, count_cache, tensors_in
from tokenroom.measuring.in_torch.tensor_ledger import TensorLedger
from tokenroom.measuring.record import (
    CacheCount,
    Measured,
    Meter,
    Pass,
    Phase,
)
from tokenroom.units import format_bytes

_CACHE_NAMES: Final = (
    "cache",
    "past_key_values",
    "cache_params",
    "past_key_value",
    "state",
    "mems",
)
"""Under which models take and return their cache; ``cache`` since 5.20, ``cache_params`` in Mamba,
``state`` in RWKV, ``mems`` in XLNet."""
_INPUT_NAMES: Final = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")


class KvExceedsWeightsWarning(UserWarning):
    """The cache has grown beyond the weights."""


def measure(model: torch.nn.Module, *, meter: Meter | str | None = None) -> Measurement:
    """Measure what a model holds and what its passes take, while the block runs.

    Warns with :class:`KvExceedsWeightsWarning`, once, when the cache takes more than the weights.
    Counting takes time: latencies in the block say nothing. Enter before the first pass, so that
    the cache is seen from its beginning.

    Args:
        model: A model of transformers, or any module that is called with token ids.
        meter: ``"tensors"``, exact on any device, or ``"allocator"``, PyTorch's counters of a CUDA
            device, whose peak is restarted at each pass; by default the counters where there are
            any.

    Raises:
        MeasurementError: ``model`` is no module with parameters, or a meter is not there.
    """
    return Measurement(model, meter=meter)


class Measurement:
    """See :func:`measure`; figures are in :attr:`measured` once the block has ended."""

    def __init__(self, model: torch.nn.Module, *, meter: Meter | str | None = None) -> None:
        if not isinstance(model, torch.nn.Module):
            raise MeasurementError(
                f"model is {shown(type(model).__name__)}; give a torch.nn.Module, such as what "
                f"AutoModelForCausalLM.from_pretrained returns"
            )
        self._model = model
        self._weights = weights_of(model)
        if not self._weights.by_device:
            raise MeasurementError("the model has no parameters; nothing of it can be measured")
        self._device = max(self._weights.by_device, key=lambda key: self._weights.by_device[key])
        if self._device == "meta":
            raise MeasurementError(
                "the model is on the meta device, where tensors have no memory; load it on a CPU "
                "or a GPU"
            )
        self._meter = _meter(meter, self._device)
        self._ledger = TensorLedger() if self._meter is Meter.TENSORS else None
        self._entry_bytes = 0
        self._entered = False
        self._hooks: list[Any] = []
        self._passes: list[Pass] = []
        self._open: _OpenPass | None = None
        self._running = False
        self._cache: CacheCount | None = None
        self._warned = False
        self._peaks: dict[str, tuple[int, int]] = {}
        self._measured: Measured | None = None

    def __enter__(self) -> Measurement:
        if self._entered:
            raise MeasurementError("a measurement was entered twice; make another with measure()")
        self._entered = True
        self._hooks = [
            self._model.register_forward_pre_hook(self._before, with_kwargs=True),
            self._model.register_forward_hook(self._after, with_kwargs=True, always_call=False),
        ]
        if self._ledger is not None:
            self._ledger.leave_out([*self._model.parameters(), *self._model.buffers()])
            self._ledger.__enter__()
        else:
            for device in self._cuda_devices():
                torch.cuda.synchronize(device)
            self._restart()
            self._peaks.clear()
            self._entry_bytes = torch.cuda.memory_allocated(self._device)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()
        if self._ledger is not None:
            self._ledger.__exit__(kind, error, trace)
        for hook in self._hooks:
            hook.remove()
        config = getattr(self._model, "config", None)
        self._note_peaks()
        self._measured = Measured(
            model=str(getattr(config, "_name_or_path", "") or type(self._model).__name__),
            class_name=type(self._model).__name__,
            config=_config_of(config),
            dtype=max(self._weights.by_dtype, key=lambda key: self._weights.by_dtype[key]),
            attention=getattr(config, "_attn_implementation", None),
            meter=self._meter,
            device=self._device,
            weights=self._weights,
            passes=tuple(self._passes),
            allocators=tuple(
                allocator_state(device, *self._peaks[device]) for device in self._cuda_devices()
            ),
            versions=library_versions(),
        )

    @property
    def measured(self) -> Measured:
        """What was measured.

        Raises:
            MeasurementError: The block has not ended.
        """
        if self._measured is None:
            raise MeasurementError("the measurement has not ended; read it after its block")
        return self._measured

    def _cuda_devices(self) -> list[str]:
        return sorted(name for name in self._weights.by_device if name.startswith("cuda"))

    def _alive(self) -> int:
        if self._ledger is not None:
            return self._ledger.alive_bytes
        return int(torch.cuda.memory_allocated(self._device)) - self._entry_bytes

    def _peak(self) -> int:
        if self._ledger is not None:
            return self._ledger.peak_bytes
        return int(torch.cuda.max_memory_allocated(self._device)) - self._entry_bytes

    def _restart(self) -> None:
        if self._ledger is not None:
            self._ledger.restart()
        else:
            self._note_peaks()
            for device in self._cuda_devices():
                torch.cuda.reset_peak_memory_stats(device)

    def _note_peaks(self) -> None:
        """Keep the highest peaks of each device, since every pass restarts them."""
        for device in self._cuda_devices():
            reserved, allocated = self._peaks.get(device, (0, 0))
            self._peaks[device] = (
                max(reserved, int(torch.cuda.max_memory_reserved(device))),
                max(allocated, int(torch.cuda.max_memory_allocated(device))),
            )

    def _close(self) -> None:
        """Take the peak of what followed the last pass."""
        if self._open is not None:
            self._passes.append(self._open.ended(self._peak()))
            self._open = None

    def _before(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if self._running:  # a model that calls itself
            return
        self._close()
        with torch.utils._python_dispatch._disable_current_modes():
            cache = _named(kwargs, _CACHE_NAMES)
            before = None if cache is None else count_cache(cache)
            batch, queries = _shape(args, kwargs)
            self._open = _OpenPass(
                batch=batch,
                queries=queries,
                cached=self._cached(before),
                padded=_is_padded(kwargs),
                position_rows=_position_rows(kwargs),
                before_bytes=self._own_bytes(cache, before),
                alive_bytes=self._alive(),
            )
        self._running = True
        self._restart()

    def _cached(self, before: CacheCount | None) -> int:
        """Tokens in the cache; states do not say, so there the passes before tell."""
        if before is None or not before.allocated_bytes:
            return 0
        if before.tokens is not None or not self._passes:
            return before.tokens or 0
        return self._passes[-1].key_tokens

    def _own_bytes(self, cache: Any, count: CacheCount | None) -> int:
        """The part of a cache that was made since entry."""
        if count is None:
            return 0
        if self._ledger is None:
            return count.allocated_bytes + count.counter_bytes
        own = StorageSet()
        for found in tensors_in(cache):
            if self._ledger.knows(found.tensor):
                own.add(found.tensor)
        return own.allocated_bytes

    def _after(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any
    ) -> None:
        if self._open is None:
            return
        self._running = False
        peak = self._peak()
        with torch.utils._python_dispatch._disable_current_modes():
            cache = _named(output, _CACHE_NAMES)
            if cache is None:
                cache = _named(kwargs, _CACHE_NAMES)
            if cache is None:
                cache = _legacy_cache(output)
            self._cache = None if cache is None else count_cache(cache)
            self._open.finish(peak, self._cache, _logits_positions(output))
        self._warn()
        self._restart()

    def _warn(self) -> None:
        held = self._weights.parameter_bytes + self._weights.buffer_bytes
        if self._warned or self._cache is None or self._cache.allocated_bytes <= held:
            return
        self._warned = True
        warnings.warn(
            f"the KV cache takes {format_bytes(self._cache.allocated_bytes)}, more than the "
            f"weights with {format_bytes(held)}",
            KvExceedsWeightsWarning,
            stacklevel=3,
        )


class _OpenPass:
    """A pass that has begun, and what follows it until the next."""

    def __init__(
        self,
        *,
        batch: int,
        queries: int,
        cached: int,
        padded: bool,
        position_rows: int | None,
        before_bytes: int,
        alive_bytes: int,
    ) -> None:
        self._batch, self._queries, self._cached = batch, queries, cached
        self._padded, self._position_rows = padded, position_rows
        self._before_bytes = before_bytes
        self._held_bytes = alive_bytes - before_bytes
        self._peak_bytes = alive_bytes
        self._cache: CacheCount | None = None
        self._positions: int | None = None

    def finish(self, peak_bytes: int, cache: CacheCount | None, positions: int | None) -> None:
        self._peak_bytes, self._cache, self._positions = peak_bytes, cache, positions

    def ended(self, after_peak_bytes: int) -> Pass:
        decode = self._queries == 1 and self._cached > 0
        return Pass(
            phase=Phase.DECODE if decode else Phase.PREFILL,
            batch=self._batch,
            query_tokens=self._queries,
            cached_tokens=self._cached,
            logits_positions=self._positions,
            padded=self._padded,
            position_rows=self._position_rows,
            held_bytes=self._held_bytes,
            peak_bytes=self._peak_bytes,
            after_peak_bytes=after_peak_bytes,
            cache=self._cache,
            cache_before_bytes=self._before_bytes,
        )


def _meter(asked: Meter | str | None, device: str) -> Meter:
    counters = device.startswith("cuda")
    if asked is None:
        return Meter.ALLOCATOR if counters else Meter.TENSORS
    try:
        meter = Meter(asked)
    except ValueError as problem:
        names = " or ".join(item.value for item in Meter)
        raise MeasurementError(f"meter is {shown(asked)}; give {names}") from problem
    if meter is Meter.ALLOCATOR and not counters:
        raise MeasurementError(
            f"meter is 'allocator' and the model is on {device}, which has no such counters; give "
            f"'tensors'"
        )
    return meter


def _config_of(config: Any) -> Mapping[str, object]:
    """A configuration as it would be saved."""
    if config is None or not hasattr(config, "to_dict"):
        return {}
    data = dict(config.to_dict())
    for name in ("dtype", "torch_dtype"):
        if isinstance(data.get(name), torch.dtype):
            data[name] = str(data[name]).removeprefix("torch.")
    return data


def _named(holder: Any, names: Sequence[str]) -> Any:
    """The first of these that an output or the keyword arguments hold."""
    for name in names:
        value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
        if value is not None:
            return value
    return None


def _legacy_cache(output: Any) -> Any:
    """The tuple of tuples that versions before 4.36 returned second."""
    if not isinstance(output, tuple):
        return None
    for item in output[1:]:
        if isinstance(item, tuple) and item and isinstance(item[0], tuple):
            return item
    return None


def _shape(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, int]:
    """Batch and new tokens of a call."""
    given = _named(kwargs, _INPUT_NAMES)
    if given is None:
        given = next((item for item in args if isinstance(item, torch.Tensor)), None)
    if not isinstance(given, torch.Tensor) or given.dim() < 2:
        return 1, 0
    return int(given.shape[0]), int(given.shape[1])


def _is_padded(kwargs: Mapping[str, Any]) -> bool:
    mask = kwargs.get("attention_mask")
    return isinstance(mask, torch.Tensor) and mask.dim() == 2 and not bool(mask.bool().all())


def _position_rows(kwargs: Mapping[str, Any]) -> int | None:
    given = kwargs.get("position_ids")
    return int(given.shape[0]) if isinstance(given, torch.Tensor) and given.dim() == 2 else None


def _logits_positions(output: Any) -> int | None:
    logits = getattr(output, "logits", None)
    if isinstance(logits, torch.Tensor) and logits.dim() == 3:
        return int(logits.shape[1])
    return None
