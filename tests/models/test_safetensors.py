"""Headers of safetensors files, checked against the format's own package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

from tokenroom.errors import ModelError
from tokenroom.models.ranges import BytesReader, open_file
from tokenroom.models.safetensors import (
    DTYPE_BITS,
    MAX_HEADER_BYTES,
    parse_index,
    read_header,
    read_safetensors,
)


def file_of(header: object, data_bytes: int = 0, *, raw: bytes | None = None) -> BytesReader:
    text = raw if raw is not None else json.dumps(header).encode()
    return BytesReader(
        name="m.safetensors", data=len(text).to_bytes(8, "little") + text + bytes(data_bytes)
    )


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def write(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A file by the package's own writer, in float16."""
    tensors = {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def test_reads_what_the_package_wrote(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write(path, {"a.weight": (3, 5), "b": (), "empty": (0, 4), 'odd "name" {\\}': (7,)})
    ours = {tensor.name: tensor for tensor in read_header(open_file(path))}
    theirs = dict(safetensors.deserialize(path.read_bytes()))
    assert set(ours) == set(theirs)
    for name, tensor in ours.items():
        assert list(tensor.shape) == theirs[name]["shape"]
        assert tensor.dtype == theirs[name]["dtype"] == "F16"
        assert tensor.num_bytes == len(theirs[name]["data"])
        assert tensor.file == "model.safetensors"


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_type_sizes_are_the_formats(dtype: str) -> None:
    num_bytes = 8 * DTYPE_BITS[dtype] // 8
    data = file_of({"t": entry(dtype, [8], 0, num_bytes)}, num_bytes).data
    assert read_header(BytesReader(name="m", data=data))[0].num_bytes == num_bytes
    if dtype not in {"U4", "I4"}:  # ahead of the format
        assert len(safetensors.deserialize(data)[0][1]["data"]) == num_bytes


DAMAGED = {
    "too short": BytesReader(name="m", data=b"\x01\x02"),
    "length past the end": BytesReader(name="m", data=(99).to_bytes(8, "little") + b"{}"),
    "length over the limit": BytesReader(
        name="m", data=(MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}"
    ),
    "length of all ones": BytesReader(name="m", data=b"\xff" * 8 + b"{}"),
    "not utf-8": file_of(None, raw=b'{"\xff": 1}'),
    "a list": file_of([1]),
    "a number": file_of(3),
    "nothing": file_of(None, raw=b""),
    "leading space": file_of(None, raw=b" {}"),
    "after the end": file_of(None, raw=b"{}x"),
    "unclosed": file_of(None, raw=b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'),
    "trailing comma": file_of(None, raw=b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},}'),
    "deep nesting": file_of(None, raw=b'{"a":' + b"[" * 100_000),
    "deep nesting in an entry": file_of(None, raw=b'{"a":{"dtype":' + b"[" * 3000 + b"}}"),
    "deep metadata": file_of(None, raw=b'{"__metadata__":{"a":' + b"{" * 100_000),
    "metadata of numbers": file_of({"__metadata__": {"a": 1}}),
    "duplicate tensor": file_of(
        None,
        4,
        raw=b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
        b'"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
    ),
    "duplicate field": file_of(
        None, 2, raw=b'{"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    ),
    "missing field": file_of({"a": {"dtype": "U8", "shape": [2]}}, 2),
    "unknown type": file_of({"a": entry("Q7", [2], 0, 2)}, 2),
    "type no text": file_of({"a": {"dtype": 8, "shape": [2], "data_offsets": [0, 2]}}, 2),
    "not a number": file_of(
        None, 2, raw=b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,2]}}'
    ),
    "float sizes": file_of({"a": {"dtype": "U8", "shape": [2.0], "data_offsets": [0, 2]}}, 2),
    "flag as size": file_of({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, 1),
    "negative size": file_of({"a": entry("U8", [-2], 0, 2)}, 2),
    "negative offset": file_of({"a": entry("U8", [2], -2, 0)}, 2),
    "backward offsets": file_of({"a": entry("U8", [2], 2, 0)}, 2),
    "three offsets": file_of({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 1, 2]}}, 2),
    "overlap": file_of({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, 6),
    "hole": file_of({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 4, 6)}, 6),
    "late start": file_of({"a": entry("U8", [2], 1, 3)}, 3),
    "bytes not of the shape": file_of({"a": entry("BF16", [2], 0, 2)}, 2),
    "half a byte": file_of({"a": entry("F4", [3], 0, 1)}, 1),
    "overflowing shape": file_of({"a": entry("U8", [2**62, 2**62, 2**62], 0, 0)}),
    "huge size": file_of({"a": entry("U8", [10**400], 0, 0)}),
    "huger size": file_of(
        None, raw=b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,0]}}'
    ),
    "offset past the end": file_of({"a": entry("U8", [2**40], 0, 2**40)}),
    "data cut short": file_of({"a": entry("U8", [100], 0, 100)}, 99),
    "data left over": file_of({"a": entry("U8", [100], 0, 100)}, 101),
    "lone surrogate": file_of(
        None, raw=b'{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    ),
}


