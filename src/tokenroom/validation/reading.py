"""Files of rows: JSON lines, JSON or CSV, plain or gzipped, whatever the name says.

The content decides the form. A row that cannot be read is reported with its line; whether the rest
is used is the caller's choice.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import RowError
from tokenroom.files import check_regular
from tokenroom.validation.rows import Row, read_row

_MAX_LINE_BYTES: Final = 4 * 2**20
_MAX_JSON_BYTES: Final = 64 * 2**20
_MAX_LINES: Final = 250_000
_MAX_UNPACKED_BYTES: Final = 2**30
_PACKED: Final[Mapping[bytes, Callable[[io.BufferedReader], io.BufferedIOBase]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    b"BZh": lambda file: bz2.BZ2File(file),
    b"\xfd7zXZ\x00": lambda file: lzma.LZMAFile(file),  # noqa: SIM115
}
"""How packed files begin, and what unpacks them."""

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_NUMBERS: Final = frozenset(
    {"gpus", "value", "isl", "osl", "concurrency", "batch_or_concurrency", "tp", "pp", "dp", "ep"}
    | {"acceptance"}
)
_OBJECTS: Final = frozenset({"flags", "reported", "inferred", "score"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be read.

    Attributes:
        place: File and line.
        reason: The sentence that says why; it names the place.
    """

    place: str
    reason: str


def read_rows(path: Path) -> Iterator[Row | BadRow]:
    """Every row of a file in its order, the unreadable ones as :class:`BadRow`.

    Raises:
        RowError: The file cannot be opened, is damaged, or is no text.
    """
    try:
        with open_plain(path) as file:
            yield from _rows(file, path.name)
    except OSError as error:
        raise RowError(
            f"{path} cannot be read: {error.strerror or error}; give a file of rows"
        ) from error
    except (EOFError, zlib.error) as error:
        raise RowError(f"{path} is a damaged gzip file ({error}); fetch it again") from error


@contextmanager
def open_plain(path: Path) -> Iterator[io.BufferedIOBase]:
    """A file for reading bytes, unpacked when it is packed, by its content and not its name.

    Raises:
        OSError: It cannot be opened or is damaged from its start.
        RowError: It is no regular file, is packed by zstd, or unpacks to more than 1 GiB.
    """
    check_regular(path, what=str(path), error=RowError, streams=True)
    with path.open("rb") as file:
        yield unpacked(file, path.name, most_bytes=_MAX_UNPACKED_BYTES)


def unpacked(
    file: io.BufferedReader, name: str, *, most_bytes: int | None = None
) -> io.BufferedReader:
    """What a file holds that is open for reading bytes: of gzip, bzip2 and xz what they packed.

    Args:
        file: The file, at its start.
        name: What messages call it.
        most_bytes: How much may come out; None for as much as there is.

    Raises:
        RowError: It is packed by zstd; while it is read: more came out.
    """
    start = file.peek(6)[:6]
    if start.startswith(_ZSTD):
        raise RowError(f"{name} is packed by zstd, which is not read; unpack it: zstd -dc {name}")
    for mark, opens in _PACKED.items():
        if start.startswith(mark):
            return io.BufferedReader(_Unpacked(opens(file), name, most_bytes))
    return file


class _Unpacked(io.RawIOBase):
    """What a packed file holds, up to a limit: a few kilobytes may stand for as many gigabytes."""

    def __init__(self, file: io.BufferedIOBase, name: str, most_bytes: int | None) -> None:
        self._file = file
        self._name = name
        self._left_bytes = most_bytes

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``.

        Raises:
            RowError: More came out than a file may hold.
        """
        data = self._file.read1(len(buffer))
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise RowError(
                    f"{self._name} unpacks to more than 1 GiB; divide it into several files"
                )
        buffer[: len(data)] = data
        return len(data)


def _rows(file: io.BufferedIOBase, name: str) -> Iterator[Row | BadRow]:
    """The rows of a file, its form told by the first line that is not blank."""
    lines = _lines(file, name)
    blank = 0
    first = b""
    for number, line in lines:
        if line.strip():
            first = line
            break
        blank = number
    if not first:
        raise RowError(f"{name} is empty; give a file of rows (docs/validation.md)")
    start = first.lstrip()[:1]
    if start != b"[" and len(first) > _MAX_LINE_BYTES:
        raise _too_long(name, blank + 1)
    if start == b"[" or (start == b"{" and not _is_object(first)):
        yield from _json_rows(first + file.read(_MAX_JSON_BYTES + 1), name)
        return
    lines = chain([(blank + 1, first)], lines)
    if start == b"{":
        yield from _json_lines(lines, name)
    elif name.lower().removesuffix(".gz").endswith(".csv") or b"," in first:
        yield from _csv_rows(lines, name)
    else:
        raise RowError(
            f"{name} is neither JSON nor CSV; give rows as docs/validation.md describes them, or "
            f"an engine's log with --log"
        )


def _is_object(line: bytes) -> bool:
    """Whether a line is a whole object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return line.rstrip().endswith(b"}")  # a damaged line of a file of lines


