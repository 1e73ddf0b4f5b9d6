"""Well-known models by name, without files or network.

``data/catalogue.jsonl`` holds one model a line: its name, other names, where its configuration was
read and the fields of it that matter. ``data/catalogue_index.json`` says where each line lies, so
that finding one model parses that line only. Both are written by ``scripts/build_catalogue.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from tokenroom.errors import ModelError
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import ModelSpec

_DATA: Final = Path(__file__).parent / "data"
_SUGGESTIONS: Final = 5
_DROPPED: Final = {code: None for code in range(128) if not chr(code).isalnum()}

#: What instruction-tuned and re-released variants add to the name of a model of the same shape.
_VARIANTS: Final = ("instruct", "it", "chat", "hf", "base", "instructhf", "chathf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model of the catalogue.

    Attributes:
        name: Its Hub id.
        aliases: Other ids and names of the same configuration.
        source: Where the configuration was read, with the commit, or why it is trusted.
        source_kind: ``"config"`` for a whole published config.json, ``"preset"`` for one kept in
            other software, ``"published"`` for published dimensions.
        checked: What the parameter count was checked against.
        config: The fields of its config.json that matter.
    """

    name: str
    aliases: tuple[str, ...]
    source: str
    source_kind: str
    checked: str
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """Where each model lies, and which models answer to which simplified name."""

    places: Mapping[str, tuple[int, int]]
    answers: Mapping[str, tuple[str, ...]]


def find(name: str) -> ModelSpec:
    """The model of that name.

    Case and punctuation do not matter, and neither does the organisation unless two share a name;
    a name without ``-it``, ``-instruct``, ``-chat`` or the like finds the only model that has one.

    Args:
        name: A Hub id or the last part of one.

    Raises:
        ModelError: No model, or more than one, answers to it; the nearest names are listed.
    """
    return specification(entry(name))


def specification(model: Entry) -> ModelSpec:
    """The description of a model of the catalogue."""
    return replace(read_config(model.config, model.name), source=f"catalogue: {model.source}")


def entry(name: str) -> Entry:
    """As :func:`find`, but what the catalogue holds instead of a description.

    Raises:
        ModelError: As for :func:`find`.
    """
    found = candidates(name)
    if len(found) == 1:
        return _read(found[0])
    shown = name[:100]
    if found:
        raise ModelError(f"{shown!r} may be {' or '.join(found)}; give the whole name")
    near = nearest(name)
    hint = f"; near it are {', '.join(near)}" if near else ""
    raise ModelError(
        f"{shown!r} is not in the catalogue{hint}; give a path to a config.json, a folder or a GGUF"
        " file, or a Hub id"
    )


def candidates(name: str) -> tuple[str, ...]:
    """The models that answer to ``name``: one if it is in the catalogue, none if not."""
    answers = _index().answers
    key = _simplified(name)
    if not key:
        return ()
    if found := answers.get(key):
        return found
    if "/" in name:
        return ()
    longer = {model for variant in _VARIANTS for model in answers.get(key + variant, ())}
    return tuple(sorted(longer))


def search(word: str) -> tuple[str, ...]:
    """Names of the models whose name or another name of theirs contains ``word``, sorted."""
    key = _simplified(word)
    answers = _index().answers
    return tuple(sorted({model for alias in answers if key in alias for model in answers[alias]}))


def names() -> tuple[str, ...]:
    """Names of all models, sorted."""
    return tuple(_index().places)


def nearest(name: str) -> tuple[str, ...]:
    """Names of models that are spelled alike, nearest first."""
    import difflib

    answers = _index().answers
    key = _simplified(name.rsplit("/", 1)[-1])
    close = difflib.get_close_matches(key, answers, n=3 * _SUGGESTIONS, cutoff=0.6)
    found = {model: None for alias in close for model in answers[alias]}
    return tuple(found)[:_SUGGESTIONS]


def _simplified(name: str) -> str:
    return name.lower().translate(_DROPPED)


@cache
def _index() -> _Index:
    raw = json.loads((_DATA / "catalogue_index.json").read_bytes())
    places: dict[str, tuple[int, int]] = {}
    answers: dict[str, dict[str, None]] = {}
    for name, (offset, length, aliases) in raw.items():
        places[name] = (offset, length)
        for alias in (name, *aliases):
            answers.setdefault(_simplified(alias), {})[name] = None
            # A whole id is never shadowed by the last part of another.
            answers.setdefault(_simplified(alias.rsplit("/", 1)[-1]), {})[name] = None
    return _Index(places=places, answers={alias: tuple(found) for alias, found in answers.items()})


def _read(name: str) -> Entry:
    offset, length = _index().places[name]
    with (_DATA / "catalogue.jsonl").open("rb") as file:
        file.seek(offset)
        fields = json.loads(file.read(length))
    return Entry(
        name=fields["name"],
        aliases=tuple(fields.get("aliases", ())),
        source=fields["source"],
        source_kind=fields["source_kind"],
        checked=fields["checked"],
        config=fields["config"],
    )
