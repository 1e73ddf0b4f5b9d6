"""Hostile headers: random bytes and mutated valid files give one sentence, never more memory."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from header_targets import PARSERS, VALID, check, check_memory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*"))

SIZES = st.sampled_from([0, 1, 7, 32, 2**15, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1])
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("byte"), st.integers(0, 2**20), st.integers(0, 255)),
        st.tuples(st.just("size"), st.integers(0, 2**20), SIZES),
        st.tuples(st.just("cut"), st.integers(0, 2**20), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 2**20), st.integers(1, 40)),
        st.tuples(st.just("repeat"), st.integers(0, 2**20), st.integers(1, 200)),
    ),
    min_size=1,
    max_size=6,
)


def edited(data: bytes, edits: list[tuple[str, int, int]]) -> bytes:
    for kind, place, value in edits:
        at = place % (len(data) + 1)
        if kind == "byte":
            data = data[:at] + bytes([value]) + data[at + 1 :]
        elif kind == "size":
            data = data[:at] + struct.pack("<Q", value) + data[at + 8 :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + value :]
        else:
            data = data[:at] + data[at : at + value] + data[at:]
    return data


@pytest.mark.parametrize("parser", sorted(PARSERS))
def test_the_valid_files_are_accepted(parser: str) -> None:
    assert check(parser, VALID[parser]())


@pytest.mark.parametrize("parser", sorted(PARSERS))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS)
def test_mutated_files(parser: str, edits: list[tuple[str, int, int]]) -> None:
    check_memory(parser, edited(VALID[parser](), edits))


@pytest.mark.parametrize("parser", sorted(PARSERS))
@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=4096), magic=st.sampled_from([b"", b"GGUF\3\0\0\0", b'{"']))
def test_random_bytes(parser: str, data: bytes, magic: bytes) -> None:
    check_memory(parser, magic + data)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=2000))
def test_random_safetensors_headers(text: str) -> None:
    header = text.encode("utf-8", errors="surrogatepass")
    check_memory("safetensors", len(header).to_bytes(8, "little") + header + bytes(64))


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_found_cases(path: Path) -> None:
    check_memory(path.name.split("-")[0], path.read_bytes())


@pytest.mark.parametrize(
    ("parser", "data"),
    [
        ("safetensors", b"{" + b'"a":{' * 200_000),
        ("safetensors", b'{"__metadata__":{' + b'"":"",' * 200_000),
        ("safetensors", b'{"' + b"\\" * 1_000_001),
        ("safetensors", b'{"a":{"dtype":"U8","shape":[' + b"1," * 500_000),
        ("safetensors", b" " * 1_000_000),
    ],
)
def test_long_hostile_headers(parser: str, data: bytes) -> None:
    check_memory(parser, len(data).to_bytes(8, "little") + data)


def test_gguf_with_a_million_texts() -> None:
    texts = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 8, 10**6)
    check_memory("gguf", texts + bytes(8 * 10**6))
