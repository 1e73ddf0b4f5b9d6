import json
from pathlib import Path

import pytest

from tokenroom import fit
from tokenroom.cli.main import main
from tokenroom.errors import DeploymentError, WorkloadError
from tokenroom.serving.pool import pool_of
from tokenroom.serving.step_times import read_step_times

GRID = "prefill_tokens,decode_requests,context_tokens,seconds\n" + "".join(
    f"{prompt},{requests},{context},{0.01 + prompt * 1e-5 + requests * context * 1e-8}\n"
    for prompt in (0, 512, 8192)
    for requests in (0, 16, 256)
    for context in (0, 8192)
)


def written(folder: Path, text: str) -> Path:
    file = folder / "steps.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize("step", [(0, 0, 0), (100, 7, 300), (512, 16, 8192), (9000, 300, 9000)])
def test_a_grid_of_a_multilinear_law_gives_that_law_within_and_beyond(
    tmp_path: Path, step: tuple[int, int, int]
) -> None:
    prompt, requests, context = step
    table = read_step_times(written(tmp_path, GRID))
    assert table.at(*step) == pytest.approx(0.01 + prompt * 1e-5 + requests * context * 1e-8)


def test_columns_left_out_make_no_difference_and_no_time_is_negative(tmp_path: Path) -> None:
    table = read_step_times(written(tmp_path, "decode_requests,seconds\n8,0.01\n16,0.03\n"))
    assert table.at(5000, 12, 99) == pytest.approx(0.02)
    assert table.at(0, 0, 0) == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seconds\n1\n", "one or more of prefill_tokens"),
        ("tokens,seconds\n1,2\n", "has the columns tokens, seconds"),
        ("decode_requests,seconds\n", "has no step"),
        ("decode_requests,seconds\n1,-2\n", "line 2 has seconds '-2'; give a number of 0 or more"),
        ("decode_requests,seconds\n1\n", "line 2 has seconds None"),
        ("decode_requests,seconds\n1,2,3\n", "longer than the header"),
        ("decode_requests,seconds\n1,2\n1,3\n", "line 3 is a step that occurred before"),
        ("decode_requests,decode_requests,seconds\n1,1,2\n", "names a column twice"),
        (
            "prefill_tokens,decode_requests,seconds\n0,1,1\n8,2,1\n",
            "has no step of prefill_tokens 0, decode_requests 2",
        ),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        read_step_times(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"steps\.csv cannot be read"):
        read_step_times(tmp_path / "steps.csv")


def test_steps_of_a_workload_take_what_the_table_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "decode_requests,seconds\n0,0.25\n64,0.25\n")
    words = "llama-3-8b --gpu a100 --workload users:count=4,input=100,output=11,requests=8 --json"
    assert main(["simulate", *words.split(), "--step-times", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["latency"]["tpot"]["mean_seconds"] == pytest.approx(0.25)
    assert any("given table" in told for told in found["warnings"])


def test_ranks_and_stages_that_step_together_have_no_times_of_their_own() -> None:
    result = fit("llama-3-8b", "a100", pipeline_parallel_size=2)
    with pytest.raises(DeploymentError, match="step_seconds tells the time of one engine's step"):
        pool_of(result, step_seconds=lambda plan: 0.1)