@pytest.mark.parametrize("reader", DAMAGED.values(), ids=list(DAMAGED))
def test_damage_is_one_sentence(reader: BytesReader) -> None:
    with pytest.raises(ModelError) as caught:
        read_header(reader)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


# The package forgives space in front, which the format's description forbids.
@pytest.mark.parametrize("name", sorted(DAMAGED.keys() - {"leading space"}))
def test_the_package_refuses_it_too(name: str) -> None:
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(DAMAGED[name].data)


def test_padded_and_empty_headers() -> None:
    assert read_header(file_of(None, raw=b"{}   ")) == ()
    assert read_header(file_of({"__metadata__": {"format": "pt", 'a"}{': "}{"}})) == ()
    padded = b'{ "a" : {"dtype":"U8", "shape":[], "data_offsets":[0, 1]} }  '
    assert read_header(file_of(None, 1, raw=padded))[0].shape == ()


def test_folder_with_index(tmp_path: Path) -> None:
    write(tmp_path / "model-00001-of-00002.safetensors", {"a": (2, 2)})
    write(tmp_path / "model-00002-of-00002.safetensors", {"b": (4,), "unlisted": (1,)})
    index = {
        "metadata": {"total_size": 16},
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors",
        },
    }
    index_path = tmp_path / "model.safetensors.index.json"
    index_path.write_text(json.dumps(index))
    for path in (tmp_path, index_path):
        assert {tensor.name for tensor in read_safetensors(path)} == {"a", "b", "unlisted"}
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="00002-of-00002"):
        read_safetensors(tmp_path)


def test_index_that_disagrees_with_its_shards(tmp_path: Path) -> None:
    write(tmp_path / "one.safetensors", {"a": (2,)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"gone": "one.safetensors"}}))
    with pytest.raises(ModelError, match="'gone'"):
        read_safetensors(tmp_path)
    write(tmp_path / "two.safetensors", {"a": (2,), "b": (2,)})
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    with pytest.raises(ModelError, match="both"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize(
    "file",
    [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/../../x.safetensors",
        "a\\b.safetensors",
        "c:x.safetensors",
        "x.bin",
        "",
        "nul\0.safetensors",
        "~/../x.safetensors",
    ],
)
def test_index_may_not_leave_its_folder(file: str) -> None:
    with pytest.raises(ModelError, match="its own folder"):
        parse_index(json.dumps({"weight_map": {"a": file}}).encode(), "index")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b'{"weight_map": {}}', b"[" * 100_000, b'{"weight_map":3}']
)
def test_broken_index(data: bytes) -> None:
    with pytest.raises(ModelError):
        parse_index(data, "index")


def test_folder_without_index(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no \.safetensors"):
        read_safetensors(tmp_path)
    write(tmp_path / "m-00001-of-00002.safetensors", {"a": (2,)})
    with pytest.raises(ModelError, match="lacks the shard m-00002-of-00002"):
        read_safetensors(tmp_path)
    write(tmp_path / "m-00002-of-00002.safetensors", {"b": (2,)})
    assert len(read_safetensors(tmp_path)) == 2
    write(tmp_path / "model.safetensors", {"c": (2,)})
    assert [tensor.name for tensor in read_safetensors(tmp_path)] == ["c"]
    with pytest.raises(ModelError, match="there is no file"):
        read_safetensors(tmp_path / "missing.safetensors")
