"""GGUF files: one or several parts, near or far, read into a :class:`ModelSpec`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tokenroom.errors import ModelError
from tokenroom.models.gguf.container import Container, read_container
from tokenroom.models.gguf.model import to_spec
from tokenroom.models.ranges import RangeReader, open_file
from tokenroom.models.spec import ModelSpec

__all__ = ["Container", "read_container", "read_gguf", "read_gguf_file", "to_spec"]

_PART: Final = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
_MAX_PARTS: Final = 1000


def read_gguf_file(path: Path) -> ModelSpec:
    """The model in a local GGUF file; the other parts of a split one are looked for beside it.

    Raises:
        ModelError: A part is missing or damaged, or holds no language model.
    """
    return read_gguf(path.name, lambda name: open_file(path.parent / name))


def read_gguf(name: str, open_part: Callable[[str], RangeReader]) -> ModelSpec:
    """The model in a GGUF file, reading headers only.

    Args:
        name: Name of the file, or of any part of a split one (``-00001-of-00003.gguf``).
        open_part: Opens the file or a part of it by name.

    Raises:
        ModelError: A part is missing or damaged, or holds no language model.
    """
    names = part_names(name)
    parts = [read_container(open_part(part)) for part in names]
    count = parts[0].metadata.get("split.count", 1)
    if type(count) is int and count not in (0, len(parts)):
        raise ModelError(
            f"{names[0]} says it is one of {count} parts, but its name says {len(parts)}; give the"
            " parts their original names"
        )
    seen: dict[str, str] = {}
    for part in parts:
        for tensor in part.tensors:
            other = seen.setdefault(tensor.name, part.name)
            if other != part.name:
                raise ModelError(f"{tensor.name[:200]!r} is stored in both {other} and {part.name}")
    total = parts[0].metadata.get("split.tensors.count", len(seen))
    if total != len(seen):
        raise ModelError(f"the parts of {names[0]} hold {len(seen)} tensors instead of {total}")
    match = _PART.match(names[0])
    return to_spec(parts, match["stem"] if match else name.removesuffix(".gguf"))


def part_names(name: str) -> list[str]:
    """The names of all parts of the file that ``name`` belongs to, first part first."""
    match = _PART.match(name)
    if match is None:
        return [name]
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count <= _MAX_PARTS:
        return [name]
    return [
        f"{match['stem']}-{number:05d}-of-{match['count']}.gguf" for number in range(1, count + 1)
    ]
