"""``tokenroom compare`` from the outside."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main
from tokenroom.comparing.figures import FIGURES
from tokenroom.reports.comparison_json import schema_text

SMALL = "poisson:rate=4,input=300,output=20,requests=12"
MODEL = ("llama-3-8b", "--gpu", "a100", "--context", "4k")
ONE = ("--jobs", "1", "--seeds", "3")
LANES = ("--vary", "max-num-seqs=64,1")


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main(["compare", *words]) == code
    out, err = capsys.readouterr()
    return out, err


def read(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(capsys, *words, "--json", code=code)[0])
    Draft202012Validator(json.loads(schema_text())).validate(found)
    return found


def file_of(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def test_variations_of_one_deployment(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*MODEL, *LANES, "--workload", SMALL, *ONE, "--price", "2", "--ttft", "300ms")
    out, err = asked(capsys, *words)
    assert err == ""
    flat = " ".join(out.split())
    assert "2 deployments on the same requests" in flat
    assert "Drawn 3 times, with the seeds 0 to 2; each draw is served by all of them" in flat
    assert "A max-num-seqs 64 B max-num-seqs 1" in flat
    assert "Means over 3 draws; goodput is of requests that keep TTFT 300 ms" in flat
    assert "Differences to A; ± is half of a 95% confidence interval" in flat
    for figure in ("TTFT mean", "TPOT 99%", "ITL 95%", "goodput share", "USD a million out"):
        assert figure in flat
    assert out == asked(capsys, *words)[0]
    assert "2 个部署处理相同的请求" in asked(capsys, *words, "--lang", "zh")[0]


def test_what_is_alike_is_the_same_and_what_may_be_chance_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = (*MODEL, "--workload", SMALL, *ONE, "--vary", "block-size=16,32")
    out = asked(capsys, *chance)[0]
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("TPOT mean")][1] == (
        "same"
    )
    unsure = (*MODEL, "--workload", SMALL, *ONE, *LANES, "--confidence", "0.9999999")
    out = asked(capsys, *unsure)[0]
    assert "~ not significant: the interval holds 0" in out
    assert any(line.startswith("TTFT mean") and "~ +" in line for line in out.splitlines())


def test_files_of_deployments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = file_of(tmp_path, "one", "deployment: llama-3-8b --gpu a100 --context 4k\nprice: 2\n")
    two = file_of(
        tmp_path,
        "two",
        'name: an L40S\ndeployment: "--gpu l40s -- vllm serve llama-3-8b --max-model-len 4096"\n',
    )
    found = read(capsys, one, two, "--workload", SMALL, *ONE)
    first, second = found["deployments"]
    assert (first["name"], second["name"]) == ("one", "an L40S")
    assert (found["baseline"], first["differences"]) == ("one", None)
    assert first["means"]["usd"]["value"] > 0
    assert second["means"]["usd"] is None
    slower = second["differences"]["tpot_mean_seconds"]
    assert slower["low"] > 0
    assert slower["significant"] is True
    assert slower["relative"] == pytest.approx(
        slower["value"] / first["means"]["tpot_mean_seconds"]["value"]
    )
    assert [run["draw"] for run in first["runs"]] == [0, 1, 2]
    varied = read(capsys, one, two, *LANES, "--workload", SMALL, "--jobs", "1", "--seeds", "1")
    assert [item["name"] for item in varied["deployments"]] == [
        *("one, max-num-seqs 64", "one, max-num-seqs 1"),
        *("an L40S, max-num-seqs 64", "an L40S, max-num-seqs 1"),
    ]
    assert varied["interval"] is None


def test_fleets_are_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = file_of(tmp_path, "one", "deployment: llama-3-8b --gpu a100 --context 4k\nreplicas: 2\n")
    apart = file_of(
        tmp_path,
        "apart",
        "name: long and short apart\n"
        "pools:\n"
        "- {name: short, deployment: llama-3-8b --gpu a100 --context 4k, max_prompt: 400}\n"
        "- {name: long, deployment: llama-3-8b --gpu a100 --context 4k}\n",
    )
    mixed = "poisson:rate=4,input=uniform(100,1000),output=20,requests=20"
    words = (one, apart, "--workload", mixed, *ONE)
    out = " ".join(asked(capsys, *words)[0].split())
    assert (
        "B long and short apart: short: 1 x (meta-llama/Meta-Llama-3-8B on 1 x NVIDIA A100" in out
    )
    found = read(capsys, *words)
    assert [pool["name"] for pool in found["deployments"][1]["pools"]] == ["short", "long"]
    assert [pool["replicas"] for pool in found["deployments"][0]["pools"]] == [2]
    hours = [item["means"]["gpu_hours"]["value"] for item in found["deployments"]]
    assert hours[0] == pytest.approx(hours[1], rel=0.05)
    few = (*MODEL, "--workload", SMALL, *ONE, "--vary", "replicas=1,3")
    found = read(capsys, *few)
    hours = [item["means"]["gpu_hours"]["value"] for item in found["deployments"]]
    assert hours[1] == pytest.approx(3 * hours[0], rel=0.05)
    _, err = asked(capsys, one, apart, *LANES, "--workload", SMALL, code=2)
    assert "long and short apart has several pools; write its variations as files" in err


def test_a_trace_has_no_intervals_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{time},300,20\n" for time in range(6))
    (tmp_path / "t.csv").write_text("ts,input,output\n" + rows)
    words = (*MODEL, *LANES, "--trace", str(tmp_path / "t.csv"), "--jobs", "1")
    out = " ".join(asked(capsys, *words)[0].split())
    assert "Differences to A, without intervals: each served once" in out
    found = read(capsys, *words)
    assert found["draws"] is found["interval"] is None
    assert found["deployments"][1]["differences"]["e2e_mean_seconds"]["significant"] is None
    _, err = asked(capsys, *words, "--seeds", "3", code=2)
    assert "nothing of a trace is drawn" in err


def test_a_trace_is_cut_into_stretches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{time / 16},300,20\n" for time in range(41))
    (tmp_path / "t.csv").write_text("ts,input,output\n" + rows)
    words = (*MODEL, *LANES, "--trace", str(tmp_path / "t.csv"), "--jobs", "1", "--stretches", "4")
    out = " ".join(asked(capsys, *words)[0].split())
    assert "Cut into 4 stretches of equal time; each is served by all of them" in out
    assert "Means over 4 stretches" in out
    assert "of 4 differences paired by stretch" in out
    found = read(capsys, *words)
    assert (found["drawn_by"], found["draws"]) == ("stretch", [1, 2, 3, 4])
    assert [run["arrived"] for run in found["deployments"][0]["runs"]] == [10, 10, 10, 11]
    assert found["deployments"][1]["differences"]["e2e_mean_seconds"]["significant"] is True
    drawn = (*MODEL, *LANES, "--workload", SMALL, "--stretches", "4")
    assert "give --seeds instead" in asked(capsys, *drawn, code=2)[1]


def test_runs_are_kept_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ("--store", str(tmp_path / "runs"))
    words = (*MODEL, *LANES, "--workload", SMALL, *store, "--jobs", "1", "--seeds")
    first = read(capsys, *words, "2")
    lines = (tmp_path / "runs" / "answers.jsonl").read_text().splitlines()
    assert len(lines) == 4
    file = tmp_path / "runs.csv"
    assert read(capsys, *words, "2", "--csv", str(file)) == first
    assert len((tmp_path / "runs" / "answers.jsonl").read_text().splitlines()) == 4
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [(row["deployment"], row["draw"]) for row in rows] == [
        *(("max-num-seqs 64", "0"), ("max-num-seqs 64", "1")),
        *(("max-num-seqs 1", "0"), ("max-num-seqs 1", "1")),
    ]
    for row, run in zip(rows[:2], first["deployments"][0]["runs"], strict=True):
        for figure in FIGURES:
            value = run["figures"][figure.key]
            assert row[figure.key] == ("" if value is None else str(value))
    read(capsys, *words, "3")
    assert len((tmp_path / "runs" / "answers.jsonl").read_text().splitlines()) == 6


def test_processes_answer_as_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*MODEL, *LANES, "--workload", SMALL, "--seeds", "2", "--jobs")
    assert read(capsys, *words, "2") == read(capsys, *words, "1")


def test_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*MODEL, "--vary", "max-num-seqs=64,1,2", "--workload", SMALL, *ONE)
    for language in ("en", "zh"):
        file = tmp_path / f"{language}.svg"
        _, err = asked(capsys, *words, "--plot", str(file), "--lang", language)
        assert str(file) in err
        assert "max-num-seqs 2" in file.read_text()
    text = (tmp_path / "en.svg").read_text()
    assert "Differences to max-num-seqs 64" in text
    assert "95% confidence intervals" in text


def test_what_does_not_start_is_told_and_the_others_are_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("llama-3-8b", "--context", "4k", "--workload", SMALL, *ONE)
    out = " ".join(asked(capsys, *words, "--vary", "gpu=a100,t4,l40s", code=1)[0].split())
    assert "gpu t4 does not start:" in out
    assert "Differences to gpu a100" in out
    found = read(capsys, *words, "--vary", "gpu=t4,a100", code=1)
    assert found["deployments"][0]["starts"] is False
    assert found["deployments"][0]["pools"][0]["verdict"] == "does_not_fit"
    assert found["deployments"][0]["reason"]
    assert found["baseline"] == "gpu a100"
    out = " ".join(asked(capsys, *words, "--vary", "gpu=t4,a100", code=1)[0].split())
    assert "Fewer than two deployments start" in out
    refused = (*MODEL, "--vary", "block-size=16,1,32", "--workload", SMALL, *ONE)
    out = " ".join(asked(capsys, *refused, code=1)[0].split())
    assert "block-size 1 does not start: no attention backend of vLLM" in out
    found = read(capsys, *refused, code=1)
    assert [item["starts"] for item in found["deployments"]] == [True, False, True]
    assert found["deployments"][1]["pools"] == []


def test_what_falls_behind_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    many = "constant:rate=10,input=100,output=20,requests=100"
    words = (*MODEL, *LANES, "--workload", many, "--jobs", "1", "--seeds", "1")
    out = " ".join(asked(capsys, *words)[0].split())
    assert "max-num-seqs 1 cannot keep up in 1 of 1 runs" in out


@pytest.mark.parametrize(
    ("vary", "settings"),
    [
        ("prefix-caching=on,off", [True, False]),
        ("enable_prefix_caching=true,off", [True, False]),
        ("--enable-prefix-caching=on,false", [True, False]),
    ],
)
def test_names_of_what_is_varied(
    vary: str, settings: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    sessions = "poisson:rate=2,turns=3,gap=2s,input=200,output=20,requests=12"
    found = read(capsys, *MODEL, "--vary", vary, "--workload", sessions, "--jobs=1", "--seeds=1")
    rates = [
        item["runs"][0]["figures"]["prefix_hit_rate"] is not None for item in found["deployments"]
    ]
    assert rates == settings


def test_a_variation_may_leave_an_option_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*MODEL, "--vary", "scheduler=default,static", "--workload", SMALL, *ONE)
    found = read(capsys, *words)
    assert [item["name"] for item in found["deployments"]] == [
        *("scheduler default", "scheduler static")
    ]
    assert found["deployments"][1]["differences"]["e2e_mean_seconds"]["value"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one deployment is given; name two files or more, or vary it"),
        (("--vary", "block-size"), "--vary is 'block-size'; write NAME=VALUE,VALUE"),
        (("--vary", "block-size=16,"), "write NAME=VALUE,VALUE"),
        (("--vary", "block-size=16,16"), "lists a value twice"),
        (("--vary", "block-size=16", "--vary", "block_size=32"), "block-size is given twice"),
        (("--vary", "block-size=16"), "one deployment is given; give two or more"),
        (("--vary", "block-size=16,some"), "--block-size is 'some'"),
        (("--vary", "prefix-caching=on,maybe"), "'maybe'; it may be on or off"),
        (("--vary", "scheduling-policy=fcfs,best"), "has the value 'best': 'best' is not one of"),
        (("--vary", "no-such=1,2"), "no_such"),
        ((*LANES, "--confidence", "1"), "confidence is 1; give a share between 0 and 1"),
        (("--vary", "router=sticky,kv_aware"), "router chooses among servers; give --replicas"),
        ((*LANES, "--csv", "a.txt"), "it may end in .csv"),
        ((*LANES, "--plot", "a.txt"), "it may end in .svg"),
        ((*LANES, "--ray", "127.0.0.1:9"), "give one"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = asked(capsys, *MODEL, *words, "--workload", SMALL, "--jobs", "1", code=2)
    assert said in err
    assert len(err.splitlines()) == 1


def test_options_beside_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = file_of(tmp_path, "one", "deployment: llama-3-8b --gpu a100\n")
    _, err = asked(capsys, one, one, "--kv", "fp8", "--workload", SMALL, code=2)
    assert "--kv is of one deployment, and files describe them" in err
    _, err = asked(capsys, one, str(tmp_path / "none.yaml"), "--workload", SMALL, code=2)
    assert "none.yaml" in err


def test_runs_are_not_written_over_what_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival,input,output\n0,9,9\n")
    words = ("llama-3-8b", "--gpu", "a100", "--vary", "max-num-seqs=1,2", "--trace", str(trace))
    assert main(["compare", *words, "--csv", str(trace)]) == 2
    assert "which is read" in capsys.readouterr().err
    assert trace.read_text() == "arrival,input,output\n0,9,9\n"


@pytest.mark.parametrize("contexts", ["1k,2k", "1k,8k"])
def test_a_picture_of_no_difference_is_not_drawn(
    contexts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.png"
    words = ("llama-3-8b", "--gpu", "a100", "--vary", f"context={contexts}", "--seeds", "1")
    long = "poisson:rate=2,input=4k,output=5,requests=3"
    words = (*words, "--workload", long, "--jobs", "1", "--plot", str(file))
    assert main(["compare", *words]) == 0
    assert "so no differences are drawn" in capsys.readouterr().err
    assert not file.exists()
