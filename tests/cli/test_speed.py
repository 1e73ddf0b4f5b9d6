"""``tokenroom speed`` as a person uses it: text, JSON, sweeps, plots, bad input."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main
from tokenroom.reports.speed_json import schema_text

SMALL = ["llama-3.1-8b", "--gpu", "h100", "--context", "8k"]
TOO_BIG = ["llama-3.1-70b", "--gpu", "4090"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["speed", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    code, out, err = run(capsys, "--json", *arguments)
    data = json.loads(out)
    assert err == ""
    missed = data.get("objectives") is not None and not data["objectives"]["met"]
    missed |= bool((data.get("arrivals") or {}).get("falls_behind"))
    assert code == (1 if missed or data["verdict"] != "fits" else 0)
    Draft202012Validator(json.loads(schema_text())).validate(data)
    return data


def test_the_answer_names_the_deployment_then_the_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, *SMALL)
    lines = out.splitlines()
    assert code == 0
    assert "on 1 x NVIDIA H100" in lines[0]
    for word in ("TTFT", "TPOT", "per user", "per GPU", "in all", "requests/s"):
        assert sum(word in line and "…" in line for line in lines) == 1, word
    assert "Requests that run at once: 32, and none waits." in lines
    flat = " ".join(out.split())
    assert re.search(r"Prefill steps \([\d.]+ ms each\) are limited by compute", flat)
    assert re.search(r"Decode steps \([\d.]+ ms each\) are limited by memory bandwidth", flat)
    assert "(assumed; --concurrency gives yours)" in flat
    assert "USD" not in out
    assert all(len(line) <= 80 for line in lines)


def test_requests_beyond_the_room_wait_and_the_answer_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*SMALL, "--input", "4096", "--concurrency", "400"]
    data = answer(capsys, *arguments)
    assert data["requests_running"] == data["deployment"]["requests_held"] < 400
    assert data["requests_waiting"] == 400 - data["requests_running"]
    _, out, _ = run(capsys, *arguments)
    assert f"{data['requests_waiting']} wait" in out


def test_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL, "--lang", "zh", "--explain")
    assert code == 0
    assert "首 token 时间" in out
    assert re.search(r"预填充步（每步 [\d.]+ ms）受限于算力", out)
    assert "来源（实测算子表）" in out


@pytest.mark.parametrize(
    "arguments",
    [
        [*SMALL, "--price", "2.5"],
        [*SMALL, "--explain", "--engine", "sglang"],
        [*SMALL, "--sweep", "concurrency=1..8"],
        [*SMALL, "--sweep", "concurrency=1..8", "--ttft", "1s"],
        [*SMALL, "--tpot", "50ms", "--ttft", "2s"],
        [*SMALL, "--tpot", "50us"],
        ["tiiuae/falcon-7b", "--gpu", "h100", "--input", "512", "--output", "64"],
        [*SMALL, "--engine", "tensorrt-llm", "--tp", "2", "--kv", "fp8"],
        [*SMALL, "--engine", "llama.cpp", "--gpus", "2"],
        ["qwen3-30b-a3b", "--gpu", "h200", "--tp", "2", "--dp", "2", "--ep", "--pp", "2"],
        ["deepseek-v3", "--gpu", "8xb200", "--context", "16k", "--explain"],
        TOO_BIG,
    ],
)
def test_json_keeps_its_schema(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    data = answer(capsys, *arguments)
    assert (data["verdict"] == "fits") == ("decode" in data)


def test_the_schema_is_printed_and_refuses_what_lacks_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "--json-schema")
    assert code == 0
    schema = json.loads(out)
    Draft202012Validator.check_schema(schema)
    data = answer(capsys, *SMALL)
    del data["ttft_seconds"], data["decode"]["limiter"]
    assert len(list(Draft202012Validator(schema).iter_errors(data))) == 2


def test_no_speed_without_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *TOO_BIG)
    assert (code, err) == (1, "")
    main(["fit", *TOO_BIG])
    reason = capsys.readouterr().out.partition("DOES NOT FIT: ")[2].partition(".\n")[0]
    assert "DOES NOT FIT: " + " ".join(reason.split()[:6]) in " ".join(out.split())
    assert "TTFT" not in out


def test_borrowed_tables_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert not answer(capsys, *SMALL)["borrowed"]
    data = answer(capsys, "llama-3.2-1b", "--gpu", "4090", "--context", "8k")
    assert data["borrowed"]
    assert "no measured tables" in data["warnings"][0]


def test_known_weak_points_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["--gpu", "2xl40s"], "all-reduce"),
        (["--gpu", "h100", "--set", "cpu_offload_bytes=1073741824"], "GiB of weights a GPU"),
    ):
        data = answer(capsys, "llama-3.1-8b", "--context", "8k", *arguments)
        assert any(said in warning for warning in data["warnings"])
    assert answer(capsys, *SMALL)["warnings"] == []


def test_explain_lists_operators_that_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--explain")
    sums = [line for line in out.splitlines() if line.startswith("sum ")]
    assert len(sums) == 2
    assert all("100.0%" in line for line in sums)
    assert "gemm_perf" in out
    data = answer(capsys, *SMALL, "--explain")
    step = data["decode"]
    assert sum(line["seconds"] for line in step["operators"]) == pytest.approx(step["seconds"])
    assert all(line["sources"] for line in step["operators"] if line["name"] != "host")


def test_a_sweep_as_table_and_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "speed.svg"
    code, out, err = run(capsys, *SMALL, "--sweep", "concurrency=1..64", "--plot", str(file))
    assert code == 0
    assert "Wrote" in err
    table = out.partition("clients")[2].partition("\n\n")[0]
    rows = [line.split() for line in table.splitlines()[1:]]
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "tokens/s per user" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no model is given"),
        (["llama-3.1-8b"], "no GPU is given"),
        ([*SMALL, "--engine", "transformers"], "not modelled"),
        ([*SMALL, "--engine", "paged"], "not modelled"),
        ([*SMALL, "--engine", "nothing"], "it may be"),
        ([*SMALL, "--input", "8k"], "beyond max_model_len 8,192"),
        ([*SMALL, "--concurrency", "0"], "concurrency is 0"),
        ([*SMALL, "--output", "0"], "--output"),
        ([*SMALL, "--price", "0"], "price_per_gpu_hour"),
        ([*SMALL, "--price", "nan"], "price_per_gpu_hour"),
        ([*SMALL, "--tpot", "50"], "with a unit"),
        ([*SMALL, "--ttft", "0s"], "with a unit"),
        ([*SMALL, "--ttft", "2h"], "with a unit"),
        ([*SMALL, "--tpot", "50ms", "--concurrency", "8"], "leave it out"),
        ([*SMALL, "--sweep", "context=1k..4k"], "concurrency only"),
        ([*SMALL, "--plot", "x.png"], "--sweep"),
        ([*SMALL, "--explain", "--sweep", "concurrency=1..4"], "one of the two"),
        ([*SMALL, "--tp", "3"], "3"),
        ([*SMALL, "--gpus", "2", "--gpu", "4xh100"], "give one"),
        (["llama-3.1-70b", "--gpu", "h100", "--engine", "llama.cpp"], "host memory"),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--engine", "tensorrt-llm", "--input", "16k"],
            "max_num_tokens",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("tokenroom: error: ")
    assert err.count("\n") == 1
    assert said in err


def test_objectives_name_the_largest_load_and_what_bounds_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    objectives = ["--tpot", "30ms", "--ttft", "90ms"]
    data = answer(capsys, *SMALL, *objectives)
    load = data["objectives"]["load"]
    assert data["concurrency"] == load["concurrency"]
    assert data["tpot_seconds"]["value"] <= 0.03
    assert data["ttft_seconds"]["value"] <= 0.09
    assert load["binds"] == ["ttft"]
    assert load["bound_by"] == "compute"
    assert data["objectives"]["batch"]["concurrency"] > load["concurrency"]
    code, out, _ = run(capsys, *SMALL, *objectives)
    assert code == 0
    text = " ".join(out.split())
    assert f"KEPT: by up to {load['concurrency']} clients" in text
    assert "misses the TTFT; what holds it back most: compute" in text
    assert all(len(line) <= 80 for line in out.splitlines())
    _, out, _ = run(capsys, *SMALL, *objectives, "--lang", "zh")
    assert f"可满足：至多 {load['concurrency']} 个客户端" in "".join(out.split("\n"))


def test_objectives_out_of_reach_end_with_1_and_the_floor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = answer(capsys, *SMALL, "--tpot", "3ms")
    (unmet,) = data["objectives"]["unmet"]
    assert data["objectives"]["load"]["concurrency"] == 0
    assert data["concurrency"] == 1
    assert 0.003 < unmet["floor_seconds"] < unmet["alone_seconds"]["low"]
    code, out, _ = run(capsys, *SMALL, "--tpot", "3ms")
    assert code == 1
    text = " ".join(out.split())
    assert "OUT OF REACH: one request alone takes" in text
    assert "at its full memory bandwidth. No engine goes below" in text


def test_a_sweep_names_regimes_and_what_loads_miss(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--sweep", "concurrency=1..1024", "--tpot", "20ms", "--ttft", "1s"]
    data = answer(capsys, *arguments)
    regimes = [point["regime"] for point in data["points"]]
    assert list(dict.fromkeys(regimes)) == ["latency", "balanced", "throughput", "overload"]
    missed = [point["missed"] for point in data["points"]]
    assert missed[0] == []
    assert missed[-1] == ["tpot", "ttft"]
    _, out, _ = run(capsys, *arguments)
    table = out.partition("clients")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[6] for line in table] == regimes
    assert table[-1].split()[7] == "both"
    assert all(len(line) <= 80 for line in out.splitlines())


def test_operators_outside_of_the_tables_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "tiiuae/falcon-7b", "--gpu", "h100", "--input", "512", "--output", "64")
    (wide,) = [
        out
        for out in data["beyond_tables"]
        if (out["step"], out["operator"]) == ("decode", "attention_decode")
    ]
    assert (wide["extent"], wide["value"], wide["limit"]) == ("query_heads", 71, 64)
    assert "query heads a KV head of 71, 1.11 times beyond" in data["warnings"][0]
    assert all(out["widening"] < 1.1 for out in answer(capsys, *SMALL)["beyond_tables"])


def test_a_users_gpu_is_as_fast_as_its_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "gpus.json"
    entry = {
        "name": "Acme H1",
        "architecture": "hopper",
        "compute_capability": [9, 0],
        "memory": "79.19GiB",
        "nominal_memory": "80GB",
        "bandwidth": "6.7TB/s",
        "dense_tflops": {"bf16": 989.4, "fp8": 1978.9},
    }
    file.write_text(json.dumps({"accelerators": [entry]}), encoding="utf-8")
    ours = answer(capsys, "llama-3.1-8b", "--gpu", "Acme H1", "--gpu-file", str(file))
    theirs = answer(capsys, "llama-3.1-8b", "--gpu", "h100")
    assert ours["borrowed"]
    assert ours["decode"]["seconds"] < 0.7 * theirs["decode"]["seconds"]


def test_an_engines_own_command_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """The budget of the command's flag holds, and --set reaches the engine too."""
    command = ("vllm", "serve", "meta-llama/Llama-3.1-8B", "--max-num-batched-tokens", "4096")
    code, out, _ = run(capsys, "--gpu", "h100", "--json", "--", *command)
    assert code == 0
    assert json.loads(out)["deployment"]["token_budget"] == 4096
    code, out, _ = run(
        capsys, "llama-3.1-8b", "--gpu", "h100", "--json", "--set", "max_num_batched_tokens=2048"
    )
    assert json.loads(out)["deployment"]["token_budget"] == 2048


