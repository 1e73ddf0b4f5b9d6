"""The model of a row: under its own name, or the same model in a layout the catalogue lacks.

Rows name copies that differ from the original by how their weights are stored (``-AWQ``,
``NVFP4``, ``Q4_K_M``). Where only the original is known, the cache is still that of the copy; its
weights are not, unless the layout is a GGUF mix, which is computed tensor by tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import TokenroomError
from tokenroom.models import catalogue
from tokenroom.models.quantization.hypothetical import known_layouts, what_if
from tokenroom.models.spec import ModelSpec

_LAYOUT: Final = re.compile(
    r"(?:^|[\s_-])(awq|gptq|int[468]|[48]-?bit|w4a16|w8a8|fp8|nvfp4|mxfp4|auto-?round|bnb|unsloth"
    r"|mixed|gguf|(?:ud-)?i?q\d\w*|f16|bf16)$",
    re.I,
)
#: Layouts whose checkpoints may also ask for another type of cache.
_WITH_CACHE_TYPE: Final = frozenset({"nvfp4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model and how far it is the row's.

    Attributes:
        spec: The model.
        weights_known: Its weights are stored as the row's are.
        cache_type_known: Its cache has the type that the row's checkpoint asks for.
        note: What is missing, empty when nothing is.
    """

    spec: ModelSpec
    weights_known: bool = True
    cache_type_known: bool = True
    note: str = ""


def find_model(name: str, engine: str, load: Callable[[str], ModelSpec]) -> FoundModel:
    """The model of that name, or the one it is a copy of.

    Args:
        name: As the row has it.
        engine: Of the row; GGUF mixes are llama.cpp's.
        load: Finds a model by its full name.

    Raises:
        TokenroomError: Neither is known.
    """
    try:
        return FoundModel(spec=load(name))
    except TokenroomError:
        base, layouts = without_layout(name)
        spec = _in_catalogue(base) if layouts else None
        if spec is None:
            raise
    mix = layouts[0].replace("-", "_").lower()
    if engine == "llama.cpp" and mix in known_layouts():
        return FoundModel(spec=what_if(spec, mix))
    return FoundModel(
        spec=spec,
        weights_known=False,
        cache_type_known=_WITH_CACHE_TYPE.isdisjoint(layout.lower() for layout in layouts),
        note=f"how {name} stores its weights is not known here, so that only figures of the cache "
        f"alone are compared, by {spec.name}",
    )


def without_layout(name: str) -> tuple[str, list[str]]:
    """A name without the words at its end that say how weights are stored, and those words."""
    base, words = name.strip(), []
    while (match := _LAYOUT.search(base)) is not None and match.start():
        words.append(match[1])
        base = base[: match.start()].rstrip(" _-")
    return base, words


def _in_catalogue(base: str) -> ModelSpec | None:
    """The model of the catalogue with that name, its owner left out if need be."""
    for name in dict.fromkeys((base, base.rsplit("/", 1)[-1])):
        if len(catalogue.candidates(name)) == 1:
            return catalogue.find(name)
    return None