def _lines(file: io.BufferedIOBase, name: str) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers.

    Raises:
        RowError: One is longer than a row can be, or there are too many.
    """
    number = 0
    limit = _MAX_JSON_BYTES  # the first line may be a whole list
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise _too_long(name, number)
        if number > _MAX_LINES:
            raise RowError(
                f"{name} has more than {_MAX_LINES:,} lines; divide it into several files"
            )
        if line.strip():
            limit = _MAX_LINE_BYTES
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _too_long(name: str, number: int) -> RowError:
    return RowError(f"{name} line {number} is longer than 4 MiB; a row is one short line")


def _json_lines(lines: Iterable[tuple[int, bytes]], name: str) -> Iterator[Row | BadRow]:
    for number, line in lines:
        if line.strip():
            yield _row(f"{name} line {number}", line)


def _row(place: str, text: bytes) -> Row | BadRow:
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return BadRow(place=place, reason=f"{place} is not UTF-8 text; save it as UTF-8")
    except (ValueError, RecursionError) as error:
        said = str(error).split(":", 1)[0]
        return BadRow(place=place, reason=f"{place} is not JSON ({said}); correct it")
    return _checked(data, place)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _checked(data: object, place: str) -> Row | BadRow:
    try:
        return read_row(data, place)
    except RowError as error:
        return BadRow(place=place, reason=str(error))


def _json_rows(text: bytes, name: str) -> Iterator[Row | BadRow]:
    if len(text) > _MAX_JSON_BYTES:
        raise RowError(f"{name} is larger than 64 MiB; write one row a line (JSON lines)")
    try:
        data = json.loads(text.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RowError(f"{name} is not UTF-8 text; save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise RowError(f"{name} line {error.lineno} is not JSON ({error.msg}); correct it") from (
            error
        )
    except (ValueError, RecursionError) as error:
        raise RowError(f"{name} is not JSON ({error}); correct it") from error
    if isinstance(data, dict) and isinstance(data.get("rows"), list) and "id" not in data:
        data = data["rows"]
    for index, item in enumerate(data if isinstance(data, list) else [data], start=1):
        yield _checked(item, f"{name} row {index}")


def _csv_rows(lines: Iterable[tuple[int, bytes]], name: str) -> Iterator[Row | BadRow]:
    line = 0

    def texts() -> Iterator[str]:
        nonlocal line
        for number, data in lines:
            line = number
            try:
                yield data.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise RowError(f"{name} line {number} is not UTF-8; save it as UTF-8") from error

    reader = csv.reader(texts())
    try:
        header = [column.strip() for column in next(reader, [])]
        if "id" not in header:
            raise RowError(
                f"{name} line 1 names the columns {', '.join(header)[:80]!r}; id must be among them"
            )
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            place = f"{name} line {line}"
            if len(cells) > len(header):
                reason = f"{place} has {len(cells)} cells; the header names {len(header)}"
                yield BadRow(place=place, reason=reason)
                continue
            yield _csv_row(dict(zip(header, cells, strict=False)), place)
    except csv.Error as error:
        raise RowError(f"{name} line {line} is not CSV ({error}); correct it") from error


def _csv_row(cells: Mapping[str, str], place: str) -> Row | BadRow:
    """A row from text: columns ``flags.NAME`` and ``reported.NAME``, or whole objects as JSON."""
    data: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for column, raw in cells.items():
        text = raw.strip()
        if not text or not column:
            continue
        part, _, name = column.partition(".")
        if name and part in ("flags", "reported"):
            nested.setdefault(part, {})[name] = _cell(text)
        elif column in _OBJECTS:
            try:
                data[column] = json.loads(text, parse_constant=_no_constant)
            except (ValueError, RecursionError):
                reason = f"{place} has {column} {text[:60]!r}; give it as JSON"
                return BadRow(place=place, reason=reason)
        elif column in _NUMBERS:
            data[column] = _cell(text)
        else:
            data[column] = text
    for part, values in nested.items():
        data[part] = {**data[part], **values} if isinstance(data.get(part), dict) else values
    return _checked(data, place)


def _cell(text: str) -> Any:
    """A cell as the JSON value it spells, otherwise as text."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
