"""Commands in systemd units and Dockerfiles, arithmetic, and what cannot be expanded."""

import pytest

from tokenroom.engines.registry import command_parser, engine_started_by
from tokenroom.engines.vllm.arguments import parse_command
from tokenroom.errors import CommandLineError

UNIT = """[Unit]
Description=vLLM

[Service]
Environment="CUDA_VISIBLE_DEVICES=0,1" LENGTH=4096
ExecStart=-/opt/venv/bin/vllm serve llama-3.1-8b \\
    --max-model-len ${LENGTH} -tp 2
Restart=always
"""
DOCKERFILE = """FROM python:3.12 AS build
CMD ["true"]
FROM --platform=linux/amd64 vllm/vllm-openai:v0.19.0
ENV LENGTH=4096
ENTRYPOINT ["vllm", "serve"]
CMD ["llama-3.1-8b", \\
     "--max-model-len", "4096"]
"""


def test_a_systemd_unit_is_read() -> None:
    parsed = parse_command(UNIT)
    assert (parsed.model, parsed.gpus) == ("llama-3.1-8b", 2)
    assert parsed.settings.max_model_len == 4096
    assert parsed.settings.tensor_parallel_size == 2


def test_a_dockerfile_is_read() -> None:
    parsed = parse_command(DOCKERFILE)
    assert (parsed.model, parsed.version) == ("llama-3.1-8b", "0.19.0")
    assert parsed.settings.max_model_len == 4096
    shell_form = "FROM vllm/vllm-openai:v0.19.0\nCMD --model llama-3.1-8b --seed 1\n"
    assert parse_command(shell_form).model == "llama-3.1-8b"
    assert engine_started_by(DOCKERFILE) == "vllm"


def test_a_dockerfile_of_llama_cpp_is_no_modelfile() -> None:
    text = 'FROM ghcr.io/ggml-org/llama.cpp:server-cuda\nCMD ["-hf", "ggml-org/gemma-3-1b-it-GGUF"]'
    assert engine_started_by(text) == "llama.cpp"
    assert "gemma-3-1b-it" in command_parser("llama.cpp")(text).model.lower()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("$((8*1024))", 8192),
        ("$(( (2 + 6) * 1024 ))", 8192),
        ("$((65536/8))", 8192),
        ("$((8200 % 8192 + 8184))", 8192),
    ],
)
def test_arithmetic_is_evaluated(text: str, tokens: int) -> None:
    parsed = parse_command(f"vllm serve m --max-model-len {text}")
    assert parsed.settings.max_model_len == tokens


def test_arithmetic_knows_variables() -> None:
    parsed = parse_command("N=8; vllm serve m --max-model-len $((N*1024))")
    assert parsed.settings.max_model_len == 8192


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the text is empty"),
        ("\n \n", "the text is empty"),
        ("vllm serve m --max-model-len $((2**40))", r"computed by \$\(\(2\*\*40\)\), which is not"),
        ("vllm serve m --max-model-len $((1/0))", r"computed by \$\(\(1/0\)\)"),
        ("vllm serve $(cat model)", r"the model is computed by \$\(cat model\)"),
        ('A=(-tp 2)\nvllm serve m "${A[@]}"', r"is \$\{A\[@\]\}, and arrays are not expanded"),
        ("vllm serve m\nvllm serve n", "vLLM is started 2 times .* give one of them"),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: 80}]}",
            r"starts no container \(kind 'Service'\)",
        ),
        ("FROM vllm/vllm-openai\nCMD [--model, m]", "CMD of the Dockerfile is not a JSON list"),
        ('FROM vllm/vllm-openai\nCMD vllm serve "m', "CMD of the Dockerfile cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(CommandLineError, match=sentence) as caught:
        parse_command(text)
    assert "\ue000" not in str(caught.value)
