"""Reading the small files that people name, without trusting what lies behind the name.

A name may stand for a device without end, a pipe that nobody writes to, or gigabytes; a YAML text
of a kilobyte may expand to billions of nodes. Everything here is looked at before it is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import TokenroomError, shown

_STREAMS: Final = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""Where a shell puts the output of ``<(command)``; such pipes have a writer and an end."""

MAX_YAML_NODES: Final = 100_000
"""Most nodes of a YAML text with its aliases written out; real deployments have hundreds."""

_MAX_YAML_DEPTH: Final = 100


def read_bounded(
    path: str | os.PathLike[str],
    limit_bytes: int,
    *,
    what: str,
    error: type[TokenroomError],
    streams: bool = False,
) -> bytes:
    """The whole of a file of at most ``limit_bytes``.

    Args:
        path: The file.
        limit_bytes: Its largest size in bytes; nothing beyond is read.
        what: How messages call it, such as ``"--from run.sh"``.
        error: What to raise.
        streams: Whether pipes that a shell opened (``<(command)``) are read, too.

    Raises:
        TokenroomError: As ``error``: it is missing, no regular file, too large, or unreadable.
    """
    file = Path(path)
    try:
        check_regular(file, what=what, error=error, streams=streams)
        with file.open("rb") as opened:
            data = opened.read(limit_bytes + 1)
    except (OSError, ValueError) as problem:
        raise error(f"{what} cannot be read: {_reason(problem)}") from problem
    if len(data) > limit_bytes:
        raise error(f"{what} is larger than {_size(limit_bytes)}; give a smaller file")
    return data


def read_bounded_text(
    path: str | os.PathLike[str],
    limit_bytes: int,
    *,
    what: str,
    error: type[TokenroomError],
    streams: bool = False,
) -> str:
    """The text of a file of at most ``limit_bytes``, a byte-order mark left out.

    Raises:
        TokenroomError: As ``error``: see :func:`read_bounded`; or it is not UTF-8.
    """
    data = read_bounded(path, limit_bytes, what=what, error=error, streams=streams)
    return decoded(data, what=what, error=error)


def decoded(data: bytes, *, what: str, error: type[TokenroomError]) -> str:
    """Bytes as UTF-8 text, a byte-order mark left out.

    Raises:
        TokenroomError: As ``error``: they are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(
            f"{what} is not UTF-8 text (byte {problem.start}); save it as UTF-8"
        ) from problem


def check_regular(
    path: Path, *, what: str, error: type[TokenroomError], streams: bool = False
) -> None:
    """Refuse what has no end or no size: devices, pipes, sockets and folders.

    Raises:
        OSError: There is no such file.
        TokenroomError: As ``error``: it is no regular file.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return
    if streams and stat.S_ISFIFO(mode) and str(path).startswith(_STREAMS):
        return
    kind = next(
        (
            name
            for is_kind, name in (
                (stat.S_ISDIR, "a folder"),
                (stat.S_ISFIFO, "a named pipe"),
                (stat.S_ISCHR, "a device"),
                (stat.S_ISBLK, "a device"),
                (stat.S_ISSOCK, "a socket"),
            )
            if is_kind(mode)
        ),
        "no regular file",
    )
    raise error(f"{what} is {kind}; give a regular file")


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give an error of writing an open file the file's name, which the system leaves out.

    Raises:
        OSError: What is written cannot be.
    """
    try:
        yield
    except OSError as problem:
        if problem.filename is not None:
            raise
        reason = problem.strerror or str(problem)
        raise OSError(problem.errno, reason, os.fspath(path)) from problem


def parse_yaml(text: str, *, unique_keys: bool = False) -> list[Any]:
    """Every document of a YAML text, refused when its aliases expand without bound.

    Args:
        text: The text.
        unique_keys: Refuse a mapping that has a key twice, as YAML 1.2 does (3.2.1.1). Left out
            for files that are an engine's own, where its loader takes the last.

    Raises:
        ValueError: It is damaged, nested deeper than 100 levels, or holds more than
            :data:`MAX_YAML_NODES` nodes with its aliases written out; the message says which.
    """
    import yaml  # only deployment files need it, and it costs start-up time

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_expansion(yaml.parse(text, Loader=loader))
        if unique_keys:
            for document in yaml.compose_all(text, Loader=loader):
                _check_keys(document)
        return list(yaml.load_all(text, Loader=loader))
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        reason = getattr(problem, "problem", None) or str(problem).split("\n", 1)[0]
        raise ValueError(f"{place}{reason}") from problem
    except (TypeError, AttributeError, OverflowError) as problem:  # such as a list as a key
        raise ValueError(str(problem)) from problem


def _check_expansion(events: Iterator[Any]) -> None:
    """Count the nodes that the events stand for, aliases written out."""
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []  # anchor and nodes so far of each open collection
    for event in events:
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            opened.append((event.anchor, 1))
            sizes.pop(event.anchor, None)
            if len(opened) > _MAX_YAML_DEPTH:
                raise ValueError(f"it is nested deeper than {_MAX_YAML_DEPTH} levels")
            continue
        anchor = getattr(event, "anchor", None)
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, size = opened.pop()
        elif kind == "ScalarEvent":
            size = 1
        elif kind == "AliasEvent":
            if any(anchor == name for name, _ in opened):
                raise ValueError(f"the anchor {shown(anchor)} holds itself")
            size, anchor = sizes.get(anchor or "", 1), None
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        if opened:
            name, so_far = opened[-1]
            opened[-1] = (name, so_far + size)
        if (opened[-1][1] if opened else size) > MAX_YAML_NODES:
            raise ValueError(
                f"it holds more than {MAX_YAML_NODES:,} nodes with its aliases written out"
            )


def _check_keys(document: Any) -> None:
    """Refuse mappings that have a key twice, wherever they are in a composed document."""
    seen: set[int] = set()
    open_nodes = [document]
    while open_nodes:
        node = open_nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "sequence":
            open_nodes += node.value
        elif node.id == "mapping":
            keys: set[str] = set()
            for key, value in node.value:
                open_nodes.append(value)
                if key.id != "scalar":
                    continue
                if key.value in keys:
                    line = key.start_mark.line + 1
                    raise ValueError(f"line {line}: {shown(key.value)} is given twice")
                keys.add(key.value)


def _reason(problem: OSError | ValueError) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


def _size(num_bytes: int) -> str:
    return f"{num_bytes // 2**20} MiB" if num_bytes >= 2**20 else f"{num_bytes:,} bytes"
