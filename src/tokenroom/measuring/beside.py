"""What was measured beside what is predicted for the same passes, and why the two differ.

Predicted are the parameters by the configuration, the cache by its class (``caches.py``) and each
pass's transient tensors (``activation.py``) of the transformers engine: the formulas that ``fit``
adds up. A difference gets every reason that was seen in what was measured; what none explains is
said to be unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.transformers.activation import AttentionKernel, Step, is_counted, step_terms
from tokenroom.engines.transformers.caches import Backend, CacheKind, CacheSettings, layer_bytes
from tokenroom.engines.transformers.memory import Use, activation_estimate, kernels
from tokenroom.engines.transformers.placement import modules_of
from tokenroom.errors import TokenroomError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.measuring.record import CacheCount, Measured, Meter, Pass, Phase
from tokenroom.memory.activations import terms_bytes
from tokenroom.memory.process_context import cuda_context_bytes
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import Attention, LatentAttention, Mixer, ModelSpec, Weight

_KERNELS: Final = {kernel.value: kernel for kernel in AttentionKernel}
_BACKENDS: Final = {"Fp8": Backend.FP8, "HQQ": Backend.HQQ, "Quanto": Backend.QUANTO}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a measured and a predicted figure differ.

    Attributes:
        key: Names the sentence.
        values: Its figures; those whose name ends with ``_bytes`` are bytes.
    """

    key: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One taker of memory.

    Attributes:
        key: ``"weights"``, ``"buffers"``, ``"kv_cache"``, ``"prefill"``, ``"decode"``,
            ``"prompt_in_windows"``, ``"sampling"``, ``"held"``, ``"outside"`` or
            ``"allocator_gap"``.
        measured_bytes: As measured, None where it could not be.
        predicted: As predicted with its range, None where it is not.
        reasons: Why they differ; none when they are equal.
    """

    key: str
    measured_bytes: int | None
    predicted: Estimate | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def difference_bytes(self) -> int | None:
        """Measured less predicted."""
        if self.measured_bytes is None or self.predicted is None:
            return None
        return self.measured_bytes - self.predicted.num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The ledger of what was measured beside the predicted one.

    Attributes:
        measured: What was measured.
        rows: Taker by taker.
        not_predicted: Why nothing is predicted, None when it is.
    """

    measured: Measured
    rows: tuple[LedgerRow, ...]
    not_predicted: str | None = None

    def row(self, key: str) -> LedgerRow | None:
        """The row of a taker."""
        return next((row for row in self.rows if row.key == key), None)


def beside(measured: Measured, accelerator: Accelerator | None = None) -> Beside:
    """The ledger of a measurement, each line beside its prediction.

    Args:
        measured: What was measured.
        accelerator: The GPU it ran on, for what the driver takes; None for none.
    """
    spec, reason = None, None
    try:
        spec = read_config(measured.config, measured.model)
    except TokenroomError as problem:
        reason = str(problem)
    rows = [_weights(measured, spec)]
    if measured.weights.buffer_bytes:
        rows.append(LedgerRow(key="buffers", measured_bytes=measured.weights.buffer_bytes))
    if measured.passes:
        rows.append(_cache(measured, spec))
        rows += (
            _transient(measured, spec, done)
            for phase in Phase
            if (done := measured.widest(phase)) is not None
        )
        released = max(done.released_bytes for done in measured.passes)
        if released:
            rows.append(LedgerRow(key="prompt_in_windows", measured_bytes=released))
        between = max(done.after_peak_bytes - done.cache_bytes for done in measured.passes)
        rows.append(LedgerRow(key="sampling", measured_bytes=max(0, between)))
        held = max(done.held_bytes for done in measured.passes)
        rows.append(LedgerRow(key="held", measured_bytes=max(0, held)))
    rows += _driver(measured, accelerator)
    return Beside(measured=measured, rows=tuple(rows), not_predicted=reason)


def _sure(num_bytes: int, source: str) -> Estimate:
    return Estimate(num_bytes=num_bytes, low_bytes=num_bytes, high_bytes=num_bytes, source=source)


def _unexplained(difference: int) -> Reason:
    return Reason(key="unexplained", values={"difference_bytes": difference})


