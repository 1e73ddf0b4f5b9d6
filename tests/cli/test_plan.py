import csv
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tokenroom.cli.main import main
from tokenroom.reports.plan_json import schema_text

ASKED = [
    *("plan", "llama-3.1-8b", "--users", "200", "--think-time", "10s", "--input", "1024"),
    *("--output", "128", "--ttft", "2s", "--tpot", "50ms", "--gpus-from", "l40s", "--max-gpus"),
    *("2", "--top", "1"),
]


def run(capsys: pytest.CaptureFixture[str], *words: str, jobs: int = 1) -> tuple[int, str, str]:
    code = main([*words, "--jobs", str(jobs)])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_report_names_the_plan_and_how_to_start_it(
    capsys: pytest.CaptureFixture[str], language: str
) -> None:
    code, out, err = run(capsys, *ASKED, "--lang", language)
    assert (code, err) == (0, "")
    assert "vllm serve meta-llama/Meta-Llama-3.1-8B --max-model-len 1381" in out
    assert "l40s" in out
    assert "{" not in out


def test_gpus_that_were_never_measured_are_marked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.md"
    asked = [word if word != "l40s" else "gaudi3" for word in ASKED]
    code, out, _ = run(capsys, *asked, "--engine-defaults", "--markdown", str(file))
    assert code == 0
    assert "\n~gaudi3 " in out
    for text in (out, file.read_text(encoding="utf-8")):
        assert "~ No operator of this GPU was measured" in text
        assert "--price " in text
    priced = run(capsys, *ASKED, "--engine-defaults", "--price", "l40s=0.9")[1]
    assert "~" not in priced
    assert "--price" not in priced


def test_no_name_of_a_gpu_is_broken_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [word if word != "l40s" else "h100" for word in ASKED]
    code, out, _ = run(
        capsys, *asked, "--max-num-seqs", "128", "--util", "0.97", "--price", "h100=2.5"
    )
    assert code == 0
    table = out.split("Cheapest")[0]
    assert "h100-sxm-80gb " in table
    assert "util 0.97" in table


def test_json_keeps_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *ASKED, "--json")
    answer = json.loads(out)
    jsonschema.validate(answer, json.loads(schema_text()))
    assert code == 0
    (plan,) = answer["plans"]
    assert plan["gpus"] == plan["replicas"] * plan["gpus_per_replica"]
    assert plan["simulated"]["tpot"]["p95_seconds"] <= 0.05


def test_processes_print_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *ASKED, "--json", jobs=2) == run(capsys, *ASKED, "--json")


def test_files_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(
        capsys,
        *ASKED,
        *("--csv", str(tmp_path / "plan.csv"), "--markdown", str(tmp_path / "plan.md")),
        *("--write", str(tmp_path / "start"), "--plot", str(tmp_path / "plan.svg")),
    )
    assert code == 0
    assert "1-l40s.k8s.yaml" in err
    manifest = list(yaml.safe_load_all((tmp_path / "start" / "1-l40s.k8s.yaml").read_text()))
    assert [each["kind"] for each in manifest] == ["Deployment", "Service"]
    rows = list(csv.DictReader((tmp_path / "plan.csv").read_text().splitlines()))
    assert {row["state"] for row in rows} >= {"proposed"}
    layouts = [row for row in rows if not row["answer_servers"]]
    assert len(layouts) == 3
    (apart,) = (row for row in rows if row["answer_servers"])
    assert (apart["state"], apart["reason"]) == ("rejected", "split")
    text = (tmp_path / "plan.md").read_text()
    assert "| Deployment | GPUs |" in text
    assert "```sh\nvllm serve" in text
    assert (tmp_path / "plan.svg").stat().st_size > 1000


