"""Cache formulas against the tensors that tiny random models really keep.

The fixture was written by ``scripts/oracle_cache.py``. Transformers differs from engines in ways
that are stated here, once each, and nowhere else:

* a causal convolution keeps as many columns as it has taps; engines keep one fewer;
* a sliding or chunked window keeps one token fewer than the window between steps;
* recurrent states are float32 whatever the model's type, but for lightning attention's;
* an indexer's keys are kept in the model's own type; engines keep FP8 with scales.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from tokenroom.memory.kv_cache import indexer_bytes_per_token, mixer_bytes, recurrent_state
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import (
    DTYPE_BITS,
    Attention,
    LatentAttention,
    Layer,
    ModelSpec,
    Recurrence,
    Recurrent,
)

_FIXTURE = Path(__file__).parent.parent / "fixtures" / "memory" / "cache_tensors.json"
_ROWS: dict[str, Any] = json.loads(_FIXTURE.read_text(encoding="utf-8"))
_CASES = sorted(name for name in _ROWS if not name.startswith("_"))
_TOKENS: int = _ROWS["_tokens"]
_ENCODER_TOKENS: int = _ROWS["_encoder_tokens"]

_KINDS = {
    "chunked",
    "cross_attention",
    "gated_delta",
    "grouped_query",
    "kimi_delta",
    "latent",
    "lightning",
    "mamba1",
    "mamba2",
    "multi_head",
    "multi_query",
    "parallel_mamba2",
    "shared_kv",
    "short_convolution",
    "sliding_window",
    "sparse_indexer",
}


def _bytes(tensor: dict[str, Any]) -> int:
    return prod(tensor["shape"]) * DTYPE_BITS[tensor["dtype"]] // 8


def _spec(name: str) -> ModelSpec:
    return read_config({**_ROWS[name]["config"], "dtype": "bfloat16"}, name)


def _tensors(name: str) -> list[dict[str, Any]]:
    """One dictionary of tensors a layer, of own and cross attention together."""
    layers: list[dict[str, Any]] = _ROWS[name]["self"]
    crossing = _ROWS[name].get("cross", [{}] * len(layers))
    return [
        {**own, **{f"cross.{key}": tensor for key, tensor in cross.items()}}
        for own, cross in zip(layers, crossing, strict=True)
    ]


def _expected(layer: Layer, name: str) -> dict[str, int]:
    """Bytes of every tensor as transformers keeps it, from our formulas."""
    expected: dict[str, int] = {}
    for mixer in layer.mixers:
        if isinstance(mixer, Recurrent):
            lightning = mixer.kind is Recurrence.LIGHTNING
            state = recurrent_state(
                mixer,
                convolution_dtype="bfloat16",
                recurrent_dtype="bfloat16" if lightning else "float32",
            )
            if state.convolution is not None:
                columns, channels = state.convolution
                expected["conv_states.0"] = (columns + 1) * channels * 2
            if state.recurrent is not None:
                width = 2 if lightning else 4
                expected["recurrent_states.0"] = prod(state.recurrent) * width
            continue
        kept = mixer_bytes(mixer, _TOKENS, "bfloat16", encoder_tokens=_ENCODER_TOKENS)
        if isinstance(mixer, LatentAttention):
            if mixer.indexer is not None:
                kept -= _TOKENS * indexer_bytes_per_token(mixer.indexer)
                expected["indexer_keys"] = _TOKENS * mixer.indexer.head_dim * 2
            width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            expected["keys"] = kept * mixer.kv_lora_rank // width
            expected["values"] = kept * mixer.qk_rope_head_dim // width
            continue
        assert isinstance(mixer, Attention)
        if mixer.shares_kv_of is not None:
            assert kept == 0, name
            continue
        bound = mixer.window or mixer.chunk
        if bound is not None:
            kept = kept * (bound - 1) // bound
        width = mixer.head_dim + mixer.value_head_dim
        prefix = "cross." if mixer.cross else ""
        expected[f"{prefix}keys"] = kept * mixer.head_dim // width
        expected[f"{prefix}values"] = kept * mixer.value_head_dim // width
    return expected


def test_every_kind_is_recorded() -> None:
    assert set(_CASES) >= _KINDS


@pytest.mark.parametrize("name", _CASES)
def test_bytes_of_every_tensor(name: str) -> None:
    spec = _spec(name)
    layers = _tensors(name)
    assert len(layers) <= spec.num_layers
    for index, layer in enumerate(spec.layers):
        real = layers[index] if index < len(layers) else {}
        assert {key: _bytes(tensor) for key, tensor in real.items()} == _expected(layer, name), (
            index
        )


@pytest.mark.parametrize("name", [name for name in _CASES if "sliding" in name or "shared" in name])
def test_kinds_of_layers_are_told_apart(name: str) -> None:
    windows = [mixer.window for layer in _spec(name).layers for mixer in layer.mixers]
    assert windows[:2] == [8, None]
