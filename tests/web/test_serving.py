"""``tokenroom serve`` as a process: how it begins, what it holds out, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tokenroom.web.jobs import JobStore
from tokenroom.web.serving import _Server

LLAMA = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100"}
SLOW = {
    "kind": "sweep",
    "question": LLAMA | {"engine": "llama.cpp", "sweep": "context=1000..20000:10"},
}
ENDS_SECONDS = 30


class Serving:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address
        self.port = int(address.rstrip("/").rpartition(":")[2])

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        with urlopen(Request(self.address + path, data, headers), timeout=60) as answer:
            return json.load(answer)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=ENDS_SECONDS)
        return self.process.returncode, said


def words_of(folder: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "tokenroom", "serve", "--port", "0"]
    return [*words, "--database", str(folder / "jobs.sqlite3"), *more]


@contextlib.contextmanager
def serving(folder: Path, *more: str, **environment: str) -> Iterator[Serving]:
    own = os.environ | {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"} | environment
    with subprocess.Popen(
        words_of(folder, *more), stderr=subprocess.PIPE, text=True, env=own
    ) as process:
        try:
            assert process.stderr is not None
            said = ""  # where the page is not built, a line says so first
            while not (found := re.search(r"http://\S+:\d+/", said)):
                line = process.stderr.readline()
                assert line, said
                said += line
            yield Serving(process, found[0])
        finally:
            process.kill()


def wait_for_progress(server: Serving, job: str) -> None:
    deadline = time.monotonic() + 60
    while not server.ask(f"v1/jobs/{job}")["done"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_ends_well_with_a_job_events_and_a_request_under_way(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        job = server.ask("v1/jobs", SLOW)["id"]
        wait_for_progress(server, job)
        with server.connect() as events, server.connect() as asking:
            head = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
            events.sendall(head.encode())
            assert b"event: progress" in received(events, b"event: progress")
            body = json.dumps(LLAMA | {"sweep": "concurrency=1..64"})
            asking.sendall(
                b"POST /v1/sweep HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            time.sleep(0.2)
            code, said = server.end()
            assert (code, said) == (0, "")
            assert b'"points"' in received(asking, None)
    left = JobStore(tmp_path / "jobs.sqlite3").get(job)
    assert left is not None
    assert (left.state, left.attempts) == ("queued", 0)


def received(connection: socket.socket, until: bytes | None) -> bytes:
    text = b""
    while until is None or until not in text:
        part = connection.recv(65536)
        if not part:
            break
        text += part
    return text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_when_told_twice(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as server:
        job = server.ask("v1/jobs", SLOW)["id"]
        wait_for_progress(server, job)
        server.process.send_signal(number)
        time.sleep(0.1)
        code, said = server.end(number)
        assert (code, said) == (0, "")


def test_what_it_cannot_use_is_told_in_one_sentence(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database" * 500)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for more, words in (
            (("--port", port), "cannot be listened on"),
            (("--database", str(text)), "cannot be used as a file of jobs"),
            (("--host", "192.0.2.1"), "cannot be listened on"),
            (("--host", "no.such.host.invalid"), "cannot be listened on"),
        ):
            ran = subprocess.run(
                words_of(tmp_path, *more), capture_output=True, text=True, timeout=60
            )
            assert ran.returncode == 2, ran.stderr
            assert words in ran.stderr
            assert len(ran.stderr.splitlines()) == 1


def test_a_missing_browser_does_not_matter(tmp_path: Path) -> None:
    with serving(tmp_path, "--open", PATH="", BROWSER="no-such-browser") as server:
        assert server.ask("health") == {"status": "ok"}
        assert server.end()[0] == 0


def test_a_long_job_and_a_long_question_keep_no_plain_question_waiting(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.connect() as asking:
        job = server.ask("v1/jobs", SLOW)["id"]
        wait_for_progress(server, job)
        body = json.dumps(LLAMA | {"sweep": "context=1..20000:11"})
        asking.sendall(
            b"POST /v1/sweep HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        for number in range(1, 20):
            found = server.ask("v1/fit", LLAMA | {"concurrency": number})
            assert found["concurrency_asked"] == number
        assert server.ask(f"v1/jobs/{job}")["state"] == "running"


def test_a_second_server_leaves_alone_what_the_first_works_on(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        job = first.ask("v1/jobs", SLOW)["id"]
        wait_for_progress(first, job)
        with serving(tmp_path) as second:
            seen = second.ask(f"v1/jobs/{job}")
            assert (seen["state"], seen["attempts"]) == ("running", 1)
            assert second.end()[0] == 0
        seen = first.ask(f"v1/jobs/{job}")
        assert (seen["state"], seen["attempts"]) == ("running", 1)


def test_only_a_connection_without_requests_is_closed() -> None:
    """One that asks again and again is never, although each look finds it between two requests."""
    closed: list[str] = []

    def connection(name: str) -> Any:
        transport = SimpleNamespace(close=lambda: closed.append(name))
        return SimpleNamespace(cycle=SimpleNamespace(response_complete=True), transport=transport)

    class Hashed(SimpleNamespace):
        __hash__ = object.__hash__  # type: ignore[assignment]

    busy, idle = (Hashed(**vars(connection(name))) for name in ("busy", "idle"))
    server = object.__new__(_Server)
    server.server_state = SimpleNamespace(connections={busy, idle})  # type: ignore[assignment]
    server._silent = {}
    for second in range(0, 60, 2):
        busy.cycle = SimpleNamespace(response_complete=True)
        server._close_silent(float(second))
    assert set(closed) == {"idle"}
