"""``tokenroom fit --from FILE``: which of the file's services is planned."""

from pathlib import Path

import pytest

from tokenroom.cli.main import main

MIXED = """services:
  v:
    image: vllm/vllm-openai:v0.19.0
    command: --model qwen2.5-7b
  s:
    image: lmsysorg/sglang:v0.5.3
    command: python3 -m sglang.launch_server --model-path llama-3.1-8b
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and all that ``tokenroom fit --gpu h100`` prints."""
    code = main(["fit", "--gpu", "h100", *arguments])
    return code, "".join(capsys.readouterr())


def test_several_services_are_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(MIXED, encoding="utf-8")
    code, said = run(capsys, "--from", str(file))
    assert code == 2
    assert "v (vLLM), s (SGLang); choose one with --service NAME" in said
    for choice in (("--service", "s"), ("--engine", "sglang")):
        code, said = run(capsys, "--from", str(file), *choice)
        assert code == 0
        assert "SGLang 0.5.3" in said
    code, said = run(capsys, "--from", str(file), "--service", "s", "--engine", "vllm")
    assert code == 2
    assert "the command starts sglang" in said


def test_an_unknown_parameter_of_a_modelfile_is_refused_as_ollama_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "Modelfile"
    file.write_text("FROM llama3.1:8b\nPARAMETER num_cxt 4\n", encoding="utf-8")
    code, said = run(capsys, "--from", str(file))
    assert code == 2
    assert "Ollama has no parameter num_cxt (line 2 of the Modelfile) and refuses the file" in said
