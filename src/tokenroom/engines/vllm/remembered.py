"""Answers remembered per model description, for sweeps that ask for the same model many times."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from tokenroom.models.spec import ModelSpec

_Answer = TypeVar("_Answer")

_MAX_MODELS: Final = 64
_MAX_ANSWERS: Final = 4096


class Remembered(Generic[_Answer]):
    """Answers by model, told apart by identity (a description is immutable but not hashable).

    The descriptions are kept alive with their answers, so that an identity is never reused.
    """

    __slots__ = ("_models",)

    def __init__(self) -> None:
        self._models: dict[int, tuple[ModelSpec, dict[Hashable, _Answer]]] = {}

    def get(self, spec: ModelSpec, key: Hashable, make: Callable[[], _Answer]) -> _Answer:
        """The answer for the model and key, made when it is asked for first."""
        known = self._models.get(id(spec))
        if known is None:
            if len(self._models) >= _MAX_MODELS:
                self._models.clear()
            known = self._models[id(spec)] = (spec, {})
        answers = known[1]
        if key not in answers:
            if len(answers) >= _MAX_ANSWERS:
                answers.clear()
            answers[key] = make()
        return answers[key]
