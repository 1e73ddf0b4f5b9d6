"""vLLM's command line: against what vLLM's own parser made of the same words, and in every form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.engines.command_line import ParsedCommand
from tokenroom.engines.vllm.arguments import parse_command
from tokenroom.engines.vllm.engine_args import INFLUENTIAL, not_modelled, without_influence
from tokenroom.engines.vllm.flags import (
    all_flags,
    flags_of,
    human_readable_int,
    known_versions,
    nearest_version,
)
from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings
from tokenroom.errors import CommandLineError

_FIXTURE = Path(__file__).parent / "data" / "vllm_arguments_0.32.json.gz"


def _recorded() -> tuple[dict[str, Any], list[tuple[list[str], dict[str, Any] | None]]]:
    data = json.loads(gzip.decompress(_FIXTURE.read_bytes()))
    return data["defaults"], [(words, result) for words, result in data["rows"]]


def _comparable(setting: Any) -> Any:
    return list(setting) if isinstance(setting, tuple) else setting


def _differences(words: list[str], expected: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    try:
        parsed = parse_command(["vllm", "serve", *words], version="0.32.0")
    except CommandLineError as error:
        return [str(error)]
    found = []
    for name, default in defaults.items():
        wanted = expected.get(name, default)
        if name == "model":
            got: Any = parsed.model
        elif name == "speculative":
            got, wanted = parsed.settings.speculative, _speculative(wanted)
        else:
            got = _comparable(getattr(parsed.settings, name))
        if got is None or got == {}:
            got = default if name != "speculative" else None
        if got != wanted:
            found.append(f"{name}: {got!r}, vLLM {wanted!r}")
    return found


def _speculative(config: dict[str, Any] | None) -> SpeculativeSettings | None:
    if config is None:
        return None
    return SpeculativeSettings(
        method=config["method"],
        num_speculative_tokens=config.get("num_speculative_tokens", 0),
        model=config.get("model"),
    )


def test_every_recorded_argument_list_means_what_vllm_makes_of_it() -> None:
    defaults, rows = _recorded()
    wrong = []
    accepted = 0
    for words, expected in rows:
        if expected is None:
            continue
        if "model" not in expected:  # vLLM would take its default model; a slip more likely
            with pytest.raises(CommandLineError, match="names no model"):
                parse_command(["vllm", "serve", *words], version="0.32.0")
            continue
        accepted += 1
        wrong += [f"{words}: {line}" for line in _differences(words, expected, defaults)]
    assert not wrong
    assert accepted > 400


def test_what_vllms_parser_refuses_is_an_error_or_a_refusal_and_nothing_else() -> None:
    _, rows = _recorded()
    wrong = []
    for words, expected in rows:
        try:
            parsed = parse_command(["vllm", "serve", *words], version="0.32.0")
        except CommandLineError:
            continue
        if bool(parsed.refusal) is (expected is not None):
            wrong.append(words)
    assert not wrong


def _settings(command: str, **given: Any) -> VLLMSettings:
    return parse_command(command, **given).settings


def test_every_flag_of_every_version_is_judged_once() -> None:
    judged = [INFLUENTIAL, without_influence(), not_modelled()]
    assert {flag.dest for flag in all_flags()} == frozenset().union(*judged)
    assert sum(len(names) for names in judged) == len(frozenset().union(*judged))


def test_every_version_builds_a_parser() -> None:
    for version in known_versions():
        parsed = parse_command(["vllm", "serve", "m", "-tp", "2"], version=version)
        assert parsed.settings.tensor_parallel_size == 2
        assert len(flags_of(version)) > 75


@pytest.mark.parametrize(
    ("asked", "stands_for"),
    [
        (None, "0.33.0"),
        ("0.19.1", "0.19.0"),
        ("0.8.2", "0.8.5"),
        ("0.15.0", "0.16.0"),
        ("0.99.0", "0.33.0"),
        ("0.33.0rc1", "0.33.0"),
    ],
)
def test_versions_not_read_fall_to_the_nearest(asked: str | None, stands_for: str) -> None:
    assert nearest_version(asked) == stands_for


@pytest.mark.parametrize(
    ("text", "value"),
    [("32k", 32000), ("32K", 32768), ("1M", 2**20), ("1m", 10**6), ("1.5k", 1500), ("7", 7)],
)
def test_human_readable_integers(text: str, value: int) -> None:
    assert human_readable_int(text) == value


DOCKER = r"""
# serve it
docker run --runtime nvidia --gpus '"device=0,1"' \
  -v ~/.cache/huggingface:/root/.cache/huggingface \
  -e VLLM_USE_V1=1 --env "HUGGING_FACE_HUB_TOKEN=$TOKEN" \
  -p 8000:8000 --ipc=host --shm-size 16g -itd --rm \
  vllm/vllm-openai:v0.19.0 \
  --model meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 \
  --max-model-len 32k > server.log 2>&1 &
