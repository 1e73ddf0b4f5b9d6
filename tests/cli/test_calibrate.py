"""``tokenroom calibrate`` as a person uses it, and what ``speed`` makes of its profiles."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main
from tokenroom.reports.calibration_json import schema_text
from tokenroom.reports.speed_json import schema_text as speed_schema_text

FIXTURES = Path(__file__).parents[1] / "fixtures/benchmarks"
VLLM = ["--from", str(FIXTURES / "vllm_0.33.json"), "--gpu", "h100", "--context", "16k"]
SPEED = ["llama-3.1-8b-instruct", "--gpu", "h100", "--context", "16k"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "tokenroom" / "profiles"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    code, out, err = run(capsys, "calibrate", "--json", *arguments)
    assert (code, err) == (0, "")
    data = json.loads(out)
    Draft202012Validator(json.loads(schema_text())).validate(data)
    return data


def speed_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    code, out, err = run(capsys, "speed", "--json", *arguments)
    assert (code, err) == (0, "")
    data = json.loads(out)
    Draft202012Validator(json.loads(speed_schema_text())).validate(data)
    return data


def test_a_profile_is_made_listed_shown_used_and_removed(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, out, _ = run(capsys, "calibrate", *VLLM, "--name", "mybox")
    assert code == 0
    assert (folder / "mybox.json").is_file()
    text = " ".join(out.split())
    for words in (
        "meta-llama/Llama-3.1-8B-Instruct on 1 x NVIDIA H100",  # the file names the model
        "CALIBRATED: 2 measured figures",
        "TTFT 16, 1,024/256 110.00 ms",
        "These points do not tell: host, each step",
        "sha256",
        "speed ... --profile mybox",
        "2 of 64 requests failed",
    ):
        assert words in text, words
    assert "communication" not in out  # one GPU
    assert all(len(line) <= 80 for line in out.splitlines())
    listed = answer(capsys, "--list")
    assert [profile["name"] for profile in listed["profiles"]] == ["mybox"]
    shown = answer(capsys, "--show", "--name", "mybox")
    assert shown["profile"] == listed["profiles"][0]
    assert "mybox" in run(capsys, "calibrate", "--list")[1]
    assert "CALIBRATED" in run(capsys, "calibrate", "--show", "--name", "mybox")[1]
    plain, calibrated = speed_json(capsys, *SPEED), speed_json(capsys, *SPEED, "--profile", "mybox")
    assert plain["calibration"] is None
    assert calibrated["calibration"]["profile"] == "mybox"
    assert calibrated["calibration"]["differences"] == []
    assert calibrated["tpot_seconds"]["value"] > 1.1 * plain["tpot_seconds"]["value"]
    assert answer(capsys, "--remove", "--name", "mybox")["removed"] == "mybox"
    assert answer(capsys, "--list")["profiles"] == []
    assert "no profile yet" in run(capsys, "calibrate", "--list")[1]


def test_speed_explains_its_factors_and_their_source(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "calibrate", *VLLM, "--name", "mybox")
    _, out, _ = run(capsys, "speed", *SPEED, "--profile", "mybox", "--explain")
    text = " ".join(out.split())
    assert "Calibration: factors on the times above, by profile mybox" in text
    assert "compute (prefill) x1." in text
    assert "vllm_0.33.json (vllm bench serve --save-result (JSON)), sha256" in text
    assert "Calibrated by profile mybox" in text
    assert "1,101 measured rows" not in text


def test_another_deployment_is_warned_of_and_another_gpu_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "calibrate", *VLLM, "--name", "mybox")
    data = speed_json(capsys, *SPEED, "--profile", "mybox", "--weights", "fp8")
    traits = {item["trait"] for item in data["calibration"]["differences"]}
    assert traits == {"quantization"}
    assert any("25% of each is taken" in warning for warning in data["warnings"])
    code, _, err = run(
        capsys, "speed", "llama-3.1-8b-instruct", "--gpu", "h200", "--profile", "mybox"
    )
    assert code == 2
    assert "says nothing about h200" in err


def test_a_file_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(tmp_path / "box.json")
    data = answer(capsys, *VLLM, "--profile-file", file)
    assert (data["file"], data["profile"]["name"]) == (file, "box")
    assert answer(capsys, "--list")["profiles"] == []
    assert speed_json(capsys, *SPEED, "--profile-file", file)["calibration"]["profile"] == "box"
    assert answer(capsys, "--show", "--profile-file", file)["profile"] == data["profile"]
    code, _, err = run(capsys, "speed", *SPEED, "--profile", "a", "--profile-file", file)
    assert code == 2
    assert "give one of the two" in err


def test_the_engines_own_command_says_what_was_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = answer(
        capsys,
        *("--from", str(FIXTURES / "sglang.jsonl"), "--name", "sg", "--gpu", "h100"),
        *("--", "sglang", "serve", "--model-path", "meta-llama/Llama-3.1-8B-Instruct"),
        *("--tp", "2"),
    )
    served = data["profile"]["served"]
    assert (served["engine"], served["tensor_parallel_size"], served["gpus"]) == ("sglang", 2, 2)
    assert any("25%" in warning for warning in data["warnings"])


def test_files_say_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    report = str(FIXTURES / "trtllm_bench.json")
    served = answer(capsys, "--from", report, "--name", "t", "--weights", "fp8")["profile"][
        "served"
    ]
    assert (served["engine"], served["gpu"]) == ("tensorrt-llm", "h200-sxm-141gb")
    rows = ["--from", str(FIXTURES / "llama_bench.json"), "--model", "llama-3.1-8b"]
    made = answer(capsys, *rows, "--weights", "q4_0", "--name", "l")["profile"]
    assert (made["served"]["engine"], made["served"]["gpu"]) == ("llama.cpp", "rtx-4090")


def test_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "calibrate", *VLLM, "--name", "mybox", "--lang", "zh")
    assert code == 0
    for words in ("已校准：2 个实测值", "剩余范围", "个失败"):
        assert words in out
    _, out, _ = run(capsys, "speed", *SPEED, "--profile", "mybox", "--explain", "--lang", "zh")
    assert "按配置 mybox" in "".join(out.split("\n"))


def test_a_new_calibration_says_what_it_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "calibrate", *VLLM, "--name", "mybox")
    _, out, _ = run(capsys, "calibrate", *VLLM, "--name", "mybox")
    assert "It replaces the one of" in out


def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "copy.json"
    other.write_bytes((FIXTURES / "vllm_0.33.json").read_bytes())
    source = VLLM[:2]
    for arguments, words in [
        ([], "no benchmark is given"),
        (source, "the profile has no name"),
        ([*source, "--name", "a/b"], "the profile's name is 'a/b'"),
        ([*source, "--name", "x"], "no GPU is given"),
        (["--from", "missing.json", "--name", "x"], "--from missing.json cannot be read"),
        ([*VLLM, "--from", str(other), "--name", "x"], "copy.json holds the same as vllm_0.33"),
        ([*VLLM, "--name", "x", "--model", "a", "b"], "--model is 'a' and 'b' is given too"),
        (["--from", str(FIXTURES / "llama_bench.md"), "--name", "x"], "names no model"),
        ([*VLLM, "--name", "x", "--engine", "transformers"], "speed of engine transformers"),
        (["--list", "--show"], "--list and --show are two questions"),
        (["--list", "--name", "x"], "--list lists every profile"),
        (["--show"], "--show needs the profile's name"),
        (["--remove", "--name", "x"], "no profile 'x' to remove"),
        (["--remove", "--profile-file", "x"], "--remove takes --name"),
        (["--list", *source], "leave --from out"),
        (["--list", "word"], "leave 'word' out"),
    ]:
        code, out, err = run(capsys, "calibrate", *arguments)
        assert (code, out) == (2, ""), arguments
        assert words in err, (arguments, err)
        assert len(err.splitlines()) == 1
