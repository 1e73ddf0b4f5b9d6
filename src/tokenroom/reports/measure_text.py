"""What was measured beside what was predicted, for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenroom.measuring.beside import Beside, LedgerRow, Reason
from tokenroom.measuring.record import CacheCount, CacheLayer, Measured, Phase
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console


def print_measurement(
    out: Console, found: Beside, *, random_weights: bool, language: Language
) -> None:
    """Write the whole report to ``out``."""
    measured = found.measured
    out.print(Paragraph(title_text(measured, language), style="bold"))
    if random_weights:
        out.print(Paragraph(message("measure.random", language)))
    out.print(Paragraph(shape_text(measured, language)))
    out.print(Paragraph(message(f"measure.meter.{measured.meter.value}", language), style="dim"))
    out.print()
    _print_rows(out, found, language)
    for line in remarks(found, language):
        out.print(Paragraph(line))
    reasons = list(reason_lines(found, language))
    if reasons:
        out.print()
        out.print(Paragraph(message("measure.reasons", language), style="bold"))
        for line in reasons:
            out.print(Paragraph(line, first="  ", rest="    "))
    count = measured.passes[-1].cache if measured.passes else None
    if count is not None:
        out.print()
        out.print(Paragraph(message("measure.layers", language), style="bold"))
        for line in layer_lines(count, language):
            out.print(Paragraph(line, first="  ", rest="    "))


def title_text(measured: Measured, language: Language) -> str:
    """Model, device and versions."""
    versions = ", ".join(f"{name} {value}" for name, value in measured.versions.items())
    return message(
        "measure.title",
        language,
        model=printable(measured.model),
        class_name=measured.class_name,
        device=measured.device,
        versions=versions,
    )


def shape_text(measured: Measured, language: Language) -> str:
    """What ran."""
    first = max(measured.passes, key=lambda done: done.query_tokens)
    cache = first.cache.class_name if first.cache is not None else "-"
    return message(
        "measure.shape",
        language,
        batch=first.batch,
        prompt=first.query_tokens,
        passes=len(measured.passes),
        attention=measured.attention or "-",
        cache=cache,
    )


def _print_rows(out: Console, found: Beside, language: Language) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(message("measure.column.what", language))
    for name in ("measured", "predicted", "range", "difference"):
        table.add_column(message(f"measure.column.{name}", language), justify="right")
    for row in found.rows:
        table.add_row(message(f"measure.row.{row.key}", language), *_cells(row, language))
    print_trimmed(out, table)


def _cells(row: LedgerRow, language: Language) -> Iterator[str]:
    yield "-" if row.measured_bytes is None else format_bytes(row.measured_bytes)
    if row.predicted is None:
        yield from ("-", "", "")
        return
    low, high = row.predicted.low_bytes, row.predicted.high_bytes
    yield format_bytes(row.predicted.num_bytes)
    yield (
        message("measure.exact", language)
        if low == high
        else f"{format_bytes(low)} … {format_bytes(high)}"
    )
    difference = row.difference_bytes
    if difference is None:
        yield ""
    elif difference == 0:
        yield message("measure.equal", language)
    else:
        yield ("+" if difference > 0 else "-") + format_bytes(abs(difference))


def remarks(found: Beside, language: Language) -> Iterator[str]:
    """What is worth a sentence: the highest moment, KV's share, the allocator, missing figures."""
    measured = found.measured
    if found.not_predicted is not None:
        yield message("measure.not_predicted", language, reason=printable(found.not_predicted))
    weights = measured.weights.parameter_bytes + measured.weights.buffer_bytes
    if measured.passes:
        peak, phase = peak_of(measured)
        yield message(
            "measure.peak",
            language,
            total=format_bytes(peak),
            phase=message(f"measure.phase.{phase.value}", language),
        )
    kv = measured.largest_cache_bytes
    last = measured.passes[-1] if measured.passes else None
    if last is not None and last.cache is not None and last.key_tokens:
        token = (last.cache.allocated_bytes - last.cache.state_bytes) / last.batch / last.key_tokens
        share = f"{kv / (kv + weights):.1%}"
        yield message("measure.kv_share", language, share=share, token=format_bytes(token))
    if measured.kv_exceeds_weights:
        yield message(
            "measure.kv_exceeds", language, kv=format_bytes(kv), weights=format_bytes(weights)
        )
    for state in measured.allocators:
        yield message(
            "measure.allocator",
            language,
            device=state.device,
            allocated=format_bytes(state.allocated_bytes),
            reserved=format_bytes(state.reserved_bytes),
            gap=format_bytes(state.gap_bytes),
            used=format_bytes(state.used_bytes),
            total=format_bytes(state.total_bytes),
        )
    if not measured.allocators:
        yield message("measure.no_allocator", language, device=measured.device)


def peak_of(measured: Measured) -> tuple[int, Phase]:
    """The most that was held at once, weights included, and in which phase."""
    weights = measured.weights.parameter_bytes + measured.weights.buffer_bytes
    highest = max(measured.passes, key=lambda done: max(done.peak_bytes, done.after_peak_bytes))
    return weights + max(highest.peak_bytes, highest.after_peak_bytes), highest.phase


def reason_lines(found: Beside, language: Language) -> Iterator[str]:
    """Why figures differ, row by row."""
    for row in found.rows:
        for reason in row.reasons:
            yield f"{message(f'measure.row.{row.key}', language)}: {reason_text(reason, language)}"


def reason_text(reason: Reason, language: Language) -> str:
    """One reason with its figures."""
    values = {}
    for name, value in reason.values.items():
        if name.endswith("_bytes") and isinstance(value, int):
            values[name] = format_bytes(value)
        elif isinstance(value, bool):
            values[name] = message("measure.inside" if value else "measure.beyond", language)
        else:
            values[name] = printable(str(value))
    return message(f"measure.reason.{reason.key}", language, **values)


def layer_lines(count: CacheCount, language: Language) -> Iterator[str]:
    """Alike layers together."""
    kinds: Counter[tuple[object, ...]] = Counter()
    shown: dict[tuple[object, ...], CacheLayer] = {}
    for layer in count.layers:
        key: tuple[object, ...] = (
            layer.class_name,
            layer.part,
            layer.devices,
            layer.dtypes,
            layer.allocated_bytes,
            layer.viewed_bytes,
            layer.filled_bytes,
            layer.state_bytes,
        )
        kinds[key] += 1
        shown[key] = layer
    for kind, number in kinds.items():
        layer = shown[kind]
        if not layer.allocated_bytes and not layer.state_bytes:
            continue
        yield message(
            "measure.layer.state" if layer.state_bytes else "measure.layer",
            language,
            count=number,
            name=layer.class_name,
            part=message(f"measure.part.{layer.part}", language),
            dtypes=", ".join(layer.dtypes),
            devices=", ".join(layer.devices),
            allocated=format_bytes(layer.allocated_bytes),
            viewed=format_bytes(layer.viewed_bytes),
            filled=format_bytes(layer.filled_bytes),
            state=format_bytes(layer.state_bytes),
        )