"""


def test_docker_run() -> None:
    parsed = parse_command(DOCKER)
    assert parsed.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert parsed.version == parsed.settings.version == "0.19.0"
    assert parsed.gpus == 2
    assert parsed.settings.tensor_parallel_size == 2
    assert parsed.settings.max_model_len == 32000
    assert parsed.settings.environment == {"VLLM_USE_V1": "1"}
    assert dict(parsed.facts) == {"runtime": "nvidia", "ipc": "host", "shm-size": "16g"}


COMPOSE = """
services:
  proxy:
    image: nginx
    command: ["nginx", "-g", "daemon off;"]
  llm:
    image: vllm/vllm-openai:v0.11.0
    command: >
      --model ${MODEL:-Qwen/Qwen3-8B} --tensor-parallel-size 2
      --speculative-config '{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}'
    environment:
      VLLM_ATTENTION_BACKEND: FLASHINFER
    shm_size: 8g
    deploy:
      resources:
        reservations:
          devices:
            - {driver: nvidia, device_ids: ["0", "3"], capabilities: [gpu]}
"""


def test_compose_file() -> None:
    parsed = parse_command(COMPOSE)
    assert (parsed.model, parsed.version, parsed.gpus) == ("Qwen/Qwen3-8B", "0.11.0", 2)
    speculative = parsed.settings.speculative
    assert speculative is not None
    assert (speculative.method, speculative.num_speculative_tokens) == ("eagle3", 3)
    assert parsed.settings.environment == {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    assert parse_command(COMPOSE, environment={"MODEL": "a/b"}).model == "a/b"


def _kubernetes(kind: str, containers: str) -> str:
    return f"""
apiVersion: apps/v1
kind: {kind}
metadata: {{name: serving}}
spec:
  template:
    spec:
      nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
      containers:
{containers}
"""


SCRIPT_CONTAINER = """
      - name: vllm
        image: vllm/vllm-openai:v0.18.0
        command: ["/bin/sh", "-c"]
        args: ["vllm serve mistralai/Mistral-7B --tensor-parallel-size $(TP) --max-num-seqs 64"]
        env: [{name: TP, value: "4"}]
        resources: {limits: {nvidia.com/gpu: "4", cpu: "8"}}
"""
LIST_CONTAINER = """
      - name: second
        image: vllm/vllm-openai:latest
        args: ["--model", "a/b", "--max-model-len", 4096]
        resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_kubernetes_deployment() -> None:
    parsed = parse_command(_kubernetes("Deployment", SCRIPT_CONTAINER))
    assert (parsed.model, parsed.version, parsed.gpus) == ("mistralai/Mistral-7B", "0.18.0", 4)
    assert parsed.settings.tensor_parallel_size == 4
    assert parsed.accelerator_hint == "NVIDIA-H100-80GB-HBM3"


