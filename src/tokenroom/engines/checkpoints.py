"""What an engine is told to load of a model whose weights were taken in another layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models import catalogue
from tokenroom.models.spec import ModelSpec

_LAYOUT_WORDS: Final = re.compile(
    r"[-_.](quantized|awq|gptq|fp8|int4|int8|bnb|mxfp4|nvfp4|w\d+a\d+)\b.*", re.I
)
"""What a quantised checkpoint adds to the name of the model that it was made from."""

_NEAR: Final = 0.05
"""Scales by tensor, channel or block, and towers that are quantised or not, differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What to load.

    Attributes:
        name: A folder, a file or a Hub id; a placeholder, which no engine can load, where none is
            known.
        layout: The layout that was taken, where ``name`` is a placeholder; empty otherwise.
        near: Known checkpoints of the same model in layouts that are not quite the one taken.
    """

    name: str
    layout: str = ""
    near: tuple[str, ...] = ()


def plain_name(spec: ModelSpec) -> str:
    """A model's name without the layout that may stand behind it."""
    return spec.name.removesuffix(f"@{spec.layout}")


@lru_cache(maxsize=64)
def checkpoint(spec: ModelSpec) -> Checkpoint:
    """What an engine loads to have the weights of ``spec``.

    A model in the layout of its files is loaded by its folder, else its name. One whose layout was
    supposed is loaded from the checkpoint of the catalogue that stores every weight so, if there is
    one; a checkpoint that stores them a little differently is only named as near, since the figures
    are not of it.
    """
    if spec.layout is None:
        return Checkpoint(name=spec.path or plain_name(spec))
    same, near = [], []
    for known in _of_same_model(spec):
        if _stored_alike(known, spec):
            same.append(known.name)
        elif _weigh_alike(known, spec):
            near.append(known.name)
    if same:
        return Checkpoint(name=same[0])
    name = f"<a checkpoint of {plain_name(spec)} in {spec.layout}>"
    return Checkpoint(name=name, layout=spec.layout, near=tuple(near))


def _of_same_model(spec: ModelSpec) -> Iterator[ModelSpec]:
    """The model itself as the catalogue has it, and checkpoints made from it."""
    own = catalogue.candidates(plain_name(spec))
    wanted = {_bare(plain_name(spec))}
    for name in own if len(own) == 1 else ():
        known = catalogue.entry(name)
        yield catalogue.specification(known)
        wanted |= {_bare(alias) for alias in (name, *known.aliases)}
    for name in catalogue.names():
        made_from, replaced = _LAYOUT_WORDS.subn("", name.rsplit("/", 1)[-1])
        if replaced and _bare(made_from) in wanted and name not in own:
            yield catalogue.specification(catalogue.entry(name))


def _bare(name: str) -> str:
    """A name by which the checkpoints of one model are alike; Meta's begin with Meta- or not."""
    return name.rsplit("/", 1)[-1].lower().removeprefix("meta-").replace("_", "-")


def _stored_alike(known: ModelSpec, spec: ModelSpec) -> bool:
    """Whether every weight is stored alike; only what the rest is computed in may differ."""
    return (
        known.quantization == spec.quantization
        and known.layers == spec.layers
        and known.input_weights == spec.input_weights
        and known.output_weights == spec.output_weights
        and known.towers == spec.towers
    )


def _weigh_alike(known: ModelSpec, spec: ModelSpec) -> bool:
    """Whether two checkpoints are of about the same size, in the same kind of number."""
    size, other = (checkpoint_weights(found).total_bytes for found in (spec, known))
    return abs(other - size) <= _NEAR * size and _is_floating(known) == _is_floating(spec)


def _is_floating(spec: ModelSpec) -> bool:
    """Whether the quantised weights are floating-point numbers (FP8, FP4), and no integers."""
    return any(
        weight.scheme is not None and "fp" in weight.scheme.name
        for layer, _ in spec.layer_kinds
        for weight in layer.weights
    )
