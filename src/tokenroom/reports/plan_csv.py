"""Everything that ``plan`` tried as rows of a table."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import TokenroomError
from tokenroom.planning.search import Plan
from tokenroom.planning.tuning import Draft
from tokenroom.planning.tuning_words import draft_text
from tokenroom.reports.messages import Language
from tokenroom.reports.plan_json import plan_json

COLUMNS: Final = (
    *("state", "model", "engine", "accelerator", "tensor_parallel_size"),
    *("pipeline_parallel_size", "data_parallel_size", "expert_parallel", "kv_cache_dtype"),
    *("max_num_batched_tokens", "max_num_seqs", "memory_share", "prefix_caching"),
    *("kv_offload_bytes", "max_model_len", "draft"),
    *("prompt_servers", "prompt_tensor_parallel_size", "answer_servers"),
    *("gpus_per_replica", "replicas", "gpus", "usd_per_hour"),
    *("headroom", "mean_ttft_seconds", "mean_tpot_seconds", "ttft_seconds", "tpot_seconds"),
    *("output_tokens_per_second", "limiter", "reason", "text"),
)
"""``ttft_seconds`` and ``tpot_seconds`` are simulated, of the statistic that is promised."""


def write_csv(plan: Plan, file: Path, language: Language) -> None:
    """Write a row for each candidate.

    Raises:
        TokenroomError: The file cannot be written.
    """
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS, extrasaction="ignore", restval="")
            writer.writeheader()
            writer.writerows(_rows(plan, language))
    except OSError as error:
        raise TokenroomError(f"--csv {file} cannot be written: {error.strerror}") from error


def _rows(plan: Plan, language: Language) -> Iterator[dict[str, Any]]:
    answer = plan_json(plan, language)
    statistic = f"{plan.demand.statistic}_seconds"
    for found in answer["plans"]:
        simulated = found["simulated"]
        yield {
            **found,
            **(found["split"] or {}),
            "state": "proposed",
            "draft": _draft(found),
            "ttft_seconds": simulated["ttft"][statistic],
            "tpot_seconds": simulated["tpot"][statistic],
        }
    for state in ("untried", "rejected"):
        for found in answer[state]:
            yield {**found, **(found["split"] or {}), "state": state, "draft": _draft(found)}


def _draft(candidate: dict[str, Any]) -> str:
    """Speculative decoding as ``--draft`` takes it."""
    draft = candidate["draft"]
    return "" if draft is None else draft_text(Draft(**draft))
