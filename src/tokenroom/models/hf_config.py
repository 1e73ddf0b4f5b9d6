"""Reading a Hugging Face ``config.json`` (and ``hf_quant_config.json``) into a :class:`ModelSpec`.

The parameter count of the result equals, to the parameter, what transformers builds from the same
file. Quantisation, when the file asks for it, is applied by :mod:`tokenroom.models.quantization`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tokenroom.errors import ModelError, UnknownArchitectureError, shown
from tokenroom.files import read_bounded_text
from tokenroom.models.architectures import builder_for, module_of
from tokenroom.models.architectures.assembly import DEFAULT_DTYPE, stored_dtype
from tokenroom.models.config import Config
from tokenroom.models.consistency import check_layer_types, check_rotary
from tokenroom.models.rotary import text_configuration, with_rotary
from tokenroom.models.spec import ModelSpec

MAX_FILE_BYTES: Final = 8 * 2**20
"""Largest config.json read; real ones stay far below a mebibyte."""

_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")

#: Fields that decide how large the layers are: whoever leaves one out should hear of it.
_SHAPE: Final = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)

# What the file says about training, generation and software, not about the layers; rotary
# positions are read by tokenroom.models.rotary.
_IRRELEVANT: Final = (
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_implementation",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "embd_pdrop",
    "eos_token_id",
    "hidden_act",
    "hidden_dropout",
    "hidden_dropout_prob",
    "initializer_factor",
    "initializer_range",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "partial_rotary_factor",
    "pretraining_tp",
    "resid_pdrop",
    "return_dict",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "tokenizer_class",
    "transformers_version",
    "use_cache",
)


def read_config(
    data: Mapping[str, object],
    name: str,
    *,
    assume_architecture: str | None = None,
    checked: bool = False,
) -> ModelSpec:
    """The model that a parsed config.json describes.

    Args:
        data: The parsed file.
        name: What to call the model.
        assume_architecture: Model type to read it as when its own type is not known; what was
            assumed is said in ``assumptions``.
        checked: The result is known to be the model's, so that fields taken from the class are
            not worth a word.

    Raises:
        UnknownArchitectureError: The model type has no builder and none was assumed.
        QuantizationError: The quantisation block cannot be understood.
        ModelError: A field is missing or holds what it cannot.
    """
    if not isinstance(data, Mapping):
        raise ModelError(f"the model configuration of {name} must be a JSON object")
    architectures = _architectures(data)
    config, assumptions = _typed(data, architectures, assume_architecture)
    language_model = text_configuration(data)
    rotary_assumptions = check_rotary(language_model)
    check_layer_types(language_model)
    spec = builder_for(config.model_type, architectures)(config, name)
    dtype, dtype_assumptions = _dtype(config, spec)
    config.mark_read(*_IRRELEVANT, "quantization_config", "compression_config")
    spec = replace(
        spec,
        architecture=spec.architecture or (architectures[0] if architectures else ""),
        dtype=dtype,
        source=spec.source or "config.json",
        assumptions=(
            *spec.assumptions,
            *assumptions,
            *rotary_assumptions,
            *(() if checked else _shape_assumptions(config)),
            *dtype_assumptions,
        ),
        extra=config.unread(),
        config=data,
    )
    spec = with_rotary(spec, data)
    quantization_config = _quantization_config(data)
    if quantization_config is not None:
        from tokenroom.models.quantization import apply_quantization

        spec = replace(
            apply_quantization(spec, quantization_config),
            quantization_named=_names_method(quantization_config),
        )
    return spec


def read_config_file(path: str | Path, *, assume_architecture: str | None = None) -> ModelSpec:
    """The model that a config.json, or a folder with one, describes.

    In a folder ``hf_quant_config.json`` (ModelOpt) stands in for a missing quantisation block.

    Raises:
        ModelError: The file is missing, too large, not JSON or not a model's; see
            :func:`read_config`.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    file = path / "config.json" if path.is_dir() else path
    data = dict(_load(file))
    block: Mapping[str, object] | None = None
    if path.is_dir() and _quantization_config(data) is None:
        quant_file = folder / "hf_quant_config.json"
        if quant_file.is_file():
            block = _load(quant_file)
            data["quantization_config"] = {"quant_method": "modelopt", **block}
    named = data.get("_name_or_path")
    name = named if isinstance(named, str) and named else (folder.resolve().name or str(file))
    spec = read_config(data, name, assume_architecture=assume_architecture)
    if block is not None:
        spec = replace(spec, quantization_named=_names_method(block))
    return replace(spec, source=str(file))


def _load(file: Path) -> Mapping[str, object]:
    """The JSON object in ``file``."""
    if not file.exists():
        raise ModelError(f"there is no {file}; give a config.json or a folder that holds one")
    text = read_bounded_text(file, MAX_FILE_BYTES, what=str(file), error=ModelError)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ModelError(f"{file} is not a JSON file: {reason}") from None
    if not isinstance(data, dict):
        raise ModelError(f"{file} must hold a JSON object, it holds a {type(data).__name__}")
    return data


