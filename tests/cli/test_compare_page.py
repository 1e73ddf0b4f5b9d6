"""docs/compare.md: its commands run, its file is read, and its example prints a difference."""

import re
import shlex
from pathlib import Path

import pytest

from tokenroom.cli.main import main
from tokenroom.files import parse_yaml
from tokenroom.serving.fleet_file import fleet_description

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    text = PAGE.partition("## Claims")[2]
    found = re.findall(r"```\n(tokenroom compare .*?)```", text, re.DOTALL)
    return [shlex.split(command.replace("\\\n", " "))[1:] for command in found]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_of_claims_run(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    fewer = [re.sub(r"requests=\d+", "requests=8", word) for word in words]
    assert main([*fewer, "--seeds", "2", "--jobs", "1"]) == 0
    assert "Differences to" in capsys.readouterr().out


def test_there_are_commands_for_every_claim() -> None:
    assert len(commands()) == PAGE.partition("## Claims")[2].partition("## What")[0].count("\n**")


def test_the_page_s_file_is_a_deployment() -> None:
    (text,) = blocks("yaml")
    single = fleet_description(parse_yaml(text)[0]).single
    assert single is not None
    assert single.price_per_gpu_hour == 1.10


def test_the_page_s_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    small = code.replace("requests=200", "requests=5").replace("workers()", "workers(1)")
    exec(compile(small, "docs/compare.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.startswith("Mean(value=0.0")
