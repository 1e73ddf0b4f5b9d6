"""llama-bench's command lines: every combination of values is a test, the largest is planned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom import fit
from tokenroom.engines.llama_cpp.arguments import parse_command
from tokenroom.engines.llama_cpp.bench import read_bench
from tokenroom.errors import CommandLineError, TokenroomError


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", {"n_ctx": 512, "n_gpu_layers": -1}),
        ("-p 0 -n 256", {"n_ctx": 256}),
        ("-n 0 -p 512,1024-4096*2 -d 0,8192", {"n_ctx": 4096 + 8192}),
        ("-p 100-300+100 -p 50", {"n_ctx": 300}),
        ("-pg 2048,512", {"n_ctx": 2560}),
        ("-b 256,1024 -ub 128-512+128", {"n_batch": 1024, "n_ubatch": 512}),
        ("-ctk q8_0,f16 -ctv q4_0", {"type_k": "f16", "type_v": "q4_0"}),
        ("-fa 1", {"flash_attn": "on"}),
        ("-fa on,auto", {"flash_attn": "auto"}),
        ("-fa 0,1", {"flash_attn": "off"}),
        ("-ngl 10,20", {"n_gpu_layers": 20}),
        ("-ncmoe 4,8", {"n_cpu_moe": 4}),
        ("-nkvo 1 -nopo 0,1", {"kv_offload": False, "op_offload": True}),
        ("-embd 0,1 --no-host 0", {"embeddings": True, "no_host": False}),
        ("-ts 3/1 -sm row", {"tensor_split": (3, 1), "split_mode": "row"}),
        ("-dev CUDA0/CUDA1", {"gpus": 2}),
        ("-ot a=CPU;b=CUDA0", {"override_tensor": (("a", "CPU"), ("b", "CUDA0"))}),
        ("-fitt 1024", {"fit": True, "fit_target_mib": (1024,), "n_gpu_layers": -1}),
    ],
)  # fmt: skip
def test_flags(flags: str, expected: dict[str, Any]) -> None:
    found = parse_command(["llama-bench", "-m", "m.gguf", *flags.split()]).settings
    assert found.program == "bench"
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("flags", "tests"),
    [("-p 512 -n 0", 1), ("", 2), ("-p 1-4 -n 128 -d 0,1", 10), ("-pg 8,8 -fa 0,1 -b 64,128", 12)],
)
def test_the_number_of_tests_is_said(flags: str, tests: int) -> None:
    notes = read_bench(flags.split()).notes
    said = [note for note in notes if "tests" in note]
    assert bool(said) is (tests > 1)
    assert not said or said[0].startswith(f"llama-bench runs {tests} tests")


def test_what_cannot_be_ranked_is_said() -> None:
    found = read_bench(["-sm", "layer,row", "-o", "json", "--no-warmup", "-c", "4096"])
    assert found.settings["split_mode"] == "layer"
    assert any("several values of split_mode" in note for note in found.notes)
    assert found.ignored == ("-o", "--no-warmup")
    assert found.unknown == ("-c",)


def test_variables_of_other_programs_do_not_count() -> None:
    command = "LLAMA_ARG_CTX_SIZE=99 llama-bench -m m.gguf -n 0"
    assert parse_command(command).settings.n_ctx == 512


@pytest.mark.parametrize(
    "flags",
    [
        "-p 0 -n 0",
        "-p x",
        "-p",
        "-pg 5",
        "-p 1-5*1",
        "-fa perhaps",
        "-nkvo yes",
        "-ts a/b",
        "-ot x",
    ],
)
def test_bad_values_are_one_sentence(flags: str) -> None:
    with pytest.raises(CommandLineError, match=r"^[^\n]+$"):
        read_bench(flags.split())


@given(st.lists(st.sampled_from(["-p", "-n", "-d", "-pg", "-fa", "1", "0-9", "4,2", "-", "on"])))
def test_any_words_parse_or_are_refused(words: list[str]) -> None:
    try:
        found = read_bench(words)
    except TokenroomError:
        return
    assert found.settings["n_ctx"] > 0


def test_a_test_has_the_context_it_needs_and_all_layers() -> None:
    parsed = parse_command("llama-bench -m llama-3.1-8b -p 2048 -n 128 -d 4096")
    result = fit("llama-3.1-8b", "4090", engine="llama.cpp", settings=parsed.settings)
    resolved = result.plan.outcome.resolved
    assert (result.plan.max_model_len, result.plan.max_num_seqs) == (6144, 1)
    assert (resolved.n_batch, resolved.n_ubatch, resolved.fit) == (2048, 512, False)
    assert not resolved.swa_full
    assert resolved.n_outputs_max == resolved.n_batch
    assert result.plan.remarks[0].key == "placement_all_gpu"


def test_no_length_is_changed_to_make_it_fit() -> None:
    parsed = parse_command("llama-bench -m llama-3.1-8b -p 262144 -n 0")
    result = fit("llama-3.1-8b", "4090", engine="llama.cpp", settings=parsed.settings)
    assert result.verdict == "does_not_fit"
    assert {change.key for change in result.changes_that_fit}.isdisjoint({"n_ctx", "slots"})
