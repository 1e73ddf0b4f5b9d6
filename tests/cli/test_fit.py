"""``tokenroom fit`` as a person uses it: text, JSON, plots, sweeps, engine commands, bad input."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from rich.cells import cell_len

from tokenroom.cli.main import main
from tokenroom.reports.fit_json import schema_text

SMALL = ["llama-3.2-1b", "--gpu", "4090", "--context", "8k"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["fit", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code, out, err = run(capsys, "--json", *arguments)
    assert err == ""
    return code, json.loads(out)


def test_the_verdict_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL)
    lines = [line for line in out.splitlines() if line.strip()]
    assert code == 0
    assert "on 1 x NVIDIA GeForce RTX 4090" in lines[0]
    assert lines[2].startswith("FITS: ")
    assert all(len(line) <= 80 for line in lines)


def test_chinese_by_option_and_by_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, by_option, _ = run(capsys, *SMALL, "--lang", "zh")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    _, by_environment, _ = run(capsys, *SMALL)
    assert by_option == by_environment
    assert "放得下" in by_option


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["llama-3.1-70b", "--gpu", "h100", "--explain"],
        ["llama-3.1-8b", "--gpu", "mi300x", "--gpus", "2", "--tp", "1", "--concurrency", "11"],
        ["llama-3.1-8b", "--gpu", "t4", "--engine", "transformers", "--explain"],
        ["llama-3.1-8b", "--gpu", "4090", "--engine", "llama.cpp", "--explain"],
    ],
)
def test_lines_in_a_pipe_are_short_and_end_in_no_blanks(
    capsys: pytest.CaptureFixture[str], arguments: list[str], language: str
) -> None:
    _, out, _ = run(capsys, *arguments, "--lang", language)
    for line in out.splitlines():
        assert cell_len(line) <= 80
        assert line == line.rstrip()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_a_change_costs_stays_under_it(
    capsys: pytest.CaptureFixture[str], language: str
) -> None:
    _, out, _ = run(capsys, "llama-3.1-70b", "--gpu", "h100", "--lang", language)
    lines = out.splitlines()
    changes = lines[next(n for n, line in enumerate(lines) if line.startswith(("  --", "  ("))) :]
    assert len(changes) > 6
    assert any("--max-model-len" in line for line in changes)
    assert all(line.startswith(("  --", "  (", "  （", " " * 6)) for line in changes)


def test_warnings_hang_under_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--engine", "transformers")
    lines = out.splitlines()
    warning = next(place for place, line in enumerate(lines) if line.startswith("warning: "))
    assert lines[warning + 1].startswith(" " * len("warning: "))


def test_estimates_of_nothing_have_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--engine", "paged")
    assert "KV pool" in out
    assert "CUDA graphs" not in out
    assert "0.00 … 0.00" not in out


def test_a_sweep_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--sweep", "concurrency=1..8")
    _, _, heading, *rows = out.splitlines()
    assert "other" in heading
    for row in rows:
        *parts, total = (float(figure) for figure in row.split()[3:])
        assert sum(parts) == pytest.approx(total, abs=0.03)


@pytest.mark.parametrize(
    ("options", "command", "said"),
    [
        (
            "--util 0.5",
            "sglang serve llama-3.1-8b --mem-fraction-static 0.9",
            ["mem_fraction_static 0.5 replaces 0.9 of the command"],
        ),
        (
            "--util 0.5",
            "trtllm-serve llama-3.1-8b --kv_cache_free_gpu_memory_fraction 0.8",
            ["free_gpu_memory_fraction 0.5 replaces 0.8 of the command"],
        ),
        (
            "--context 4k",
            "llama-server -m llama-3.1-8b -c 8192",
            ["n_ctx 4,096 replaces 8,192 of the command"],
        ),
        (
            "--kv q8_0",
            "llama-server -m llama-3.1-8b -ctk q4_0 -ctv q4_0",
            ["type_k q8_0 replaces q4_0", "type_v q8_0 replaces q4_0"],
        ),
        (
            "--dtype float16 --set block_size=32",
            "vllm serve llama-3.1-8b --dtype bfloat16 --block-size 16",
            ["dtype float16 replaces bfloat16", "block_size 32 replaces 16"],
        ),
        (
            "--weights q8_0",
            "ollama run llama3.1:8b-instruct-q4_K_M",
            ["--weights q8_0 replaces q4_k_m of the command"],
        ),
        ("--util 0.9", "vllm serve llama-3.1-8b --gpu-memory-utilization 0.9", []),
        ("--util 0.9", "vllm serve llama-3.1-8b", []),
    ],
)
def test_an_option_that_replaces_what_the_command_says_is_named(
    options: str, command: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--gpu", "h100", *options.split(), "--json", "--", *command.split()]
    main(["fit", "--offline", *words])
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    replaced = [text for text in warnings if "replaces" in text]
    assert len(replaced) == len(said)
    assert all(part in text for part, text in zip(said, replaced, strict=True))


def test_lengths_that_name_no_file_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["llama-3.1-8b", "--gpu", "h100", "--engine", "paged", "--lengths", "nosuch.txt"]
    assert main(["fit", "--offline", *words]) == 2
    assert "--lengths is 'nosuch.txt', and no such file is there; give one" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("vllm", "max_model_len"),
        ("sglang", "context_length"),
        ("tensorrt-llm", "max_seq_len"),
        ("transformers", "max_length"),
    ],
)
def test_the_longest_request_is_told_in_the_engine_s_word(
    engine: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["fit", "--offline", "llama-3.1-8b", "--gpu", "h100", "--engine", engine])
    assert f"The longest {name} that fits: " in capsys.readouterr().out


def test_tokens_and_requests_count_all_data_parallel_copies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["llama-3.1-8b", "--gpu", "h100", "--dp", "4", "--context", "32k"]
    main(["fit", "--offline", *words])
    assert "FITS: 4 x 446,704 tokens of KV cache; requests of 32,768 tokens at once: 52" in (
        capsys.readouterr().out
    )
    main(["fit", "--offline", *words, "--concurrency", "64"])
    out = capsys.readouterr().out
    assert "8 x 446,704 tokens; requests of 32,768 tokens at once: 104" in out
    assert "4 x 893,408 tokens; requests of 32,768 tokens at once: 108" in out


@pytest.mark.parametrize(
    ("arguments", "verdict", "code"),
    [
        (SMALL, "fits", 0),
        ([*SMALL, "--concurrency", "100000"], "fits_with_less", 1),
        (["llama-3.1-70b", "--gpu", "4090"], "does_not_fit", 1),
        (["gpt-oss-120b", "--gpu", "h100", "--context", "16k", "--explain"], "fits", 0),
        (["qwen3-next-80b-a3b-instruct", "--gpu", "h100", "--tp", "4"], "fits", 0),
        (["deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "16k"], "fits", 0),
        (["llama-3.1-8b", "--gpu", "h100", "--pp", "2", "--dp", "2"], "fits", 0),
    ],
)
def test_json_keeps_its_schema(
    capsys: pytest.CaptureFixture[str], arguments: list[str], verdict: str, code: int
) -> None:
    got, data = answer(capsys, *arguments)
    Draft202012Validator(json.loads(schema_text())).validate(data)
    assert (got, data["verdict"]) == (code, verdict)
    assert (data["cause"] is not None) == (verdict == "does_not_fit")
    assert bool(data["changes_that_fit"]) <= (verdict != "fits")
    for rank in data["ranks"]:
        assert rank["total_bytes"] == data["hardware"]["memory_bytes"]


@pytest.mark.parametrize("arguments", [[], ["--sweep", "concurrency=1..2"]])
def test_the_schema_is_printed_and_valid(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code, out, _ = run(capsys, *arguments, "--json-schema")
    assert code == 0
    Draft202012Validator.check_schema(json.loads(out))


@pytest.mark.parametrize("values", ["concurrency=1..8", "context=2k..8k"])
def test_json_of_a_sweep_keeps_its_schema(capsys: pytest.CaptureFixture[str], values: str) -> None:
    _, data = answer(capsys, *SMALL, "--sweep", values)
    validator = Draft202012Validator(json.loads(schema_text(sweep=True)))
    validator.validate(data)
    assert len(data["points"]) > 2
    del data["points"][0]["request_bytes"], data["fit"]["verdict"]
    assert len(list(validator.iter_errors(data))) == 2


def test_ranks_are_listed_for_every_stage_and_tensor_rank(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, data = answer(capsys, "llama-3.1-8b", "--gpu", "h100", "--tp", "2", "--pp", "2")
    places = [
        (rank["pipeline_parallel_rank"], rank["tensor_parallel_rank"]) for rank in data["ranks"]
    ]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_an_engine_command_says_the_same_as_the_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, by_options = answer(
        capsys, "llama-3.1-8b", "--gpu", "l40s", "--context", "8192", "--kv", "fp8", "--util", "0.9"
    )
    _, by_command = answer(
        capsys,
        "--gpu",
        "l40s",
        "--",
        *["vllm", "serve", "llama-3.1-8b", "--max-model-len", "8192", "--kv-cache-dtype=fp8"],
        *["--gpu-memory-utilization", "0.9"],
    )
    assert by_command["kv_blocks"] == by_options["kv_blocks"]
    assert by_command["ranks"] == by_options["ranks"]


COMPOSE = """services:
  llm:
    image: vllm/vllm-openai:v{version}
    command: --model Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 --no-such-flag 3