def test_several_containers_are_asked_for_by_name() -> None:
    text = _kubernetes("StatefulSet", SCRIPT_CONTAINER + LIST_CONTAINER)
    with pytest.raises(CommandLineError, match=r"started 2 times .*vllm.*second.*choose a service"):
        parse_command(text)
    assert parse_command(text, service="second").settings.max_model_len == 4096
    with pytest.raises(CommandLineError, match="service is 'third'"):
        parse_command(text, service="third")


def test_leader_worker_set() -> None:
    text = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - name: leader
          image: vllm/vllm-openai:v0.17.0
          command: ["sh", "-c", "bash multi-node-serving.sh leader;
            python3 -m vllm.entrypoints.openai.api_server --port 8080
            --model meta-llama/Llama-3.1-405B --tensor-parallel-size 8 --pipeline_parallel_size 2"]
          resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate:
      spec:
        containers:
        - name: worker
          image: vllm/vllm-openai:v0.17.0
          command: ["sh", "-c", "bash multi-node-serving.sh worker"]
"""
    parsed = parse_command(text)
    assert parsed.model == "meta-llama/Llama-3.1-405B"
    assert parsed.settings.pipeline_parallel_size == 2
    assert parsed.gpus == 8


def test_production_stack_values() -> None:
    text = """
servingEngineSpec:
  modelSpec:
  - name: llama
    repository: vllm/vllm-openai
    tag: v0.16.0
    modelURL: meta-llama/Llama-3.1-8B
    requestGPU: 2
    vllmConfig:
      tensorParallelSize: 2
      maxModelLen: 4096
      enableChunkedPrefill: false
      extraArgs: ["--gpu-memory-utilization", "0.8"]
"""
    parsed = parse_command(text)
    assert (parsed.model, parsed.version, parsed.gpus) == ("meta-llama/Llama-3.1-8B", "0.16.0", 2)
    assert parsed.settings.max_model_len == 4096
    assert parsed.settings.gpu_memory_utilization == 0.8


def test_kserve() -> None:
    text = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: k}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      image: vllm/vllm-openai:v0.12.0
      args: [--model=Qwen/Qwen3-4B, --dtype=half]
      resources: {limits: {nvidia.com/gpu: "1"}}
"""
    parsed = parse_command(text)
    assert (parsed.model, parsed.settings.dtype, parsed.gpus) == ("Qwen/Qwen3-4B", "half", 1)


def test_python_call() -> None:
    parsed = parse_command(
        "from vllm import LLM, SamplingParams\n"
        "name = 'a/b'\n"
        "llm = LLM(name, tensor_parallel_size=2, enforce_eager=True, swap_space=4,\n"
        "          limit_mm_per_prompt={'image': 2}, enable_prefix_caching=False, seed=None)\n",
        version="0.16.0",
    )
    assert parsed.model == "a/b"
    assert parsed.settings.usage == "llm"
    assert parsed.settings.enforce_eager is True
    assert parsed.settings.enable_prefix_caching is False
    assert parsed.settings.limit_mm_per_prompt == {"image": 2}
    assert parsed.settings.ignored_flags == ("--swap-space",)


def test_python_call_with_a_computed_argument() -> None:
    with pytest.raises(CommandLineError, match=r"tensor_parallel_size is 'count\(\)'"):
        parse_command("LLM(model='a', tensor_parallel_size=count())")


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m -tp 4",
        "vllm serve --model m -tp=4",
        "sudo -E nohup numactl --cpunodebind=0 /usr/bin/vllm serve m -tp 4 > a.log 2>&1 &",
        "env A=1 uv run vllm serve m -tp 4 | tee log",
        "python -m vllm.entrypoints.openai.api_server --model=m --tensor_parallel_size 4",
        "python3 -m vllm.entrypoints.api_server --model m --tensor-par 4",
        "cd /x && source v/bin/activate && vllm serve m --tensor-parallel-size=4 # now",
        "export TP=4\nvllm serve m -tp $TP",
        "TP=4\nARGS='-tp 4'\nvllm serve m $ARGS",
        "vllm serve m `\n  --tensor-parallel-size 4",
        "vllm serve m ^\r\n  --tensor-parallel-size 4",
        "$ vllm serve m \\\n    -tp ${TP:-4}",
        'bash -c "vllm serve m -tp 4"',
        "vllm serve $'m' -tp \"4\"",
        "ssh() { true; }; vllm serve m -tp 4; echo done",
    ],
)
def test_shell_forms(command: str) -> None:
    parsed = parse_command(command)
    assert parsed.model == "m"
    assert parsed.settings.tensor_parallel_size == 4


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 vllm serve m", 2),
        ("export CUDA_VISIBLE_DEVICES=3\nvllm serve m", 1),
        ("$env:CUDA_VISIBLE_DEVICES='0,1,2'; vllm serve m", 3),
        ("HIP_VISIBLE_DEVICES=0,1,2,3 vllm serve m", 4),
        ("CUDA_VISIBLE_DEVICES=0,-1,2 vllm serve m", 1),
        ("docker run --gpus 3 vllm/vllm-openai m", 3),
        ("docker run --gpus all -e CUDA_VISIBLE_DEVICES=1,2 vllm/vllm-openai m", 2),
        ("podman run --device nvidia.com/gpu=0 --device nvidia.com/gpu=1 vllm/vllm-openai m", 2),
        ("vllm serve m --device-ids 0,2", 2),
        ("vllm serve m", None),
    ],
)
def test_visible_accelerators(command: str, gpus: int | None) -> None:
    assert parse_command(command).gpus == gpus