def test_drafts_and_the_users_own_acceptance(capsys: pytest.CaptureFixture[str]) -> None:
    """The rate is what was measured until one is given; a mean length works as well."""
    command = (
        *("--gpu", "8xh200", "--", "vllm", "serve", "deepseek-ai/DeepSeek-V3", "-tp", "8"),
        *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'),
    )
    usual = answer(capsys, *command)
    assert usual["speculation"]["acceptance_rate"] == {"value": 0.83, "low": 0.68, "high": 0.9}
    assert "arXiv:2412.19437" in usual["speculation"]["source"]
    own = answer(capsys, "--acceptance", "1.6", *command)
    assert own["speculation"]["tokens_per_step"]["value"] == pytest.approx(1.6)
    assert own["speculation"]["source"] is None
    assert own["tpot_seconds"]["value"] > usual["tpot_seconds"]["value"]
    _, out, _ = run(capsys, "--explain", *command)
    assert "Speculative decoding (mtp)" in out
    assert "draft.eh_proj" in out
    code, _, err = run(capsys, "llama-3.1-8b", "--gpu", "h100", "--acceptance", "0.7")
    assert code == 2
    assert "drafts no tokens" in err


def test_llama_cpp_rests_on_steps_that_were_timed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("llama-3.1-8b", "--context", "8k", "--engine", "llama.cpp")
    _, out, _ = run(capsys, *arguments, "--gpu", "rtx-3090")
    text = " ".join(out.split())
    assert "llama-bench timed on NVIDIA GeForce RTX 3090 and its kin" in text
    assert "aiconfigurator" not in text
    assert "warning" not in text


