"""Whether a configuration's rotary settings and list of layers can be meant.

Builders read what decides their shapes; what is checked here would otherwise change an answer
without a word: a scaling of an unknown kind, a factor below 1, types that no layer has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tokenroom.errors import ModelError, shown
from tokenroom.models.config import MAX_INTEGER

#: ``ALLOWED_LAYER_TYPES`` and their older names, transformers 5.24 ``configuration_utils.py``;
#: ``attention``... to ``-`` are spellings of remote code.
_LAYER_TYPES: Final = frozenset(
    {
        *("full_attention", "sliding_attention", "chunked_attention", "window_attention"),
        *("indexed_attention", "compressed_sparse_attention", "heavily_compressed_attention"),
        *("minimax_m3_sparse", "conv", "moe", "hybrid", "hybrid_sliding", "linear_attention"),
        *("reference_sliding_attention", "sparse", "dense", "mamba", "attention"),
        *("deepseek_sparse_attention", "qwen_sparse_attention"),
    }
)

#: ``_compute_..._parameters`` of transformers 5.24 ``modeling_rope_utils.py`` and ``get_rope`` of
#: vLLM 0.33 ``rotary_embedding/__init__.py``.
_ROPE_TYPES: Final = frozenset(
    {
        *("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "mllama4", "ntk"),
        *("proportional", "mrope", "bailing_mrope", "openpangu", "deepseek_yarn", "deepseek_llama"),
    }
)

_LARGEST_FACTOR: Final = 1_000_000
_PREDICTED: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


def check_rotary(text: Mapping[str, object]) -> tuple[str, ...]:
    """Check the rotary settings of a language model's configuration.

    Returns:
        Sentences on what is unknown and was taken as unscaled.

    Raises:
        ModelError: One holds what no rotary embedding can have.
    """
    said: list[str] = []
    for key in ("rope_parameters", "rope_scaling"):
        value = text.get(key)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise _refused(key, value, "an object with a rope_type, or null")
        for name, block in _blocks(key, value):
            said += _check_block(name, block)
    for key in ("partial_rotary_factor", "rotary_pct"):
        _check_number(key, text.get(key), 0.0, 1.0)
    for key in ("rotary_dim", "original_max_position_embeddings"):
        _check_number(key, text.get(key), 0.0, MAX_INTEGER)
    return tuple(said)


def _blocks(key: str, value: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The settings, and those of each kind of layer inside."""
    yield key, value
    for name, block in value.items():
        if isinstance(block, Mapping):
            yield f"{key}.{name}", block


def _check_block(name: str, block: Mapping[str, object]) -> Iterator[str]:
    _check_number(f"{name}.factor", block.get("factor"), 1e-3, _LARGEST_FACTOR)
    _check_number(f"{name}.partial_rotary_factor", block.get("partial_rotary_factor"), 0.0, 1.0)
    original = block.get("original_max_position_embeddings")
    _check_number(f"{name}.original_max_position_embeddings", original, 1, MAX_INTEGER)
    for key in ("rope_type", "type"):
        kind = block.get(key)
        if kind is None:
            continue
        if not isinstance(kind, str):
            raise _refused(f"{name}.{key}", kind, "the name of a scaling, such as 'yarn'")
        if kind not in _ROPE_TYPES:
            yield (
                f"{name} names the type {shown(kind)}, which is not known; its position table was "
                f"taken as an unscaled one"
            )
        return


def _check_number(key: str, value: object, least: float, largest: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(key, value, "a number")
    if not least <= value <= largest:  # nan, too, fails this
        raise _refused(key, value, f"a number from {least:g} to {largest:g}")


def check_layer_types(text: Mapping[str, object]) -> None:
    """Check the list of layer types of a language model's configuration.

    A longer list than the model has layers may name its multi-token-prediction layers, too.

    Raises:
        ModelError: It names a type that is not known, or not one for each layer.
    """
    types = text.get("layer_types")
    if types is None:
        return
    if not isinstance(types, list) or not all(isinstance(kind, str) for kind in types):
        raise _refused("layer_types", types, "a list of strings")
    unknown = next((kind for kind in types if kind not in _LAYER_TYPES), None)
    if unknown is not None:
        raise ModelError(
            f"layer_types in the model configuration names {shown(unknown)}; a layer may be "
            f"{', '.join(sorted(_LAYER_TYPES))}"
        )
    count = text.get("num_hidden_layers")
    if not isinstance(count, int):
        return
    predicted = max((_whole(text.get(key)) for key in _PREDICTED), default=0)
    if not count <= len(types) <= count + predicted:
        raise ModelError(
            f"layer_types in the model configuration names {len(types)} layers, but "
            f"num_hidden_layers is {count}; give one type for each layer"
        )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _refused(key: str, value: object, wanted: str) -> ModelError:
    return ModelError(f"{key} in the model configuration is {shown(value)}; it must hold {wanted}")
