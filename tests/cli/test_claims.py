"""``tokenroom claims``: rows on a terminal, as Markdown, CSV and JSON."""

import csv
import io
import json

import pytest
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main
from tokenroom.reports.claims_text import schema_text


def test_a_row_in_full_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "kv-70b-4096-x1"]) == 0
    out = capsys.readouterr().out
    assert "Published: 10 GB" in out
    assert "Here: 1.25 GiB" in out
    assert "Verdict: corrected" in out
    assert "8 heads of 128" in out
    assert main(["claims", "kv-70b-4096-x1", "--lang", "zh"]) == 0
    out = capsys.readouterr().out
    assert "原文：10 GB" in out
    assert "结论：更正" in out


def test_a_family_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "table-9.2"]) == 0
    out = capsys.readouterr().out
    assert "16 corrected" in out
    assert sum(line.startswith("table-9.2-") for line in out.splitlines()) == 16
    assert "640.00 GiB" in out


def test_json_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "kv-falcon-mqa", "reference-7b-24gb", "quantise-doubles", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    Draft202012Validator(json.loads(schema_text())).validate(found)
    falcon, reference, doubles = found["claims"]
    assert [case["value"] for case in falcon["ours"]["cases"]] == [1, 8]
    assert reference["published"] is None
    assert doubles["published"] | {"text": None} == {"low": 2, "high": None, "text": None}
    assert {verdict: row["count"] for verdict, row in found["verdicts"].items()} == {
        "equal": 1,
        "close": 0,
        "depends": 1,
        "corrected": 0,
        "added": 1,
    }


def test_csv_has_a_line_for_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "tp-divides-kv", "reference-7b-24gb", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["value"]) for row in rows[:4]] == [1, 1, 1, 2]
    assert rows[0]["published_low"] == rows[0]["published_high"] == "1"
    assert [row["published_low"] for row in rows[4:]] == [""] * 3


def test_recorded_figures_need_no_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "users-wait-simulated", "--recorded", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["claims"]
    assert row["simulated"] is row["recorded"] is True
    assert main(["claims", "batching-static-cap", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["claims"]
    assert (row["simulated"], row["recorded"]) == (True, False)


def test_markdown_by_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "kv-7b-4k", "kv-mha", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("#")] == [
        "# Published claims, checked",
        "## The ledger: who takes the memory, and how to need less",
        "### Section 2.1",
        "## The handbook: formulas, tables and a worked case",
        "### Section 3.3",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["claims", "kv-7b-5k"], "no claim is named 'kv-7b-5k'; near it"),
        (["claims", "--json", "--csv"], "three forms"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