PCIE = ["llama-3.1-70b", "--gpu", "2xl40s", "--weights", "awq", "--context", "32k"]


def test_what_holds_back_the_whole_tpot_is_named_beside_its_decode_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = answer(capsys, *PCIE)
    parts, tpot = data["tpot_parts"], data["tpot_seconds"]["value"]
    assert sum(parts.values()) == pytest.approx(tpot)
    assert parts["prompts_seconds"] > parts["decode_seconds"]
    assert (data["decode"]["limiter"], data["tpot_limiter"]) == ("bandwidth", "communication")
    assert next(iter(data["tpot_operators"])) == "all_reduce"
    _, out, _ = run(capsys, *PCIE)
    flat = " ".join(out.split())
    assert re.search(r"prompts of other requests [\d.]+ ms \(6\d%\)", flat)
    assert "held back most by communication. Largest parts: all_reduce" in flat
    _, out, _ = run(capsys, *PCIE, "--lang", "zh")
    assert "主要受限于通信" in "".join(out.split())


def test_a_benchmark_of_few_requests_has_its_first_burst_in_the_ttft(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steady = answer(capsys, *SMALL, "--concurrency", "16")
    few = answer(capsys, *SMALL, "--concurrency", "16", "--num-prompts", "64")
    many = answer(capsys, *SMALL, "--concurrency", "16", "--num-prompts", "640")
    assert steady["ttft_parts"]["burst_seconds"] == 0
    burst = few["ttft_seconds"]["value"] - steady["ttft_seconds"]["value"]
    assert few["ttft_parts"]["burst_seconds"] == pytest.approx(burst)
    assert many["ttft_parts"]["burst_seconds"] == pytest.approx(burst / 10)
    assert few["tpot_seconds"] == steady["tpot_seconds"]
    assert few["regimes"] == steady["regimes"]


def test_a_rate_is_the_fewest_clients_who_send_as_many(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, *SMALL, "--rate", "300/min")
    clients = data["concurrency"]
    assert data["requests_per_second"]["value"] == 5
    assert data["output_tokens_per_second"]["value"] == pytest.approx(5 * 256)
    sent = [
        answer(capsys, *SMALL, "--concurrency", str(count))["requests_per_second"]["value"]
        for count in (clients - 1, clients)
    ]
    assert sent[0] < 5 <= sent[1]
    _, out, _ = run(capsys, *SMALL, "--rate", "5/s")
    assert "queues of arrivals that bunch are not in them" in " ".join(out.split())


def test_more_than_is_served_falls_behind(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, *SMALL, "--rate", "100")
    assert data["arrivals"]["falls_behind"]
    assert data["requests_per_second"]["value"] == data["arrivals"]["capacity"] < 100
    code, out, _ = run(capsys, *SMALL, "--rate", "100")
    assert code == 1
    assert "FALLS BEHIND: 100 requests/s come" in out
    assert "none waits" not in out
    _, out, _ = run(capsys, *SMALL, "--rate", "100", "--lang", "zh")
    assert "跟不上" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "5", "--concurrency", "8"], "--rate and --concurrency both set the load"),
        (["--rate", "5", "--tpot", "50ms"], "--rate and --tpot and --ttft both set the load"),
        (["--rate", "5", "--sweep", "concurrency=1..8"], "--rate and --sweep both set the load"),
        (["--rate", "5", "--num-prompts", "64"], "--rate and --num-prompts both set the load"),
        (["--rate", "5/h"], "5/s or 300/min"),
        (["--rate", "0"], "5/s or 300/min"),
        (["--num-prompts", "64", "--tpot", "50ms"], "of one benchmark"),
        (["--num-prompts", "4", "--concurrency", "8"], "at least a request for each client"),
        (["--num-prompts", "0"], "num_prompts is 0"),
    ],
)
def test_loads_that_contradict_each_other_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, _, err = run(capsys, *SMALL, *arguments)
    assert code == 2
    assert said in " ".join(err.split())


