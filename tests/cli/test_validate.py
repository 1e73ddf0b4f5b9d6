"""``tokenroom validate`` as a person uses it: rows, logs, files it writes, bad input."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
ROW = {
    "id": "h100-qwen3-8b",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "model": "Qwen/Qwen3-8B",
    "gpu": "H100 80GB",
    "gpus": 1,
    "flags": {"max_model_len": 8192, "gpu_memory_utilization": 0.95},
    "reported": {"weights_gib": 15.27, "kv_gib": 57.5, "kv_tokens": 418688},
    "outcome": "ok",
}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["validate", "--offline", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    unknown = ROW | {"id": "odd", "model": "no-such-model", "grade": "C"}
    file.write_text(f"{json.dumps(ROW)}\n{json.dumps(unknown)}\n")
    return file


def test_figures_come_first_and_the_sum_last(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, str(rows))
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "Predicted against observed"
    assert lines[1] == "h100-qwen3-8b (vllm 0.19.0, dense, grade A)"
    assert any(line.startswith("  kv_tokens ") and "418,688" in line for line in lines)
    assert any("odd: 'no-such-model' is not in the catalogue" in line for line in lines)
    assert lines[-1].startswith("Rows: 2; figures compared: 4;")


def test_json_has_the_documented_keys(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(rows), "--json")
    data = json.loads(out)
    assert code == 0
    assert data["schema_version"] == "1.3"
    assert {"id", "engine", "quantity", "predicted", "observed", "error_pct", "explained_by"} <= (
        set(data["rows"][0])
    )
    assert {
        *("engine", "quantity", "architecture_class", "grade", "n", "median_abs_pct"),
        *("p90_abs_pct", "worst_abs_pct", "bias_pct"),
    } == set(data["groups"][0])
    assert data["unpredicted"][0]["id"] == "odd"
    assert data["outcomes"][0]["agrees"] is True


def test_rows_are_chosen_by_grade_and_engine(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, str(rows), "--json", "--grade", "c", "--engine", "vllm")
    assert json.loads(out)["num_rows"] == 1


def test_chinese(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, str(rows), "--lang", "zh")
    assert out.startswith("预测与实测")


def test_files_are_written(rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, picture = tmp_path / "report.md", tmp_path / "scatter.png"
    code, _, err = run(capsys, str(rows), "--markdown", str(report), "--plot", str(picture))
    assert (code, err) == (0, "")
    assert "| vllm | kv_tokens | 1 |" in report.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_report_is_not_written_over_the_rows(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows.read_bytes()
    code, _, err = run(capsys, str(rows), "--markdown", str(rows))
    assert (code, rows.read_bytes()) == (2, before)
    assert "which is read" in err


def test_a_log_becomes_a_row_that_validates_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = tmp_path / "row.json"
    code, out, err = run(capsys, "--log", str(LOGS / "vllm_0.19.log"), "--export", str(row))
    assert (code, err) == (0, "")
    assert "kv_tokens_from_kv_gib" in out
    data = json.loads(row.read_text())
    assert data["reported"]["kv_tokens"] == 418688
    assert data["inferred"] == ["gpu"]
    assert "--gpu NAME makes the figures count" in out, "three GPUs have that memory"
    code, again, _ = run(capsys, str(row))
    assert code == 0
    assert again.splitlines()[2:-2] == out.split("\nRemarks")[0].splitlines()[2:]


def test_what_the_command_leaves_open_is_taken_from_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = ("--log", str(LOGS / "vllm_0.19.log"), "--gpu", "h100", "--")
    _, out, _ = run(capsys, *log, "vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "4096")
    assert "gpu_memory_utilization 0.95" in out
    assert "The command says max_model_len 4096, the log 8192; the command's is used." in out
    assert any(line.split() == ["kv_gib", "57.50", "57.50", "-0.00%"] for line in out.splitlines())
    assert "--gpu NAME" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--gpu", "h100", "--", "vllm", "serve", "meta-llama/Llama-3.1-8B"),
            "another model than was given: Qwen/Qwen3-8B, not meta-llama/Llama-3.1-8B",
        ),
        (("--gpu", "l40s"), "another GPU than was given: 79.19 GiB, not NVIDIA L40S (44.53 GiB)"),
        (("--engine", "vllm@0.18.0"), "another version than was given: 0.19.0, not 0.18.0"),
        (("--gpu", "h100", "--", "vllm", "serve", "/models/Qwen3-8B-AWQ"), None),
        (("--gpu", "h100", "--model", "qwen3-8b", "--engine", "vllm@0.19"), None),
    ],
)
def test_a_log_of_something_else_than_was_given_is_remarked(
    arguments: tuple[str, ...], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "--log", str(LOGS / "vllm_0.19.log"), *arguments)
    if said is None:
        assert "The log is of another" not in out
    else:
        assert said in out


@pytest.mark.parametrize(
    ("log", "arguments"),
    [
        (
            "vllm_0.19",
            ("--", "python", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B"),
        ),
        ("sglang", ("--engine", "vllm")),
        ("llama_cpp", ("--engine", "tensorrt-llm")),
    ],
)
def test_a_log_of_another_engine_is_refused(
    log: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--log", str(LOGS / f"{log}.log"), *arguments)
    assert (code, out) == (2, "")
    assert f"{log}.log is a log of " in err
    assert "give the log of the engine that the command starts" in err


def test_the_launch_of_the_log_s_engine_is_chosen_as_fit_chooses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    two = "vllm download x && vllm serve Qwen/Qwen3-8B --max-model-len 8192"
    log = ("--log", str(LOGS / "vllm_0.19.log"), "--gpu", "h100", "--")
    _, out, _ = run(capsys, *log, "bash", "-c", two)
    assert any(line.split()[:3] == ["kv_gib", "57.50", "57.50"] for line in out.splitlines())
    code, _, err = run(capsys, *log, "bash", "-c", "vllm serve a & vllm serve b")
    assert code == 2
    assert "2 engines are started" in err


PHI = """\
(APIServer pid=1) INFO 04-22 [utils.py:233] non-default args: {'model': 'microsoft/phi-2', \
'max_model_len': 8192}
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid=1)   Value error, User-specified max_model_len (8192) is greater than the derived \
one, token=hf_secret [type=value_error, input_value=1]
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.
"""


def test_a_start_that_failed_says_how_it_ended_and_whether_that_was_foreseen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "phi.log"
    log.write_text(PHI)
    code, out, _ = run(capsys, "--log", str(log))
    assert code == 1
    assert "ends with an error: ValueError: User-specified max_model_len (8192) is" in out
    assert "hf_secret" not in out
    code, out, _ = run(capsys, "--log", str(log), "--gpu", "h100")
    assert code == 0
    assert "1 of 1 foreseen" in out
    assert "takes at most 2048 tokens" in out
    log.write_text(PHI.replace("8192", "1024"))
    code, out, _ = run(capsys, "--log", str(log), "--gpu", "h100", "--lang", "zh")
    assert code == 1
    assert "预测正确 0/1" in out
    assert "该失败未被预测到" in out


def test_a_command_says_what_the_log_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = tmp_path / "row.json"
    code, out, _ = run(
        capsys,
        *("--log", str(LOGS / "vllm_failed.log"), "--gpu", "h100", "--export", str(row)),
        *("--json", "--", "vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "8192"),
        *("--api-key", "sk-hidden"),
    )
    assert code == 0
    assert json.loads(out)["rows"]
    assert "sk-hidden" not in row.read_text()
    assert json.loads(row.read_text())["command"].startswith("vllm serve Qwen/Qwen3-8B")


def test_a_log_without_prediction_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--log", str(LOGS / "vllm_failed.log"))
    assert code == 1
    assert "give it with --gpu" in out


def test_bad_rows_are_named_or_skipped(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(rows.read_text() + "{\n[]\n")
    code, out, err = run(capsys, str(bad))
    assert code == 2
    assert "bad.jsonl line 3" in err
    assert "and 1 more" in err
    assert err.count("\n") == 1
    assert "kv_tokens" in out, "the rest of the file is done"
    assert "bad.jsonl line 3 is not JSON" in out
    assert "bad.jsonl line 4 holds []" in out
    assert out.splitlines()[-1].endswith("; rows that cannot be read: 2")
    code, again, err = run(capsys, str(bad), "--skip-bad")
    assert (code, again, err) == (0, out, "")
    bad.write_text("{}\n[]\n")
    code, out, err = run(capsys, str(bad), "--skip-bad")
    assert (code, out) == (2, ""), "a file without any row is no file of rows"
    assert "bad.jsonl line 1 has no id" in err


def test_values_that_mean_nothing_are_named_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ROW | {
        "engine_version": "banana",
        "outcome": "great",
        "flag": {},
        "reported": ROW["reported"] | {"weights_gib": True, "activation_gib": "lots"},  # type: ignore[operator]
    }
    del odd["flags"]
    file = tmp_path / "odd.jsonl"
    file.write_text(json.dumps(odd).replace("57.5", "1e999") + "\n" + json.dumps(ROW) + "\n")
    code, out, err = run(capsys, str(file))
    assert (code, err) == (0, "")
    place = "h100-qwen3-8b (odd.jsonl line 1): "
    for said in (
        "engine_version is 'banana', which names no release",
        "outcome is 'great', so that it is not checked",
        "field 'flag' is not known and is passed over; flags is",
        "reported.weights_gib is True, so that it is not compared",
        "reported.activation_gib is 'lots', so that it is not compared",
        "reported.kv_gib is inf, so that it is not compared",
    ):
        assert place + said in out
    assert out.splitlines()[-1].endswith("; values that mean nothing: 6")
    _, out, _ = run(capsys, str(file), "--json")
    assert len(json.loads(out)["odd_values"]) == 6
    _, out, _ = run(capsys, str(file), "--lang", "zh")
    assert out.splitlines()[-1].endswith("；无法理解的值：6")


def test_of_many_bad_rows_the_first_are_shown_and_all_counted(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows.write_text(rows.read_text() + "[]\n" * 500)
    code, out, _ = run(capsys, str(rows), "--skip-bad")
    assert code == 0
    assert out.count(" holds []; a row is an object of fields") == 50
    assert "\n  and 450 more\n" in out
    assert out.splitlines()[-1].endswith("; rows that cannot be read: 500")


def test_flags_that_the_engine_lacks_are_named_beside_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ROW | {"command": "vllm serve Qwen/Qwen3-8B --apple 1", "flags": {"banana": 3}}
    file = tmp_path / "odd.jsonl"
    file.write_text(json.dumps(row) + "\n")
    code, out, _ = run(capsys, str(file))
    assert code == 0
    for flag in ("--apple", "--banana"):
        assert f"(odd.jsonl line 1): the engine has no flag {flag}, which is passed over" in out
    assert out.splitlines()[-1].endswith("; values that mean nothing: 2")
    file.write_text(json.dumps(ROW | {"flags": {"banana": 3}}) + "\n")
    _, out, _ = run(capsys, str(file))
    assert "vLLM 0.19.0 has no flag --banana" in out, "without a command it is not predicted"


def test_the_schema_is_printed_and_kept(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--json-schema")
    assert code == 0
    schema = json.loads(out)
    Draft202012Validator.check_schema(schema)
    rows.write_text(rows.read_text() + "{\n")
    _, out, _ = run(capsys, str(rows), "--json", "--skip-bad")
    data = json.loads(out)
    Draft202012Validator(schema).validate(data)
    assert data["bad_rows"][0].startswith("rows.jsonl line 3")
    _, out, _ = run(capsys, "--log", str(LOGS / "vllm_0.19.log"), "--json")
    Draft202012Validator(schema).validate(json.loads(out))
    del data["outcomes"]
    assert not Draft202012Validator(schema).is_valid(data)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no file of rows is given"),
        (("missing.jsonl",), "missing.jsonl cannot be read"),
        (("--log", "missing.log"), "missing.log cannot be read"),
        (("--gpu", "h100", "x.jsonl"), "--gpu belongs to --log"),
        (("--export", "r.json", "x.jsonl"), "--export belongs to --log"),
        (("{rows}", "--grade", "Z"), "--grade is 'Z'"),
        (("{rows}", "--engine", "other"), "--engine is 'other'"),
        (("{rows}", "--plot", "x.bmp"), "ends in '.bmp'"),
        (("{rows}", "--markdown", "/no/such/folder/x.md"), "cannot be written"),
        (("--log", "{log}", "--export", "/no/such/folder/x.json"), "cannot be written"),
        (("--log", "{log}", "--engine", "other"), "logs of other cannot be read"),
        (("--log", "{log}", "--gpu", "no-such-gpu"), None),
        (("--log", "{log}", "--", "echo", "hello"), "not vLLM"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...],
    said: str | None,
    rows: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"{rows}": str(rows), "{log}": str(LOGS / "vllm_0.19.log")}
    code, _, err = run(capsys, *(places.get(word, word) for word in arguments))
    if said is None:
        assert code == 1
        return
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_an_interrupted_run_says_so(
    rows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenroom.validation import prediction

    def stop(self: object, row: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prediction.Predictor, "predict", stop)
    code, out, _ = run(capsys, str(rows))
    assert code == 130
    assert "Stopped before the end" in out
