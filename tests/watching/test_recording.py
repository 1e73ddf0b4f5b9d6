"""Recordings keep what was taken, whatever happens to who takes it."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from observations import OBSERVATION
from page_server import VLLM_PAGES, PageServer

from tokenroom.errors import WatchError
from tokenroom.watching.observation import Observation
from tokenroom.watching.recording import Recorder, Recording


def at(seconds: float) -> Observation:
    return replace(OBSERVATION, time=OBSERVATION.time + seconds)


def recorded(path: Path, *seen: Observation) -> None:
    with Recorder(path) as recorder:
        for one in seen:
            recorder.write(one)


def test_what_was_seen_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded(path, at(0), at(2))
    recorded(path, at(4))  # a second watch goes on behind the first
    recording = Recording(path)
    assert list(recording.observations()) == [at(0), at(2), at(4)]
    assert recording.span() == (at(0).time, at(4).time)
    assert recording.skipped == 0


def test_a_line_is_in_the_file_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        recorder.write(at(0))
        assert list(Recording(path).observations()) == [at(0)]


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_last_line_that_was_cut_off_is_left_out_and_continued(tmp_path: Path, left: int) -> None:
    path = tmp_path / "run.jsonl"
    recorded(path, at(0), at(2))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:left].rstrip(b"\n"))
    recording = Recording(path)
    whole = left == -1  # only its end of line is missing
    assert len(list(recording.observations())) == 1 + whole
    assert recording.skipped == (not whole)
    recorded(path, at(4))
    assert list(recording.observations())[-1] == at(4)


def test_a_file_whose_only_line_was_cut_off_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"schema_version":"1.0","ti')
    recorded(path, at(0))
    assert list(Recording(path).observations()) == [at(0)]


@pytest.mark.parametrize(
    "content", ["notes of mine\n", "{}\n", '{"a": 1}\n', '{"a": 1}', "\x00\x01"]
)
def test_a_file_of_something_else_is_not_touched(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(content)
    with pytest.raises(WatchError, match="no recording"):
        recorded(path, at(0))
    assert path.read_text() == content
    with pytest.raises(WatchError, match="no observation"):
        list(Recording(path).observations())


def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(WatchError, match="cannot be written"):
        recorded(tmp_path / "none" / "run.jsonl", at(0))
    with pytest.raises(WatchError, match="cannot be read"):
        list(Recording(tmp_path / "none").observations())
    (tmp_path / "empty").touch()
    with pytest.raises(WatchError, match="no observation"):
        Recording(tmp_path / "empty").span()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_watch_that_is_ended_keeps_what_it_took(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "run.jsonl"
    with PageServer(VLLM_PAGES) as server:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tokenroom", "watch", server.url, "--no-gpus"),
                *("--interval", "0.2s", "--record", str(path), "--json"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(3)]
        process.send_signal(how)
        rest = process.stdout.read()
        code = process.wait(20)
        process.stdout.close()
    assert code == (0 if how is signal.SIGINT else -how)
    found = len(list(Recording(path).observations()))
    assert found >= len(printed) + len(rest.splitlines()) - 1
    assert time.time() - Recording(path).span()[1] < 60
