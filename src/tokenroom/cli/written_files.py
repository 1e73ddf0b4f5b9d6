"""Files that a command writes, checked before it takes time: none may be lost to another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import CommandLineError

_NAMED_FILE: Final = re.compile(r"\b(?:trace|empirical)\(([^()]*)\)")


def check_written(written: Mapping[str, Path | None], read: Iterable[str | Path | None]) -> None:
    """Refuse files that would overwrite what is read or each other, or have no folder.

    Args:
        written: The file of each option that names one to write, None where it is not given.
        read: Files that are read; what is none, such as a model's name, is passed over.

    Raises:
        CommandLineError: A file would be lost, or cannot be there.
    """
    sources = [Path(path) for path in read if path is not None and str(path)]
    taken: list[tuple[str, Path]] = []
    for option, path in written.items():
        if path is None:
            continue
        if not path.parent.is_dir():
            raise CommandLineError(
                f"{option} is {str(path)!r}, which cannot be written: there is no folder "
                f"{str(path.parent)!r}; create it, or name another"
            )
        if path.is_dir():
            raise CommandLineError(f"{option} is {str(path)!r}, which is a folder; name a file")
        if any(_is_same(path, source) for source in sources):
            raise CommandLineError(
                f"{option} would overwrite {str(path)!r}, which is read; name another file"
            )
        for other, there in taken:
            if _is_same(path, there):
                raise CommandLineError(
                    f"{other} and {option} both write {str(path)!r}; name a file for each"
                )
        taken.append((option, path))


def read_files(words: Iterable[str], options: Mapping[str, Any]) -> list[str | Path | None]:
    """What a command that serves a workload reads: what its words and options name.

    Args:
        words: A model, an engine's command, or files of deployments.
        options: Of the command; those that it does not have count as not given.
    """
    named = ("trace", "fleet_file", "from_file", "gpu_file", "profile_file", "step_times_file")
    drawn = _NAMED_FILE.findall(options.get("workload") or "")
    return [*words, *(options.get(name) for name in named), *drawn]


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths name one file; streams may be written by several."""
    try:
        if other.exists() and not other.is_file():
            return False
        if one.exists() and other.exists():
            return one.samefile(other)
    except (OSError, ValueError):  # a name that can be none, such as one that is too long
        return False
    return os.path.realpath(one) == os.path.realpath(other)