"""


def test_a_compose_file_names_the_version_whose_flags_count(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.format(version="0.19.0"), encoding="utf-8")
    code, out, err = run(capsys, "--gpu", "h100", "--from", str(file))
    assert (code, out) == (2, "")
    assert "vLLM 0.19.0 has no flag --no-such-flag" in err
    file.write_text(COMPOSE.format(version="0.99.0"), encoding="utf-8")
    code, data = answer(capsys, "--gpu", "h100", "--from", str(file))
    assert code == 0
    assert data["engine"] == {"name": "vllm", "version": "0.99.0"}
    assert sum("--no-such-flag" in warning for warning in data["warnings"]) == 1


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "vllm serve Qwen/Qwen3-8B --max-model-lenn 4096",
            "vLLM 0.33.0 has no flag --max-model-lenn; did you mean --max-model-len?; the engine "
            "exits on a flag that it does not have: correct it or leave it out",
        ),
        (
            "vllm serve Qwen/Qwen3-8B --swap-space 4",
            "no longer has --swap-space; it was removed by",
        ),
        ("vllm serve Qwen/Qwen3-8B --swap-space 4", "--engine vllm@0."),
        (
            "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-lengthh 4096",
            "SGLang 0.5.23 has no flag --context-lengthh; did you mean --context-length?",
        ),
        (
            "llama-server -m Qwen/Qwen3-8B --ctx-sizee 4096",
            "llama-server has no flag --ctx-sizee; did you mean --ctx-size?",
        ),
    ],
)
def test_a_flag_on_which_the_engine_exits_is_refused(
    capsys: pytest.CaptureFixture[str], command: str, sentence: str
) -> None:
    code, out, err = run(capsys, "--gpu", "h100", "--", *command.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("version", "code"), [("vllm@0.11.0", 0), ("vllm@0.33.0", 2), ("vllm@0.99.0", 0)]
)
def test_the_version_that_is_asked_for_decides_about_a_flag(
    capsys: pytest.CaptureFixture[str], version: str, code: int
) -> None:
    command = ["vllm", "serve", "Qwen/Qwen3-8B", "--swap-space", "4"]
    found, _, _ = run(capsys, "--gpu", "h100", "--engine", version, "--", *command)
    assert found == code


@pytest.mark.parametrize("model", ["llama-3.1-8b", "Qwen/Qwen3-8B", "llama-3.1-8b@awq"])
@pytest.mark.parametrize(
    "command",
    ["vllm serve Qwen/Qwen3-14B", "python -m sglang.launch_server --model-path Qwen/Qwen3-14B"],
)
def test_a_model_beside_a_command_that_names_one_is_refused(
    capsys: pytest.CaptureFixture[str], model: str, command: str
) -> None:
    code, out, err = run(capsys, model, "--gpu", "h100", "--", *command.split())
    assert (code, out) == (2, "")
    assert f"the model is given twice, as '{model}' and by the command after --" in err


@pytest.mark.parametrize("before", [["env"], ["nohup"], ["numactl", "-N", "0"], ["/usr/bin/env"]])
def test_a_program_before_the_command_is_no_model(
    capsys: pytest.CaptureFixture[str], before: list[str]
) -> None:
    command = [*before, "vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "4096"]
    code, _, _ = run(capsys, "--gpu", "h100", "--", *command)
    assert code == 0


def test_an_option_that_replaces_the_commands_is_named_beside_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "16k"]
    asked = ["--gpu", "h100", "--context", "8k"]
    _, out, _ = run(capsys, *asked, "--", *command)
    lines = out.splitlines()
    said = next(n for n, line in enumerate(lines) if "max_model_len 8,192 replaces 16,000" in line)
    assert said < next(n for n, line in enumerate(lines) if line.startswith("Memory of each GPU"))
    _, data = answer(capsys, *asked, "--", *command)
    assert any("max_model_len 8,192 replaces 16,000" in warning for warning in data["warnings"])


def test_explain_names_formulas_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--explain")
    assert "ceil(total x gpu_memory_utilization)" in out
    assert "determine_available_memory" in out
    assert "max_num_seqs = 256" in out


def test_a_count_may_stand_with_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    _, together = answer(capsys, "llama-3.1-70b", "--gpu", "2xh100", "--weights", "fp8")
    _, apart = answer(capsys, "llama-3.1-70b", "--gpu", "h100", "--gpus", "2", "--weights", "fp8")
    assert together["hardware"]["count"] == 2
    assert together["kv_blocks"] == apart["kv_blocks"]
    code, _, err = run(capsys, "llama-3.1-70b", "--gpu", "2xh100", "--gpus", "4")
    assert code == 2
    assert "--gpus says 4" in err


def test_what_is_asked_in_vain_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, idle = answer(capsys, *SMALL, "--gpus", "4", "--tp", "2")
    assert any("GPUs used: 2 of 4" in warning for warning in idle["warnings"])
    _, newer = answer(capsys, *SMALL, "--engine", "vllm@9.0.0")
    assert any("newer than what is known" in warning for warning in newer["warnings"])
    command = ["vllm", "serve", "llama-3.2-1b", "--max-model-len", "4096"]
    _, replaced = answer(capsys, "--gpu", "4090", "--context", "8k", "--", *command)
    assert any("replaces 4,096 of the command" in warning for warning in replaced["warnings"])


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_plots_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    bar, curve = tmp_path / f"bar.{suffix}", tmp_path / f"curve.{suffix}"
    assert run(capsys, *SMALL, "--plot", str(bar))[0] == 0
    assert run(capsys, *SMALL, "--sweep", "concurrency=1..64", "--plot", str(curve))[0] == 0
    magic = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert bar.read_bytes().startswith(magic)
    assert curve.read_bytes().startswith(magic)


def test_a_concurrency_sweep_fills_the_pool_then_queues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, data = answer(capsys, *SMALL, "--sweep", "concurrency=1..4096")
    points = data["points"]
    room = max(point["requests_running"] for point in points)
    assert [point["value"] for point in points] == sorted({*(2**n for n in range(13)), room})
    used = [point["kv_used_bytes"] for point in points]
    assert used == sorted(used)
    assert used[1] == 2 * used[0]
    for point in points:
        assert point["requests_running"] + point["requests_waiting"] == point["value"]
    assert len({point["weights_bytes"] for point in points}) == 1


def test_a_context_sweep_trades_length_for_requests(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--sweep", "context=4k,999999999")
    assert "999,999,999" in out.splitlines()[-1]
    _, data = answer(capsys, *SMALL, "--sweep", "context=1k,2k,4k")
    running = [point["requests_running"] for point in data["points"]]
    assert running == sorted(running, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no model"]),
        (["llama-3.1-8b"], ["--gpu"]),
        (["no-such-model", "--gpu", "h100"], ["no-such-model"]),
        (["/no/such/config.json", "--gpu", "h100"], ["config.json"]),
        (["llama-3.1-8b", "--gpu", "h1000"], ["h1000"]),
        ([*SMALL, "--context", "-5"], ["--context", "-5"]),
        ([*SMALL, "--context", "nan"], ["--context", "nan"]),
        ([*SMALL, "--context", "1M"], ["max_model_len"]),
        ([*SMALL, "--util", "nan"], ["gpu_memory_utilization"]),
        ([*SMALL, "--tp", "7"], ["7"]),
        ([*SMALL, "--tp", "4", "--gpus", "2"], ["4", "2"]),
        ([*SMALL, "--weights", "int3"], ["int3"]),
        ([*SMALL, "--engine", "vllm@banana"], ["banana"]),
        ([*SMALL, "--engine", "nosuch"], ["nosuch"]),
        ([*SMALL, "--sweep", "users=1..4"], ["--sweep", "users"]),
        ([*SMALL, "--sweep", "concurrency=9..4"], ["9", "4"]),
        ([*SMALL, "--plot", "bar.gif"], [".gif", ".svg"]),
        ([*SMALL, "--from", "/no/such/file"], ["--from"]),
        (["--gpu", "h100", "--from", "/no/such/file"], ["/no/such/file"]),
        (["--gpu", "h100", "--", "vllm", "serve"], ["model"]),
        (["--gpu", "h100", "--", "vllm", "serve", "llama-3.1-8b", "-tp", "0"], ["0"]),
        ([*SMALL, "--gpu-memory", "12"], ["--gpu-memory", "12", "without a unit"]),
        ([*SMALL, "--gpu-memory", "-3GiB"], ["--gpu-memory"]),
        ([*SMALL, "--bandwidth", "fast"], ["--bandwidth", "fast"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("tokenroom: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_line_tells_how_fast_it_serves(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("llama-3.1-8b", "--gpu", "h100", "--context", "8k")
    _, out, _ = run(capsys, *small, "--concurrency", "16", "--request", "1280")
    text = " ".join(out.split())
    assert "Speed of 16 requests at once (1,024 tokens in, 256 out): " in text
    code, data = answer(capsys, *small, "--concurrency", "16", "--request", "1280")
    assert code == 0
    speed = data["speed"]
    main(["speed", *small, "--concurrency", "16", "--json"])
    whole = json.loads(capsys.readouterr().out)
    for name in ("ttft_seconds", "tpot_seconds", "output_tokens_per_second"):
        assert speed[name] == pytest.approx(whole[name])
    _, out, _ = run(capsys, *small, "--lang", "zh")
    assert "32 个请求同时运行" in out


def test_no_line_where_speed_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "llama-3.1-8b", "--gpu", "h100", "--engine", "transformers")
    assert "Speed" not in out
    _, out, _ = run(capsys, "llama-3.1-8b", "--gpu-memory", "96GiB")
    assert "Speed is not estimated: flops_per_second of" in " ".join(out.split())
    _, data = answer(capsys, "llama-3.1-8b", "--gpu-memory", "96GiB")
    assert data["speed"] is None


def test_an_unlisted_gpu_is_described_by_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = answer(
        capsys, "llama-3.2-1b", "--gpu-memory", "12GiB", "--bandwidth", "500GB/s", "--context", "4k"
    )
    assert code == 0
    assert data["hardware"]["memory_bytes"] == 12 * 2**30
    assert any("GPU (custom)" in warning for warning in data["warnings"])


def test_an_assumption_that_was_not_needed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL, "--assume-architecture", "qwen2")
    assert code == 0
    assert "--assume-architecture qwen2 was not needed" in out


def test_requests_of_a_stated_length_are_not_answered_by_shorter_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["llama-3.1-8b", "--gpu", "4090", "--concurrency", "64"]
    _, stated = answer(capsys, *asked, "--context", "8k")
    assert stated["changes_that_fit"]
    for change in stated["changes_that_fit"]:
        assert change["request_tokens"] == 8192
        assert change["requests_running"] >= 64


def test_a_smaller_checkpoint_is_offered_for_one_of_eight_bits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        asked = ["llama-3.1-70b", "--gpu", "h100", "--engine", engine, "--context", "8k"]
        asked += ["--concurrency", "12"]
        _, data = answer(capsys, *asked, "--weights", "fp8")
        assert data["verdict"] != "fits"
        assert any(change["weights"] == "awq" for change in data["changes_that_fit"]), engine
        _, data = answer(capsys, *asked[:-1], "500", "--weights", "awq")
        assert data["verdict"] != "fits"
        assert all(change["weights"] is None for change in data["changes_that_fit"]), engine


def test_fewer_gpus_do_for_shorter_requests_where_no_length_was_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, free = answer(capsys, "llama-3.1-70b", "--gpu", "2x4090")
    _, bound = answer(capsys, "llama-3.1-70b", "--gpu", "2x4090", "--context", "131072")
    fewest = [min(item["gpus"] for item in data["changes_that_fit"]) for data in (free, bound)]
    assert fewest[0] < fewest[1]
    first = free["changes_that_fit"][0]
    assert first["settings"]["max_model_len"] >= 4096
    assert all("max_model_len" not in item["settings"] for item in bound["changes_that_fit"][:2])


def test_changes_of_transformers_name_the_length_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        capsys, "llama-3.1-8b", "--gpu", "4090", "--engine", "transformers", "--context", "128k",
        "--json",
    )  # fmt: skip
    changes = json.loads(out)["changes_that_fit"]
    shorter = [change for change in changes if "max_model_len" in change["settings"]]
    assert shorter
    for change in shorter:
        assert change["request_tokens"] == change["settings"]["max_model_len"]
    assert not any(
        {"request_tokens", "concurrency"} & change["settings"].keys() for change in changes
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tp", "9999999999"], "tensor_parallel_size is 9999999999; give at most 65,536"),
        (["--gpus", "9999999999"], "gpus is 9999999999; give at most 65,536"),
        (["--tp", "65536", "--dp", "65536"], "the parallel sizes need 4294967296 GPUs"),
        (["--concurrency", "1" + "0" * 20], "give at most 1,000,000,000,000"),
        (["--context", "1e18"], "--context is '1e18'; give at most"),
        (["--set", "max_cudagraph_capture_size=100000000"], "give at most 1,048,576"),
        (["--set", "block_size=" + "9" * 30], "give at most 9,007,199,254,740,992"),
        (["--set", "block_size=" + "[" * 100_000], "block_size is '[[["),
        (["--used", "10"], "--used is '10' without a unit; write 10GiB"),
        (["--cpu-offload", "10"], "--cpu-offload is '10' without a unit"),
        (["--kv-cache-memory", "1B"], "--kv-cache-memory is '1B'; give at least 1MiB"),
        (["--used", "100GiB"], "used_bytes is 100.00 GiB, but NVIDIA GeForce RTX 4090 has only"),
        (["--hub-timeout", "nan"], "--hub-timeout is 'nan'; give seconds above 0"),
        (["--hub-timeout", "-1"], "--hub-timeout is '-1'; give seconds above 0"),
        (["--kv", ""], "--kv is empty"),
        (["--engine", ""], "--engine is empty"),
        (["--service", "web"], "--service is 'web', which chooses in a deployment file"),
        (["--explain", "--sweep", "concurrency=1..4"], "give one of the two"),
        (["--revision", "abc"], "is bundled and has no revision 'abc'"),
        (["--set", "concurrency=3"], "no setting of the engine's own; give --concurrency instead"),
        (["--set", "request-tokens=3"], "give --request instead"),
        (["--set", "find_model=x"], "find_model, which is no setting of the engine's own"),
        (["--engine", "transformers", "--set", "engine=vllm"], "give --engine instead"),
        (["--gpus", "0.0"], "--gpus is '0.0'; give a whole number"),
        (["--concurrency", "1_0"], "--concurrency is '1_0'; give a whole number"),
        (["--tp", "\uff12"], "--tp is '\uff12'; give a whole number"),
        (["--util", "0_9"], "--util is '0_9'; give a number"),
        (["--bandwidth", "300GB"], "give a positive rate with a unit"),
        (["--bandwidth", "1e30GB/s"], "--bandwidth is '1e30GB'; give at most 1,048,576TiB/s"),
        (["--used", "1e30GiB"], "--used is '1e30GiB'; give at most 1,048,576TiB"),
        (["--assume-architecture", "quen2"], "no known model type; give one such as qwen2"),
    ],
)
def test_nonsense_gets_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code, out, err = run(capsys, *SMALL, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_nothing_needs_no_unit(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, *SMALL)
    assert answer(capsys, *SMALL, "--used", "0") == plain
    assert answer(capsys, *SMALL, "--used", "0GiB") == plain


def test_an_unneeded_option_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--assume-architecture", "llama")
    assert "--assume-architecture llama was not needed" in " ".join(out.split())


def test_a_path_with_a_blank_is_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    code, found = answer(capsys, str(folder), "--gpu", "h100")
    assert code == 0
    assert found["model"]["architecture"] == "LlamaForCausalLM"


def test_a_program_alone_is_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "vllm", "--gpu", "h100")
    assert code == 2
    assert "'vllm' alone names no model" in err


def test_a_narrow_terminal_keeps_every_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = run(capsys, *SMALL)
    lines = out.splitlines()
    assert max(map(len, lines)) <= 40
    graphs = next(line for line in lines if "CUDA" in line)
    assert graphs.count(".") == 3  # the size and both ends of its range
    assert "…" in graphs


def test_an_explanation_stays_within_the_width(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--explain")
    assert max(map(len, out.splitlines())) <= 80


def test_a_sweep_shows_where_the_room_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = answer(capsys, *SMALL, "--sweep", "concurrency=1..1024")
    values = [point["value"] for point in found["points"]]
    room = max(point["requests_running"] for point in found["points"])
    assert room in values
    assert room & (room - 1)  # no power of two: it was added


def test_a_sweep_of_one_point_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for sweep in ("concurrency=4", "context=4k"):
        code, _, _ = run(capsys, *SMALL, "--sweep", sweep, "--plot", str(tmp_path / "one.png"))
        assert code == 0


def test_a_flag_the_engine_lacks_stands_beside_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for flag, hint in (("--max-model-lem", "; did you mean --max-model-len?"), ("--foo-bar", "")):
        command = ["vllm", "serve", "llama-3.2-1b", flag, "4096"]
        _, out, _ = run(capsys, "--gpu", "4090", "--engine", "vllm@0.99.0", "--", *command)
        head, _, rest = " ".join(out.split()).partition("Memory of each GPU")
        assert f"has no flag {flag}{hint}" in head
        assert flag not in rest


def test_the_command_is_another_way_to_ask(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, *SMALL, "--kv", "fp8", "--concurrency", "4", "--command")
    assert (code, err) == (0, "")
    assert out == ("vllm serve meta-llama/Llama-3.2-1B --max-model-len 8192 --kv-cache-dtype fp8\n")
    _, asked = answer(capsys, *SMALL, "--kv", "fp8")
    assert asked["command"] == out.strip()
    assert asked["command_notes"] == []
    file = tmp_path / "start.sh"
    file.write_text(out)
    _, again = answer(capsys, "--gpu", "4090", "--from", str(file))
    assert again == asked


def test_the_yaml_comes_before_its_command_and_remarks_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [*SMALL, "--engine", "tensorrt-llm", "--kv", "fp8", "--weights", "awq", "--command"]
    _, out, err = run(capsys, *asked)
    assert out.splitlines() == [
        "cat > tensorrt_llm.yaml <<'END'",
        "kv_cache_config:",
        "  dtype: fp8",
        "END",
        "trtllm-serve '<a checkpoint of meta-llama/Llama-3.2-1B in awq>' --max_seq_len 8192 "
        "--extra_llm_api_options tensorrt_llm.yaml",
    ]
    assert err.startswith("the weights were taken as awq, and no checkpoint of meta-llama/")
    _, _, chinese = run(capsys, *asked, "--lang", "zh")
    assert chinese.startswith("权重按 awq 计算")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--engine", "transformers"], "transformers has no command of its own"),
        (["--json"], "leave out --json"),
        (["--sweep", "concurrency=1..2"], "and --sweep"),
    ],
)
def test_what_has_no_command(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    code, out, err = run(capsys, *SMALL, "--command", *arguments)
    assert (code, out) == (2, "")
    assert why in err


def test_an_engine_without_a_command_says_so_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, data = answer(capsys, *SMALL, "--engine", "transformers")
    assert (data["command"], data["command_notes"]) == (None, [])


def test_help_lists_every_option_once_under_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    from tokenroom.cli.fit import command

    _, out, _ = run(capsys, "--help")
    headings = ["Hardware:", "Model:", "Load:", "Engine:", "Answer:"]
    assert [line for line in out.splitlines() if line in headings] == headings
    for param in command.params:
        if param.param_type_name == "option":
            lines = [line for line in out.splitlines() if line.startswith(f"  {param.opts[0]}")]
            exact = [line for line in lines if line.split()[0].rstrip(",") == param.opts[0]]
            assert len(exact) == 1, param.opts
    assert out.index("Engine:") < out.index("--max-num-seqs") < out.index("Answer:")
    assert "replace what it says" in " ".join(out.split())
