"""Which model is to be measured: files of a folder, or a configuration alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import MeasurementError, shown
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec

_WEIGHTS: Final = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model as it is found.

    Attributes:
        name: What to call it.
        config: Its configuration.
        folder: Where its files are, None for a configuration alone.
        has_weights: The folder holds weights.
    """

    name: str
    config: Mapping[str, Any]
    folder: Path | None
    has_weights: bool


def find_model_files(name: str, find_model: Callable[[str], ModelSpec] = load_model) -> ModelFiles:
    """The model that is meant by a folder, a config.json or a name of the catalogue.

    Args:
        name: A path, or a name that ``find_model`` knows.
        find_model: Looks up names.

    Raises:
        MeasurementError: The path holds no configuration.
        ModelError: There is no such name.
    """
    path = Path(os.path.expanduser(name))
    if not path.exists():
        if name.startswith((".", "/", "~")):
            raise MeasurementError(
                f"there is no {name}; give a folder with a config.json, or a model's name"
            )
        spec = find_model(name)
        if not spec.config:
            raise MeasurementError(
                f"the configuration of {spec.name} is not known, only its figures; give a folder "
                f"with its config.json"
            )
        return ModelFiles(name=spec.name, config=dict(spec.config), folder=None, has_weights=False)
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise MeasurementError(f"{path} holds no config.json; give the folder of a model")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise MeasurementError(f"{file} is no readable config.json; give a model's") from problem
    if not isinstance(data, dict):
        raise MeasurementError(f"{file} holds {shown(data)}, not an object; give a config.json")
    weights = path.is_dir() and any(True for form in _WEIGHTS for _ in path.glob(form))
    called = path.resolve().name if path.is_dir() else path.resolve().parent.name
    return ModelFiles(
        name=called,
        config=data,
        folder=path if path.is_dir() else None,
        has_weights=weights,
    )


def with_layers(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The configuration of the first so many layers; lists with an entry a layer are cut too.

    Raises:
        MeasurementError: The model has fewer.
    """
    data = dict(config)
    inner = data.get("text_config")
    if isinstance(inner, Mapping):
        data["text_config"] = with_layers(inner, layers)
        return data
    names = [
        name
        for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
        if isinstance(data.get(name), int)
    ]
    if not names:
        raise MeasurementError("the configuration does not say how many layers there are")
    whole = data[names[0]]
    if layers > whole:
        raise MeasurementError(f"--layers is {layers} and the model has {whole}; give at most that")
    for name in names:
        data[name] = layers
    for name, value in data.items():
        if isinstance(value, list) and len(value) == whole and whole > 1:
            data[name] = value[:layers]
    return data
