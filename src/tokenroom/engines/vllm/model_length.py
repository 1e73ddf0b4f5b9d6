"""How long a sequence vLLM lets a model take.

Source: ``_get_and_verify_max_len``, config/model.py 0.11.0 to 0.33.0, and
``derive_max_model_len_and_key``, transformers_utils/model_arch_config_convertor.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.vllm.default_rules import DefaultRules
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.errors import DeploymentError
from tokenroom.models.spec import Attention, ModelSpec

_UNKNOWN_LENGTH: Final = 2048
_NEVER_SCALED: Final = frozenset({"default", "su", "longrope", "llama3"})
_SCALED_ALREADY: Final = _NEVER_SCALED | {"yarn", "deepseek_yarn", "deepseek_llama_scaling"}
_LENGTH_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLength:
    """What the configuration allows.

    Attributes:
        longest: The longest max_model_len the engine accepts, None for no bound.
        default: What it takes when none is set.
        reason: How the default came about.
    """

    longest: int | None
    default: int
    reason: str


_LENGTHS: Final = Remembered[ModelLength]()


def model_length(
    spec: ModelSpec,
    rules: DefaultRules,
    overrides: Mapping[str, object] | None = None,
    *,
    disable_sliding_window: bool = False,
) -> ModelLength:
    """The lengths of a model under the rules of a version.

    Args:
        spec: The model.
        rules: Of the version.
        overrides: ``--hf-overrides``; a nested ``text_config`` counts too.
        disable_sliding_window: Every layer attends within the window alone.
    """
    if overrides:
        return _lengths(spec, rules, _flat(overrides), disable_sliding_window)
    key = (rules.scales_yarn_length, rules.longrope_original_length, disable_sliding_window)
    return _LENGTHS.get(spec, key, lambda: _lengths(spec, rules, {}, disable_sliding_window))


def _lengths(
    spec: ModelSpec,
    rules: DefaultRules,
    overrides: Mapping[str, object],
    disable_sliding_window: bool,
) -> ModelLength:
    positions = spec.max_position_embeddings
    given = [value for key in _LENGTH_KEYS if (value := _count(overrides.get(key))) is not None]
    if given:
        positions = min(given)
    longest = None if positions is None else float(positions)
    reason = "max_position_embeddings of the configuration"
    window = _window(spec)
    if disable_sliding_window and window is not None and (longest is None or window < longest):
        longest, reason = float(window), "the sliding window, since it is disabled"
    if longest is None:
        return ModelLength(
            longest=None, default=_UNKNOWN_LENGTH, reason="the configuration gives no length"
        )
    original: int | None = None
    longrope = False
    if "gemma3" not in spec.model_type:
        factor = 1.0
        for kind, own_factor, own_original in _rotary(spec, overrides):
            original = own_original or original
            longrope = longrope or kind == "longrope"
            scaled = _NEVER_SCALED if rules.scales_yarn_length else _SCALED_ALREADY
            if kind in scaled:
                continue
            factor = own_factor
            if kind == "yarn" and own_original is not None:
                longest = float(own_original)
        if factor != 1.0:
            longest *= factor
            reason = f"the configuration's length times the rope factor {factor:g}"
    default = int(longest)
    if longrope and rules.longrope_original_length and original is not None:
        default, reason = original, "original_max_position_embeddings of a longrope model"
    return ModelLength(longest=int(longest), default=default, reason=reason)


def check_length(max_model_len: int, length: ModelLength, environment: Mapping[str, str]) -> None:
    """Refuse a length beyond the model's, unless VLLM_ALLOW_LONG_MAX_MODEL_LEN allows it.

    Raises:
        DeploymentError: It is longer than the model takes.
    """
    if length.longest is None or max_model_len <= length.longest:
        return
    if environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") not in ("", "0"):
        return
    raise DeploymentError(
        f"max_model_len is {max_model_len}, but the model takes at most {length.longest} tokens "
        f"({length.reason}); give a smaller one or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    )


def _flat(overrides: Mapping[str, object]) -> dict[str, object]:
    flat = dict(overrides)
    for nested in overrides.values():
        if isinstance(nested, Mapping) and any(key in nested for key in _LENGTH_KEYS):
            flat.update({str(key): value for key, value in nested.items()})
    text = overrides.get("text_config")
    if isinstance(text, Mapping):
        flat.update({str(key): value for key, value in text.items()})
    return flat


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rotary(
    spec: ModelSpec, overrides: Mapping[str, object]
) -> list[tuple[str, float, int | None]]:
    """(kind, factor, original positions) of each position table."""
    for key in ("rope_parameters", "rope_scaling"):
        block = overrides.get(key)
        if isinstance(block, Mapping):
            kind = str(block.get("rope_type") or block.get("type") or "default")
            factor = block.get("factor")
            plain = float(factor) if isinstance(factor, int | float) else 1.0
            original = _count(block.get("original_max_position_embeddings"))
            return [(kind, plain, original or spec.max_position_embeddings)]
    return [(table.kind, table.factor, table.original_positions) for table in spec.rotary]


def _window(spec: ModelSpec) -> int | None:
    windows = [
        mixer.window
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
        if isinstance(mixer, Attention) and mixer.window is not None
    ]
    return min(windows) if windows else None