def _weights(measured: Measured, spec: ModelSpec | None) -> LedgerRow:
    weights = measured.weights
    if spec is None:
        return LedgerRow(key="weights", measured_bytes=weights.parameter_bytes)
    dtype = measured.dtype
    expected = sum(module.num_bytes for module in modules_of(spec, dtype))
    reasons = []
    difference = weights.parameter_bytes - expected
    if difference:
        kinds = {name: size for name, size in weights.by_dtype.items() if name != dtype}
        if kinds:
            types = ", ".join(kinds)
            values = {"types": types, "size_bytes": sum(kinds.values())}
            reasons.append(Reason(key="weights_other_types", values=values))
        in_one_type = sum(module.num_bytes for module in modules_of(_in_one_type(spec), dtype))
        if weights.parameter_bytes == in_one_type:
            values = {"type": dtype, "size_bytes": expected - in_one_type}
            reasons.append(Reason(key="weights_one_type", values=values))
        if weights.tied_bytes and difference == -weights.tied_bytes:
            reasons.append(Reason(key="weights_tied", values={"size_bytes": weights.tied_bytes}))
        if not reasons:
            reasons.append(_unexplained(difference))
    predicted = _sure(expected, "config.json")
    return LedgerRow(
        key="weights",
        measured_bytes=weights.parameter_bytes,
        predicted=predicted,
        reasons=tuple(reasons),
    )


