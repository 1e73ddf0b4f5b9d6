"""``tokenroom workload`` from the outside."""

import json
import re
import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main
from tokenroom.reports.workload_json import schema_text
from tokenroom.serving.workloads.grammar import COMMON_KEYS, PROCESSES, parse_workload
from tokenroom.serving.workloads.presets import load_presets
from tokenroom.serving.workloads.trace import FORMATS

TRACE = "ts,input,output\n" + "".join(f"{time},{time % 50 + 1},9\n" for time in range(600))
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [0, 1]}\n'
    '{"timestamp": 4000, "input_length": 1030, "output_length": 6, "hash_ids": [0, 1, 3]}\n'
)


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["workload", *words]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def read(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(asked(capsys, *words, "--json"))
    Draft202012Validator(json.loads(schema_text())).validate(found)
    return found


def test_a_trace_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    text = asked(capsys, str(tmp_path / "t.csv"), "--max-model-len", "50")
    assert text.startswith("t.csv: CSV\n600 requests over 9.98 min\n")
    assert "Rate: 1.00 requests/s on average, 1.00 in the fullest minute (1.00 times)" in text
    assert "max_model_len 50: 12 requests" in " ".join(text.split())
    chinese = asked(capsys, str(tmp_path / "t.csv"), "--lang", "zh")
    assert "600 个请求，历时 9.98 min" in chinese
    assert asked(capsys, str(tmp_path / "t.csv"), "--max-model-len", "1k").endswith(
        "All requests fit within max_model_len 1,024.\n"
    )


def test_the_object_follows_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.jsonl").write_text(MOONCAKE)
    found = read(capsys, str(tmp_path / "t.jsonl"), "--block-size", "16", "--max-model-len", "1029")
    assert found["format"] == "Mooncake (JSON Lines)"
    assert found["prefix_cache"] == {
        "block_tokens": 16,
        "hit_ratio": 1024 / 2054,
        "hit_tokens": 1024,
        "trace_block_tokens": 512,
        "trace_hit_ratio": 0.4,
    }
    assert found["limit"] == {"max_model_len": 1029, "long_inputs": 1, "long_answers": 0}
    assert found["longest"] == {"tokens": 1036, "request": 1}
    assert read(capsys, "users:count=2,input=3,output=4")["arrivals"] is None
    assert read(capsys, "batch:input=3,output=4")["requests"] == 1000
    assert len(read(capsys, "--presets")["presets"]) >= 6  # type: ignore[arg-type]
    assert json.loads(asked(capsys, "--json-schema")) == json.loads(schema_text())


def test_a_part_may_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    file = str(tmp_path / "t.csv")
    found = read(capsys, file, "--window", "1m..2m", "--speed-up", "2", "--requests", "30")
    assert found["requests"] == 30
    assert found["arrivals"]["span_seconds"] == 14.5  # type: ignore[index]
    assert found["input_tokens"]["smallest"] == 11  # type: ignore[index]


def test_rows_left_out_are_told_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(TRACE + "700,x,1\n650,3,3\n701,1,0\n")
    assert "line 602: input is 'x'" in asked(capsys, str(tmp_path / "t.csv"), code=2)
    text = " ".join(asked(capsys, str(tmp_path / "t.csv"), "--skip-bad").split())
    assert (
        "Left out, 2 rows: no whole number 1 (first: line 602), no output (failed) 1 (first: line "
        "604)"
    ) in text
    found = read(capsys, str(tmp_path / "t.csv"), "--skip-bad")
    assert found["left_out"] == {"number": 1, "no_output": 1}
    (tmp_path / "u.csv").write_text(TRACE + "100,3,3\n")
    assert read(capsys, str(tmp_path / "u.csv"))["reordered"] == 1


def test_presets_come_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Sources: Lengths, rate and coefficient" in asked(capsys, "chat:requests=50,seed=3")
    text = asked(capsys, "--presets", "--lang", "zh")
    assert "code-completion" in text
    assert "github.com/Azure/AzurePublicDataset" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no workload is given"),
        (["x" * 5000], "is neither a file nor a description"),
        (["missing.csv"], "'missing.csv' is neither a file nor a description"),
        (["poisson:rate=5"], "poisson needs input"),
        (["chat", "--format", "csv"], "--format is of a trace, and 'chat' is drawn"),
        (["chat", "--columns", "input=x"], "--columns is of a trace"),
        (["chat", "--block-size", "0"], "--block-size is 0; it must be at least 1 token"),
        (["chat", "--window", "10m"], "--window is '10m'; write its two ends"),
        (["chat", "--window", "10..20"], "--window is '10'; write a time with a unit"),
        (["chat", "--window", "2m..1m"], "holds no time"),
        (["chat", "--speed-up", "0"], "the speed-up is 0; it must be above 0"),
        (["poisson:rate=-1,input=1,output=1"], "rate is '-1'; write a number that is not below 0"),
        (["chat", "--requests", "0"], "the number of requests is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    said = asked(capsys, *words, code=2)
    assert message in said
    assert len(said.strip().splitlines()) == 1


ROOT = Path(__file__).parents[2]


def test_what_the_page_on_workloads_shows_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs/workloads.md").read_text("utf-8")
    (command,) = re.findall(r"^\$ tokenroom workload (.*)$", page, re.MULTILINE)
    assert "5,000 requests" in asked(capsys, *shlex.split(command))
    for name in load_presets():
        assert f"`{name}`" in page
    for name in FORMATS:
        assert f"| `{name}` |" in page
    for name in PROCESSES:
        assert f"| `{name}` |" in page
    for described in re.findall(r"`((?:chat|agents):[^`]+)`", page):
        assert parse_workload(described)
    for key in COMMON_KEYS:
        assert f"`{key}`" in page or f"{key}=" in page


def test_long_numbers_are_whole_in_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("ts,input,output\n0,10,3\n1,99999999,99999999\n")
    text = asked(capsys, str(tmp_path / "t.csv"))
    assert re.search(r"^longest +99,999,999 +99,999,999$", text, re.MULTILINE)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
