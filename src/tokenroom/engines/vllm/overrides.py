"""``--hf-overrides``: the model as its configuration describes it once keys are replaced.

Source: ``get_config`` and ``_maybe_update_auto_config_kwargs``, transformers_utils/config.py, and
``ModelConfig.__post_init__``, config/model.py (0.11.0 to 0.33.0): the keys replace those of the
configuration before anything is read from it, nested objects key by key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import ModelSpec

#: Keys that say how long a sequence may be, which the length rules read by themselves.
_POSITIONS: Final = frozenset(
    {
        *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        *("model_max_length", "max_target_positions", "max_sequence_length", "max_seq_length"),
        *("seq_len", "rope_scaling", "rope_theta", "rope_parameters"),
    }
)


def with_overrides(spec: ModelSpec, overrides: Mapping[str, object]) -> ModelSpec:
    """The model read again with the keys replaced; the same one when none decides its shape.

    Raises:
        ModelError: A key holds what the model cannot have.
    """
    if not overrides or not changes_shape(overrides) or not is_as_read(spec):
        return spec
    again = _read_again(spec, json.dumps(overrides, sort_keys=True, default=str))
    return replace(again, path=spec.path)


def unmodelled_overrides(spec: ModelSpec, overrides: Mapping[str, object]) -> tuple[str, ...]:
    """Keys that were replaced without an effect here.

    All of them for a model that was not read from a configuration or stored in another layout
    since, otherwise those that the description does not depend on.
    """
    if not overrides or not changes_shape(overrides):
        return ()
    if not is_as_read(spec):
        return tuple(key for key in overrides if key not in _POSITIONS)
    return tuple(key for key in overrides if key in spec.extra)


def changes_shape(overrides: Mapping[str, object]) -> bool:
    """Whether a key decides more than the length of a sequence."""
    return any(key not in _POSITIONS for key in _leaves(overrides))


def _leaves(overrides: Mapping[str, object]) -> Iterator[str]:
    for key, value in overrides.items():
        if isinstance(value, Mapping) and key not in _POSITIONS:
            yield from _leaves(value)
        else:
            yield key


@lru_cache(maxsize=64)
def is_as_read(spec: ModelSpec) -> bool:
    """Whether the description is what its configuration says, in the layout it says."""
    if spec.config is None:
        return False
    return read_config(spec.config, spec.name, checked=True).quantization == spec.quantization


@lru_cache(maxsize=64)
def _read_again(spec: ModelSpec, overrides: str) -> ModelSpec:
    assert spec.config is not None
    return read_config(_merged(spec.config, json.loads(overrides)), spec.name)


def _merged(config: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    merged = dict(config)
    for key, value in overrides.items():
        present = merged.get(key)
        if isinstance(value, Mapping) and isinstance(present, Mapping):
            merged[key] = _merged(present, value)
        else:
            merged[key] = value
    return merged
