"""docs/fleets.md: its example runs, and its files are read."""

import re
from pathlib import Path

import pytest

from tokenroom.files import parse_yaml
from tokenroom.serving.fleet_description import Policy
from tokenroom.serving.fleet_file import fleet_description

PAGE = Path(__file__).parents[2] / "docs" / "fleets.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_s_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    exec(compile(code, str(PAGE), "exec"), {})
    (short, long) = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (short[:2], long[:2]) == (["short", "99"], ["long", "0"])


def test_the_page_s_files_are_fleets() -> None:
    found = [fleet_description(parse_yaml(text)[0]) for text in blocks("yaml")]
    assert all(found)
    assert found[0].pools[0].replicas == 4


def test_the_page_names_every_policy() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{policy}` |" in text for policy in Policy)
