"""A trace file as text, whatever compressed it, and how far it has been read."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, cast

from tokenroom.errors import WorkloadError
from tokenroom.files import check_regular
from tokenroom.serving.workloads.bad_rows import is_damage

_BUFFER_BYTES: Final = 2**20
"""Read at once, and looked at to tell the format: lines of logs with messages in them are long."""

_PIECE_BYTES: Final = 2**16


def _gzip(raw: IO[bytes]) -> Any:
    import gzip

    return gzip.GzipFile(fileobj=raw)


def _bz2(raw: IO[bytes]) -> Any:
    import bz2

    return bz2.BZ2File(raw)


def _xz(raw: IO[bytes]) -> Any:
    import lzma

    return lzma.LZMAFile(raw)


def _zstd(raw: IO[bytes]) -> Any:
    try:
        zstd = import_module("compression.zstd")
    except ImportError:
        raise WorkloadError(
            f"{getattr(raw, 'name', 'the file')} is compressed by zstd, which Python reads from "
            f"3.14 on and this is {sys.version_info.major}.{sys.version_info.minor}; decompress it "
            "first (zstd -d)"
        ) from None
    return zstd.ZstdFile(raw)


_COMPRESSIONS: Final[tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...]] = (
    (b"\x1f\x8b", _gzip),
    (b"BZh", _bz2),
    (b"\xfd7zXZ\x00", _xz),
    (b"\x28\xb5\x2f\xfd", _zstd),
)


class _Counted(io.RawIOBase):
    """A file that counts the bytes read from it, for files and pipes alike."""

    def __init__(self, raw: io.FileIO) -> None:
        self.raw = raw
        self.num_bytes = 0
        self.name = str(raw.name)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self.raw.readinto(buffer)
        self.num_bytes += count or 0
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class _Decompressed(io.RawIOBase):
    """What a decompressor gives, up to where the data is damaged: then the error, once asked."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.problem: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.problem is not None:
            raise self.problem
        view = memoryview(buffer)
        filled = 0
        while filled < len(view):
            try:
                piece = self._inner.read1(min(len(view) - filled, _PIECE_BYTES))
            except Exception as problem:
                if not filled:
                    raise
                self.problem = problem
                break
            if not piece:
                break
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled


class OpenedTrace:
    """A trace file that is being read.

    Attributes:
        name: The file's name, without its folder.
        head: The first bytes of its content, decompressed.
        total_bytes: Size of the file as it lies on the disk; None for a pipe.
        once: Whether it can be read only once, as a pipe.
    """

    __slots__ = ("_content", "_counted", "head", "name", "once", "total_bytes")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a file.

        Raises:
            WorkloadError: It is missing, no regular file, empty, or compressed in a way that this
                Python does not read.
        """
        file = Path(path)
        self.name = file.name
        try:
            check_regular(file, what=str(file), error=WorkloadError, streams=True)
            self.once = not file.is_file()
            self.total_bytes = None if self.once else file.stat().st_size
            self._counted = _Counted(io.FileIO(file))
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise WorkloadError(f"{file} cannot be read: {reason}") from problem
        inner: _Decompressed | None = None
        try:
            outer = io.BufferedReader(self._counted, _BUFFER_BYTES)
            start = outer.peek(8)[:8]
            content: Any = outer
            for magic, opened in _COMPRESSIONS:
                if start.startswith(magic):
                    inner = _Decompressed(opened(cast("IO[bytes]", outer)))
                    content = io.BufferedReader(cast(Any, inner), _BUFFER_BYTES)
            self._content: IO[bytes] = content
            self.head: bytes = content.peek(_BUFFER_BYTES)
            if inner is not None and inner.problem is not None and b"\n" not in self.head:
                raise inner.problem
        except Exception as problem:
            self._counted.close()
            if is_damage(problem):
                raise WorkloadError(
                    f"{self.name}, line 1: the compressed data is damaged or ends early ({problem})"
                ) from problem
            raise
        if not self.head.strip():
            self._counted.close()
            raise WorkloadError(f"{self.name} is empty; give a trace with at least one request")

    @property
    def read_bytes(self) -> int:
        """Bytes of the file that have been read, compressed as they lie there."""
        return self._counted.num_bytes

    def text(self) -> io.TextIOWrapper:
        """The content as text: UTF-8, or UTF-16 where a byte-order mark says so.

        Bytes that are no UTF-8 stay in as lone surrogates, so that only the fields that hold them
        are refused.
        """
        wide = self.head.startswith((b"\xff\xfe", b"\xfe\xff"))
        return io.TextIOWrapper(
            self._content,
            encoding="utf-16" if wide else "utf-8-sig",
            errors="surrogateescape" if not wide else "replace",
            newline="",
        )

    def close(self) -> None:
        """Close the file."""
        self._content.close()
        self._counted.close()
