import json
from pathlib import Path

import pytest

from tokenroom.cli.main import main

ASKED = ["pools", "llama-3.1-8b", "--gpu", "4xl40s", "--jobs", "1", "--draws", "2"]
MIXED = "poisson:rate=8,input=quantiles(0:50,80:400,90:6000,100:20000),output=60"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*ASKED, *words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_search_tells_whether_splitting_pays(
    capsys: pytest.CaptureFixture[str], language: str
) -> None:
    code, out, _ = run(
        capsys, "--workload", MIXED, "--limit", "120", "--ttft", "1s", "--lang", language
    )
    assert code in (0, 1)
    assert ("Splitting" if language == "en" else "拆分") in out
    assert "{" not in out


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--workload", MIXED, "--limit", "120", "--ttft", "1s", "--json")
    answer = json.loads(out)
    assert code == (0 if answer["pays"] else 1)
    assert {tried["long"] + tried["short"] for tried in answer["tried"]} == {4}
    gain = answer["best_goodput_share"]["value"] - answer["mixed_goodput_share"]["value"]
    assert answer["gain"]["value"] == pytest.approx(gain)
    assert answer["gain"]["runs"] == 2


def test_prompts_of_one_length_have_nothing_to_split(capsys: pytest.CaptureFixture[str]) -> None:
    alike = "poisson:rate=8,input=300,output=20"
    code, out, _ = run(capsys, "--workload", alike, "--limit", "50", "--ttft", "1s")
    assert code == 1
    assert "nothing to split" in out


def test_a_trace_is_cut_into_stretches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = (f"{number * 0.2},{100 if number % 5 else 9000},20" for number in range(300))
    trace.write_text("arrival,input,output\n" + "\n".join(rows) + "\n")
    _, out, _ = run(capsys, "--trace", str(trace), "--ttft", "1s", "--json")
    answer = json.loads(out)
    assert answer["gain"]["runs"] == 2
    assert {tried["threshold_tokens"] for tried in answer["tried"]} == {None, 100}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", MIXED], "nothing is promised"),
        (["--workload", MIXED, "--ttft", "1s", "--gpu", "l40s"], "no number of GPUs is given"),
        (["--workload", MIXED, "--ttft", "1s", "--tp", "4"], "a server has 4; give a multiple"),
        (["--workload", MIXED, "--ttft", "1s", "--confidence", "1"], "--confidence is 1"),
        (
            ["--workload", MIXED, "--ttft", "1s", "--draws", "1"],
            "--draws is '1'; give a whole number from 2",
        ),
        (["--workload", MIXED, "--ttft", "1s", "--draws", "0"], "--draws is '0'"),
        (["--workload", MIXED, "--ttft", "1s", "--limit", "0"], "--limit is 0"),
        (["--workload", "foo", "--ttft", "1s"], "--workload is 'foo'"),
        (["--workload", MIXED, "--ttft", "1s", "--kv", "foo"], "--kv is 'foo'"),
        (["--workload", MIXED, "--ttft", "1s", "--store", ""], "--store is empty"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
