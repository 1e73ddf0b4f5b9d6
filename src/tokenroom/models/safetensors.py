"""Headers of safetensors files: names, types, shapes and bytes, without reading any weight.

The ``safetensors`` package reads whole local files; this reader needs only ranges, so that a remote
checkpoint costs a few requests, and is strict because the files come from strangers: it accepts
no file that the format's own parser refuses (``safetensors`` 0.8.0, ``safetensors/src/tensor.rs``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Final

from tokenroom.errors import ModelError, shown
from tokenroom.models.ranges import RangeReader, StoredTensor, open_file, read_small_file

#: Bits of one element, by the names of ``Dtype`` in safetensors 0.8.0; I4 and U4 are written by
#: quantisers ahead of the format.
DTYPE_BITS: Final = {
    "BOOL": 8,
    "U4": 4,
    "I4": 4,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}

MAX_HEADER_BYTES: Final = 100_000_000  # MAX_HEADER_SIZE of the format's parser
MAX_INDEX_BYTES: Final = 64_000_000
MAX_SHARDS: Final = 4096
MAX_TENSORS: Final = 2**18  # of one file; the largest checkpoints known stay below it in all files
_MAX_ENTRY_CHARS: Final = 4096
_MAX_DIMENSION: Final = 2**63 - 1

# Possessive quantifiers: matching takes linear time and no memory for going back.
_STRING = re.compile(r'\s*+"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"\s*+', re.DOTALL)
_COLON = re.compile(r":\s*+")
_ENTRY = re.compile(r"\{[^{}]*+\}\s*+")
_COMMA = re.compile(r",\s*+")
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors$")


def read_safetensors(path: Path) -> tuple[StoredTensor, ...]:
    """The tensors of a local ``.safetensors`` file, index file or folder of shards.

    Raises:
        ModelError: Something is missing, damaged or points outside the folder.
    """
    if path.is_dir():
        index = path / "model.safetensors.index.json"
        if not index.exists():
            return _read_files(path, _files_of_folder(path))
        path = index
    if path.name.endswith(".json"):
        data = read_small_file(path, MAX_INDEX_BYTES)
        return read_indexed(data, path.name, lambda file: open_file(path.parent / file))
    return read_header(open_file(path))


def read_indexed(
    index: bytes, name: str, open_shard: Callable[[str], RangeReader]
) -> tuple[StoredTensor, ...]:
    """The tensors of every shard that an index file names.

    Engines load whole shards, so a tensor of a shard counts even if the index does not list it.

    Args:
        index: Content of ``model.safetensors.index.json``.
        name: Its name, for errors.
        open_shard: Opens a shard by the name that the index gives.

    Raises:
        ModelError: The index or a shard is damaged, or a tensor is missing or stored twice.
    """
    weight_map = parse_index(index, name)
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(weight_map.values())):
        _add(tensors, read_header(open_shard(shard)))
    for tensor, shard in weight_map.items():
        if tensor not in tensors:
            raise ModelError(f"{name} places {shown(tensor)} in {shard}, which does not hold it")
    return tuple(tensors.values())


def parse_index(data: bytes, name: str) -> dict[str, str]:
    """The file of each tensor, from an index file.

    Raises:
        ModelError: The index is not of the form ``{"weight_map": {tensor: file}}`` or names a
            file outside its own folder.
    """
    try:
        index = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{name} is not readable JSON: {error}") from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{name} has no 'weight_map' that names a file for each tensor")
    files = set(map(str, weight_map.values()))
    if len(files) > MAX_SHARDS:
        raise ModelError(f"{name} names {len(files):,} files; {MAX_SHARDS:,} at most are read")
    for file in files:
        inside = re.fullmatch(r"[^/\\\x00:]+(/[^/\\\x00:]+)*", file)
        if not inside or ".." in file.split("/") or not file.endswith(".safetensors"):
            raise ModelError(
                f"{name} names the file {file[:200]!r}; it may only name .safetensors files in its"
                " own folder"
            )
    return {str(tensor): str(file) for tensor, file in weight_map.items()}


def read_header(reader: RangeReader) -> tuple[StoredTensor, ...]:
    """The tensors of one safetensors file, in the order of their data.

    Raises:
        ModelError: The file is not a whole, valid safetensors file.
    """
    if reader.size_bytes < 8:
        raise ModelError(
            f"{reader.name} holds {reader.size_bytes} bytes, too few for a safetensors file"
        )
    header_bytes = int.from_bytes(reader.read(0, 8), "little")
    if header_bytes > MAX_HEADER_BYTES:
        raise ModelError(
            f"{reader.name} declares a header of {header_bytes:,} bytes, over the"
            f" {MAX_HEADER_BYTES:,} that the format allows; it is no safetensors file or damaged"
        )
    if header_bytes > reader.size_bytes - 8:
        raise ModelError(
            f"{reader.name} declares a header of {header_bytes:,} bytes but ends after"
            f" {reader.size_bytes:,}; download it again"
        )
    try:
        text = reader.read(8, header_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"the header of {reader.name} is not UTF-8 text") from error
    entries = _parse(text, reader.name)
    _check_data(entries, reader.size_bytes - 8 - header_bytes, reader.name)
    return tuple(tensor for tensor, _ in entries)


def _parse(text: str, file: str) -> list[tuple[StoredTensor, int]]:
    """The tensors with their data offset, read entry by entry.

    One entry at a time, as a header of a hundred megabytes would otherwise become gigabytes of
    Python objects before a single check.
    """
    if not text.startswith("{"):
        raise ModelError(f"the header of {file} does not start with '{{'")
    entries: list[tuple[StoredTensor, int]] = []
    names: set[str] = set()
    position = _skip_space(text, 1)
    if text[position : position + 1] == "}" and not text[position + 1 :].strip():
        return entries
    while True:
        name, position = _string(text, position, file)
        if name in names:
            raise ModelError(f"the header of {file} names {name[:200]!r} twice")
        if len(names) == MAX_TENSORS:
            raise ModelError(f"the header of {file} names more than {MAX_TENSORS:,} tensors")
        names.add(name)
        position = _expect(_COLON, text, position, file)
        if name == "__metadata__":
            position = _skip_metadata(text, position, file)
        else:
            match = _ENTRY.match(text, position)
            if match is None or match.end() - position > _MAX_ENTRY_CHARS:
                raise ModelError(f"the header of {file} does not describe {name[:200]!r} properly")
            entries.append(_tensor(name, match.group(), file))
            position = match.end()
        if text[position : position + 1] == "}":
            if text[position + 1 :].strip():
                raise ModelError(f"the header of {file} goes on after its closing brace")
            break
        position = _expect(_COMMA, text, position, file)
    # Zero-sized tensors share an offset with their neighbour and come first.
    entries.sort(key=lambda entry: (entry[1], entry[1] + entry[0].num_bytes))
    return entries


def _skip_space(text: str, position: int) -> int:
    match = re.compile(r"\s*+").match(text, position)
    return match.end() if match else position


def _string(text: str, position: int, file: str) -> tuple[str, int]:
    match = _STRING.match(text, position)
    if match is None:
        raise ModelError(f"the header of {file} is not a JSON object (at character {position})")
    try:
        value = json.loads(match.group())
        value.encode("utf-8")  # a lone surrogate escape is no text
    except ValueError as error:
        raise ModelError(f"the header of {file} has a damaged string") from error
    return value, match.end()


def _expect(pattern: re.Pattern[str], text: str, position: int, file: str) -> int:
    match = pattern.match(text, position)
    if match is None:
        raise ModelError(f"the header of {file} is not a JSON object (at character {position})")
    return match.end()


def _skip_metadata(text: str, position: int, file: str) -> int:
    """Walks over ``{"key": "text"}``; the format allows nothing else there."""
    position = _expect(re.compile(r"\{\s*+"), text, position, file)
    closing = re.compile(r"\}\s*+")
    if match := closing.match(text, position):
        return match.end()
    while True:
        _, position = _string(text, position, file)
        position = _expect(_COLON, text, position, file)
        _, position = _string(text, position, file)
        if match := closing.match(text, position):
            return match.end()
        position = _expect(_COMMA, text, position, file)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _tensor(name: str, entry: str, file: str) -> tuple[StoredTensor, int]:
    where = f"the header of {file} describes {name[:200]!r}"
    try:
        fields = json.loads(entry, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where} with damaged JSON") from error
    if not {"dtype", "shape", "data_offsets"} <= fields.keys():
        raise ModelError(f"{where} without dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise ModelError(
            f"{where} with the type {str(dtype)[:60]!r}; known types are {', '.join(DTYPE_BITS)}"
        )
    if not _are_sizes(shape):
        raise ModelError(f"{where} with a shape that is no list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelError(f"{where} with offsets that are no range of bytes")
    bits = prod(shape) * DTYPE_BITS[dtype]
    if bits > 8 * _MAX_DIMENSION:
        raise ModelError(f"{where} with a shape of more elements than any file can hold")
    if bits != 8 * (offsets[1] - offsets[0]):
        raise ModelError(
            f"{where} with {offsets[1] - offsets[0]:,} bytes, but its shape and type need"
            f" {bits / 8:,.0f}"
        )
    tensor = StoredTensor(
        name=name, dtype=dtype, shape=tuple(shape), num_bytes=bits // 8, file=file
    )
    return tensor, offsets[0]


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(
        type(size) is int and 0 <= size <= _MAX_DIMENSION for size in value
    )


def _check_data(entries: list[tuple[StoredTensor, int]], data_bytes: int, file: str) -> None:
    """The tensors must tile the data: no hole, no overlap, no end past the file's."""
    end = 0
    for tensor, start in entries:
        if start != end:
            relation = "overlaps the tensor before it" if start < end else "leaves a hole before it"
            raise ModelError(f"in {file} the data of {tensor.name[:200]!r} {relation}")
        end = start + tensor.num_bytes
    if end > data_bytes:
        raise ModelError(
            f"{file} should hold {end:,} bytes of tensors but holds {data_bytes:,}; the download"
            " is not complete"
        )
    if end < data_bytes:
        raise ModelError(f"{file} holds {data_bytes - end:,} bytes that belong to no tensor")


def _files_of_folder(folder: Path) -> list[str]:
    """The weight files of a folder without an index, every shard of a set present."""
    files = sorted(file.name for file in folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"the folder {shown(folder.name)} holds no .safetensors file")
    if "model.safetensors" in files:
        return ["model.safetensors"]
    for file in files:
        if match := _SHARD.match(file):
            count = int(match["count"])
            wanted = [
                f"{match['stem']}-{number:05d}-of-{match['count']}.safetensors"
                for number in range(1, min(count, 10_000) + 1)
            ]
            for shard in wanted:
                if shard not in files:
                    raise ModelError(f"the folder {shown(folder.name)} lacks the shard {shard}")
            return wanted
    return files


def _read_files(folder: Path, files: list[str]) -> tuple[StoredTensor, ...]:
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        _add(tensors, read_header(open_file(folder / file)))
    return tuple(tensors.values())


def _add(tensors: dict[str, StoredTensor], more: tuple[StoredTensor, ...]) -> None:
    for tensor in more:
        if (other := tensors.get(tensor.name)) is not None:
            raise ModelError(
                f"{shown(tensor.name)} is stored in both {other.file} and {tensor.file}"
            )
        tensors[tensor.name] = tensor
