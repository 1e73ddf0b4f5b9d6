"""The GGUF container: metadata and tensor table of one file, read strictly and in ranges.

Follows the format's description (ggml ``docs/gguf.md``) and the checks of its parser
(llama.cpp 0c1e57098 ``ggml/src/gguf.cpp``). Files come from strangers: every count and length is
held against the bytes that are left before anything is allocated for it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from tokenroom.errors import ModelError
from tokenroom.models.ranges import RangeReader, StoredTensor

#: (name, elements of a block, bytes of a block) by number: ``ggml_type`` and its traits in
#: llama.cpp 0c1e57098 ``ggml/include/ggml.h`` and ``ggml/src/ggml.c``.
GGML_TYPES: Final[Mapping[int, tuple[str, int, int]]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 36),
    10: ("q2_K", 256, 84),
    11: ("q3_K", 256, 110),
    12: ("q4_K", 256, 144),
    13: ("q5_K", 256, 176),
    14: ("q6_K", 256, 210),
    15: ("q8_K", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
    42: ("q2_0", 64, 18),
}

_SCALARS: Final = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING: Final = 8
_ARRAY: Final = 9

_MAX_METADATA: Final = 2**16
_MAX_TENSORS: Final = 2**18
_MAX_NAME_BYTES: Final = 1024
_MAX_KEPT_STRING_BYTES: Final = 4096  # chat templates and licences are walked over
_MAX_KEPT_ARRAY: Final = 2048  # per-layer values; llama.cpp allows 512 layers
_MAX_STRINGS: Final = 2**23  # of one array; the largest vocabularies have 2**19 merges
_MAX_DIMENSIONS: Final = 4  # GGML_MAX_DIMS
_MAX_ELEMENTS: Final = 2**63 - 1
_FIRST_WINDOW_BYTES: Final = 2**21
_LARGEST_WINDOW_BYTES: Final = 2**24

Value: TypeAlias = int | float | bool | str | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One GGUF file.

    Attributes:
        name: Name of the file.
        version: Version of the format, 2 or 3.
        metadata: Scalars, short strings and short arrays of integers or flags by key; longer ones
            (vocabulary, templates) are left out.
        tensors: The tensors in the order of the table, types by their ggml name.
        header_bytes: Bytes before the tensor data.
    """

    name: str
    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[StoredTensor, ...]
    header_bytes: int


class _Cursor:
    """Goes forward through a file in windows that grow, so that few requests reach a far header."""

    __slots__ = ("_next_bytes", "_reader", "_start", "_window", "position")

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._window = b""
        self._start = 0
        self._next_bytes = _FIRST_WINDOW_BYTES
        self.position = 0

    @property
    def left_bytes(self) -> int:
        return self._reader.size_bytes - self.position

    def take(self, length: int) -> bytes:
        offset = self.position - self._start
        if offset + length > len(self._window):
            self._refill(length)
            offset = 0
        self.position += length
        return self._window[offset : offset + length]

    def skip(self, length: int) -> None:
        if length > self.left_bytes:
            raise self.ended()
        self.position += length

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(value)

    def text(self, limit_bytes: int, what: str) -> str:
        length = self.number("<Q")
        if length > min(limit_bytes, self.left_bytes):
            raise ModelError(
                f"{self._reader.name} has {what} of {length:,} bytes at byte {self.position:,};"
                f" the file is damaged or no GGUF file"
            )
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{self._reader.name} has {what} that is no UTF-8 text") from error

    def skip_strings(self, count: int) -> None:
        """Walks over texts; a vocabulary has half a million, hence no call a text."""
        window, start, position = self._window, self._start, self.position
        size_bytes = self._reader.size_bytes
        for _ in range(count):
            offset = position - start
            if offset + 8 <= len(window):
                length = int.from_bytes(window[offset : offset + 8], "little")
            else:
                self.position = position
                length = self.number("<Q")
                window, start = self._window, self._start
            position += 8 + length
            if position > size_bytes:
                raise self.ended()
        self.position = position

    def ended(self) -> ModelError:
        return ModelError(
            f"{self._reader.name} ends inside its header, after {self._reader.size_bytes:,} bytes;"
            " download it again"
        )

    def _refill(self, length: int) -> None:
        if length > self.left_bytes:
            raise self.ended()
        size = min(max(length, self._next_bytes), self.left_bytes)
        self._window = self._reader.read(self.position, size)
        self._start = self.position
        self._next_bytes = min(2 * self._next_bytes, _LARGEST_WINDOW_BYTES)


