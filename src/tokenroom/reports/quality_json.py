"""What a quantised KV cache costs, as one JSON object."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import Any, Final

from tokenroom.comparing.differences import Mean
from tokenroom.measuring.quality import Quality, SchemeResult, Verdict
from tokenroom.reports.messages import Language
from tokenroom.reports.quality_text import verdict_text

SCHEMA_VERSION: Final = "1.0"


def quality_json(
    found: Quality, verdict: Verdict, tolerance: float, language: Language
) -> dict[str, Any]:
    """The whole answer; the verdict's sentence is in the language asked for."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": found.model,
        "random_weights": found.random_weights,
        "device": found.device,
        "dtype": found.dtype,
        "versions": dict(found.versions),
        "text": found.text,
        "text_tokens": found.text_tokens,
        "seed": found.seed,
        "confidence": found.confidence,
        "tolerance": tolerance,
        "windows": len(found.windows),
        "windows_asked": found.windows_asked,
        "interrupted": found.interrupted,
        "full_cache_is_identical": found.identical,
        "states_left_out": found.unquantised,
        "verdict": {
            "key": verdict.key,
            "scheme": verdict.scheme,
            "text": verdict_text(found, verdict, tolerance, language),
        },
        "results": [_result(result) for result in found.results],
    }


def schema_text() -> str:
    """The JSON schema, as text."""
    return files("tokenroom.reports").joinpath("data/quality.schema.json").read_text("utf-8")


def _result(result: SchemeResult) -> dict[str, Any]:
    ends = result.change_range
    return {
        "scheme": result.scheme,
        "context_tokens": result.context_tokens,
        "windows": result.loss_change.runs,
        "perplexity": _finite(result.perplexity),
        "full_perplexity": _finite(result.full_perplexity),
        "perplexity_change": result.change,
        "perplexity_change_low": None if ends is None else ends[0],
        "perplexity_change_high": None if ends is None else ends[1],
        "loss_change_nats": _mean(result.loss_change),
        "kl_nats": _mean(result.divergence),
        "top1_agreement": result.agreement,
        "kv_bytes_per_token": result.bytes_per_token,
        "full_kv_bytes_per_token": result.full_bytes_per_token,
        "saved_bytes_per_token": result.full_bytes_per_token - result.bytes_per_token,
        "saved_share": result.saved_share,
    }


def _mean(mean: Mean) -> dict[str, Any]:
    half = mean.half_width
    return {
        "value": mean.value,
        "low": None if half is None else mean.value - half,
        "high": None if half is None else mean.value + half,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
