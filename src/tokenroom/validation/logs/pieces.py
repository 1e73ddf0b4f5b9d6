"""A file's bytes in pieces that end where lines do, in UTF-8, whatever its length.

Logs come as UTF-8, as UTF-16 with or without its mark (what PowerShell redirects), gzipped, or in
several encodings at once; a damaged or cut end gives what was read before it.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

MAX_LINE_BYTES: Final = 2**18
"""Longest part of a line that is looked at; the engines' longest (all settings) are far shorter."""

_PIECE_BYTES: Final = 2**20
_MARKS: Final = (
    (codecs.BOM_UTF8, ""),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT_BYTES: Final = 512
"""Start of a file by which UTF-16 without a mark is told: half of its bytes are zero."""


def pieces_of(file: BinaryIO | io.BufferedIOBase) -> Iterator[bytes]:
    """The file in pieces that end where lines do; of a line that is too long only the start."""
    rest: list[bytes] = []
    held = 0
    skipping = False
    for part in _in_utf8(_read(file)):
        read = part
        if skipping:
            _, newline, read = read.partition(b"\n")
            skipping = not newline
        end = read.rfind(b"\n")
        if end >= 0:
            yield b"".join((*rest, read[:end]))
            rest, held = [read[end + 1 :]], len(read) - end - 1
        else:
            rest.append(read)
            held += len(read)
        if held > MAX_LINE_BYTES:
            yield b"".join(rest)[:MAX_LINE_BYTES]
            rest, held, skipping = [], 0, True
    if held:
        yield b"".join(rest)


def _read(file: BinaryIO | io.BufferedIOBase) -> Iterator[bytes]:
    """The file as it is read; of one that is cut off or damaged what was read before."""
    while True:
        try:
            read = file.read1(_PIECE_BYTES)  # type: ignore[union-attr]
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if is_damage(error):
                return
            raise
        if not read:
            return
        yield read


def is_damage(error: Exception) -> bool:
    """Whether reading stopped at a cut or damaged packing, and not at the device."""
    if isinstance(error, OSError):  # gzip and bz2 say so without a number
        return isinstance(error, gzip.BadGzipFile) or error.errno is None
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError)


def _in_utf8(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same in UTF-8."""
    start = next(parts, b"")
    mark, encoding = next(
        ((mark, name) for mark, name in _MARKS if start.startswith(mark)), (b"", "")
    )
    if not mark:
        encoding = _without_mark(start[:_LOOKED_AT_BYTES])
    start = start[len(mark) :]
    if not encoding:
        yield start
        yield from parts
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(start).encode("utf-8", "replace")
    for part in parts:
        yield decoder.decode(part).encode("utf-8", "replace")


def _without_mark(start: bytes) -> str:
    """The encoding of a text without a mark by its zero bytes; empty for any but UTF-16."""
    half = len(start) // 2
    even, odd = start[0 : 2 * half : 2].count(0), start[1 : 2 * half : 2].count(0)
    if half and odd > half / 2 and even < half / 8:
        return "utf-16-le"
    return "utf-16-be" if half and even > half / 2 and odd < half / 8 else ""
