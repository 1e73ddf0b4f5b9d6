"""Files of rows in every form, and what is wrong with bad ones."""

import gzip
import json
from pathlib import Path

import pytest

from tokenroom.errors import RowError
from tokenroom.validation.reading import BadRow, read_rows
from tokenroom.validation.rows import Row, read_row, row_data

ROW = {
    "id": "one",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "model": "qwen3-8b",
    "gpu": "h100",
    "gpus": 1,
    "flags": {"max_model_len": 8192, "gpu_memory_utilization": 0.9},
    "reported": {"kv_gib": 57.5},
    "outcome": "ok",
}


def rows_of(folder: Path, name: str, content: str | bytes) -> list[Row | BadRow]:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_rows(file))


LINE = json.dumps(ROW)
CSV = (
    "id,engine,engine_version,model,gpu,gpus,outcome,flags.max_model_len,"
    "flags.gpu_memory_utilization,reported.kv_gib\n"
    "one,vllm,0.19.0,qwen3-8b,h100,1,ok,8192,0.9,57.5\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINE + "\n\n"),
        ("a.txt", "\ufeff" + LINE),
        ("a.json", json.dumps(ROW, indent=2)),
        ("a.json", json.dumps([ROW])),
        ("a.json", json.dumps({"rows": [ROW]}, indent=1)),
        ("a.csv", CSV),
        ("a.csv", CSV.replace("\n", "\r\n")),
        ("a.jsonl", gzip.compress(LINE.encode())),
        ("a.csv.gz", gzip.compress(CSV.encode())),
    ],
    ids=["lines", "bom", "object", "list", "wrapped", "csv", "crlf", "gzip", "csv-gzip"],
)
def test_every_form_gives_the_same_row(name: str, content: str | bytes, tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, name, content)
    assert isinstance(row, Row)
    assert row_data(row) == row_data(read_row(ROW, ""))
    assert row.grade == "A"


def test_csv_takes_objects_as_json(tmp_path: Path) -> None:
    text = 'id,engine,flags,reported\nx,vllm,"{""tp"": 2}","{""kv_gib"": 1.5}"\n'
    (row,) = rows_of(tmp_path, "a.csv", text)
    assert isinstance(row, Row)
    assert row.flags == {"tp": 2}
    assert row.reported == {"kv_gib": 1.5}


def test_a_row_of_speed_names_its_metric(tmp_path: Path) -> None:
    line = '{"id": "s", "engine": "vLLM", "metric": "tpot_ms", "value": 12.5}'
    (row,) = rows_of(tmp_path, "a.jsonl", line)
    assert isinstance(row, Row)
    assert (row.engine, row.reported) == ("vllm", {"tpot_ms": 12.5})


def test_a_first_line_longer_than_a_buffer_is_one_row(tmp_path: Path) -> None:
    long = json.dumps(ROW | {"note": "n" * 300_000})
    found = rows_of(tmp_path, "a.jsonl", f"{long}\n{LINE}\n")
    assert [type(item) for item in found] == [Row, Row]


def test_a_row_survives_being_written_and_read() -> None:
    row = read_row(ROW | {"command": "vllm serve x", "inferred": ["gpu"], "note": "n"}, "")
    again = read_row(json.loads(json.dumps(row_data(row))), "")
    assert again == row


def test_what_is_said_of_odd_values_is_bounded() -> None:
    names = {"x" * 100_000 + str(index): float("inf") for index in range(50)}
    many = {f"flag{index}": index for index in range(50_000)}
    row = read_row(ROW | {"reported": names, "flags": names} | many, "")
    assert len(row.odd) == 20
    assert max(map(len, row.odd)) < 300


@pytest.mark.parametrize(
    ("missing", "grade"),
    [((), "A"), (("gpu",), "C"), (("model",), "C"), (("gpus",), "C"), (("reported",), "D")],
)
def test_a_row_without_grade_gets_one_by_what_it_states(
    missing: tuple[str, ...], grade: str
) -> None:
    data = {name: value for name, value in ROW.items() if name not in missing}
    assert read_row(data, "").grade == grade


def test_a_row_without_the_share_of_memory_is_of_grade_b() -> None:
    assert read_row(ROW | {"flags": {"max_model_len": 8192}}, "").grade == "B"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": None}, "has no id"),
        ({"engine": 7}, "has engine 7"),
        ({"gpus": 1.5}, "gpus 1.5"),
        ({"gpus": True}, "gpus True"),
        ({"gpus": -1}, "gpus -1"),
        ({"flags": [1]}, "flags"),
        ({"reported": "57"}, "reported"),
        ({"model": 7}, "model 7"),
        ({"grade": "E"}, "grade 'E'"),
        ({"score": 1}, "score 1"),
        ({"inferred": "gpu"}, "inferred"),
        ({"model": "x" * 5000}, "5000 characters"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, object], said: str, tmp_path: Path) -> None:
    good, bad = rows_of(tmp_path, "a.jsonl", f"{LINE}\n{json.dumps(ROW | change)}\n")
    assert isinstance(good, Row)
    assert isinstance(bad, BadRow)
    assert "a.jsonl line 2" in bad.reason
    assert said in bad.reason
    assert "\n" not in bad.reason


@pytest.mark.parametrize(
    "line", ["{", "nonsense", "[1", '{"id": NaN}', "7", '"text"', "\xff", "[" * 100_000]
)
def test_a_line_that_is_no_row_is_reported_and_the_rest_read(line: str, tmp_path: Path) -> None:
    content = f"{LINE}\n".encode() + line.encode("latin-1") + f"\n{LINE}\n".encode()
    found = rows_of(tmp_path, "a.jsonl", content)
    assert [type(item) for item in found] == [Row, BadRow, Row]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b""),
        ("a.json", b"[1, 2"),
        ("a.json", b'{"id":\n'),
        ("a.csv", b"name,value\n1,2\n"),
        ("a.csv", b"id,engine\n\xff,vllm\n"),
        ("a.bin", bytes(range(128, 256))),
        ("a.gz", b"\x1f\x8b\x08\x00\x00"),
        ("a.gz", gzip.compress(LINE.encode() * 100, mtime=0)[:-20]),
        ("a.jsonl", b"{" + b" " * (5 * 2**20) + b"}\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    name: str, content: bytes, tmp_path: Path
) -> None:
    with pytest.raises(RowError) as raised:
        rows_of(tmp_path, name, content)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(RowError, match=r"cannot be read|is a folder"):
            list(read_rows(path))


def test_what_unpacks_without_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * 300_000))
    with pytest.raises(RowError, match="more than 250,000 lines"):
        list(read_rows(path))
    monkeypatch.setattr("tokenroom.validation.reading._MAX_UNPACKED_BYTES", 100_000)
    with pytest.raises(RowError, match="unpacks to more than"):
        list(read_rows(path))
