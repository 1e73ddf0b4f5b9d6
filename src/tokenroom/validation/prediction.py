"""A row predicted from its flags: the fit that answers it, or the reason there is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from tokenroom.engines.registry import chosen_start, command_parser, engine_names
from tokenroom.errors import DeploymentError, RowError, TokenroomError, shown
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import Catalogue, custom_accelerator, load_catalogue
from tokenroom.models.catalogue import entry
from tokenroom.models.hf_config import read_config
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB
from tokenroom.validation.commands import (
    command_words,
    engine_version,
    extra_settings,
    has_command,
)
from tokenroom.validation.explanations import known_configurations, known_versions
from tokenroom.validation.figures import numeric
from tokenroom.validation.models import FoundModel, find_model
from tokenroom.validation.occupied import occupied_bytes
from tokenroom.validation.rows import UNNAMED, Row

ModelLoader = Callable[[str], ModelSpec]

#: Settings whose absence from the engine changes nothing about its memory.
_HARMLESS_FLAGS: Final = frozenset({"--trust-remote-code", "--swap-space", "--load-format"})

#: Fields of settings that no argument of the engine stands for.
_NO_SETTINGS: Final = frozenset(
    {"version", "usage", "environment", "unknown_flags", "ignored_flags"}
)

#: Engines whose checkpoints are converted before the start, to the layout that ``weights`` names.
_CONVERTING: Final = frozenset({"tensorrt-llm"})

_DIGIT: Final = 0.0051
"""Half of the last digit of a size printed with two decimals, and rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What tokenroom says of a row.

    Attributes:
        row: The row.
        result: The fit; None when there is none.
        reason: Why there is none; empty otherwise.
        cache_only: The weights are another copy's: only figures of the cache alone hold.
        note: What is missing, empty when nothing is.
        refused: The engine would refuse the settings, for the reason given.
        taken: Settings that the row's flags add to its command, with their values.
        overruled: Settings that both state: name, the command's value, the flags' value.
        unknown: Flags beside or in the command that the engine does not have, passed over.
    """

    row: Row
    result: FitResult | None
    reason: str = ""
    cache_only: bool = False
    note: str = ""
    refused: bool = False
    taken: Mapping[str, Any] = field(default_factory=dict)
    overruled: tuple[tuple[str, Any, Any], ...] = ()
    unknown: tuple[str, ...] = ()


class Predictor:
    """Predicts rows; models and accelerators looked up once are kept, failures too."""

    def __init__(
        self,
        *,
        catalogue: Catalogue | None = None,
        load: ModelLoader = load_model,
        gpu: Accelerator | None = None,
    ) -> None:
        """Args: ``gpu`` replaces what rows name; ``load`` finds models by name."""
        self._catalogue = catalogue if catalogue is not None else load_catalogue()
        self._load = load
        self._gpu = gpu
        self._models: dict[tuple[str, str], FoundModel | TokenroomError] = {}

    def predict(self, row: Row) -> Prediction:
        """The fit that answers a row, or the sentence that says why there is none."""
        try:
            return self._fit(row)
        except TokenroomError as error:
            return Prediction(
                row=row,
                result=None,
                reason=str(error),
                refused=isinstance(error, DeploymentError),
            )

    def _fit(self, row: Row) -> Prediction:
        if row.engine == UNNAMED:
            raise RowError("the row names no engine")
        if row.engine not in engine_names() or not has_command(row.engine):
            raise RowError(f"engine {row.engine} is not known; known are {_listed()}")
        if row.model is None:
            raise RowError("the row or log names no model; for a log give it with --model")
        version = engine_version(row) or known_versions().get(row.id)
        accelerator = self.accelerator_of(row)
        found = self.model_of(row.model, row.engine)
        spec = found.spec
        if changed := known_configurations().get(row.id):
            spec = read_config({**entry(row.model).config, **changed}, spec.name)
        if row.engine in _CONVERTING and (layout := row.flags.get("weights")) is not None:
            spec = what_if(spec, str(layout))
        if not found.cache_type_known and "kv_cache_dtype" not in row.flags:
            raise RowError(f"the checkpoint of {row.model} may ask for another type of cache")
        quantized = spec.quantization is not None or not found.weights_known
        command: str | Sequence[str]
        if row.command is not None:
            _, command = chosen_start(row.command, {}, engine=row.engine)
        else:
            command = command_words(row, quantized=quantized)
        parsed = command_parser(row.engine)(command, environment={}, version=version)
        off = {  # not a flag of versions in which it is off unless asked for
            f"--no-{name.replace('_', '-')}" for name, value in row.flags.items() if value is False
        }
        unknown = [
            flag
            for flag in getattr(parsed.settings, "unknown_flags", ())
            if flag not in _HARMLESS_FLAGS and flag not in off
        ]
        if unknown and row.command is None:
            raise RowError(next(iter(parsed.notes), f"the engine has no flag {unknown[0]}"))
        extra = {} if row.command is not None else extra_settings(row)
        settings = parsed.settings
        taken: dict[str, Any] = {}
        overruled: tuple[tuple[str, Any, Any], ...] = ()
        if row.command is not None and row.flags:
            settings, taken, overruled, beside = _with_flags(settings, row, version, quantized)
            unknown += (flag for flag in beside if flag not in _HARMLESS_FLAGS | off)

        def fitted(used_bytes: int = 0) -> FitResult:
            return fit(
                spec,
                accelerator,
                gpus=row.gpus,
                engine=row.engine if version is None else f"{row.engine}@{version}",
                settings=settings,
                used_bytes=used_bytes,
                notes=parsed.notes,
                find_model=self._load,
                **extra,
            )

        result = fitted()
        if found.weights_known and (used := occupied_bytes(row, result)):
            result = fitted(used)
        return Prediction(
            row=row,
            result=result,
            cache_only=not found.weights_known,
            note=found.note,
            taken=taken,
            overruled=overruled,
            unknown=tuple(dict.fromkeys(unknown)),
        )

    def model_of(self, name: str, engine: str) -> FoundModel:
        """The model of that name, looked up once.

        Raises:
            TokenroomError: It is not known.
        """
        key = (name, engine)
        if key not in self._models:
            try:
                self._models[key] = find_model(name, engine, self._load)
            except TokenroomError as error:
                self._models[key] = error
        found = self._models[key]
        if isinstance(found, TokenroomError):
            raise found
        return found

    def accelerator_of(self, row: Row) -> Accelerator:
        """The accelerator a row names; where it names none for sure, one of the printed memory.

        Raises:
            TokenroomError: It names none that is known.
        """
        if self._gpu is not None:
            return self._gpu
        total = numeric(row.reported.get("total_gpu_gib"))
        if row.gpu is None or "gpu" in row.inferred:
            if total is not None and total >= 1:
                likely = by_memory(self._catalogue, total)
                return likely[0] if likely else custom_accelerator(round(total * GIB))
            if row.gpu is None:
                raise RowError("the row or log names no GPU; for a log give it with --gpu")
        if re.search(r"\w \+ \w", row.gpu):
            raise RowError(f"gpu is {shown(row.gpu)}; GPUs of different kinds are not predicted")
        return self._catalogue.find(row.gpu)


def _with_flags(
    settings: Any, row: Row, version: str | None, quantized: bool
) -> tuple[Any, dict[str, Any], tuple[tuple[str, Any, Any], ...], tuple[str, ...]]:
    """A command's settings with those that the row's flags add to them.

    Returns:
        The settings, what was added, what both state differently, where the command's counts, and
        flags that the engine does not have.
    """
    flags = dict(row.flags)
    if getattr(settings, "quantization", None) is not None:
        flags.pop("quantization", None)  # the command's counts, whatever the files say
    alone = replace(row, command=None, gpus=None, inferred=(), flags=flags)
    stated = command_parser(row.engine)(
        command_words(alone, quantized=quantized), environment={}, version=version
    ).settings
    stated = replace(stated, **extra_settings(alone))
    added: dict[str, Any] = {}
    overruled: list[tuple[str, Any, Any]] = []
    empty = type(settings)()
    for part in fields(settings):
        own, other = getattr(settings, part.name), getattr(stated, part.name)
        unset = getattr(empty, part.name)
        if part.name in _NO_SETTINGS or other == unset or own == other:
            continue
        if own == unset:
            added[part.name] = other
        else:
            overruled.append((part.name, own, other))
    unknown = tuple(getattr(stated, "unknown_flags", ()))
    return replace(settings, **added), added, tuple(overruled), unknown


def by_memory(catalogue: Catalogue, total_gib: float) -> Sequence[Accelerator]:
    """Accelerators whose memory is printed as that, in the order of the catalogue."""
    return [item for item in catalogue if abs(item.memory_bytes / GIB - total_gib) < _DIGIT]


def _listed() -> str:
    return ", ".join(engine_names())
