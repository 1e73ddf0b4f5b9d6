"""Flags as people quote them, brought to the engine's command line."""

import pytest

from tokenroom.errors import RowError
from tokenroom.validation.commands import (
    command_words,
    engine_version,
    plain_command,
    plain_value,
)
from tokenroom.validation.rows import Row


def row(engine: str = "vllm", **fields: object) -> Row:
    return Row(**{"id": "r", "engine": engine, "model": "m", **fields})  # type: ignore[arg-type]


def words(flags: dict[str, object], engine: str = "vllm", **fields: object) -> tuple[str, ...]:
    quantized = bool(fields.pop("quantized", False))
    return command_words(row(engine, flags=flags, **fields), quantized=quantized)[3:]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("0.9 (default)", 0.9),
        ("16384 (default; was 8192)", 16384),
        ("auto (fp8 from checkpoint)", "auto"),
        ("fp8", "fp8"),
        (8192, 8192),
        (True, True),
    ],
)
def test_remarks_are_dropped_and_numbers_are_numbers(value: object, plain: object) -> None:
    assert plain_value("x", value) == plain


@pytest.mark.parametrize("value", ["mtp n=4 (external draft)", "~160k", "8 (likely)"])
def test_a_value_that_leaves_open_what_was_given_is_refused(value: str) -> None:
    with pytest.raises(RowError, match="flag x"):
        plain_value("x", value)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"max_model_len": 8192}, ("--max-model-len", "8192")),
        ({"enforce_eager": True}, ("--enforce-eager",)),
        ({"enable_prefix_caching": False}, ("--no-enable-prefix-caching",)),
        ({"kv_cache_memory": "10 GB"}, ("--kv-cache-memory-bytes", "10000000000")),
        ({"kv_cache_memory_bytes": "49.0 GiB"}, ("--kv-cache-memory-bytes", "52613349376")),
        ({"limit_mm_per_prompt": {"image": 2}}, ("--limit-mm-per-prompt", '{"image": 2}')),
        (
            {"speculative_config": "mtp 3"},
            ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'),
        ),
        ({"quantization": "fp8"}, ("--quantization", "fp8")),
        ({"world_size": 4, "trust_remote_code": True}, ()),
        ({"dtype": None}, ()),
        ({"dtype": "default"}, ()),
    ],
)
def test_values_become_words(flags: dict[str, object], expected: tuple[str, ...]) -> None:
    assert words(flags) == expected


def test_a_method_that_the_files_name_themselves_is_left_out() -> None:
    assert words({"quantization": "awq int4"}, quantized=True) == ()
    with pytest.raises(RowError, match="not quantised"):
        words({"quantization": "awq int4"})


def test_several_gpus_without_a_size_run_tensor_parallel() -> None:
    assert words({}, gpus=4) == ("--tensor-parallel-size", "4")
    assert words({"pipeline_parallel_size": 4}, gpus=4) == ("--pipeline-parallel-size", "4")
    assert words({}, inferred=("tensor parallel 8",)) == ("--tensor-parallel-size", "8")
    assert words({}, gpus=1) == ()


def test_llama_cpp_has_its_own_names() -> None:
    flags = {"n_ctx": 4096, "ngl": "33/33", "flash_attn": 1, "cache_type_k": "q8_0"}
    found = command_words(row("llama.cpp", flags=flags, gpus=2), quantized=False)
    assert found == (
        *("llama-server", "-m", "m", "-c", "4096", "-ngl", "33", "-fa", "on", "-ctk", "q8_0"),
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.20.1rc1.dev16", "0.20.1"),
        ("0.21+ dev", "0.21"),
        ("V1 2025-04", None),
        ("0.6.4.post1", "0.6.4.post1"),
        (None, None),
    ],
)
def test_versions_are_read_out_of_what_was_stated(text: str | None, version: str | None) -> None:
    assert engine_version(row(engine_version=text)) == version


def test_builds_of_llama_cpp_are_numbers() -> None:
    assert engine_version(row("llama.cpp", engine_version="b8668")) == "b8668"
    assert engine_version(row("llama.cpp", engine_version="0.6.8/0.7.0")) is None


@pytest.mark.parametrize("text", ["habana fork", "TT plugin"])
def test_forks_keep_their_own_rules(text: str) -> None:
    with pytest.raises(RowError, match="not the engine as released"):
        engine_version(row(engine_version=text))


def test_secrets_are_left_out_of_an_exported_command() -> None:
    command = plain_command(
        [
            "HF_TOKEN=hf_x",
            "vllm",
            "serve",
            "m",
            "--api-key",
            "sk-1",
            "--hf-token=hf_y",
            "--port",
            "1",
        ]
    )
    assert command == ("HF_TOKEN=HIDDEN vllm serve m --api-key HIDDEN --hf-token=HIDDEN --port 1")
