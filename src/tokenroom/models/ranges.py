"""Reading byte ranges of files, near or far, and what a checkpoint's header says of one tensor.

Headers of checkpoints are a few megabytes in front of gigabytes of data, so every reader here asks
for ranges and never for a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenroom.errors import ModelError, shown
from tokenroom.files import read_bounded


class RangeReader(Protocol):
    """A file of known length of which any range can be read."""

    @property
    def name(self) -> str:
        """How messages call the file."""

    @property
    def size_bytes(self) -> int:
        """Length of the file in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``.

        Raises:
            TokenroomError: The range cannot be read.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """A local file; opened for each read, since headers take only a few."""

    path: Path
    name: str
    size_bytes: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``.

        Raises:
            ModelError: The file cannot be read or has become shorter.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                data = file.read(length)
        except OSError as error:
            raise ModelError(f"{self.name} cannot be read: {error.strerror}") from error
        if len(data) != length:
            raise ModelError(f"{self.name} ended while it was read; is it still being written?")
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesReader:
    """Bytes already in memory."""

    name: str
    data: bytes

    @property
    def size_bytes(self) -> int:
        """Length in bytes."""
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``.

        Raises:
            ModelError: The range is not inside the data.
        """
        data = self.data[offset : offset + length]
        if len(data) != length:
            raise ModelError(f"{self.name} ends before byte {offset + length}")
        return data


def open_file(path: str | os.PathLike[str]) -> FileReader:
    """A reader of a local file.

    Raises:
        ModelError: There is no such file.
    """
    file = Path(path)
    try:
        if not file.is_file():
            raise ModelError(f"there is no file {shown(str(path))}; check the path")
        size_bytes = file.stat().st_size
    except (OSError, ValueError) as error:
        raise ModelError(f"{shown(str(path))} cannot be read as a file: {error}") from error
    return FileReader(path=file, name=file.name, size_bytes=size_bytes)


def read_small_file(path: Path, limit_bytes: int) -> bytes:
    """The whole of a small local file, such as an index.

    Raises:
        ModelError: The file is missing or larger than ``limit_bytes``.
    """
    return read_bounded(path, limit_bytes, what=str(path), error=ModelError)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor as a header describes it.

    Attributes:
        name: Its full name in the checkpoint.
        dtype: The type as the format spells it (``"BF16"``, ``"Q4_K"``).
        shape: Its dimensions, slowest first.
        num_bytes: Bytes of its data, padding left out.
        file: Name of the file that holds it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    file: str
