"""``tokenroom compare`` as a process whose workers are killed, that is interrupted, or on Ray."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tried import ray_environment, ray_head

LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds workers by /proc")
WORDS = (
    *("llama-3-8b", "--gpu", "a100", "--context", "4k", "--vary", "max-num-seqs=64,1", "--json"),
    *("--workload", "poisson:rate=4,input=300,output=100,requests=40", "--seeds", "3"),
)


def started(*words: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tokenroom", "compare", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        start_new_session=True,
    )


def finished(process: "subprocess.Popen[str]", code: int = 0) -> tuple[dict[str, Any], str]:
    out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    return json.loads(out), err


def until(happens: Callable[[], Any]) -> Any:
    """What a condition gives once it holds; a test that waits for ever is ended from outside."""
    while not (found := happens()):
        time.sleep(0.01)
    return found


def workers_of(process: "subprocess.Popen[str]") -> list[int]:
    """Processes of it that run tasks."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    children = [pid for thread in threads for pid in (thread / "children").read_text().split()]
    return [
        int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return finished(started(*WORDS, "--jobs", "1"))[0]


@LINUX
def test_a_killed_worker_loses_nothing(alone: dict[str, Any]) -> None:
    process = started(*WORDS, "--jobs", "2")
    victim = until(lambda: workers_of(process))[0]
    time.sleep(0.1)
    os.kill(victim, signal.SIGKILL)
    found, err = finished(process)
    assert found == alone
    assert err.startswith("warning: the worker of max-num-seqs ")
    assert err.count("it is run again") == 1


@LINUX
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_comparison_goes_on_where_it_was(
    how: signal.Signals, tmp_path: Path, alone: dict[str, Any]
) -> None:
    words = (*WORDS, "--jobs", "2", "--store", str(tmp_path))
    answers = tmp_path / "answers.jsonl"
    process = started(*words)
    until(lambda: answers.exists() and len(answers.read_bytes().splitlines()) >= 2)
    os.killpg(process.pid, how)
    if how is signal.SIGINT:
        found, err = finished(process, 128 + signal.SIGINT)
        assert err == ""
        assert found["interrupted"] is True
        assert set(found["complete_draws"]) < set(found["draws"])
    else:
        process.communicate(timeout=30)
    kept = len(answers.read_bytes().splitlines())
    assert 2 <= kept < 6
    assert finished(started(*words))[0] == alone
    assert len(answers.read_bytes().splitlines()) in (6, 7)  # 7 where a line had been cut off


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")
def test_a_ray_cluster_answers_as_one_process_does(tmp_path: Path, alone: dict[str, Any]) -> None:
    store = ("--store", str(tmp_path))
    with ray_head() as address:
        process = started(*WORDS, *store, "--ray", address, **ray_environment())
        assert finished(process)[0] == alone
    assert len((tmp_path / "answers.jsonl").read_bytes().splitlines()) == 6
    assert finished(started(*WORDS, *store, "--jobs", "1"))[0] == alone
    assert len((tmp_path / "answers.jsonl").read_bytes().splitlines()) == 6  # none was run again
