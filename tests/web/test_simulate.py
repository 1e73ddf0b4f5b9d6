"""A workload served as a job: its life, what it answers, and what it refuses."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from tokenroom import fit
from tokenroom.reports import playback_json
from tokenroom.reports.messages import Language
from tokenroom.reports.simulation_json import schema_text, simulation_json
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.run import Run
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.web.app import create_app
from tokenroom.web.server_settings import ServerSettings

LLAMA = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100", "context": 8192}
WORKLOAD = "poisson:rate=20,input=512,output=64,requests=60"
SLOW = "poisson:rate=50,input=100,output=4000,requests=20000"
TRACE = "arrival,input,output\n0,512,64\n0.5,1024,32\n0.75,256,16\n"
PATIENCE_SECONDS = 60


def begin(client: TestClient, **asked: Any) -> str:
    answer = client.post("/v1/simulate", json=LLAMA | asked)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert (job["kind"], answer.headers["location"]) == ("simulate", f"/v1/jobs/{job['id']}")
    return str(job["id"])


def ended(client: TestClient, job: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        stand: dict[str, Any] = client.get(f"/v1/jobs/{job}").json()
        if stand["state"] in ("done", "failed", "cancelled"):
            return stand
        time.sleep(0.05)
    raise AssertionError(stand)


def result(client: TestClient, **asked: Any) -> dict[str, Any]:
    job = begin(client, **asked)
    stand = ended(client, job)
    assert stand["state"] == "done", stand
    found: dict[str, Any] = client.get(f"/v1/jobs/{job}/result").json()
    return found


def failure(client: TestClient, **asked: Any) -> str:
    stand = ended(client, begin(client, **asked))
    assert stand["state"] == "failed"
    return str(stand["error"])


def refusal(client: TestClient, **asked: Any) -> str:
    answer = client.post("/v1/simulate", json=LLAMA | asked)
    assert answer.status_code == 422, answer.text
    return str(answer.json()["error"]["message"])


def test_it_answers_as_the_command_line_and_with_a_picture(client: TestClient) -> None:
    found = result(client, workload=WORKLOAD)
    run = Run(fit("Llama-3.1-8B-Instruct", "h100", context=8192))
    workload = parse_workload(WORKLOAD, block_tokens=run.engine.block_tokens)
    for _ in run.serve(OpenLoop(workload)):
        pass
    expected = simulation_json(run.outcome(), WORKLOAD, Language.ENGLISH)
    playback = found.pop("playback")
    assert found == json.loads(json.dumps(expected))
    Draft202012Validator(json.loads(schema_text())).validate(found)
    Draft202012Validator(json.loads(playback_json.schema_text())).validate(playback)
    assert len(playback["requests"]) == 60


def test_a_sent_trace_is_replayed_packed_or_not(client: TestClient) -> None:
    packed = base64.b64encode(gzip.compress(TRACE.encode())).decode()
    plain = result(client, trace=TRACE, trace_name="mine.csv")
    assert plain["requests"]["served"] == 3
    assert plain["workload"] == "mine.csv"
    assert result(client, trace_base64=packed)["latency"] == plain["latency"]
    assert result(client, trace=TRACE, limit=2, time_scale=2)["requests"]["arrived"] == 2
    assert result(client, trace=TRACE, window="500ms..1s")["requests"]["arrived"] == 2


def test_users_who_wait_are_bounded_by_their_time(client: TestClient) -> None:
    asked = "users:count=4,think=1s,duration=10s,input=256,output=32"
    found = result(client, workload=asked, ttft="1s", tpot="50ms", price=2.5, language="zh")
    assert found["falls_behind"] is None
    assert found["goodput"]["share"] == 1.0
    assert found["usd"] > 0


def test_its_figures_are_told_while_it_runs(client: TestClient) -> None:
    job = begin(client, workload=SLOW)
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        for line in stream.iter_lines():
            stand = json.loads(line[6:]) if line.startswith("data: ") else {}
            if stand.get("figures") and stand["done"]:
                break
        client.delete(f"/v1/jobs/{job}")
    assert stand["total"] == 20_000
    assert 0 < stand["done"] < 20_000
    figures = stand["figures"]
    assert 0 <= figures["kv_pool_usage"] <= 1
    assert figures["running"] >= 1
    assert figures["ttft_mean_seconds"] > 0
    assert ended(client, job)["state"] == "cancelled"
    assert client.get(f"/v1/jobs/{job}/result").status_code == 409


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "no workload is given"),
        ({"workload": WORKLOAD, "trace": TRACE}, "workload and trace are given"),
        ({"workload": "poison:rate=5"}, "begins with neither a process"),
        ({"workload": "poisson:rate=0,input=1,output=1"}, "rate is 0"),
        ({"workload": "poisson:rate=1,input=empirical(/etc/passwd),output=1"}, "no files are"),
        ({"workload": "poisson:rate=1,lengths=trace(/etc/passwd)"}, "no files are read"),
        ({"workload": "users:count=1000000,input=1,output=1"}, "1,000,000 users"),
        ({"workload": WORKLOAD, "skip_bad": True}, "does not go with a drawn workload"),
        ({"trace": TRACE, "seed": 1}, "does not go with a trace"),
        ({"trace": TRACE, "time_scale": 0}, "time_scale is 0"),
        ({"trace": TRACE, "limit": 20_001}, "less than or equal to 20000"),
        ({"trace_base64": "?"}, "no base64"),
        ({"trace": "PAR1"}, "Parquet"),
        ({"trace": "x" * (11 * 2**20 + 1)}, "may be sent"),
        ({"workload": WORKLOAD, "concurrency": 4}, "no field of this question"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(
    client: TestClient, asked: dict[str, Any], words: str
) -> None:
    assert words in refusal(client, **asked)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"trace": "arrival,input,output\n0,512,64\n1,many,32\n"}, "line 3"),
        ({"trace": "a,b\n1,2\n"}, "trace"),
        ({"trace": TRACE, "window": "5m..6m"}, "no request arrives"),
        ({"trace": TRACE, "columns": "arrival=when"}, "when"),
        ({"workload": "poisson:rate=9,input=9,output=9,requests=20001"}, "more than the 20,000"),
        ({"workload": "users:count=9,input=9,output=9,requests=20001"}, "more than the 20,000"),
        ({"workload": "users:count=9,input=9,output=9", "window": "1s..2s"}, "window is of"),
        ({"workload": WORKLOAD, "model": "unheard-of"}, "not in the catalogue"),
        ({"workload": WORKLOAD, "ttft": "soon"}, "ttft is"),
        ({"workload": WORKLOAD, "engine": "paged"}, "paged is not simulated"),
        ({"workload": WORKLOAD, "engine": "paged", "language": "zh"}, "不模拟引擎 paged"),
        ({"workload": WORKLOAD, "scheduling": {"scheduling_policy": "lifo"}}, "lifo"),
        ({"workload": WORKLOAD, "scheduling": {"policy": "priority"}}, "policy is no setting"),
    ],
)
def test_what_is_found_later_fails_with_its_sentence(
    client: TestClient, asked: dict[str, Any], words: str
) -> None:
    said = failure(client, **asked)
    assert words in said
    assert "/tmp" not in said
    assert "\n" not in said


def test_refusals_are_told_in_the_language_that_is_asked(client: TestClient) -> None:
    assert "begins" not in refusal(client, workload="zz", language="zh")
    assert "第 2 行" in failure(client, trace="arrival,input,output\n1,2,many\n", language="zh")
    unknown = LLAMA | {"model": "unheard-of", "language": "zh"}
    assert "不在目录中" in client.post("/v1/fit", json=unknown).json()["error"]["message"]


def test_bad_rows_are_left_out_where_that_is_asked(client: TestClient) -> None:
    bad = TRACE + "1,many,32\n"
    assert result(client, trace=bad, skip_bad=True)["requests"]["served"] == 3


@pytest.mark.parametrize(
    "asked",
    [
        {"engine": "sglang"},
        {"engine": "tensorrt-llm"},
        {"engine": "llama.cpp", "weights": "q8_0"},
        {"engine": "transformers"},
        {"dp": 2, "gpu": "2xh100"},
        {"pp": 2, "gpu": "2xh100"},
    ],
    ids=lambda asked: "-".join(map(str, asked.values())),
)
def test_every_engine_gives_a_picture(client: TestClient, asked: dict[str, Any]) -> None:
    found = result(client, workload=WORKLOAD, **asked)
    playback = found["playback"]
    Draft202012Validator(json.loads(playback_json.schema_text())).validate(playback)
    assert len(playback["requests"]) == found["requests"]["served"] == 60
    most = max(frame[2] for frame in playback["frames"])
    assert most >= found["running"]["max"]
    assert max(frame[3] for frame in playback["frames"]) > 0


def test_a_deployment_that_does_not_start_says_why(client: TestClient) -> None:
    found = result(client, model="Llama-3.1-70B-Instruct", workload=WORKLOAD)
    assert found["verdict"] == "does_not_fit"
    Draft202012Validator(json.loads(schema_text())).validate(found)


def test_a_trace_is_dropped_when_its_job_has_ended(tmp_path: Path) -> None:
    settings = ServerSettings(database=tmp_path / "jobs.sqlite3")
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        job = begin(client, trace=TRACE)
        with sqlite3.connect(settings.database) as connection:
            held = "SELECT question FROM jobs"
            assert json.loads(connection.execute(held).fetchone()[0])["trace"] == TRACE
            assert ended(client, job)["state"] == "done"
            assert connection.execute(held).fetchone()[0] == "{}"


def test_the_same_is_asked_of_jobs(client: TestClient) -> None:
    question = LLAMA | {"workload": WORKLOAD}
    asked = {"kind": "simulate", "question": question}
    job = client.post("/v1/jobs", json=asked).json()["id"]
    assert ended(client, job)["state"] == "done"
    found = client.get(f"/v1/jobs/{job}/result").json()
    assert found == result(client, workload=WORKLOAD)


def test_presets_are_listed(client: TestClient) -> None:
    listed = client.get("/v1/workloads").json()["workloads"]
    assert {"chat", "agents", "rag"} <= {entry["name"] for entry in listed}
    assert all(entry["sources"] for entry in listed)