def _architectures(data: Mapping[str, object]) -> tuple[str, ...]:
    value = data.get("architectures")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ModelError("architectures in the model configuration must be a list of class names")
    return tuple(value)


def _typed(
    data: Mapping[str, object], architectures: tuple[str, ...], assume_architecture: str | None
) -> tuple[Config, tuple[str, ...]]:
    """The configuration with the model type to read it as, and what that assumes."""
    model_type = data.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise ModelError("model_type in the model configuration must be a string such as 'llama'")
    if model_type is None and assume_architecture is None:
        raise ModelError(
            "the model configuration has no model_type; add one, such as 'llama', or say which "
            "with --assume-architecture"
        )
    try:
        builder_for(model_type or "", architectures)
    except UnknownArchitectureError:
        if assume_architecture is None:
            _suggest_nested(data, model_type or "")
            raise
        builder_for(assume_architecture)
    else:
        return Config(data, model_type or ""), ()
    named = (
        f"model type {shown(model_type)}" if model_type else "a configuration without model_type"
    )
    for key in _NESTED:
        nested = data.get(key)
        if isinstance(nested, Mapping):
            sentence = (
                f"{named} is not known: {key} was read as {assume_architecture}, and what stands "
                "beside it (vision, audio) is not counted"
            )
            return Config(nested, assume_architecture, key), (sentence,)
    sentence = f"{named} is not known and was read as {assume_architecture}"
    return Config(data, assume_architecture), (sentence,)


def _suggest_nested(data: Mapping[str, object], model_type: str) -> None:
    """Raise a better error when an unknown wrapper holds a text model of a known type."""
    for key in _NESTED:
        nested = data.get(key)
        inner = nested.get("model_type") if isinstance(nested, Mapping) else None
        if isinstance(inner, str) and module_of(inner) is not None:
            raise UnknownArchitectureError(
                f"model type {shown(model_type)} is not known, but its {key} is of the known type "
                f"{shown(inner)}: read that alone with --assume-architecture {inner} (what stands "
                "beside it, such as vision or audio, is then not counted)"
            )


def _dtype(config: Config, spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
    """The stored type: the outer configuration's, else the text model's, else assumed."""
    own = stored_dtype(config)
    if own is not None:
        return own, ()
    for key in _NESTED:
        nested = config.mapping(key)
        if nested is not None:
            inner = stored_dtype(Config(nested, spec.model_type, config.field(key)))
            if inner is not None:
                return inner, ()
    sentence = f"the configuration names no dtype; {DEFAULT_DTYPE} was assumed"
    return DEFAULT_DTYPE, (sentence,)


def _shape_assumptions(config: Config) -> tuple[str, ...]:
    """One sentence on the shape fields that were taken from the class, if any was."""
    taken: dict[str, object] = {}
    model_type = config.model_type
    for place in _text_configurations(config):
        for key in _SHAPE:
            if key in place.defaulted():
                taken[place.field(key)] = place.defaulted()[key]
                model_type = place.model_type
    if not taken:
        return ()
    verb, noun = ("is", "default") if len(taken) == 1 else ("are", "defaults")
    values = _listed([str(value) for value in taken.values()])
    return (
        f"{_listed(list(taken))} {verb} not in the configuration; {values} taken ({noun} of "
        f"{model_type})",
    )


def _text_configurations(config: Config) -> list[Config]:
    """The configuration and those in it that describe the language model."""
    found = [config]
    for nested in config.nested():
        if nested.path.rsplit(".", 1)[-1] in _NESTED:
            found += _text_configurations(nested)
    return found


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _names_method(block: Mapping[str, object]) -> bool:
    """Whether vLLM would recognise the block: ``_normalize_quantization_config``, 0.32.

    By ``quant_method``; ModelOpt's also by the producer's name or the older nested form, with the
    algorithm under ``quantization``.
    """
    if block.get("quant_method"):
        return True
    producer, nested = block.get("producer"), block.get("quantization")
    if not isinstance(nested, Mapping):
        return False
    by_producer = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    return (by_producer or "modelopt_quant_config" in nested) and bool(nested.get("quant_algo"))


def _quantization_config(data: Mapping[str, object]) -> Mapping[str, object] | None:
    """The quantisation block, looked for where vLLM looks (config/model.py, 0.33)."""
    places = [data, *(data[key] for key in _NESTED if isinstance(data.get(key), Mapping))]
    for place in places:
        for key in ("quantization_config", "compression_config"):
            block = place.get(key) if isinstance(place, Mapping) else None
            if block is None:
                continue
            if not isinstance(block, Mapping):
                raise ModelError(
                    f"{key} in the model configuration must be an object or be left out"
                )
            if block:
                return block
    return None
