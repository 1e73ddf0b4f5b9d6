"""A model in memory: loaded from its files, or built from a configuration with random weights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import transformers

from tokenroom.errors import MeasurementError, shown
from tokenroom.measuring.model_files import ModelFiles, with_layers
from tokenroom.units import format_bytes

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


def device_named(name: str) -> str:
    """``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"`` as PyTorch writes it.

    Raises:
        MeasurementError: There is no such device here.
    """
    if name == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return name
    kind, _, index = name.partition(":")
    if kind != "cuda" or (index and not index.isdecimal()):
        raise MeasurementError(f"--device is {shown(name)}; give auto, cpu, cuda or cuda:1")
    if not torch.cuda.is_available():
        raise MeasurementError(
            f"--device is {name} and PyTorch {torch.__version__} sees no CUDA device here; give "
            f"--device cpu, or install a CUDA build on a machine with a GPU"
        )
    number, count = int(index or 0), torch.cuda.device_count()
    if number >= count:
        raise MeasurementError(
            f"--device is {name} and there are {count}; give at most {count - 1}"
        )
    return f"cuda:{number}"


def config_of(files: ModelFiles, layers: int | None = None) -> Any:
    """The configuration object of transformers.

    Raises:
        MeasurementError: transformers does not know the model, or refuses its configuration.
    """
    data = dict(files.config)
    if layers is not None:
        data = with_layers(data, layers)
    kind = data.pop("model_type", None)
    try:
        with _quiet():
            made = transformers.AutoConfig.for_model(kind, **data)
    except Exception as problem:  # every class checks its own fields with errors of its own
        raise MeasurementError(
            f"transformers {transformers.__version__} does not read the configuration of "
            f"{files.name} (model_type {shown(kind)}): {_first_line(problem)}"
        ) from problem
    made._name_or_path = files.name
    return made


def load(
    files: ModelFiles,
    *,
    device: str,
    dtype: str | None = None,
    attention: str | None = None,
    layers: int | None = None,
    random: bool = False,
    seed: int = 0,
    causal_only: bool = False,
) -> torch.nn.Module:
    """The model, ready to run.

    Args:
        files: Where it is.
        device: As :func:`device_named` gives it.
        dtype: Type of its weights; the configuration's when not given.
        attention: ``attn_implementation``; the model's default when not given.
        layers: Only the first so many, with random weights.
        random: Random weights although there are others.
        seed: Of random weights.
        causal_only: Refuse models that do not predict the next token of one text.

    Raises:
        MeasurementError: It cannot be built, loaded, or has no room.
    """
    config = config_of(files, layers)
    wanted = DTYPES[dtype] if dtype is not None else _stored_dtype(config)
    drawn = random or layers is not None or not files.has_weights
    builder = _builder(config, files.name, causal_only=causal_only)
    options = {} if attention is None else {"attn_implementation": attention}
    _check_room(builder, config, wanted, device, files.name)
    try:
        with _quiet(), torch.device(device):
            if drawn:
                torch.manual_seed(seed)
                model = builder.from_config(config, dtype=wanted, **options)
            else:
                model = builder.from_pretrained(
                    files.folder, config=config, dtype=wanted, local_files_only=True, **options
                )
    except (OSError, ValueError, ImportError, RuntimeError, KeyError, TypeError) as problem:
        raise MeasurementError(
            f"transformers does not load {files.name}: {_first_line(problem)}"
        ) from problem
    if causal_only:
        _check_looks_back_alone(model.config, files.name)
    made: torch.nn.Module = model.to(device).eval()
    return made


def _check_looks_back_alone(config: Any, name: str) -> None:
    """Refuse an encoder such as BERT, whose class with a head for text still sees what comes next.

    transformers makes it causal by ``is_decoder`` alone (models/bert/modeling_bert.py), and warns.
    """
    masked = type(config) in transformers.AutoModelForMaskedLM._model_mapping
    if masked and getattr(config, "is_decoder", None) is False:
        raise MeasurementError(
            f"{name} is of type {shown(config.model_type)} with is_decoder false: each token sees "
            f"those after it, so none is predicted; give a model that writes text"
        )


def is_random(files: ModelFiles, *, layers: int | None, random: bool) -> bool:
    """Whether :func:`load` draws weights at random."""
    return random or layers is not None or not files.has_weights


def _builder(config: Any, name: str, *, causal_only: bool) -> Any:
    kind = type(config)
    if kind in transformers.AutoModelForCausalLM._model_mapping:
        return transformers.AutoModelForCausalLM
    if not causal_only and kind in transformers.AutoModelForSeq2SeqLM._model_mapping:
        return transformers.AutoModelForSeq2SeqLM
    raise MeasurementError(
        f"{name} is of type {shown(config.model_type)}, which transformers has no causal language "
        f"model for; give one that writes text"
    )


def _stored_dtype(config: Any) -> torch.dtype:
    found = getattr(config, "dtype", None)
    if isinstance(found, str):
        found = getattr(torch, found.removeprefix("torch."), None)
    return found if isinstance(found, torch.dtype) else torch.float32


def _check_room(builder: Any, config: Any, dtype: torch.dtype, device: str, name: str) -> None:
    """Refuse a model that the machine cannot hold, before it is tried."""
    with _quiet(), torch.device("meta"):
        try:
            skeleton = builder.from_config(config, dtype=dtype)
        except Exception as problem:  # whatever its class raises for an impossible shape
            raise MeasurementError(
                f"transformers cannot build {name}: {_first_line(problem)}"
            ) from problem
    needed = sum(item.numel() * item.element_size() for item in skeleton.parameters())
    if device.startswith("cuda"):
        room: int | None = torch.cuda.mem_get_info(device)[0]
    else:
        room = _available_bytes()
    if room is not None and needed > room:
        raise MeasurementError(
            f"the weights of {name} take {format_bytes(needed)} and {device} has "
            f"{format_bytes(room)} left; measure its first layers with --layers"
        )


def _available_bytes() -> int | None:
    """Memory of the host that can be had without swapping; None where it is not told."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notes that transformers prints while it builds, and without the network."""
    before = transformers.utils.logging.get_verbosity()
    offline = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.utils.logging.set_verbosity(before)
        transformers.utils.logging.enable_progress_bar()
        if offline is None:
            os.environ.pop("HF_HUB_OFFLINE", None)
        else:
            os.environ["HF_HUB_OFFLINE"] = offline
