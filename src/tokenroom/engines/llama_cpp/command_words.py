"""What the words behind one of llama.cpp's programs say, before the model is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MODEL_NAMES: Final[tuple[str, ...]] = ("model", "hf_repo", "hf_file")
"""What names a model: a file, or a repository of the Hub with a file in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWords:
    """Words as settings.

    Attributes:
        names: Those of :data:`MODEL_NAMES` that are given.
        settings: Fields of :class:`~tokenroom.engines.llama_cpp.settings.LlamaCppSettings`.
        ignored: Flags without influence on memory.
        unknown: Flags the program does not have.
        notes: Sentences on what was assumed.
    """

    names: Mapping[str, str]
    settings: Mapping[str, Any]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = ()