def test_nothing_that_holds_is_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *ASKED, "--ttft", "1ms")
    assert code == 1
    assert "Nothing that was tried meets this" in out
    assert "physics allows" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--users", "5"], "nothing is promised"),
        (["--ttft", "1s"], "the load is given by nothing"),
        (["--have", "2xl4", "--ttft", "1s", "--burst", "2"], "--burst belongs to --rate"),
        (["--ttft", "1s", "--users", "5", "--rate", "2/s"], "--users and --rate"),
        (
            ["--ttft", "1s", "--rate", "2/s", "--think-time", "3s"],
            "--think-time belongs to --users",
        ),
        (["--ttft", "1s", "--users", "5", "--burst", "2"], "--burst belongs to --rate"),
        (["--ttft", "1s", "--users", "0"], "--users is '0'"),
        (["--ttft", "1s", "--users", "5", "--have", "a100"], "--have says 'a100' without a number"),
        (
            ["--ttft", "1s", "--users", "5", "--have", "2xl4", "--gpus-from", "l4"],
            "both say which GPUs",
        ),
        (["--ttft", "1s", "--users", "5", "--price", "l4"], "write GPU=USD"),
        (["--ttft", "1s", "--users", "5", "--budget", "3"], "--budget needs prices"),
        (["--ttft", "1s", "--users", "5", "--gpus-from", " , "], "--gpus-from is ' , '"),
        (["--ttft", "1s", "--users", "5", "--gpus-from", "foo"], "--gpus-from: no GPU is called"),
        (["--ttft", "1s", "--users", "5", "--have", "2xfoo"], "--have: no GPU is called 'foo'"),
        (["--ttft", "1s", "--users", "5", "--have", ","], "--have is ','"),
        (["--ttft", "1s", "--users", "5", "--price", "foo=1"], "--price: no GPU is called 'foo'"),
        (["--ttft", "1s", "--users", "5", "--kv", "foo"], "--kv is 'foo', which none of the"),
        (["--ttft", "1s", "--users", "5", "--kv="], "--kv is empty"),
        (["--ttft", "1s", "--users", "5", "--input", ""], "--input is empty"),
        (["--ttft", "1s", "--users", "5", "--input", "0"], "--input is '0'"),
        (["--ttft", "1s", "--users", "5", "--draft", "foo"], "--draft is 'foo', which none of"),
        (["--ttft", "1s", "--users", "5", "--weights", "foo"], "--weights is 'foo'"),
        (["--ttft", "1s", "--users", "5", "--engine", "paged"], "--engine is 'paged'"),
        (["--ttft", "1s", "--users", "5", "--engine", "vllm@0.0.1"], "--engine is 'vllm@0.0.1'"),
        (["--ttft", "1s", "--users", "5", "--context", "10"], "--context is 10, below"),
        (["--ttft", "1s", "--users", "9999999"], "--users is 9999999"),
        (["--ttft", "1s", "--concurrency", "9999999"], "--concurrency is 9999999"),
        (["--ttft", "1s", "--users", "5", "--think-time", "1e9s"], "--think-time is"),
        (["--ttft", "1s", "--rate", "1e300"], "--rate is 1e+300"),
        (["--ttft", "1s", "--rate", "1", "--burst", "0"], "--burst is 0"),
        (["--ttft", "1s", "--users", "5", "--seed", "-1"], "--seed is '-1'"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[Any], said: str
) -> None:
    code, out, err = run(capsys, "plan", "llama-3.1-8b", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_model_larger_than_every_option_says_what_it_would_need(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("plan", "llama-3.1-405b", "--users", "5", "--tpot", "50ms", "--gpus-from", "4090")
    code, out, _ = run(capsys, *asked, "--max-gpus", "3")
    assert code == 1
    said = " ".join(out.split())
    assert "rtx-4090 TP2: the weights of 755.96 GiB need 32 of these GPUs" in said


def test_more_clients_than_gpus_hold_are_told_how_many_they_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("plan", "llama-3.2-1b", "--concurrency", "1000000", "--tpot", "5ms")
    code, out, _ = run(capsys, *asked, "--have", "1xl40s", "--max-gpus", "1")
    assert code == 1
    assert "there are 1, which serve" in " ".join(out.split())


def test_a_trace_is_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = (f"{0.2 * number},{500 + number % 50},{20 + number % 7}" for number in range(600))
    trace.write_text("arrival,input,output\n" + "\n".join(rows) + "\n")
    code, out, _ = run(
        capsys,
        *("plan", "llama-3.1-8b", "--trace", str(trace), "--ttft", "1s", "--gpus-from", "l40s"),
        *("--max-gpus", "1", "--top", "1", "--json"),
    )
    answer = json.loads(out)
    assert code == 0
    assert answer["demand"]["input_tokens"] == pytest.approx(524, abs=1)
    assert answer["demand"]["requests_per_second"] == pytest.approx(5, rel=0.01)


def test_the_most_clients_of_gpus_at_hand(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys,
        *("plan", "llama-3.1-8b", "--have", "1xl40s", "--tpot", "30ms", "--input", "512"),
        *("--output", "64", "--json"),
    )
    answer = json.loads(out)
    assert code == 0
    (plan,) = answer["plans"]
    assert plan["gpus"] == 1
    assert answer["demand"]["users"] >= 5
    assert plan["headroom"] >= 1.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--price", "l40s=1", "--budget", "0"), "--budget is 0"),
        (("--price", "l40s=1", "--budget", "nan"), "--budget is nan"),
        (("--price", "h100=1"), "which is not tried"),
        (("--price", "l40s=1", "--price", "l40s=2"), "give one of them"),
        (("--engine", "vllm,foo"), "'foo'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, _, err = run(capsys, *ASKED, *words)
    assert code == 2
    assert said in err


def test_gpus_that_hold_no_replica_serve_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--users", "2", "--ttft", "2s", "--have", "1xl40s", "--max-gpus", "2")
    _, out, _ = run(capsys, "plan", "llama-3.1-8b", *words)
    assert "0 users" not in out
    assert "hold no replica" in " ".join(out.split())


def test_a_file_that_has_no_folder_is_refused_before_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none" / "plan.md"
    assert main(["plan", "llama-3-8b", "--markdown", str(file)]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_usual_lengths_are_those_of_the_tables() -> None:
    from tokenroom.cli.plan import command as plan_command
    from tokenroom.cli.table import command as table_command
    from tokenroom.planning.lengths import USUAL_TOKENS

    tables = {param.name: param.default for param in table_command.params}
    assert (tables["input_tokens"], tables["output_tokens"]) == USUAL_TOKENS
    helps = {param.name: getattr(param, "help", "") for param in plan_command.params}
    for name, tokens in zip(("input_text", "output_text"), USUAL_TOKENS, strict=True):
        assert f"[default: {tokens}]" in helps[name]
