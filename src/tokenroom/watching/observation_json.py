"""Observations as JSON objects and back, without a loss: what recordings and ``--json`` hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from tokenroom.errors import WatchError, shown
from tokenroom.watching.observation import Observation

SCHEMA_VERSION: Final = "1.0"


def observation_json(seen: Observation) -> dict[str, Any]:
    """The observation as one object."""
    return {"schema_version": SCHEMA_VERSION, **_encoded(seen)}


def read_observation(value: Any) -> Observation:
    """The observation that an object holds.

    Raises:
        WatchError: It holds none, or one of another version.
    """
    if not isinstance(value, dict) or "schema_version" not in value:
        raise WatchError("it is no observation; record one with tokenroom watch --record FILE")
    version = value["schema_version"]
    if str(version).partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise WatchError(
            f"schema_version is {shown(version)}; this tokenroom reads {SCHEMA_VERSION}"
        )
    found = _decoded(Observation, value, "observation")
    assert isinstance(found, Observation)
    return found


def _encoded(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _encoded(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_encoded(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _encoded(one) for name, one in value.items()}
    return value


@cache
def _hints(of: type) -> dict[str, Any]:
    return get_type_hints(of)


def _decoded(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _one_of(get_args(kind), value, where)
    if origin is Literal:
        if value not in get_args(kind):
            raise _refused(where, value)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise _refused(where, value)
        return tuple(_decoded(get_args(kind)[0], one, where) for one in value)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _refused(where, value)
        return {
            name: _decoded(get_args(kind)[1], one, f"{where}.{name}") for name, one in value.items()
        }
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, dict):
            raise _refused(where, value)
        hints = _hints(kind)
        try:
            return kind(
                **{
                    name: _decoded(hint, value[name], f"{where}.{name}")
                    for name, hint in hints.items()
                    if name in value
                }
            )
        except TypeError as error:  # a field is missing that has no default
            raise _refused(where, value) from error
    return _plain(kind, value, where)


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    refusal = _refused(where, value)
    for kind in kinds:
        if kind is not type(None):
            try:
                return _decoded(kind, value, where)
            except WatchError as error:
                refusal = error
    raise refusal


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return value
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise _refused(where, value)


def _refused(where: str, value: Any) -> WatchError:
    return WatchError(f"{where} is {shown(value)}, which no observation holds")
