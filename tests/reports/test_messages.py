import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenroom
from tokenroom.engines.policy import Refusal
from tokenroom.reports.messages import (
    MESSAGES,
    Language,
    language_of,
    message,
    refusal_text,
)

PACKAGE = Path(tokenroom.__file__).parent


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", MESSAGES)
def test_both_languages_say_the_same(key: str) -> None:
    english, chinese = MESSAGES[key]
    assert english.strip()
    assert chinese.strip()
    assert placeholders(english) == placeholders(chinese)


def keys_in_use() -> Iterator[tuple[str, str]]:
    """Every text that the code passes as a whole to message(), and its place."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "message"
                and isinstance(node.args[0], ast.Constant)
            ):
                yield node.args[0].value, f"{path.name}:{node.lineno}"


def test_every_key_in_use_has_a_text() -> None:
    used = dict(keys_in_use())
    assert used
    assert {key: place for key, place in used.items() if key not in MESSAGES} == {}


def test_every_notice_of_an_engine_has_a_text() -> None:
    keys = set()
    for path in (PACKAGE / "engines").rglob("*.py"):
        keys |= set(re.findall(r"Notice\(\s*key=\"(\w+)\"", path.read_text(encoding="utf-8")))
    assert {key for key in keys if f"notice.{key}" not in MESSAGES} == set()


def test_values_are_written_by_what_they_are() -> None:
    text = message("plot.capacity", Language.ENGLISH, capacity_bytes=round(79.19 * 2**30))
    assert text == "GPU memory 79.19 GiB"
    refusal = Refusal(
        cause="no_room_for_kv", phase="profile", needed_bytes=3 * 2**30, available_bytes=2**30
    )
    for language in Language:
        text = refusal_text(refusal, language)
        assert "GiB" in text
        assert "{" not in text


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "en_US"}, "zh"),
    ],
)
def test_the_environment_chooses_the_language(environment: dict[str, str], language: str) -> None:
    assert language_of(environment) == language
