"""``tokenroom simulate`` from the outside."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tokenroom.cli.main import main
from tokenroom.reports.request_file import FIELDS, values
from tokenroom.reports.simulation_json import schema_text
from tokenroom.serving.simulator import simulate

SMALL = "poisson:rate=2,input=200,output=20,requests=30"
TRACE = "ts,input,output\n0,100,5\n1,8000,5\n2,9000,5\n3,9500,5\n4,100,1\n"


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main(["simulate", *words]) == code
    out, err = capsys.readouterr()
    return out, err


def read(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(capsys, *words, "--json", code=code)[0])
    Draft202012Validator(json.loads(schema_text())).validate(found)
    return found


def test_a_drawn_workload_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL)
    out, err = asked(capsys, *words, "--price", "2", "--ttft", "1s")
    assert err == ""
    assert "30 requests served in " in out
    assert "100.0% of all requests keep TTFT 1.00 s" in out
    assert "USD for a million output tokens" in out
    assert out == asked(capsys, *words, "--price", "2", "--ttft", "1s")[0]
    assert "完成 30 个请求" in asked(capsys, *words, "--lang", "zh")[0]


def test_the_seed_draws_another_workload(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--seed")
    first, second, again = (read(capsys, *words, seed) for seed in ("1", "2", "1"))
    assert first == again
    assert first["latency"] != second["latency"]


def test_the_object_holds_what_was_served(capsys: pytest.CaptureFixture[str]) -> None:
    found = read(capsys, "llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--tpot", "1ms")
    assert found["requests"] == {"arrived": 30, "served": 30, "refused": {}, "unfinished": 0}
    assert found["tokens"]["output"] == 600
    assert found["latency"]["itl"]["count"] == 570
    assert (found["goodput"]["requests"], found["falls_behind"]) == (0, False)
    assert sum(point["tokens"] for point in found["timeline"]) == found["tokens"]["computed"]
    assert found["prefix_hit_rate"] is None  # no request names a prefix
    alike = "constant:rate=1,system=512,input=64,output=4,requests=3"
    found = read(capsys, "llama-3-8b", "--gpu", "a100", "--workload", alike)
    assert 0.5 < found["prefix_hit_rate"] < 0.7


def test_a_promise_that_too_few_keep_is_an_answer_of_no(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--tpot", "1ms")
    assert "0.0% of all requests keep TPOT 1.00 ms" in asked(capsys, *words)[0]
    out, _ = asked(capsys, *words, "--goodput", "0.95", code=1)
    assert "less than the 95.0% asked for" in " ".join(out.split())


def test_what_comes_faster_than_it_is_served_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload")
    many = "poisson:rate=100,input=2000,output=100,requests=600"
    assert read(capsys, *words, many, code=1)["falls_behind"] is True
    assert "cannot keep up" in asked(capsys, *words, many, code=1)[0]
    users = "users:count=300,input=2000,output=100,requests=600"
    assert read(capsys, *words, users)["falls_behind"] is None


def test_requests_too_long_are_refused_as_the_engine_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    words = ("llama-3-8b", "--gpu", "a100", "--trace", str(tmp_path / "t.csv"))
    out, err = asked(capsys, *words, "--requests", str(tmp_path / "r.csv"))
    assert err.startswith("warning: request 2 of 9,000 input tokens is refused: no room for an")
    assert err.count("refused") == 1
    assert "Refused, 2 requests" in out
    with (tmp_path / "r.csv").open(newline="") as file:
        rows = {int(row["id"]): row for row in csv.DictReader(file)}
    assert [rows[number]["refused"] for number in range(5)] == ["", "", "too_long", "too_long", ""]
    assert rows[2]["ttft_seconds"] == rows[2]["finish_seconds"] == ""
    assert rows[4]["tpot_seconds"] == ""
    found = read(capsys, *words, "--requests", str(tmp_path / "r.jsonl"))
    assert found["requests"]["refused"] == {"too_long": 2}
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert tuple(lines[0]) == FIELDS
    served = [line["ttft_seconds"] for line in lines if not line["refused"]]
    assert found["latency"]["ttft"]["mean_seconds"] == pytest.approx(sum(served) / len(served))


def test_a_part_of_a_trace_in_another_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{time},100,1\n" for time in range(100))
    (tmp_path / "t.csv").write_text("ts,input,output\n" + rows)
    words = ("llama-3-8b", "--gpu", "a100", "--trace", str(tmp_path / "t.csv"))
    part = read(capsys, *words, "--window", "10s..50s", "--time-scale", "2", "--limit", "20")
    assert part["requests"]["served"] == 20
    assert part["duration_seconds"] == pytest.approx(38, abs=0.2)


def test_ending_it_early_keeps_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*args: Any, **options: Any) -> Any:
        for count, record in enumerate(simulate(*args, **options)):
            if count == 10:
                raise KeyboardInterrupt
            yield record

    monkeypatch.setattr("tokenroom.serving.run.simulate", ended)
    file = tmp_path / "r.csv"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--requests", str(file))
    out, _ = asked(capsys, *words, code=130)
    assert "Interrupted: these are the figures of the 10 requests that had ended" in out
    assert len(file.read_text().splitlines()) == 11
    assert read(capsys, *words, code=130)["interrupted"] is True


def test_a_deployment_that_does_not_start_serves_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("llama-3.1-70b", "--gpu", "a100", "--workload", SMALL)
    assert "DOES NOT FIT" in asked(capsys, *words, code=1)[0]
    assert read(capsys, *words, code=1)["verdict"] == "does_not_fit"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "paged"), "engine paged is not simulated; it may be vllm, sglang"),
        (("--trace", "t.csv"), "one of the two"),
        (("--goodput", "0.9"), "give those"),
        (("--ttft", "1s", "--goodput", "2"), "--goodput is 2; give a share"),
        (("--time-scale", "0"), "--time-scale is 0; it must be above 0"),
        (("--time-scale", "1e-310"), "--time-scale is 1e-310; it may be 1e-12 at least"),
        (("--window", "3"), "--window is '3'; write its two ends"),
        (("--skip-bad",), "--skip-bad is of a trace"),
        (("--requests", "r.txt"), "it may end in .csv, .jsonl or .parquet"),
        (("--price", "0"), "price_per_gpu_hour is 0.0; give USD above 0"),
        (("--router", "sticky"), "--router chooses among servers; give --replicas as well"),
        (("--replicas", "0"), "--replicas is 0; give 1 to 1024"),
        (("--seed", "-1"), "--seed is -1; it must be 0 or more"),
        (("--time-scale", "1e300"), "span at most 100 years"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    base = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL)
    out, err = asked(capsys, *base, *words, code=2)
    assert out == ""
    assert said in err


def test_users_who_wait_have_no_times_to_stretch(capsys: pytest.CaptureFixture[str]) -> None:
    users = "users:count=2,input=10,output=2,requests=9"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", users)
    _, err = asked(capsys, *words, "--time-scale", "2", code=2)
    assert "wait for their answers" in err
    assert read(capsys, *words, "--limit", "4")["requests"]["served"] == 4


def test_a_timeline_holds_every_step_and_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.json"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--timeline", str(file))
    found = read(capsys, *words)
    events = json.loads(file.read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert len(steps) == found["steps"]
    assert sum(step["dur"] for step in steps) / 1e6 == pytest.approx(found["busy_seconds"])
    assert sum(step["args"]["tokens"] for step in steps) == found["tokens"]["computed"]
    begun = [event["ts"] for event in events if (event["ph"], event["name"]) == ("b", "waiting")]
    ended = [event["ts"] for event in events if (event["ph"], event["name"]) == ("e", "answer")]
    assert len(begun) == len(ended) == 30
    e2e = (sum(ended) - sum(begun)) / 30e6
    assert e2e == pytest.approx(found["latency"]["e2e"]["mean_seconds"])
    running = [event["args"]["running"] for event in events if event["name"] == "running"]
    assert max(running) == found["running"]["max"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_picture_shows_memory_queue_and_latencies(
    language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.svg"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--plot", str(file))
    asked(capsys, *words, "--ttft", "1s", "--lang", language)
    drawn = file.read_text("utf-8")
    assert "running" in drawn or (language == "zh" and "运行中" in drawn)
    for text in ("TTFT", "TPOT", "ITL", "14.96 GiB", SMALL[:20]):
        assert text in drawn


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_picture_has_a_bar_for_each_request(
    language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "g.svg"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--gantt", str(file))
    _, err = asked(capsys, *words, "--gantt-window", "0s..60s", "--lang", language)
    assert str(file) in err
    drawn = file.read_text("utf-8")
    assert "prompt" in drawn or (language == "zh" and "预填充" in drawn)
    assert "Meta-Llama-3-8B" in drawn
    file.unlink()
    out, err = asked(capsys, *words, "--gantt-window", "9000s..9001s", "--lang", language)
    assert "Wrote" not in err
    assert not file.exists()
    assert out


def test_a_picture_of_requests_is_asked_for_whole(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL)
    assert (
        "--gantt-window is of a picture"
        in asked(capsys, *words, "--gantt-window", "1s..2s", code=2)[1]
    )
    assert "it may end in .svg" in asked(capsys, *words, "--gantt", "g.txt", code=2)[1]


def test_requests_in_parquet_are_those_of_the_other_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("tokenroom.reports.request_parquet.GROUP_ROWS", 2)
    (tmp_path / "t.csv").write_text(TRACE)
    words = ("llama-3-8b", "--gpu", "a100", "--trace", str(tmp_path / "t.csv"), "--requests")
    for form in ("parquet", "jsonl"):
        asked(capsys, *words, str(tmp_path / f"r.{form}"))
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    file = parquet.ParquetFile(tmp_path / "r.parquet")
    assert file.metadata.num_row_groups == 3
    assert file.read().to_pylist() == lines
    again = asked(capsys, *words, str(tmp_path / "r.parquet"), "--resume", code=2)[1]
    assert "cannot be gone on with" in again


def test_parquet_is_whole_when_it_is_ended_within_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    ended = 0

    def interrupted(record: Any) -> Any:
        nonlocal ended
        ended += 1
        for count, value in enumerate(values(record)):
            if (ended, count) == (10, 5):
                raise KeyboardInterrupt
            yield value

    monkeypatch.setattr("tokenroom.reports.request_parquet.values", interrupted)
    file = tmp_path / "r.parquet"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--requests", str(file))
    asked(capsys, *words, code=130)
    assert parquet.read_table(file).num_rows == 9


full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has such a device")


@full_disk
@pytest.mark.parametrize(
    ("option", "name"),
    [("--requests", "r.csv"), ("--requests", "r.parquet"), ("--timeline", "t.json")],
)
def test_a_disk_that_is_full_is_told_with_the_file_s_name(
    option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.symlink_to("/dev/full")
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, option, str(file))
    err = asked(capsys, *words, code=2)[1]
    assert err.startswith(f"tokenroom: error: {file}: ")
    assert "No space left on device" in err


@full_disk
def test_a_picture_that_cannot_be_written_does_not_cost_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.png").symlink_to("/dev/full")
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--plot", str(tmp_path / "p.png"))
    out, err = asked(capsys, *words, code=2)
    assert "30 requests served in " in out
    assert "cannot be written" in err


def test_a_picture_of_nothing_is_said_to_be_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "poisson:rate=2,input=9k,output=20,requests=3"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", long, "--plot", str(tmp_path / "p.png"))
    assert "so no picture of it is drawn" in asked(capsys, *words, code=1)[1]
    assert not (tmp_path / "p.png").exists()


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL)
    err = asked(capsys, *words, "--requests", str(tmp_path / "r.parquet"), code=2)[1]
    assert "pip install 'tokenroom[parquet]'" in err


def test_what_the_scheduler_is_told_changes_what_is_served(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", "batch:input=1500,output=9,requests=40")
    usual = read(capsys, *words)
    short = read(capsys, *words, "--long-prefill-token-threshold", "256")
    assert short["latency"]["ttft"]["mean_seconds"] != usual["latency"]["ttft"]["mean_seconds"]
    few = read(capsys, *words, "--max-num-seqs", "4")
    assert (few["running"]["max"], few["scheduler"]["settings"]["max_num_seqs"]) == (4, 4)


def test_an_engines_own_command_is_served_and_says_what_it_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = ("vllm", "serve", "meta-llama/Meta-Llama-3-8B", "--max-model-len", "4096")
    flags = ("--stream-interval", "4")
    words = ("--gpu", "a100", "--workload", SMALL, "--json", "--", *own, *flags)
    found = json.loads(asked(capsys, *words)[0])
    assert found["scheduler"]["max_model_len"] == 4096
    assert "--stream-interval" in found["warnings"][0]


def test_flags_of_the_scheduler_are_read_from_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    workload = ("--workload", "batch:input=1500,output=9,requests=40")
    own = ("vllm", "serve", "meta-llama/Meta-Llama-3-8B")
    flags = ("--long-prefill-token-threshold", "256", "--scheduling-policy", "priority")
    words = ("--gpu", "a100", *workload)
    from_command = json.loads(asked(capsys, *words, "--json", "--", *own, *flags)[0])
    from_options = read(capsys, "llama-3-8b", *words, *flags)
    plain = read(capsys, "llama-3-8b", *words)
    assert from_command["latency"] == from_options["latency"] != plain["latency"]
    assert not from_command["warnings"]


def test_drafts_shorten_answers_by_what_is_kept_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    drafts = '{"method": "ngram", "num_speculative_tokens": 4}'
    own = ("--", "vllm", "serve", "meta-llama/Meta-Llama-3-8B", "--speculative-config", drafts)
    words = ("--gpu", "a100", "--workload", SMALL, "--json")

    def served(*options: str) -> Any:
        return json.loads(asked(capsys, *words, *options, *own)[0])

    none, half, told = served("--acceptance", "0"), served("--acceptance", "0.5"), served()
    tpots = [found["latency"]["tpot"]["mean_seconds"] for found in (none, told, half)]
    assert tpots == sorted(tpots, reverse=True)
    assert half["scheduler"]["settings"]["acceptance"] == 0.5
    assert none["tokens"]["output"] == half["tokens"]["output"]
    plain = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--acceptance", "0.5")
    assert main(["simulate", *plain]) == 2
    assert "the deployment drafts no tokens" in capsys.readouterr().err


def test_a_calibrated_machine_serves_in_its_own_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    bench = Path(__file__).parents[1] / "fixtures/benchmarks/vllm_0.33.json"
    deployment = ("--gpu", "h100", "--context", "16k")
    assert main(["calibrate", "--from", str(bench), *deployment, "--name", "mybox"]) == 0
    capsys.readouterr()
    words = ("llama-3.1-8b-instruct", *deployment, "--workload", SMALL)
    own = asked(capsys, *words, "--json", "--profile", "mybox")
    assert "mybox" in own[1]
    usual = read(capsys, *words)["latency"]["tpot"]["mean_seconds"]
    assert json.loads(own[0])["latency"]["tpot"]["mean_seconds"] != usual


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "transformers", "--max-num-seqs", "4"), "of 16,384 tokens"),
        (("--scheduler", "static"), "Scheduler: static batches"),
        (("--scheduler", "contiguous"), "max_model_len tokens in one piece for each request"),
        (("--engine", "tensorrt-llm"), "TensorRT-LLM"),
    ],
)
def test_other_schedulers_serve_too(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "users:count=4,input=200,output=uniform(1,50),requests=12"
    words = ("llama-3-8b", "--gpu", "a100", "--context", "4096", "--workload", text)
    out, _ = asked(capsys, *words, *options)
    assert said in " ".join(out.split())
    assert read(capsys, *words, *options)["requests"]["served"] == 12


def test_servers_behind_a_router_are_told_of_by_pool(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--replicas", "3", "--price", "2")
    words = (*words, "--router", "least_load")
    out, _ = asked(capsys, *words)
    assert out.startswith("3 x (meta-llama/Meta-Llama-3-8B on 1 x NVIDIA A100")
    assert "Running, waiting and KV pool are of one engine." in out
    (pool,) = read(capsys, *words)["pools"]
    assert (pool["replicas"], pool["most_replicas"], pool["copies"], pool["gpus"]) == (3, 3, 1, 1)
    plain = read(capsys, "llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--price", "2")
    assert plain["pools"][0]["gpu_hours"] == plain["gpu_hours"]
    assert pool["requests"]["served"] == plain["requests"]["served"]


def test_a_file_of_pools_is_served_by(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(
        "pools:\n"
        "- {name: short, deployment: llama-3-8b --gpu l40s, max_prompt: 64, price: 1}\n"
        "- {name: long, deployment: --gpu a100 -- vllm serve meta-llama/Meta-Llama-3-8B}\n"
        "router: {policy: cache_aware, balance_abs_threshold: 8}\n",
        encoding="utf-8",
    )
    told = read(capsys, "--fleet", str(file), "--workload", SMALL)
    assert [pool["name"] for pool in told["pools"]] == ["short", "long"]
    assert told["usd"] is None
    assert told["pools"][0]["usd"] > 0
    served = sum(pool["requests"]["served"] for pool in told["pools"])
    assert served == told["requests"]["served"]
    out, _ = asked(capsys, "--fleet", str(file), "--workload", SMALL, "--lang", "zh")
    assert "KV 池，平均 / 最多" in out
    for words, said in (
        (("llama-3-8b", "--fleet", str(file)), "give one of the two"),
        (("--fleet", str(file), "--gpu", "a100"), "gpu is given beside --fleet"),
        (("--fleet", str(tmp_path / "none.yaml")), "cannot be read"),
    ):
        assert said in asked(capsys, *words, "--workload", SMALL, code=2)[1]
    file.write_text("deployment: llama-3-8b --gpu a100 --reqests x", encoding="utf-8")
    assert (
        "cannot be read: No such option"
        in asked(capsys, "--fleet", str(file), "--workload", SMALL, code=2)[1]
    )


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.55, 1.0])
def test_a_run_that_was_ended_is_gone_on_with(
    suffix: str, kept: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--resume", "--requests")
    file = tmp_path / f"r.{suffix}"
    out, _ = asked(capsys, *words, str(file))
    whole = file.read_bytes()
    file.write_bytes(whole[: round(len(whole) * kept)])  # as a kill leaves it, within a line
    assert asked(capsys, *words, str(file))[0] == out
    assert file.read_bytes() == whole


def test_another_run_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("llama-3-8b", "--gpu", "a100", "--workload", SMALL, "--requests")
    file = str(tmp_path / "r.csv")
    asked(capsys, *words, file)
    _, err = asked(capsys, *words, file, "--resume", "--seed", "5", code=2)
    assert "line 2 of" in err
    assert "is not what this run finds" in err
    asked(capsys, *words, file)
    with open(file, "a") as opened:
        opened.write("30,\n")
    _, err = asked(capsys, *words, file, "--resume", code=2)
    assert "holds more than the 31 lines that this run finds" in err
    _, err = asked(capsys, *words[:-1], "--resume", code=2)
    assert "give it with --requests" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--requests", "t.csv"), "--requests would overwrite 't.csv', which is read"),
        (("--requests", "link.csv"), "--requests would overwrite 'link.csv', which is read"),
        (("--plot", "p.png", "--gantt", "./p.png"), "--plot and --gantt both write 'p.png'"),
        (("--plot", "none/p.png"), "there is no folder 'none'"),
        (("--plot", "folder.png"), "--plot is 'folder.png', which is a folder"),
        (("--requests", "kept.csv", "--timeline", "t.txt"), "it may end in .json"),
        (("--requests", "kept.csv", "--plot", "p.txt"), "it may end in .svg"),
        (("--requests", "kept.csv", "--gantt", "p.png", "--gantt-window", "3"), "its two ends"),
    ],
)
def test_nothing_that_is_there_is_lost_to_a_mistake(
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRACE)
    Path("kept.csv").write_text("of an earlier run")
    Path("link.csv").symlink_to("t.csv")
    Path("folder.png").mkdir()
    _, err = asked(capsys, "llama-3-8b", "--gpu", "a100", "--trace", "t.csv", *words, code=2)
    assert said in err
    assert Path("t.csv").read_text() == TRACE
    assert Path("kept.csv").read_text() == "of an earlier run"


def test_files_that_a_description_names_are_read_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRACE)
    drawn = "poisson:rate=2,lengths=trace(t.csv),requests=3"
    words = ("llama-3-8b", "--gpu", "a100", "--workload", drawn, "--requests")
    assert "which is read" in asked(capsys, *words, "t.csv", code=2)[1]
    asked(capsys, *words, "r.csv")


@pytest.mark.parametrize(
    ("words", "option"),
    [(("--gpus", "0"), "--gpus"), (("--kv", "fp8"), "--kv"), (("--replicas", "1"), "--replicas")],
)
def test_options_beside_a_fleet_are_refused_whatever_they_hold(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("deployment: llama-3-8b --gpu a100\n")
    base = ("--fleet", str(file), "--workload", SMALL)
    assert f"{option} is given beside --fleet" in asked(capsys, *base, *words, code=2)[1]


def many(path: Path, count: int = 3000) -> Path:
    rows = (f"{number / 20},{100 + number % 900},{1 + number % 40}" for number in range(count))
    path.write_text("arrival,input,output\n" + "\n".join(rows) + "\n" + " " * (1 << 15))
    return path


def test_many_requests_are_served_by_the_compiled_engine_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba")
    trace = str(many(tmp_path / "t.csv"))
    words = ("llama-3-8b", "--gpu", "a100", "--trace", trace, "--ttft", "200ms", "--context", "900")
    file = tmp_path / "r.csv"
    by_step, told = asked(capsys, *words, "--step-by-step", "--requests", str(file))
    records = file.read_text()
    compiled, told_too = asked(capsys, *words)
    assert compiled == by_step
    assert "is refused: no room for an answer" in told
    assert set(told.splitlines()) - set(told_too.splitlines()) == {f"Requests written to {file}"}
    asked(capsys, *words, "--requests", str(file))
    assert file.read_text() == records


def test_without_the_compiler_it_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenroom.serving.compiled.coverage._NEEDS", ("no_such_module",))
    trace = str(many(tmp_path / "t.csv", 200))
    _, told = asked(capsys, "llama-3-8b", "--gpu", "a100", "--trace", trace)
    assert told.count("what compiles the engine is not installed") == 1
    sliding = ("gpt-oss-20b", "--gpu", "a100", "--trace", trace)
    assert asked(capsys, *sliding)[1] == ""


def test_a_workload_of_which_nothing_is_served_has_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "simulate llama-3-8b --gpu a100 --workload poisson:rate=5,input=9k,output=5k,requests=4"
    assert main(words.split()) == 1
    assert "0 requests served" in capsys.readouterr().out
