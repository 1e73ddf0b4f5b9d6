"""A row predicted from its flags: the fit that answers it, or the reason there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.registry import command_parser, engine_names
from tokenroom.errors import RowError, TokenroomError
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import Catalogue, custom_accelerator, load_catalogue
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB
from tokenroom.validation.commands import command_words, engine_version, has_command
from tokenroom.validation.rows import Row

ModelLoader = Callable[[str], ModelSpec]

#: Settings whose absence from the engine changes nothing about its memory.
_HARMLESS_FLAGS: Final = frozenset({"--trust-remote-code", "--swap-space", "--load-format"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What tokenroom says of a row.

    Attributes:
        row: The row.
        result: The fit; None when there is none.
        reason: Why there is none; empty otherwise.
    """

    row: Row
    result: FitResult | None
    reason: str = ""


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
        self._models: dict[str, ModelSpec | TokenroomError] = {}

    def predict(self, row: Row) -> Prediction:
        """The fit that answers a row, or the sentence that says why there is none."""
        try:
            return Prediction(row=row, result=self._fit(row))
        except TokenroomError as error:
            return Prediction(row=row, result=None, reason=str(error))

    def _fit(self, row: Row) -> FitResult:
        if row.engine not in engine_names() or not has_command(row.engine):
            raise RowError(f"engine {row.engine} is not known; known are {_listed()}")
        if row.model is None:
            raise RowError("the row names no model")
        version = engine_version(row)
        accelerator = self._accelerator(row)
        spec = self._model(row.model)
        words = command_words(row, quantized=spec.quantization is not None)
        parsed = command_parser(row.engine)(words, environment={}, version=version)
        unknown = [
            flag
            for flag in getattr(parsed.settings, "unknown_flags", ())
            if flag not in _HARMLESS_FLAGS and not flag.startswith("--no-")
        ]
        if unknown:
            raise RowError(next(iter(parsed.notes), f"the engine has no flag {unknown[0]}"))
        return fit(
            spec,
            accelerator,
            gpus=row.gpus,
            engine=row.engine if version is None else f"{row.engine}@{version}",
            settings=parsed.settings,
            notes=parsed.notes,
        )

    def _model(self, name: str) -> ModelSpec:
        if name not in self._models:
            try:
                self._models[name] = self._load(os.fspath(name))
            except TokenroomError as error:
                self._models[name] = error
        found = self._models[name]
        if isinstance(found, TokenroomError):
            raise found
        return found

    def _accelerator(self, row: Row) -> Accelerator:
        """The accelerator a row names; where it names none, one of the memory that was printed."""
        if self._gpu is not None:
            return self._gpu
        total = row.reported.get("total_gpu_gib")
        printed = round(total * GIB) if isinstance(total, int | float) and total >= 1 else None
        if row.gpu is None or "gpu" in row.inferred:
            if printed is not None:
                return custom_accelerator(printed)
            if row.gpu is None:
                raise RowError("the row names no GPU")
        if "+" in row.gpu or "," in row.gpu:
            raise RowError(f"gpu is {row.gpu!r}; GPUs of different kinds are not predicted")
        return self._catalogue.find(row.gpu)


def _listed() -> str:
    return ", ".join(engine_names())
