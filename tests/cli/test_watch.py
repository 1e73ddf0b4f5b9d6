"""``tokenroom watch`` and ``tokenroom replay`` as people call them."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from page_server import VLLM_PAGES, PageServer, vllm_page

from tokenroom.cli.main import main
from tokenroom.reports.watch_json import schema_text


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(VLLM_PAGES) as server:
        server.pages["/metrics"] = vllm_page(running=3, waiting=1, share=0.9, prompt=10)
        yield server


def test_one_look_as_text_and_as_json(
    server: PageServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", server.url, "--once", "--no-gpus"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "3 running, 1 waiting" in text
    assert "above the waterline" in text
    assert main(["watch", server.url, "--once", "--no-gpus", "--json", "--lang", "zh"]) == 0
    told = json.loads(capsys.readouterr().out)
    Draft202012Validator(json.loads(schema_text())).validate(told)
    assert told["endpoints"][0]["replicas"][0]["running"] == 3
    assert "水位线" in told["alerts"][0]["text"]


def test_a_server_that_is_down_is_a_no(
    server: PageServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with PageServer({}) as gone:
        pass
    assert main(["watch", server.url, gone.url, "--once", "--no-gpus"]) == 1
    assert "DOWN" in capsys.readouterr().out


def test_without_a_server_the_machine_s_gpus_are_watched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["watch", "--once", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["endpoints"] == []
    assert bool(told["gpus"]) == (told["gpus_error"] is None)


def test_a_plan_beside_what_is_observed(
    server: PageServer, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
    given = ["watch", server.url, "--once", "--no-gpus", "--gpu", "h100"]
    assert main([*given, "--as", command]) == 0
    text = capsys.readouterr().out
    assert "Llama-3.1-8B" in text
    assert "14.99 GiB" in text
    assert re.search(r"KV tokens +[\d,]+ \([\d,]+\.\.[\d,]+\) +1,600", text)
    assert main([*given, "--as", "Llama-3.1-8B-Instruct", "--context", "8k", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    planned = told["endpoints"][0]["planned"]
    assert (planned["told_by"], planned["version"]) == ("command", "0.32.0")
    assert "pool_smaller" in [alert["key"] for alert in told["alerts"]]


def test_a_watch_is_recorded_and_replayed_line_by_line(
    server: PageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.jsonl")
    given = ["watch", server.url, "--no-gpus", "--interval", "0.2s", "--duration", "2s"]
    assert main([*given, "--json", "--record", path]) == 0
    watched = capsys.readouterr()
    assert len(watched.out.splitlines()) >= 3
    assert path in watched.err
    assert main(["replay", path, "--json"]) == 0
    assert capsys.readouterr().out == watched.out
    assert main(["replay", path, "--lang", "zh"]) == 0
    assert "运行 3，排队 1" in capsys.readouterr().out
    assert main(["replay", path, "--once"]) == 0
    assert "3 running" in capsys.readouterr().out
    assert main(["replay", path, "--json", "--from", "0.3s", "--speed", "100"]) == 0
    part = capsys.readouterr().out
    assert 0 < len(part.splitlines()) < len(watched.out.splitlines())
    assert watched.out.endswith(part)
    assert main(["replay", path, "--json", "--to", "0.3s"]) == 0
    assert watched.out.startswith(capsys.readouterr().out)


def test_a_recording_that_was_cut_off(
    server: PageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    assert main(["watch", server.url, "--no-gpus", "--once", "--record", str(path)]) == 0
    path.write_bytes(path.read_bytes() + b'{"schema_version":"1.0","time"')
    capsys.readouterr()
    assert main(["replay", str(path), "--json"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert "1 line" in shown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["watch", "ftp://x"], "no address"),
        (["watch", " "], "no address"),
        (["watch", "--no-gpus"], "nothing is to be watched"),
        (["watch", ":1", "--interval", "0"], "--interval"),
        (["watch", ":1", "--interval", "soon"], "--interval"),
        (["watch", ":1", "--waterline", "1.5"], "--waterline"),
        (["watch", ":1", "--leak-window", "1s"], "--leak-window"),
        (["watch", ":1", "--exporter", "99999"], "--exporter"),
        (["watch", ":1", "--as", "vllm serve 'x"], "quotes"),
        (["watch", ":1", "--as", "llama-3.1-8b"], "no GPU is given"),
        (["watch", ":1", ":2", ":3", "--as", "a", "--as", "b", "--gpu", "l4"], "--as is given 2"),
        (["watch", "--as", "llama-3.1-8b", "--gpu", "l4"], "name its address"),
        (["watch", ":1", "--record", "/no/such/folder/x"], "cannot be written"),
        (["replay", "/no/such/file"], "cannot be read"),
        (["replay", __file__], "no observation"),
        (["replay", __file__, "--speed", "0"], "--speed"),
        (["serve", "--watch", "ftp://x"], "no address"),
        (["serve", "--watch-as", "vllm serve x"], "--watch"),
    ],
)
def test_bad_input_is_one_sentence_and_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert said in shown.err


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--json-schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(schema_text())


def in_a_terminal(
    arguments: list[str], *, columns: int, rows: int, interrupt_at: str | None = None
) -> str:
    """What a command writes to a terminal of a size; Ctrl-C when it has written something."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenroom", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ
        | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
        | {"PYTHONUTF8": "1"},
    )
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65_536):
            parts.append(part)
            if interrupt_at is not None and interrupt_at.encode() in b"".join(parts):
                process.send_signal(signal.SIGINT)
                interrupt_at = None
    except OSError:
        pass  # the other end of a terminal is gone
    os.close(ours)
    assert process.wait(30) == 0
    return b"".join(parts).decode(errors="replace")  # Ctrl-C may cut a character


@pytest.mark.parametrize("rows", [60, 12])
def test_a_terminal_is_drawn_over_and_keeps_the_last_picture(
    server: PageServer, rows: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "run.jsonl")
    watched = in_a_terminal(
        [
            *("watch", server.url, "--no-gpus", "--interval", "0.2s"),
            *("--duration", "2s", "--record", path),
        ],
        columns=100,
        rows=rows,
    )
    assert "\x1b[?1049h" in watched  # a screen of its own, which is left at the end
    last = watched.rpartition("\x1b[?1049l")[2]
    assert "3 running, 1 waiting" in last
    assert "recording to" in last
    replayed = in_a_terminal(["replay", path, "--speed", "20"], columns=100, rows=rows)
    assert "3 running, 1 waiting" in replayed.rpartition("\x1b[?1049l")[2]
    assert "x20" in replayed


def test_ctrl_c_ends_a_watch_in_good_order(server: PageServer, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    shown = in_a_terminal(
        ["watch", server.url, "--no-gpus", "--interval", "0.2s", "--record", str(path)],
        columns=100,
        rows=60,
        interrupt_at="3 running, 1 waiting",
    )
    last = shown.rpartition("\x1b[?1049l")[2]
    assert "3 running, 1 waiting" in last
    assert "observation" in last
    assert "Traceback" not in shown
    assert path.read_bytes().endswith(b"}\n")
