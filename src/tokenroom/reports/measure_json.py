"""What was measured beside what was predicted, as one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

from tokenroom.measuring.beside import Beside, LedgerRow
from tokenroom.measuring.record import CacheCount, Pass
from tokenroom.reports.measure_text import peak_of, reason_text
from tokenroom.reports.messages import Language

SCHEMA_VERSION: Final = "1.0"


def measure_json(found: Beside, *, random_weights: bool, language: Language) -> dict[str, Any]:
    """The whole answer; sentences are in the language asked for."""
    measured = found.measured
    last = measured.passes[-1].cache if measured.passes else None
    return {
        "schema_version": SCHEMA_VERSION,
        "model": measured.model,
        "class": measured.class_name,
        "device": measured.device,
        "dtype": measured.dtype,
        "attention": measured.attention,
        "random_weights": random_weights,
        "versions": dict(measured.versions),
        "meter": measured.meter.value,
        "weights": asdict(measured.weights),
        "kv_bytes": measured.largest_cache_bytes,
        "kv_exceeds_weights": measured.kv_exceeds_weights,
        "peak_bytes": peak_of(measured)[0] if measured.passes else None,
        "ledger": [_row(row, language) for row in found.rows],
        "not_predicted": found.not_predicted,
        "passes": [_pass(done) for done in measured.passes],
        "cache": None if last is None else _cache(last),
        "allocators": [
            asdict(state) | {"gap_bytes": state.gap_bytes, "outside_bytes": state.outside_bytes}
            for state in measured.allocators
        ],
    }


def schema_text() -> str:
    """The JSON schema, as text."""
    return files("tokenroom.reports").joinpath("data/measure.schema.json").read_text("utf-8")


def _row(row: LedgerRow, language: Language) -> dict[str, Any]:
    predicted = row.predicted
    return {
        "key": row.key,
        "measured_bytes": row.measured_bytes,
        "predicted_bytes": None if predicted is None else predicted.num_bytes,
        "predicted_low_bytes": None if predicted is None else predicted.low_bytes,
        "predicted_high_bytes": None if predicted is None else predicted.high_bytes,
        "difference_bytes": row.difference_bytes,
        "reasons": [
            {
                "key": reason.key,
                "text": reason_text(reason, language),
                "values": dict(reason.values),
            }
            for reason in row.reasons
        ],
    }


def _pass(done: Pass) -> dict[str, Any]:
    return {
        "phase": done.phase.value,
        "batch": done.batch,
        "query_tokens": done.query_tokens,
        "cached_tokens": done.cached_tokens,
        "held_bytes": done.held_bytes,
        "peak_bytes": done.peak_bytes,
        "after_peak_bytes": done.after_peak_bytes,
        "transient_bytes": done.transient_bytes,
        "cache_bytes": done.cache_bytes,
    }


def _cache(count: CacheCount) -> dict[str, Any]:
    return {
        "class": count.class_name,
        "allocated_bytes": count.allocated_bytes,
        "viewed_bytes": count.viewed_bytes,
        "filled_bytes": count.filled_bytes,
        "state_bytes": count.state_bytes,
        "counter_bytes": count.counter_bytes,
        "by_device": dict(count.by_device),
        "layers": [
            asdict(layer) | {"devices": list(layer.devices), "dtypes": list(layer.dtypes)}
            for layer in count.layers
        ],
    }
