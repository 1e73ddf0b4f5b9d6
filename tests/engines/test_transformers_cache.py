"""Every cache class keeps what its real tensors show, byte for byte.

The fixture was written by ``scripts/oracle_transformers_cache.py``.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenroom.engines.transformers.caches import (
    Backend,
    CacheKind,
    CacheSettings,
    layer_bytes,
)
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import DTYPE_BITS

FIXTURE = Path(__file__).parent.parent / "fixtures" / "engines" / "transformers_cache.json"
ROWS: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
CASES = sorted(name for name in ROWS if not name.startswith("_"))
BATCH, PROMPT, STEPS = ROWS["_batch"], ROWS["_prompt"], ROWS["_steps"]


def settings_of(row: dict[str, Any]) -> CacheSettings:
    options = row["options"]
    backend = Backend(options.get("backend", "quanto"))
    return CacheSettings(
        kind=CacheKind(row["cache"]),
        backend=backend,
        nbits=options.get("nbits", 8 if backend is Backend.FP8 else 4),
        group_size=options.get("q_group_size", 64),
        residual_length=options.get("residual_length", 128),
        axis=options.get("axis_key", 0),
    )


def tensor_bytes(tensor: dict[str, Any]) -> int:
    count = 1
    for size in tensor["shape"]:
        count *= size
    return count * DTYPE_BITS[tensor["dtype"]] // 8


def recorded(tensors: list[dict[str, Any]], *, scalars: bool) -> int:
    """Bytes of the storages; counters and windows, scalars that are no scale, left out."""
    return sum(
        tensor["storage"]
        for tensor in tensors
        if tensor["shape"] or (scalars and tensor_bytes(tensor))
    )


@pytest.mark.parametrize("name", CASES)
def test_real_tensors(name: str) -> None:
    row = ROWS[name]
    spec = read_config(row["config"], name)
    settings = settings_of(row)
    fp8 = settings.kind is CacheKind.QUANTIZED and settings.backend is Backend.FP8
    length = ROWS["_max_cache_len"] if settings.kind.is_static else PROMPT + STEPS
    for layer, prompt_row, last_row in zip(
        spec.layers, row["after_prompt"], row["after_steps"], strict=True
    ):
        got = layer_bytes(layer, settings, BATCH, length, PROMPT)
        assert got.kept == recorded(last_row, scalars=fp8)
        assert got.after_prompt == recorded(prompt_row, scalars=fp8)


def test_every_class_is_recorded() -> None:
    kinds = {row["cache"] for name, row in ROWS.items() if not name.startswith("_")}
    assert kinds == {"dynamic", "static", "quantized"}