def test_usage_decides_defaults() -> None:
    assert _settings("vllm bench throughput --model m --input-len 8").usage == "llm"
    assert _settings("python benchmark_latency.py --model m").usage == "llm"
    assert _settings("vllm serve m").usage == "server"
    assert _settings("vllm run-batch -i a -o b --model m").usage == "other"


def test_flags_of_another_version_are_said() -> None:
    parsed = parse_command(
        "vllm serve m --swap-space 4 --performance-mode throughput", version="0.33.0"
    )
    assert parsed.settings.unknown_flags == ("--swap-space",)
    assert parsed.notes == ("vLLM 0.33.0 no longer has --swap-space; it was removed by 0.18.0",)
    parsed = parse_command("vllm serve m --attention-config {} -tp 2", version="0.10.0")
    assert parsed.notes == ("vLLM 0.10.0 does not have --attention-config yet; it came by 0.13.0",)


def test_unknown_flag_suggests_the_nearest() -> None:
    parsed = parse_command("vllm serve m --max-modle-len 4096 -tp 2")
    assert parsed.settings.unknown_flags == ("--max-modle-len",)
    assert "did you mean --max-model-len?" in parsed.notes[0]
    assert parsed.settings.tensor_parallel_size == 2


def test_unmodelled_flag_is_noted() -> None:
    assert "not modelled" in parse_command("vllm serve m --use-replayssm").notes[0]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("-tp 0", "--tensor-parallel-size is 0; give a whole number of at least 1"),
        ("--gpu-memory-utilization 1.5", "--gpu-memory-utilization is 1.5; give a share above 0"),
        ("--gpu-memory-utilization nan", "--gpu-memory-utilization is nan"),
        ("--max-model-len -5", "--max-model-len is -5"),
        ("--max-model-len abc", "--max-model-len is 'abc'; give a whole number such as"),
        ("--max-num-seqs", "--max-num-seqs has no value; give one"),
        ("--cpu-offload-gb inf", "--cpu-offload-gb is inf"),
        ("--speculative-config {", "--speculative-config is '{'; give JSON"),
        ("--speculative-config 3", "--speculative-config is 3; give a JSON object"),
        ("--limit-mm-per-prompt '{\"image\": -1}'", "--limit-mm-per-prompt image is -1"),
        ("-cc.cudagraph_mode BIG", "cudagraph_mode is 'BIG'; choose from NONE, PIECEWISE"),
        ("--performance-mode fast", "--performance-mode is 'fast'; choose from"),
        ("-tp $TP", "--tensor-parallel-size is $TP, which is not set"),
        ("-tp $(nvidia-smi -L | wc -l)", "is computed by $(nvidia-smi -L | wc -l)"),
        ("--config a.yaml", "may not be read here"),
        ("--max 3", "could match --max-cpu-loras"),
        ("--enforce-eager=1", "--enforce-eager takes no value but was given '1'"),
        ("other", "the command has the extra word 'other'"),
        ("--served-model-name 'x", "opens ' at"),
    ],
)
def test_refusals_name_the_flag(flags: str, sentence: str) -> None:
    with pytest.raises(CommandLineError) as refusal:
        parse_command(f"vllm serve m {flags}", version="0.33.0")
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("command", ["", "ls -l", "vllm serve", "vllm bench serve --model m", "#"])
def test_commands_that_serve_nothing(command: str) -> None:
    with pytest.raises(CommandLineError):
        parse_command(command)


