import json

import pytest

from tokenroom.cli.main import main
from tokenroom.models import catalogue

Capture = pytest.CaptureFixture[str]


def test_words_narrow_the_list(capsys: Capture) -> None:
    assert main(["models", "qwen3", "30b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Model", "Parameters", "Active", "Weights", "Context"]
    assert any(
        line.split() == ["Qwen/Qwen3-30B-A3B", "30.53B", "3.35B", "bf16", "40,960"]
        for line in lines
    )
    assert any(line.split()[3:4] == ["fp8"] for line in lines)
    assert "Active: parameters a text token passes through" in " ".join(lines)
    assert not any("Llama" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_name_shows_one_model_with_its_source(capsys: Capture) -> None:
    assert main(["models", "llama-3.1-8b-instruct"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].strip() == "meta-llama/Llama-3.1-8B-Instruct"
    assert "8,030,261,248" in out
    assert "Source: " in out
    assert main(["models", "llama-3.1-8b-instruct", "--lang", "zh"]) == 0
    assert "参数量" in capsys.readouterr().out


def test_json_holds_exact_counts(capsys: Capture) -> None:
    assert main(["models", "llama-3.1-8b-instruct", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    (model,) = json.loads(out)
    assert model["parameters_total"] == 8_030_261_248
    assert model["max_position_embeddings"] == 131_072
    assert model["weights"] == "bf16"


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "w4a16 (compressed-tensors)"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "w8a8 (compressed-tensors)"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8 (compressed-tensors)"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "awq"),
        ("openai/gpt-oss-120b", "mxfp4"),
        ("meta-llama/Llama-2-7b-hf", "fp16"),
    ],
)
def test_details_say_how_weights_are_stored(name: str, layout: str, capsys: Capture) -> None:
    assert main(["models", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    (stored,) = [line for line in lines if line.startswith("Stored as")]
    assert stored.split(maxsplit=2)[2].strip() == layout


def test_nothing_found_is_a_no_with_near_names(capsys: Capture) -> None:
    assert main(["models", "Llama-3.1-8B-Insturct"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No model matches" in captured.err
    assert "Llama-3.1-8B-Instruct" in captured.err
    assert main(["models", "zzzzzzzz", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


def test_a_piped_list_has_one_line_a_model(capsys: Capture) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = {line.split(" ")[0] for line in lines}
    assert set(catalogue.names()) <= names
