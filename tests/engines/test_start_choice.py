"""Which of a file's launches is planned: by service, by engine, or none when several are left."""

import pytest

from tokenroom.engines.registry import chosen_start, command_parser
from tokenroom.errors import CommandLineError

SGLANG = "python3 -m sglang.launch_server --model-path llama-3.1-8b --tp 2"
FOUR = f"""services:
  a:
    image: lmsysorg/sglang:v0.5.3
    command: {SGLANG}
  b:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    command: -m llama-3.1-8b -ngl 99 -c 4096
  c:
    image: nvcr.io/nvidia/tensorrt-llm/release:1.0.0
    command: trtllm-serve qwen2.5-7b --max_seq_len 4096
  d:
    image: vllm/vllm-openai:v0.19.0
    command: --model qwen2.5-7b
  e:
    image: postgres:17
    command: postgres
"""
MODELFILE = "FROM llama3.1:8b\nSYSTEM You're Mario.\n"
TWO_OF_ONE = """services:
  b:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    command: -m llama-3.1-8b -c 4096
  c:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    command: -m qwen2.5-7b -c 4096
"""


def started(text: str, service: str | None = None, engine: str | None = None) -> tuple[str, str]:
    """The engine and the model that are chosen."""
    name, chosen = chosen_start(text, {}, service=service, engine=engine)
    return name, command_parser(name)(chosen, environment={}).model


@pytest.mark.parametrize(
    ("service", "engine", "model"),
    [
        ("a", "sglang", "llama-3.1-8b"),
        ("b", "llama.cpp", "llama-3.1-8b"),
        ("c", "tensorrt-llm", "qwen2.5-7b"),
        ("d", "vllm", "qwen2.5-7b"),
    ],
)
def test_a_service_of_any_engine_can_be_chosen(service: str, engine: str, model: str) -> None:
    assert started(FOUR, service) == (engine, model)
    assert started(FOUR, engine=engine) == (engine, model)


@pytest.mark.parametrize(
    ("text", "service", "sentence"),
    [
        (FOUR, None, r"4 .*a \(SGLang\), b \(llama.cpp\), c \(TensorRT-LLM\), d \(vLLM\); .*"),
        (FOUR, "zz", r"no service zz; there is a \(SGLang\), b"),
        (FOUR, "e", "service e starts no engine that is known here"),
        (TWO_OF_ONE, None, r"2 .*b \(llama.cpp\), c \(llama.cpp\); choose one with --service"),
        (f"{SGLANG} &\nvllm serve m", None, r"m sglang.* \(SGLang\), vllm serve m \(vLLM\); keep"),
        ("vllm serve m", "a", "--service is 'a', .* a command without services"),
        (MODELFILE, "a", "--service is 'a', and a Modelfile has no services"),
    ],
)
def test_what_is_left_open_is_asked(text: str, service: str | None, sentence: str) -> None:
    with pytest.raises(CommandLineError, match=sentence):
        chosen_start(text, {}, service=service)


@pytest.mark.parametrize(
    "text",
    [
        "pip install sglang\nvllm serve m",
        "vllm serve m &\nvllm bench serve --model m --backend vllm",
        "vllm serve m &\npython -m sglang.bench_serving --backend vllm",
        "vllm serve m || vllm serve m",
        "docker pull lmsysorg/sglang\ndocker run --gpus all vllm/vllm-openai:v0.19.0 --model m",
    ],
)
def test_installations_and_clients_are_no_launches(text: str) -> None:
    assert started(text) == ("vllm", "m")


def test_a_workload_of_kubernetes_has_three_names() -> None:
    text = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat}}
spec:
  template:
    spec:
      containers:
        - name: engine
          image: lmsysorg/sglang:v0.5.3
          command: [{", ".join(SGLANG.split())}]
"""
    for name in ("engine", "chat", "Deployment chat/engine"):
        assert started(text, name) == ("sglang", "llama-3.1-8b")


def test_quotes_in_a_modelfile_are_text() -> None:
    assert started(MODELFILE) == ("llama.cpp", "llama3.1:8b")


def test_an_image_of_ollama_is_read_by_its_entry_point() -> None:
    text = "services:\n  o:\n    image: ollama/ollama\n    command: serve\n"
    with pytest.raises(CommandLineError, match="the command names no model; give it as ollama"):
        started(text, "o")
