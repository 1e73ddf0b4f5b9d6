"""What README shows is what the tool does: its commands run, its output is the real one."""

import re
import shlex
from pathlib import Path

import pytest

from tokenroom.cli.main import main

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


def commands() -> list[str]:
    found = []
    for _, block in BLOCKS:
        joined = re.sub(r"\\\n\s*", " ", block)
        found += [
            line.split("  #")[0].strip()
            for line in joined.splitlines()
            if line.startswith("tokenroom ")
        ]
    return found


@pytest.mark.parametrize("command", commands())
def test_commands_run(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code = main(shlex.split(command)[1:])
    out, err = capsys.readouterr()
    assert code in (0, 1), err
    assert out


@pytest.mark.parametrize("shown", [block for _, block in BLOCKS if block.startswith("$ tokenroom")])
def test_the_output_shown_is_the_real_one(shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, _, output = shown.partition("\n")
    main(shlex.split(command)[2:])
    assert capsys.readouterr().out == output


def test_the_python_shown_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(block for language, block in BLOCKS if language == "python")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("fits ")


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([\w./-]+\.md)\)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).is_file(), target
