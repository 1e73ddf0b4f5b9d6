"""Peaks of real forward passes, to the byte.

The fixture was written by ``scripts/oracle_transformers_activation.py``.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenroom.engines.transformers.activation import (
    AttentionKernel,
    Step,
    step_moments,
    step_terms,
)
from tokenroom.engines.transformers.caches import CacheSettings, cache_bytes, layer_bytes
from tokenroom.memory.activations import Terms, terms_bytes
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import ModelSpec

FIXTURE = Path(__file__).parent.parent / "fixtures" / "engines" / "transformers_activation.json"
DOCUMENT: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
ROWS = DOCUMENT["rows"]
CACHE = CacheSettings()
NEAR = {"gemma3": 0.02, "olmo2": 0.09, "mixtral": 0.08, "qwen3_moe": 0.03}
"""Models whose layers are not counted to the last tensor, and how far off they are."""
EXACT = [row for row in ROWS if row["model"] not in NEAR]


def name_of(row: dict[str, Any]) -> str:
    shape = f"{row['batch']}x{row['tokens']}"
    return f"{row['model']}-{row['attention']}-{shape}-keep{row['logits_to_keep']}"


def spec_of(row: dict[str, Any]) -> ModelSpec:
    return read_config(DOCUMENT["configs"][row["model"]], row["model"])


def step_of(row: dict[str, Any], queries: int, keys: int, logits: int) -> Step:
    return Step(
        batch=row["batch"],
        queries=queries,
        keys=keys,
        kernel=AttentionKernel(row["attention"]),
        dtype="bfloat16",
        logits=logits,
        samples=False,
    )


def prefill_of(row: dict[str, Any]) -> int:
    spec, batch, tokens = spec_of(row), row["batch"], row["tokens"]
    step = step_of(row, tokens, tokens, row["logits_to_keep"] or tokens)
    cache = sum(
        layer_bytes(layer, CACHE, batch, tokens, tokens).after_prompt for layer in spec.layers
    )
    return terms_bytes(step_terms(spec, step, CACHE)) + cache


@pytest.mark.parametrize("row", EXACT, ids=name_of)
def test_prefill(row: dict[str, Any]) -> None:
    assert prefill_of(row) == row["prefill"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["model"] in NEAR], ids=name_of)
def test_prefill_of_other_layers(row: dict[str, Any]) -> None:
    assert prefill_of(row) == pytest.approx(row["prefill"], rel=NEAR[row["model"]])


@pytest.mark.parametrize("row", EXACT, ids=name_of)
def test_decode(row: dict[str, Any]) -> None:
    """The record knows only what the step itself created, so old tensors of the cache are not."""
    spec, keys = spec_of(row), row["tokens"] + 1
    own = layer_bytes(spec.layers[0], CACHE, row["batch"], keys, row["tokens"]).kept

    def created(moment: Terms) -> int:
        early = any(name == "cache_to_come" for name, _ in moment)
        sizes = [size for name, size in moment if name not in ("old_cache", "cache_to_come")]
        return sum(sizes) - (own if early else 0)

    step = step_of(row, 1, keys, 1)
    peak = max(created(moment) for moment in step_moments(spec, step, CACHE))
    cache = cache_bytes(spec.layers, CACHE, row["batch"], keys, row["tokens"])
    assert peak + cache == row["decode"]


def test_scores_are_what_eager_attention_costs() -> None:
    spec = spec_of(ROWS[0])
    sizes = {}
    for kernel in AttentionKernel:
        step = Step(batch=1, queries=2048, keys=2048, kernel=kernel, dtype="bfloat16")
        sizes[kernel] = terms_bytes(step_terms(spec, step, CACHE))
    heads = spec.layers[0].mixers[0].num_heads  # type: ignore[union-attr]
    assert sizes[AttentionKernel.EAGER] > heads * 2048**2 * 10
    assert sizes[AttentionKernel.SDPA] == sizes[AttentionKernel.FLASH]
