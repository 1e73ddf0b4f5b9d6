"""llama.cpp's command lines: llama-server, llama-cli, containers, Ollama and Modelfiles."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main
from tokenroom.engines.llama_cpp.arguments import parse_command
from tokenroom.engines.llama_cpp.flags import ALIASES, KNOWN_SWITCHES, KNOWN_VALUES
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings
from tokenroom.engines.llama_cpp.versions import rules_for
from tokenroom.engines.registry import engine_named, engine_started_by
from tokenroom.errors import CommandLineError, DeploymentError
from tokenroom.reports.fit_json import schema_text


def settings(command: str, **options: Any) -> LlamaCppSettings:
    parsed = parse_command(command, **options)
    assert isinstance(parsed.settings, LlamaCppSettings)
    return parsed.settings


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("-c 32768 -ngl 99", {"n_ctx": 32768, "n_gpu_layers": 99}),
        ("--ctx-size=8192 --gpu-layers all", {"n_ctx": 8192, "n_gpu_layers": -2}),
        ("--n-gpu-layers auto -np 2", {"n_gpu_layers": -1, "n_parallel": 2}),
        ("-b 4096 -ub 1024 -fa", {"n_batch": 4096, "n_ubatch": 1024, "flash_attn": "on"}),
        ("-fa off -t 8", {"flash_attn": "off"}),
        ("-fa auto", {"flash_attn": "auto"}),
        ("-ctk q8_0 -ctv q4_0", {"type_k": "q8_0", "type_v": "q4_0"}),
        ("-ts 3,1 -sm row -mg 1", {"tensor_split": (3, 1), "split_mode": "row", "main_gpu": 1}),
        ("--n-cpu-moe 20", {"n_cpu_moe": 20}),
        ("--cpu-moe --no-mmap", {"cpu_moe": True, "load_mode": "none"}),
        ("-nkvo --swa-full", {"kv_offload": False, "swa_full": True}),
        ("--kv-unified", {"kv_unified": True}),
        ("--no-kv-unified", {"kv_unified": False}),
        ("--device none", {"gpus": 0}),
        ("-dev CUDA0,CUDA1", {"gpus": 2}),
        ("-fit off", {"fit": False}),
        ("--fit-target 512,2048 --fit-ctx 8192", {"fit_target_mib": (512, 2048), "fit_ctx": 8192}),
        ("--cache-ram 0 --ctx-checkpoints 4", {"cache_ram_mib": 0, "ctx_checkpoints": 4}),
        (
            "-ot 'exps=CPU' -ot 'blk\\.1\\.=CUDA1,token_embd=CPU'",
            {"override_tensor": (("exps", "CPU"), ("blk\\.1\\.", "CUDA1"), ("token_embd", "CPU"))},
        ),
    ],
)
def test_flags(flags: str, expected: dict[str, Any]) -> None:
    found = settings(f"llama-server -m m.gguf {flags}")
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("command", "program", "model"),
    [
        ("llama-server -m a.gguf", "server", "a.gguf"),
        ("./build/bin/llama-cli --model /models/a.gguf -p hello", "cli", "/models/a.gguf"),
        ("CUDA_VISIBLE_DEVICES=0,1 llama-server -m a.gguf", "server", "a.gguf"),
        ("docker run ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/a.gguf", "server", "/m/a.gguf"),
        ("ollama run qwen3:8b", "ollama", "qwen3:8b"),
        ("ollama run hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q8_0", "ollama",
         "Llama-3.2-3B-Instruct"),
        ("FROM ./a.gguf\nPARAMETER num_ctx 8192\n", "ollama", "./a.gguf"),
        ("llama-server -hf ggml-org/Qwen3-8B-GGUF", "server", "Qwen3-8B"),
        ("llama-server -hf org/name-GGUF -hff a.gguf", "server", "org/name-GGUF/a.gguf"),
    ],
)  # fmt: skip
def test_programs(command: str, program: str, model: str) -> None:
    assert engine_started_by(command) == "llama.cpp"
    parsed = parse_command(command)
    assert (parsed.settings.program, parsed.model) == (program, model)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("ollama run llama3.1:8b", "q4_k_m"),
        ("ollama run llama3.1:8b-instruct-q8_0", "q8_0"),
        ("ollama run llama3.1:8b-instruct-fp16", "f16"),
        ("ollama run gpt-oss:20b", "mxfp4"),
        ("ollama run ./a.gguf", None),
        ("llama-server -hf unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL", "q4_k_m"),
        ("llama-server -m a.gguf", None),
    ],
)
def test_weights_of_names(name: str, weights: str | None) -> None:
    parsed = parse_command(name)
    assert parsed.weights == weights
    assert bool(parsed.notes) is (weights is not None)


def test_visible_devices() -> None:
    assert parse_command("CUDA_VISIBLE_DEVICES=2,3 llama-server -m a.gguf").gpus == 2
    assert settings("CUDA_VISIBLE_DEVICES=-1 llama-server -m a.gguf").gpus == 0


def test_variables_of_llama_cpp_yield_to_flags() -> None:
    found = settings("LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_N_PARALLEL=2 llama-server -m a.gguf -c 512")
    assert (found.n_ctx, found.n_parallel) == (512, 2)


def test_ollama() -> None:
    found = settings(
        "OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 "
        "OLLAMA_CONTEXT_LENGTH=16384 ollama run qwen3:8b"
    )
    assert (found.n_ctx, found.n_parallel) == (32768, 2)  # each slot has the length
    assert (found.type_k, found.type_v, found.flash_attn) == ("q8_0", "q8_0", "on")


@pytest.mark.parametrize(
    ("command", "slot", "all_slots"),
    [
        ("ollama run qwen3:8b", 40960, 40960),
        ("ollama run gemma2:9b", 8192, 8192),
        ("OLLAMA_NUM_PARALLEL=2 OLLAMA_CONTEXT_LENGTH=65536 ollama run qwen3:8b", 40960, 81920),
        ("OLLAMA_CONTEXT_LENGTH=16384 ollama run qwen3:8b", 16384, 16384),
        ("llama-server -m qwen3:8b -c 262144 -np 1", 262144, 262144),
    ],
)
def test_ollama_gives_no_more_than_trained(
    capsys: pytest.CaptureFixture[str], command: str, slot: int, all_slots: int
) -> None:
    main(["fit", "--gpu", "h100", "--", *command.split()])
    out = " ".join(capsys.readouterr().out.split())
    assert f"n_ctx {all_slots:,} cells" in out
    assert f"n_ctx of a slot {slot:,}" in out
    assert ("Ollama cuts num_ctx 65,536 to the 40,960 tokens" in out) is ("65536" in command)


def test_ollama_is_not_an_engine_of_its_own() -> None:
    with pytest.raises(DeploymentError, match=r"use --engine llama\.cpp, or .*-- ollama run TAG"):
        engine_named("ollama")


@pytest.mark.parametrize("version", [None, "newest", "b11312", "11312", "0c1e57098"])
def test_the_newest_version_is_shown_as_its_build(version: str | None) -> None:
    assert rules_for(version) == rules_for(None)
    assert rules_for(version).version == "b11312"


def test_modelfile(tmp_path: Path) -> None:
    file = tmp_path / "Modelfile"
    file.write_text("# comment\nFROM qwen3:14b\nPARAMETER num_ctx 16384\nPARAMETER num_gpu 20\n")
    parsed = parse_command(f"ollama create mine -f {file}", allow_files=True)
    assert (parsed.model, parsed.settings.n_ctx) == ("qwen3:14b", 16384)
    assert parsed.settings.n_gpu_layers == 20


def test_unknown_flags_are_named() -> None:
    parsed = parse_command("llama-server -m a.gguf --frobnicate --port 80 --temp 0.5")
    assert parsed.notes == ("llama.cpp has no --frobnicate, which was left out",)
    assert parsed.settings.ignored_flags == ("--port", "--temp")


def test_no_flag_is_listed_twice() -> None:
    assert not (set(ALIASES) & (set(KNOWN_SWITCHES) | set(KNOWN_VALUES)))
    assert not set(KNOWN_SWITCHES) & set(KNOWN_VALUES)


@pytest.mark.parametrize(
    "command",
    [
        "llama-server",
        "llama-server -c 4096",
        "llama-server -m",
        "llama-server -m a.gguf -c many",
        "llama-server -m a.gguf -ot exps",
        "llama-server -m a.gguf -ts a,b",
        "llama-server -m a.gguf -fit perhaps",
        "llama-server -m $MODEL",
        "ollama serve",
        "ollama create x -f /nowhere/Modelfile",
        "vllm serve a",
    ],
)
def test_bad_commands_are_one_sentence(command: str) -> None:
    with pytest.raises(CommandLineError) as caught:
        parse_command(command, allow_files=True)
    assert "\n" not in str(caught.value)


@given(st.lists(st.sampled_from([*ALIASES, "-m", "a.gguf", "1", "q8_0", "=", "-1", "x=y", "none"])))
def test_any_words_parse_or_are_refused(words: list[str]) -> None:
    with suppress(CommandLineError):
        assert parse_command(["llama-server", "-m", "m.gguf", *words]).model


def small_gguf(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(2048)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    shapes = {"token_embd": (100, 64), "output": (100, 64), "output_norm": (64,)}
    for index in range(2):
        block = {"attn_norm": (64,), "attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64)}
        block |= {"attn_output": (64, 64), "ffn_norm": (64,), "ffn_gate": (128, 64)}
        block |= {"ffn_up": (128, 64), "ffn_down": (64, 128)}
        shapes |= {f"blk.{index}.{stem}": shape for stem, shape in block.items()}
    for stem, shape in shapes.items():
        kind = np.float32 if len(shape) == 1 else np.float16
        writer.add_tensor(f"{stem}.weight", np.zeros(shape, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class TestCommand:
    def answer(
        self, capsys: pytest.CaptureFixture[str], *arguments: str
    ) -> tuple[int, dict[str, Any]]:
        code = main(["fit", "--json", *arguments])
        out, err = capsys.readouterr()
        assert err == ""
        found = json.loads(out)
        Draft202012Validator(json.loads(schema_text())).validate(found)
        return code, found

    def test_a_file(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        file = small_gguf(tmp_path / "small.gguf")
        code, found = self.answer(
            capsys, "--gpu", "4090", "--", "llama-server", "-m", str(file), "-c", "2048"
        )
        assert code == 0
        assert found["engine"]["name"] == "llama.cpp"
        code, same = self.answer(
            capsys, str(file), "--gpu", "4090", "--engine", "llama.cpp", "--context", "2048"
        )
        assert code == 0
        assert same["ranks"] == found["ranks"]

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["llama-3.1-8b", "--engine", "llama.cpp", "--weights", "q4_k_m"], 0),
            (["qwen3-30b-a3b", "--engine", "llama.cpp", "--weights", "q4_k_m", "--gpus", "2"], 0),
            (["llama-3.1-70b", "--engine", "llama.cpp", "--set", "n_gpu_layers=99"], 1),
            (["deepseek-v3", "--engine", "llama.cpp", "--weights", "q4_k_m", "--ram", "64GiB"], 0),
            (["--", "ollama", "run", "qwen3:8b"], 0),
        ],
    )
    def test_models_of_the_catalogue(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
    ) -> None:
        assert self.answer(capsys, "--gpu", "4090", "--explain", *arguments)[0] == code

    def test_words_of_the_log(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["fit", "--gpu", "4090", "--", "ollama", "run", "qwen3:8b"]) == 0
        out = capsys.readouterr().out
        for words in ("model buffer", "KV buffer", "compute buffer", "n_ctx of a slot", "CUDA0"):
            assert words in out
        assert "max_model_len" not in out
        assert (
            main(["fit", "--lang", "zh", "--gpu", "4090", "--", "ollama", "run", "qwen3:8b"]) == 0
        )
        assert "模型缓冲区" in capsys.readouterr().out

    def test_no_row_of_a_part_is_zero(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["fit", "--gpu", "4090", "--", "ollama", "run", "qwen3:8b"]) == 0
        out = capsys.readouterr().out
        assert not [line for line in out.splitlines() if line.startswith("  ") and " 0.00" in line]
        assert "slots: 1" in out

    def test_a_shortened_context_says_how_to_keep_it(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ["llama-server", "-m", "qwen3:8b"]
        _, found = self.answer(capsys, "--gpu", "4070", "--", *command)
        assert any("-c 40960 keeps it" in remark for remark in found["remarks"])
        _, kept = self.answer(capsys, "--gpu", "4070", "--", *command, "-c", "40960")
        assert kept["verdict"] == "fits"
        assert not any("shortens" in remark for remark in kept["remarks"])

    def test_layers_may_be_said_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        common = ("llama-3.1-8b", "--gpu", "4090", "--engine", "llama.cpp", "--context", "4096")
        for word, number in (("all", "-2"), ("auto", "-1")):
            _, said = self.answer(capsys, *common, "--set", f"n_gpu_layers={word}")
            _, given = self.answer(capsys, *common, "--set", f"n_gpu_layers={number}")
            assert said == given
        assert main(["fit", *common, "--set", "n_gpu_layers=most"]) == 2
        assert "give a whole number, auto or all" in capsys.readouterr().err

    def test_what_hangs_on_the_host_is_said(self, capsys: pytest.CaptureFixture[str]) -> None:
        common = ("llama-3.1-8b", "--gpu", "4090", "--engine", "llama.cpp", "--context", "1m")
        _, found = self.answer(capsys, *common)
        assert found["verdict"] == "fits"
        assert any("GiB of memory this takes is not known" in said for said in found["remarks"])
        _, enough = self.answer(capsys, *common, "--ram", "256GiB")
        assert enough["verdict"] == "fits"
        assert not any("not known" in said for said in enough["remarks"])
        assert self.answer(capsys, *common, "--ram", "64GiB")[1]["verdict"] == "does_not_fit"

    def test_the_longest_context_starts_and_a_longer_one_does_not(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        common = ("llama-3.1-8b", "--gpu", "4090", "--engine", "llama.cpp", "--ram", "24GiB")
        _, found = self.answer(capsys, *common, "--context", "1m")
        longest = found["max_model_len_that_fits"]
        assert found["verdict"] == "does_not_fit"
        assert self.answer(capsys, *common, "--context", str(longest))[0] == 0
        assert self.answer(capsys, *common, "--context", str(longest + 256))[0] == 1

    def test_explained_layers_are_those_there_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["fit", "--explain", "--gpu", "4090", "--", "ollama", "run", "qwen3:8b"]) == 0
        out = capsys.readouterr().out
        assert "n_gpu_layers = 37," in out
        assert "1,048,576" not in out

    def test_changes_that_suffice(self, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["llama-server", "-m", "llama-3.1-8b", "-c", "131072", "-ngl", "99"]
        code, found = self.answer(capsys, "--gpu", "3060", "--weights", "q8_0", "--", *command)
        assert code == 1
        assert found["changes_that_fit"]

    @pytest.mark.parametrize(
        "words",
        [
            ["llama-server", "-m", "/nowhere/a.gguf"],
            ["llama-server", "-m", "llama-3.1-8b", "-ctk", "q9"],
            ["llama-server", "-m", "llama-3.1-8b", "-ctv", "q8_0", "-fa", "off"],
            ["llama-server", "-m", "llama-3.1-8b", "-ot", "exps=CUDA9"],
            ["ollama", "run", "nothing-known:1b"],
        ],
    )
    def test_bad_input(self, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
        assert main(["fit", "--gpu", "4090", "--", *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("tokenroom: error: ")
        assert len(err.strip().splitlines()) == 1
