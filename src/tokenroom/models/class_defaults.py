"""Defaults that transformers' configuration classes give to fields a config.json leaves out.

A config.json stores what differs from its class, so an absent key means the class default. The
table in ``data/class_defaults.json`` was read from the classes themselves (the file names the
release) and holds one model type a line, so that one type is parsed without parsing the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tokenroom.models.remote_defaults import REMOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDefaults:
    """What a configuration class says about its fields.

    Attributes:
        values: Default of each field that has one, before anything is derived from others.
        aliases: Other spelling of a field -> the field (``attribute_map`` in transformers).
        sub_types: Field that holds a nested configuration -> its model type when it names none.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    sub_types: Mapping[str, str] = field(default_factory=dict)


_NONE: Final = ClassDefaults()
# A path instead of importlib.resources, whose import takes longer than reading the file.
_FILE: Final = Path(__file__).parent / "data" / "class_defaults.json"


@cache
def _table() -> str:
    return _FILE.read_text(encoding="utf-8")


@cache
def class_defaults(model_type: str) -> ClassDefaults:
    """Defaults of ``model_type``; empty for a type whose class is not known.

    Types whose class is remote code are in :mod:`tokenroom.models.remote_defaults`.
    """
    remote = REMOTE.get(model_type)
    if remote is not None:
        base = class_defaults(remote.like) if remote.like else _NONE
        return ClassDefaults(
            values={**base.values, **remote.values},
            aliases={**base.aliases, **remote.aliases},
            sub_types=base.sub_types,
        )
    text = _table()
    key = f"\n{json.dumps(model_type)}: "
    start = text.find(key)
    if start < 0:
        return _NONE
    start += len(key)
    row = json.loads(text[start : text.index("\n", start)].rstrip(","))
    return ClassDefaults(
        values=row.get("values", {}),
        aliases=row.get("aliases", {}),
        sub_types=row.get("sub_types", {}),
    )


@cache
def known_model_types() -> tuple[str, ...]:
    """Every model type in the table, sorted."""
    return tuple(key for key in json.loads(_table()) if not key.startswith("_"))