def read_container(reader: RangeReader) -> Container:
    """Metadata and tensor table of one GGUF file.

    Raises:
        ModelError: The file is not a whole, valid GGUF file of version 2 or 3.
    """
    cursor = _Cursor(reader)
    name = reader.name
    if reader.size_bytes < 24 or cursor.take(4) != b"GGUF":
        raise ModelError(f"{name} is no GGUF file: it does not start with the bytes 'GGUF'")
    version = cursor.number("<I")
    if version not in (2, 3):
        hint = (
            "it is big-endian, which is not read"
            if version and version & 0xFFFF == 0
            else "only versions 2 and 3 are read; convert it again"
        )
        raise ModelError(f"{name} is of GGUF version {version}; {hint}")
    tensor_count = cursor.number("<Q")
    metadata_count = cursor.number("<Q")
    # No entry is shorter: a tensor takes 24 bytes with an empty name, a key 13 with a flag.
    _check_count(name, "tensors", tensor_count, _MAX_TENSORS, cursor.left_bytes // 24)
    _check_count(name, "metadata keys", metadata_count, _MAX_METADATA, cursor.left_bytes // 13)
    metadata = _read_metadata(cursor, metadata_count, name)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ModelError(f"{name} asks for an alignment of {alignment}; it must be a power of two")
    tensors, offsets = _read_tensors(cursor, tensor_count, name)
    header_bytes = -(-cursor.position // alignment) * alignment
    _check_data(tensors, offsets, alignment, reader.size_bytes - header_bytes, name)
    return Container(
        name=name,
        version=version,
        metadata=metadata,
        tensors=tuple(tensors),
        header_bytes=header_bytes,
    )


def _check_count(name: str, what: str, count: int, limit: int, fits: int) -> None:
    if count > min(limit, fits):
        raise ModelError(
            f"{name} declares {count:,} {what}, more than it can hold; it is damaged or cut short"
        )


def _read_metadata(cursor: _Cursor, count: int, file: str) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    seen: set[str] = set()
    for _ in range(count):
        key = cursor.text(_MAX_NAME_BYTES, "a metadata key")
        if key in seen:
            raise ModelError(f"{file} holds the metadata key {key[:200]!r} twice")
        seen.add(key)
        value = _read_value(cursor, cursor.number("<I"), key, file)
        if value is not None:
            metadata[key] = value
    return metadata


def _read_value(cursor: _Cursor, kind: int, key: str, file: str) -> Value | None:
    """The value, or None if it is too long to be of use and was walked over."""
    if kind in _SCALARS:
        layout = _SCALARS[kind]
        value: Value = struct.unpack(layout, cursor.take(struct.calcsize(layout)))[0]
        return value
    if kind == _STRING:
        length = int.from_bytes(cursor.take(8), "little")
        if length > _MAX_KEPT_STRING_BYTES:
            cursor.skip(length)
            return None
        return cursor.take(length).decode("utf-8", errors="replace")
    if kind != _ARRAY:
        raise ModelError(f"{file} gives {key[:200]!r} the unknown type {kind}; it is damaged")
    kind, count = cursor.number("<I"), cursor.number("<Q")
    if kind == _STRING:
        _check_count(file, f"texts in {key[:200]!r}", count, _MAX_STRINGS, cursor.left_bytes // 8)
        cursor.skip_strings(count)
        return None
    if kind not in _SCALARS:
        what = "nested arrays" if kind == _ARRAY else f"an array of the unknown type {kind}"
        raise ModelError(f"{file} holds {what} in {key[:200]!r}, which llama.cpp does not read")
    layout = _SCALARS[kind]
    size = struct.calcsize(layout)
    _check_count(file, f"values in {key[:200]!r}", count, _MAX_ELEMENTS, cursor.left_bytes // size)
    if count > _MAX_KEPT_ARRAY or layout in ("<f", "<d"):
        cursor.skip(count * size)
        return None
    return struct.unpack(f"<{count}{layout[1]}", cursor.take(count * size))


def _read_tensors(cursor: _Cursor, count: int, file: str) -> tuple[list[StoredTensor], list[int]]:
    tensors: list[StoredTensor] = []
    offsets: list[int] = []
    names: set[str] = set()
    for _ in range(count):
        name = cursor.text(_MAX_NAME_BYTES, "a tensor name")
        if name in names:
            raise ModelError(f"{file} holds the tensor {name[:200]!r} twice")
        names.add(name)
        rank = cursor.number("<I")
        if not 1 <= rank <= _MAX_DIMENSIONS:
            raise ModelError(
                f"{file} gives the tensor {name[:200]!r} {rank:,} dimensions; 1 to 4 are allowed"
            )
        sizes = struct.unpack(f"<{rank}Q", cursor.take(8 * rank))
        kind = cursor.number("<I")
        if kind not in GGML_TYPES:
            raise ModelError(
                f"{file} stores the tensor {name[:200]!r} in ggml type {kind}, which is unknown or"
                " was removed; convert the model again"
            )
        offsets.append(cursor.number("<Q"))
        dtype, block, block_bytes = GGML_TYPES[kind]
        elements = prod(sizes)
        if not 0 < elements <= _MAX_ELEMENTS or sizes[0] % block:
            raise ModelError(
                f"{file} gives the tensor {name[:200]!r} the dimensions {list(sizes)}, which type"
                f" {dtype} with blocks of {block} cannot have"
            )
        tensors.append(
            StoredTensor(
                name=name,
                dtype=dtype,
                shape=tuple(reversed(sizes)),
                num_bytes=elements // block * block_bytes,
                file=file,
            )
        )
    return tensors, offsets


def _check_data(
    tensors: list[StoredTensor], offsets: list[int], alignment: int, data_bytes: int, file: str
) -> None:
    """Every tensor lies aligned inside the file, none over another."""
    end = 0
    for offset, tensor in sorted(zip(offsets, tensors, strict=True), key=lambda pair: pair[0]):
        if offset % alignment:
            raise ModelError(
                f"{file} places the tensor {tensor.name[:200]!r} at {offset:,}, which is no"
                f" multiple of its alignment {alignment}"
            )
        if offset < end:
            raise ModelError(f"in {file} the tensor {tensor.name[:200]!r} overlaps another")
        end = offset + tensor.num_bytes
    if end > max(data_bytes, 0):
        raise ModelError(
            f"{file} should hold {end:,} bytes of tensors but holds {max(data_bytes, 0):,}; the"
            " download is not complete"
        )
