"""Well-known models by name, without files or network.

``data/catalogue.jsonl`` holds one model a line: its name, other names, where its configuration was
read and the fields of it that matter. ``data/catalogue_index.json`` says where each line lies, so
that finding one model parses that line only. Both are written by ``scripts/build_catalogue.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Final

from tokenroom.errors import ModelError
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import ModelSpec

_DATA: Final = Path(__file__).parent / "data"
_SUGGESTIONS: Final = 5
_NAMED: Final = 6
_SIZE: Final = re.compile(r"[ae]?(\d+x)?\d+(\.\d+)?[bm]")
_NEAR: Final = 0.8
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
    spec = read_config(model.config, model.name, checked=True)
    return replace(spec, source=f"catalogue: {model.source}")


def entry(name: str) -> Entry:
    """What the catalogue holds of the model of that name.

    Raises:
        ModelError: No model, or more than one, has the name; the message names what is near.
    """
    found = candidates(name)
    if len(found) == 1:
        return _read(found[0])
    shown = name[:100]
    if found:
        raise _ambiguous(name, found)
    near = nearest(name)
    hint = f"; near it are {', '.join(near)}" if near else ""
    raise ModelError(
        f"{shown!r} is not in the catalogue{hint}; give a path to a config.json, a folder or a GGUF"
        " file, or a Hub id"
    )


def _ambiguous(name: str, found: Sequence[str]) -> ModelError:
    named = " or ".join(found[:_NAMED])
    rest = len(found) - _NAMED
    more = f" or {rest} more" if rest > 0 else ""
    return ModelError(f"{name[:100]!r} may be {named}{more}; give the whole name")


def lookup(name: str) -> ModelSpec | None:
    """The model that ``name``, or the beginning of a name, means; None if the catalogue has none.

    Where a beginning fits models of one shape only, the first is taken and ``assumptions`` says
    so. A beginning does not choose a size or a quantisation: it must state the size if the name
    does, and fits models stored plain.

    Raises:
        ModelError: It may mean models of different shapes.
    """
    found = candidates(name)
    if len(found) == 1:
        return specification(_read(found[0]))
    found = found or _beginning_with(name)
    if not found:
        return None
    specs = [specification(_read(model)) for model in found]
    plain = [spec for spec in specs if spec.quantization is None]
    alike = len({spec.parameters_total for spec in specs}) == 1
    sized = all(_sizes(name) == _sizes(spec.name.rsplit("/", 1)[-1]) for spec in specs)
    if not plain or not alike or not sized or any(_shape(s) != _shape(plain[0]) for s in plain):
        raise _ambiguous(name, found)
    first, *others = plain
    verb = "has" if len(others) == 1 else "have"
    same = f"; {' and '.join(other.name for other in others)} {verb} the same shape"
    sentence = f"{name[:100]!r} was taken as {first.name}{same if others else ''}"
    return replace(first, assumptions=(*first.assumptions, sentence))


def _beginning_with(name: str) -> tuple[str, ...]:
    """The models whose name, without its organisation, begins with the words of ``name``."""
    wanted = _words(name)
    if "/" in name or not wanted:
        return ()
    return tuple(
        model
        for model in _index().places
        if _words(model.rsplit("/", 1)[-1])[: len(wanted)] == wanted
    )


def _sizes(name: str) -> list[str]:
    """The words of a name that count parameters, such as ``8x7b`` and ``a3b``."""
    return [word for word in _words(name) if _SIZE.fullmatch(word)]


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s_-]+", name.lower()) if word]


def _shape(spec: ModelSpec) -> list[object]:
    """What decides about memory: everything but names, origin and what was not read."""
    named = ("name", "source", "assumptions", "extra", "config")
    return [getattr(spec, field.name) for field in fields(spec) if field.name not in named]


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
    close = difflib.get_close_matches(key, answers, n=3 * _SUGGESTIONS, cutoff=_NEAR)
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
        raw = json.loads(file.read(length))
    return Entry(
        name=raw["name"],
        aliases=tuple(raw.get("aliases", ())),
        source=raw["source"],
        source_kind=raw["source_kind"],
        checked=raw["checked"],
        config=raw["config"],
    )
