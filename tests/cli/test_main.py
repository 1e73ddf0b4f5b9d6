import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from tokenroom.cli.main import COMMANDS, main
from tokenroom.errors import DeploymentError

Capture = pytest.CaptureFixture[str]


def command_that(action: object) -> click.Command:
    return click.Command("gpus", callback=action)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_is_what_the_list_says(name: str) -> None:
    command = import_module(COMMANDS[name][0]).command
    assert command.name == name
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_takes(name: str) -> None:
    command = import_module(COMMANDS[name][0]).command
    for option in command.params:
        assert not isinstance(option, click.Option) or option.hidden or option.help, option.opts
        if isinstance(option.type, click.Path) and isinstance(option, click.Option):
            takes = option.make_metavar(click.Context(command))
            for named in re.findall(r"\b(?:FILE|FOLDER)\b", option.help or ""):
                assert takes == named, option.opts


def test_help_lists_every_command(capsys: Capture) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert all(name in out for name in COMMANDS)


def test_version_is_printed(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tokenroom ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fitt"], "there is no command 'fitt'; did you mean fit?"),
        (["zzzzzz"], "there is no command 'zzzzzz'; try fit, gpus"),
        (["gpus", "--jsno"], "No such option"),
        (["--lang", "fr", "gpus"], "'fr' is not one of 'en', 'zh'"),
    ],
)
def test_a_mistake_gets_one_line_and_code_2(
    arguments: list[str], sentence: str, capsys: Capture
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tokenroom: error: ")
    assert captured.err.count("\n") == 1
    assert sentence in captured.err


def test_an_error_of_the_library_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refuse() -> None:
        raise DeploymentError("tensor_parallel_size is 3;\nit must divide 32")

    monkeypatch.setattr("tokenroom.cli.gpus.command", command_that(refuse))
    assert main(["gpus"]) == 2
    assert (
        capsys.readouterr().err
        == "tokenroom: error: tensor_parallel_size is 3; it must divide 32\n"
    )
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert main(["gpus"]) == 2
    assert capsys.readouterr().err.startswith("tokenroom：错误：")


@pytest.mark.parametrize("code", [0, 1])
def test_a_command_decides_the_exit_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenroom.cli.gpus.command", command_that(lambda: code))
    assert main(["gpus"]) == code


@pytest.mark.parametrize("error", [KeyboardInterrupt, click.Abort])
def test_an_interrupt_ends_with_130(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def stop() -> None:
        raise error

    monkeypatch.setattr("tokenroom.cli.gpus.command", command_that(stop))
    assert main(["gpus"]) == 130
    assert capsys.readouterr().err.strip() == "tokenroom: interrupted"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pipe")
@pytest.mark.parametrize("arguments", [["gpus"], ["gpus", "--json"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; from tokenroom.cli.main import main; sys.exit(main({arguments!r}))",
        ],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""


def started(*arguments: str, **streams: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "tokenroom", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", [("--version",), ("gpus", "--json"), ("gpus",)])
def test_output_that_cannot_be_written_is_one_sentence(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        ended = started(*arguments, stdout=full)
    assert ended.returncode == 74
    assert ended.stderr.count("\n") == 1
    assert "the output cannot be written: No space left" in ended.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_closed_streams_end_without_a_traceback() -> None:
    def closed(number: int) -> object:
        return lambda: os.close(number)

    ended = started("gpus", preexec_fn=closed(1))
    assert ended.returncode == 74
    assert ended.stderr == ("tokenroom: the output cannot be written: standard output is closed\n")
    ended = started("gpuz", preexec_fn=closed(2), stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout) == (2, "")


def test_ctrl_c_while_modules_load_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from tokenroom import __main__

    class Interrupting:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "tokenroom.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "tokenroom.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert __main__.main() == 130
    assert capsys.readouterr().err == "tokenroom: interrupted\n"


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "model.png", "--gpu", "h100", "--plot", "model.png"),
        (
            *("speed", "./model.png", "--gpu", "h100"),
            *("--sweep", "concurrency=1..2", "--plot", "model.png"),
        ),
        ("table", "kv", "--models", "llama-3-8b,model.png", "--plot", "./model.png"),
        ("calibrate", "--from", "model.png", "--gpu", "h100", "--profile-file", "model.png"),
    ],
    ids=lambda words: words[0],
)
def test_nothing_is_written_over_what_is_read(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.png").write_text("{}", encoding="utf-8")
    assert main(words) == 2
    assert "which is read; name another file" in capsys.readouterr().err
    assert Path("model.png").read_text(encoding="utf-8") == "{}"