def _in_one_type(spec: ModelSpec) -> ModelSpec:
    """The model without types that single parameters are stored in."""

    def plain(weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
        return tuple(replace(weight, dtype=None) for weight in weights)

    kinds = {id(layer): replace(layer, weights=plain(layer.weights)) for layer in spec.layers}
    return replace(
        spec,
        layers=tuple(kinds[id(layer)] for layer in spec.layers),
        input_weights=plain(spec.input_weights),
        output_weights=plain(spec.output_weights),
    )


def cache_settings(count: CacheCount, dtype: str) -> CacheSettings | None:
    """How a counted cache is kept, None for a class that is not modelled."""
    traits: dict[str, int] = {}
    for layer in count.layers:
        traits.update(layer.traits)
    names = {layer.class_name for layer in count.layers}
    for word, backend in _BACKENDS.items():
        if any(name.startswith(word) for name in names):
            axis = -1 if traits.get("axis_key", 0) == 1 else traits.get("axis_key", 0)
            return CacheSettings(
                kind=CacheKind.QUANTIZED,
                dtype=dtype,
                backend=backend,
                nbits=traits.get("nbits", 8),
                group_size=traits.get("q_group_size", 64),
                residual_length=traits.get("residual_length", 128),
                axis=axis,
            )
    if any("Static" in name for name in names):
        return CacheSettings(kind=CacheKind.STATIC, dtype=dtype)
    known = ("Dynamic", "Linear", "tuple", "Dummy")
    if all(any(word in name for word in known) for name in names):
        return CacheSettings(dtype=dtype)
    return None


def _cache(measured: Measured, spec: ModelSpec | None) -> LedgerRow:
    last = measured.passes[-1]
    count = last.cache
    if count is None:
        return LedgerRow(key="kv_cache", measured_bytes=0)
    settings = cache_settings(count, measured.dtype)
    if spec is None or settings is None:
        reasons: tuple[Reason, ...] = ()
        if spec is not None:
            reasons = (Reason(key="cache_class", values={"name": count.class_name}),)
        return LedgerRow(key="kv_cache", measured_bytes=count.allocated_bytes, reasons=reasons)
    expected = _predicted_cache(spec, settings, measured, last, count)
    difference = count.allocated_bytes - expected
    return LedgerRow(
        key="kv_cache",
        measured_bytes=count.allocated_bytes,
        predicted=_sure(expected, "transformers 5.24 cache_utils.py"),
        reasons=tuple(_cache_reasons(count, spec, settings, difference)) if difference else (),
    )


def _predicted_cache(
    spec: ModelSpec, settings: CacheSettings, measured: Measured, last: Pass, count: CacheCount
) -> int:
    """The cache after the last pass."""
    prompt = max(done.query_tokens for done in measured.passes)
    tokens = last.key_tokens
    if settings.kind.is_static:
        tokens = max((layer.traits.get("max_cache_len", 0) for layer in count.layers), default=0)
    encoder = max((layer.tokens or 0 for layer in count.layers if layer.part == "cross"), default=0)
    total = 0
    known: dict[int, int] = {}
    for layer in spec.layers:
        if id(layer) not in known:
            found = layer_bytes(layer, settings, last.batch, tokens, prompt, encoder)
            known[id(layer)] = found.kept if last.cached_tokens else found.after_prompt
        total += known[id(layer)]
    return total


def _window(mixer: Mixer) -> int | None:
    if isinstance(mixer, Attention):
        return mixer.window if mixer.window is not None else mixer.chunk
    return mixer.window if isinstance(mixer, LatentAttention) else None


def _cache_reasons(
    count: CacheCount, spec: ModelSpec, settings: CacheSettings, difference: int
) -> Iterator[Reason]:
    """Every reason that shows in the tensors."""
    found = False
    beyond = count.allocated_bytes - count.viewed_bytes
    if beyond and difference > 0:
        yield Reason(key="cache_views", values={"size_bytes": beyond})
        found = True
    if count.viewed_bytes > count.filled_bytes and difference > 0:
        empty = count.viewed_bytes - count.filled_bytes
        yield Reason(key="cache_not_full", values={"size_bytes": empty})
        found = True
    types = {name for layer in count.layers for name in layer.dtypes}
    if settings.kind is not CacheKind.QUANTIZED and types - {settings.dtype}:
        yield Reason(key="cache_type", values={"types": ", ".join(sorted(types))})
        found = True
    windows = {_window(mixer) for layer in spec.layers for mixer in layer.mixers} - {None}
    plain = {layer.class_name for layer in count.layers} <= {"DynamicLayer", "tuple"}
    if windows and plain:
        yield Reason(key="cache_without_windows", values={"name": count.class_name})
        found = True
    if not found:
        yield _unexplained(difference)


def _transient(measured: Measured, spec: ModelSpec | None, done: Pass) -> LedgerRow:
    key = done.phase.value
    kernel = _KERNELS.get(measured.attention or "")
    settings = CacheSettings(dtype=measured.dtype)
    if done.cache is not None:
        settings = cache_settings(done.cache, measured.dtype) or settings
    if spec is None or kernel is None or done.query_tokens == 0:
        reasons: tuple[Reason, ...] = ()
        if spec is not None:
            reasons = (Reason(key="attention", values={"name": str(measured.attention)}),)
        return LedgerRow(key=key, measured_bytes=done.transient_bytes, reasons=reasons)
    step = Step(
        batch=done.batch,
        queries=done.query_tokens,
        keys=done.key_tokens,
        kernel=kernel,
        dtype=measured.dtype,
        logits=done.logits_positions or done.query_tokens,
        samples=False,
        padded=done.padded,
        position_rows=done.position_rows,
    )
    terms = step_terms(spec, step, settings)
    use = Use(kv_bytes=0, peak=terms_bytes(terms), phase=key, terms=terms, decode_bytes=0)
    predicted = activation_estimate(spec, use)
    difference = done.transient_bytes - predicted.num_bytes
    reasons_found = tuple(_pass_reasons(measured, spec, done, predicted)) if difference else ()
    return LedgerRow(
        key=key,
        measured_bytes=done.transient_bytes,
        predicted=predicted,
        reasons=reasons_found,
    )


def _pass_reasons(
    measured: Measured, spec: ModelSpec, done: Pass, predicted: Estimate
) -> Iterator[Reason]:
    if measured.meter is Meter.ALLOCATOR:
        yield Reason(key="pass_blocks", values={})
    within = predicted.low_bytes <= done.transient_bytes <= predicted.high_bytes
    if not is_counted(spec):
        yield Reason(key="pass_estimated", values={"within": within})
    elif within:
        yield Reason(key="pass_within", values={})
    else:
        yield _unexplained(done.transient_bytes - predicted.num_bytes)


def _driver(measured: Measured, accelerator: Accelerator | None) -> Iterator[LedgerRow]:
    """What a GPU holds outside tensors; there is no such thing on a CPU."""
    for state in measured.allocators:
        predicted = None
        if accelerator is not None:
            context, driver = cuda_context_bytes(accelerator), kernels()
            predicted = Estimate(
                num_bytes=context + driver.num_bytes,
                low_bytes=context + driver.low_bytes,
                high_bytes=context + driver.high_bytes,
                source=driver.source,
            )
        reasons = (Reason(key="outside_others", values={}),)
        yield LedgerRow(
            key="outside",
            measured_bytes=state.outside_bytes,
            predicted=predicted,
            reasons=reasons if predicted is not None else (),
        )
        yield LedgerRow(key="allocator_gap", measured_bytes=state.gap_bytes)
