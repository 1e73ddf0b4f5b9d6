"""One name for one question: a digest of everything that its answer depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, Final

_CHUNK_BYTES: Final = 2**20


def digest(question: object) -> str:
    """A name of 64 hexadecimal digits that equal questions share, on any machine and Python.

    Raises:
        TypeError: It holds something other than dataclasses, mappings, sequences, sets,
            enumerations, paths, numbers and texts.
    """
    text = json.dumps(_plain(question), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The value as lists of texts and numbers; kinds that could be taken for others are named."""
    if value is None or isinstance(value, bool | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return ["float", repr(value)]
    if isinstance(value, Enum):
        return [type(value).__name__, value.name]
    if isinstance(value, PurePath):
        return ["path", value.as_posix()]
    if is_dataclass(value) and not isinstance(value, type):
        held = [[field.name, _plain(getattr(value, field.name))] for field in fields(value)]
        return [type(value).__name__, held]
    if isinstance(value, Mapping):
        return [
            "mapping",
            sorted(([_plain(key), _plain(item)] for key, item in value.items()), key=json.dumps),
        ]
    if isinstance(value, Set):
        return ["set", sorted((_plain(item) for item in value), key=json.dumps)]
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__qualname__} has no name that lasts")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        OSError: It cannot be read.
    """
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


@cache
def program_version() -> str:
    """The version of the package with a digest of its files, so that changed code has another."""
    package = Path(__file__).parent.parent
    found = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".json", ".jsonl", ".toml"):
            found.update(f"{path.relative_to(package).as_posix()}\0".encode())
            found.update(path.read_bytes())
    return f"{version('tokenroom')}+{found.hexdigest()[:16]}"