def test_no_more_clients_are_assumed_than_run_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    few = [*SMALL, "--set", "max_num_seqs=4"]
    data = answer(capsys, *few)
    assert (data["concurrency"], data["concurrency_assumed"]) == (4, True)
    assert data["requests_waiting"] == 0
    _, out, _ = run(capsys, *few)
    assert "(as many as run at once; --concurrency gives yours)" in " ".join(out.split())
    asked = answer(capsys, *few, "--concurrency", "32")
    assert (asked["concurrency_assumed"], asked["requests_waiting"]) == (False, 28)
    assert asked["ttft_limiter"] == "max_num_seqs"


def test_the_floor_is_of_one_token_a_step_and_drafts_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (unmet,) = answer(capsys, *SMALL, "--tpot", "2ms")["objectives"]["unmet"]
    drafts = unmet["drafts"]
    kept = sum(drafts["acceptance"] ** n for n in range(drafts["drafted_tokens"] + 1))
    assert kept == pytest.approx(unmet["alone_seconds"]["value"] / 0.002)
    _, out, _ = run(capsys, *SMALL, "--tpot", "2ms")
    flat = " ".join(out.split())
    assert "with this model on these GPUs at one token a step" in flat
    assert f"3 drafted tokens of which {drafts['acceptance']:.0%} or more are kept" in flat
    (far,) = answer(capsys, *SMALL, "--tpot", "0.1ms")["objectives"]["unmet"]
    assert far["drafts"]["acceptance"] is None
    _, out, _ = run(capsys, *SMALL, "--tpot", "0.1ms")
    assert "beyond what drafts of 7 tokens yield" in " ".join(out.split())


def test_requests_of_one_token_have_no_time_per_further_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = [*SMALL, "--output", "1"]
    code, out, _ = run(capsys, *one, "--json")
    data = json.loads(out)
    Draft202012Validator(json.loads(schema_text())).validate(data)
    assert (code, data["tpot_seconds"], data["tokens_per_second_per_user"]) == (0, None, None)
    assert any("requests get one token" in warning for warning in data["warnings"])
    _, out, _ = run(capsys, *one)
    assert re.search(r"TPOT, time of each further token +none", out)
    assert "TPOT .* is made of" not in out
    for asked in (["--tpot", "50ms"], ["--tpot", "50ms", "--sweep", "concurrency=1..2"]):
        code, _, err = run(capsys, *one, *asked)
        assert code == 2
        assert "requests of one output token have no time per further token" in err
    _, out, _ = run(capsys, *one, "--sweep", "concurrency=1..2")
    assert out.count("none") >= 4
