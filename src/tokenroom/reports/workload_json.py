"""The answers of ``workload`` as JSON objects, whose schema is published beside this module.

The schema (``data/workload.schema.json``, printed by ``tokenroom workload --json-schema``) is
versioned by ``schema_version``: a new key raises the minor number, a changed or dropped one the
major number. Times are seconds, lengths tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

from tokenroom.reports.messages import Language
from tokenroom.reports.workload_text import Described, sources_of, workload_warnings
from tokenroom.serving.workloads.presets import Preset

SCHEMA_VERSION: Final = "1.0"


def workload_json(found: Described, language: Language) -> dict[str, Any]:
    """What a workload is like."""
    summary = found.summary
    sharing = summary.sharing
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": found.name,
        "format": found.title,
        "sources": list(found.sources),
        "requests": summary.requests,
        "sessions": summary.sessions,
        "input_tokens": asdict(summary.prompt),
        "output_tokens": asdict(summary.output),
        "longest": {"tokens": summary.longest_tokens, "request": summary.longest_id},
        "arrivals": None
        if summary.arrivals is None
        else {**asdict(summary.arrivals), "counts": list(summary.arrivals.counts)},
        "prefix_cache": None
        if sharing is None
        else {
            "block_tokens": sharing.block_tokens,
            "hit_ratio": sharing.hit_ratio,
            "hit_tokens": sharing.hit_blocks * sharing.block_tokens,
            "trace_block_tokens": found.trace_block_tokens,
            "trace_hit_ratio": found.trace_hit_ratio,
        },
        "limit": None
        if summary.max_model_len is None
        else {
            "max_model_len": summary.max_model_len,
            "long_inputs": summary.long_prompts,
            "long_answers": summary.long_answers,
        },
        "reordered": found.moved,
        "left_out": dict(found.left_out or {}),
        "warnings": list(workload_warnings(found, language)),
    }


def presets_json(presets: Sequence[Preset], language: Language) -> dict[str, Any]:
    """Every preset with its description and its sources."""
    return {
        "schema_version": SCHEMA_VERSION,
        "presets": [
            {
                "name": one.name,
                "workload": one.workload,
                "sources": list(sources_of(one, language)),
            }
            for one in presets
        ],
    }


def schema_text() -> str:
    """The JSON schema of both objects, as text."""
    return files("tokenroom.reports").joinpath("data/workload.schema.json").read_text("utf-8")