def test_config_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "model: a/b\ntensor-parallel-size: 4\nenable-prefix-caching: false\nmax_num_seqs: 8\n"
        "compilation-config: {cudagraph_mode: FULL}\ncudagraph-capture-sizes: [1, 2]\n"
    )
    parsed = parse_command(["vllm", "serve", "--config", str(file), "-tp", "2"], allow_files=True)
    assert parsed.model == "a/b"
    assert parsed.settings.tensor_parallel_size == 2  # the command line wins
    assert parsed.settings.enable_prefix_caching is False
    assert parsed.settings.max_num_seqs == 8
    assert parsed.settings.cudagraph_mode == "FULL"
    assert parsed.settings.cudagraph_capture_sizes == (1, 2)
    for bad, sentence in (("a: [", "not valid YAML"), ("x", "holds no options")):
        file.write_text(bad)
        with pytest.raises(CommandLineError, match=sentence):
            parse_command(["vllm", "serve", "m", "--config", str(file)], allow_files=True)
    with pytest.raises(CommandLineError, match="cannot be read"):
        parse_command(["vllm", "serve", "m", "--config", "/no/such.yaml"], allow_files=True)


_FRAGMENTS = [
    *(
        "vllm serve m ",
        "docker run ",
        "vllm/vllm-openai:v0.11.0 ",
        "--model ",
        "LLM(model='a'",
        ")",
    ),
    *("'", '"', "$", "${", "}", "$(", "`", "\\", "\n", "|", "&&", ">", "<<EOF\n", "#", "=", " - "),
    *("-tp ", "-O", "-cc.a.b ", "--max-model-len ", "1k ", "nan ", "{}", '{"a":1}', "-1 ", "[1]"),
    *(
        "services:\n",
        "  a:\n",
        "    image: vllm\n",
        "    command: ",
        "kind: Pod\n",
        "containers:\n",
    ),
    *("- args: [", "]", "env:\n", ": ", "--speculative-config ", "--compilation-config ", "&x *x"),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(_FRAGMENTS), st.text(max_size=4)), max_size=14))
def test_any_text_is_understood_or_refused_in_one_sentence(parts: list[str]) -> None:
    try:
        assert isinstance(parse_command("".join(parts)), ParsedCommand)
    except CommandLineError:
        return


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(sorted({name for flag in all_flags() for name in flag.names})),
            st.sampled_from(["0", "1", "-1", "x", "{}", "[]", '{"a": 1}', "1e400", "nan", "None"]),
            st.text(max_size=5),
        ),
        max_size=8,
    ),
    st.sampled_from(known_versions()),
)
def test_any_words_are_understood_or_refused(words: list[str], version: str) -> None:
    try:
        parse_command(["vllm", "serve", "m", *words], version=version)
    except CommandLineError:
        return
