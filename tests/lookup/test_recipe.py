import json
from pathlib import Path
from typing import Any

import pytest

from tokenroom import fit
from tokenroom.cli.main import main
from tokenroom.errors import DeploymentError
from tokenroom.lookup.recipe import STALL, Recipe, length_for, means_within, percentile, recipe
from tokenroom.units import GIB


def made(engine: str = "vllm", **changes: Any) -> Recipe:
    asked = {"p95_tokens": 6500, "input_tokens": 3000, "output_tokens": 500} | changes
    return recipe(fit("llama-3.1-8b", "a100-80gb", engine=engine, context=4096), **asked)


def test_the_steps_of_the_recipe_follow_from_each_other() -> None:
    found = made(tpot_seconds=0.05)
    assert found.max_model_len == 7808 == length_for(6500)
    assert found.request_bytes == 7808 * 128 * 1024
    pool = found.fit.governing_stage.kv_pool_bytes
    assert found.ceiling == pool // found.request_bytes
    assert found.waterline == int(0.8 * found.ceiling)
    assert found.max_num_seqs == found.waterline
    assert found.final.deployment.settings["max_num_seqs"].value == found.max_num_seqs
    assert found.final.deployment.settings["max_model_len"].value == 7808
    assert found.speed.tpot_seconds.value <= 0.05
    assert pool < 80 * GIB


def test_a_promise_bounds_the_batch_and_the_step() -> None:
    loose, tight = made(tpot_seconds=0.1), made(tpot_seconds=0.015)
    assert tight.max_num_seqs < loose.max_num_seqs
    assert tight.largest_batch == tight.max_num_seqs
    assert tight.token_budget < loose.token_budget
    assert tight.step_seconds <= STALL * 0.015
    assert made().largest_batch is None


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_other_engines_have_theirs(engine: str) -> None:
    found = made(engine, tpot_seconds=0.05)
    assert 1 <= found.max_num_seqs <= found.waterline
    launch = found.final.launch
    assert launch is not None
    assert str(found.max_num_seqs) in launch.arguments


@pytest.mark.parametrize(
    ("engine", "changes", "said"),
    [
        ("llama.cpp", {}, "takes as large a pool as it is told to"),
        ("vllm", {"p95_tokens": 1}, "p95_tokens is 1; give 2 tokens or more"),
    ],
)
def test_what_has_no_recipe_is_refused(engine: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DeploymentError, match=said):
        made(engine, **changes)


def test_percentiles_are_lengths_that_occur() -> None:
    assert percentile(list(range(1, 101))) == 95
    assert percentile([7]) == 7
    with pytest.raises(DeploymentError, match="no lengths"):
        percentile([])


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["recipe", "llama-3.1-8b", "--gpu", "l40s", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_shows_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--workload", "chat", "--tpot", "50ms")
    assert (code, err) == (0, "")
    assert "1. 95% of the requests keep within" in out
    assert "--max-num-seqs" in out
    code, out, _ = run(capsys, "--workload", "chat", "--tpot", "50ms", "--json")
    answer = json.loads(out)
    assert f"--max-num-seqs {answer['max_num_seqs']}" in answer["command"]
    code, out, _ = run(capsys, "--p95", "6500", "--lang", "zh")
    assert "max_model_len 7,808" in out
    assert code == 0


def test_lengths_of_a_trace_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "\n".join(f"{number},{100 + number},50" for number in range(100))
    trace.write_text(f"arrival,input,output\n{rows}\n")
    _, out, _ = run(capsys, "--trace", str(trace), "--json")
    assert json.loads(out)["p95_tokens"] == 244


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "given by nothing"),
        (["--p95", "100", "--workload", "chat"], "--workload and --p95"),
        (["--workload", "chat", "--input", "5"], "--input belongs to --p95"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_promise_out_of_reach_is_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--p95", "4000", "--tpot", "1ms")
    assert code == 1
    assert "out of reach" in out


def test_requests_longer_than_the_model_takes_are_refused() -> None:
    with pytest.raises(DeploymentError, match=r"200,000 tokens.*131,072 at most"):
        made(p95_tokens=200_000)


@pytest.mark.parametrize(("rate", "too_many"), [(60, True), (1, False)])
def test_a_rate_that_one_deployment_does_not_serve_is_told(
    capsys: pytest.CaptureFixture[str], rate: int, too_many: bool
) -> None:
    main(["recipe", "llama-3.1-8b", "--gpu", "h100", "--workload", f"chat:rate={rate}"])
    assert ("tokenroom plan says how many" in " ".join(capsys.readouterr().out.split())) is too_many


def test_the_rate_of_a_trace_counts_and_one_without_times_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    timed, untimed = tmp_path / "timed.csv", tmp_path / "untimed.csv"
    timed.write_text(
        "arrival,input,output\n" + "".join(f"{n / 100},1000,200\n" for n in range(500))
    )
    untimed.write_text("input,output\n" + "1000,200\n" * 500)
    for path, told in ((timed, True), (untimed, False)):
        assert main(["recipe", "llama-3.1-8b", "--gpu", "h100", "--trace", str(path)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert ("Requests come at 100/s" in said) is told


def test_means_above_the_length_that_most_keep_are_refused() -> None:
    assert means_within(1000, None, None) == (500, 100)
    with pytest.raises(DeploymentError, match="above the 1,000"):
        means_within(1000, 950, None)
