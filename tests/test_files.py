"""What lies behind a name is looked at before it is read."""

import os
from pathlib import Path

import pytest

from tokenroom.errors import CommandLineError, HardwareError, ModelError, RowError
from tokenroom.files import MAX_YAML_NODES, parse_yaml, read_bounded, read_bounded_text
from tokenroom.hardware.catalogue import load_catalogue
from tokenroom.models.resolve import load_model
from tokenroom.validation.reading import read_rows


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/"])
def test_devices_and_folders_are_not_read(path: str) -> None:
    with pytest.raises(ModelError, match="give a regular file"):
        read_bounded(path, 10, what="it", error=ModelError)


def test_a_pipe_without_a_writer_is_refused_everywhere(pipe: Path) -> None:
    with pytest.raises(ModelError, match="is a named pipe"):
        load_model(pipe)
    with pytest.raises(ModelError, match="is a named pipe"):
        load_model(pipe.parent)
    with pytest.raises(HardwareError, match="is a named pipe"):
        load_catalogue(pipe)
    with pytest.raises(RowError, match="is a named pipe"):
        list(read_rows(pipe))


def test_a_pipe_of_the_shell_is_read_where_it_is_expected() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"vllm serve x")
    os.close(writing)
    try:
        path = f"/dev/fd/{reading}"
        text = read_bounded_text(path, 100, what="it", error=CommandLineError, streams=True)
    finally:
        os.close(reading)
    assert text == "vllm serve x"


def test_a_file_beyond_its_bound_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"x" * 11)
    with pytest.raises(ModelError, match="it is larger than 10 bytes"):
        read_bounded(file, 10, what="it", error=ModelError)
    assert read_bounded(file, 11, what="it", error=ModelError) == b"x" * 11


def test_text_must_be_utf8(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"ab\xff")
    with pytest.raises(ModelError, match=r"not UTF-8 text \(byte 2\)"):
        read_bounded_text(file, 10, what="it", error=ModelError)


def bomb(levels: int, width: int = 10) -> str:
    lines = ["a0: &a0 [x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines)


def test_aliases_may_not_expand_without_bound() -> None:
    assert len(parse_yaml(bomb(3))[0]["a2"]) == 10
    with pytest.raises(ValueError, match=f"more than {MAX_YAML_NODES:,} nodes"):
        parse_yaml(bomb(20))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &a [*a]", "holds itself"),
        ("[" * 200 + "]" * 200, "deeper than 100 levels"),
        ("[" * 100_000, "nest"),
        ("? [a]\n: b", "unhashable"),
        ("a: b: c", "line 1"),
        ("a: *b", "undefined alias"),
    ],
)
def test_a_damaged_text_is_one_error(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: 'a' is given twice"),
        ("x: [{b: 1, b: 1}]", "line 1: 'b' is given twice"),
        ('{"a": 1, "a": 2}', "line 1: 'a' is given twice"),
    ],
)
def test_a_key_given_twice_is_refused_where_keys_are_ours(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_yaml(text, unique_keys=True)
    assert parse_yaml(text)  # an engine's own loader takes the last


def test_a_key_may_come_again_where_it_is_another_mapping_s() -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: [*a, *a]"
    found = parse_yaml(text, unique_keys=True)
    assert found == [{"a": {"x": 1}, "b": {"x": 2}, "c": [{"x": 1}, {"x": 1}]}]
