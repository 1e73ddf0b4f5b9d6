"""Jobs: queued, worked on in processes of their own, kept."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tokenroom.web.app import create_app
from tokenroom.web.jobs import JobStore
from tokenroom.web.server_settings import ServerSettings

QUICK = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100", "sweep": "concurrency=1..64"}
SLOW = QUICK | {"sweep": "context=1..20000:11"}
PATIENCE_SECONDS = 60


def begin(client: TestClient, question: dict[str, Any]) -> str:
    answer = client.post("/v1/jobs", json={"kind": "sweep", "question": question})
    assert answer.status_code == 202, answer.text
    job: str = answer.json()["id"]
    assert answer.headers["location"] == f"/v1/jobs/{job}"
    return job


def ended(client: TestClient, job: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        stand: dict[str, Any] = client.get(f"/v1/jobs/{job}").json()
        if stand["state"] in ("done", "failed", "cancelled"):
            return stand
        time.sleep(0.05)
    raise AssertionError(stand)


def test_a_job_gives_what_the_endpoint_gives(client: TestClient) -> None:
    job = begin(client, QUICK)
    stand = ended(client, job)
    assert stand["state"] == "done"
    assert stand["done"] == stand["total"] >= 7
    result = client.get(f"/v1/jobs/{job}/result").json()
    assert result == client.post("/v1/sweep", json=QUICK).json()


def test_its_events_end_with_its_end(client: TestClient) -> None:
    job = begin(client, QUICK)
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        text = "".join(stream.iter_text())
    assert text.rstrip().splitlines()[-2].strip() == "event: done"
    assert "event: progress" in text


def test_a_job_can_be_ended(client: TestClient) -> None:
    job = begin(client, SLOW)
    assert client.get(f"/v1/jobs/{job}/result").status_code == 409
    assert client.delete(f"/v1/jobs/{job}").json()["state"] == "cancelled"
    assert ended(client, begin(client, QUICK))["state"] == "done"
    assert client.delete(f"/v1/jobs/{job}").json()["state"] == "cancelled"


def test_a_refused_question_fails_with_its_sentence(client: TestClient) -> None:
    stand = ended(client, begin(client, QUICK | {"model": "unheard-of"}))
    assert stand["state"] == "failed"
    assert "not in the catalogue" in stand["error"]
    bad = client.post("/v1/jobs", json={"kind": "sweep", "question": {"sweep": 3}})
    assert bad.status_code == 422
    assert client.get("/v1/jobs/nosuch").status_code == 404


def test_a_full_queue_says_so(client: TestClient) -> None:
    jobs = []
    for _ in range(20):
        answer = client.post("/v1/jobs", json={"kind": "sweep", "question": SLOW})
        if answer.status_code == 429:
            break
        jobs.append(answer.json()["id"])
    assert answer.status_code == 429
    assert "jobs wait already" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) > 0
    for job in jobs:
        client.delete(f"/v1/jobs/{job}")


def children() -> set[int]:
    """Processes that this one began, by the kernel's list."""
    files = Path("/proc/self/task").glob("*/children")
    return {int(word) for file in files for word in file.read_text().split()}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists processes by /proc")
def test_a_killed_worker_loses_no_result(tmp_path: Path) -> None:
    settings = ServerSettings(database=tmp_path / "jobs.sqlite3")
    before = children()
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        first = begin(client, QUICK)
        assert ended(client, first)["state"] == "done"
        slow = begin(client, SLOW)
        while not client.get(f"/v1/jobs/{slow}").json()["done"]:
            time.sleep(0.05)
        for child in children() - before:
            if _works(child):
                os.kill(child, signal.SIGKILL)
        stand = ended(client, slow)
        assert (stand["state"], stand["attempts"]) == ("done", 2)
        assert client.get(f"/v1/jobs/{first}/result").status_code == 200


def _works(process: int) -> bool:
    words = Path(f"/proc/{process}/cmdline").read_bytes()
    return b"spawn_main" in words


def test_what_ran_when_a_server_ended_runs_at_its_next_start(tmp_path: Path) -> None:
    settings = ServerSettings(database=tmp_path / "jobs.sqlite3")
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        done = begin(client, QUICK)
        ended(client, done)
        left = begin(client, SLOW)
    store = JobStore(settings.database)
    job = store.get(left)
    assert job is not None
    assert job.state in ("queued", "running")
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        assert ended(client, left)["state"] == "done"
        assert client.get(f"/v1/jobs/{done}/result").status_code == 200


def test_a_job_beyond_its_time_fails(tmp_path: Path) -> None:
    settings = ServerSettings(database=tmp_path / "jobs.sqlite3", job_seconds=0.2)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        stand = ended(client, begin(client, SLOW))
        assert stand["state"] == "failed"
        assert "longer than the 0.2 s" in stand["error"]


def test_old_jobs_are_forgotten(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite3")
    store.open()
    job = store.add("sweep", QUICK, most=1)
    assert job is not None
    assert store.take() is not None
    store.finish(job.id, "{}")
    store.forget(3600)
    assert store.get(job.id) is not None
    store.forget(-1)
    assert store.get(job.id) is None
