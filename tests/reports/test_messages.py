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
    written_flags,
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


def test_what_there_is_one_of_is_singular() -> None:
    values: dict[str, object] = {"blocks": 31, "concurrency": "1.00", "length": 2_001}
    text = message("fit.pool", Language.ENGLISH, block_size=1, **values)
    assert "31 blocks of 1 token," in text
    assert "2,001 tokens" in text
    one: dict[str, object] = {"asked": 2, "length": 1, "requests": 1, "waiting": 1}
    assert message("fit.holds_less", Language.ENGLISH, **one) == (
        "of 2 requests of 1 token asked for, 1 runs at once and 1 waits in the queue"
    )
    served = message("simulate.served", Language.ENGLISH, count=1, span="1 s", steps=1)
    assert served == "1 request served in 1 s of simulated time, 1 step"
    many = message("simulate.served", Language.ENGLISH, count=21, span="1 s", steps=1_001)
    assert many == "21 requests served in 1 s of simulated time, 1,001 steps"


def test_names_are_written_in_the_language_of_the_report() -> None:
    notice = "notice.vendor_unmeasured"
    assert "AMD GPUs" in message(notice, Language.ENGLISH, vendor="amd")
    group: dict[str, object] = {"layers": 36, "block_size": 16, "page": "2 KiB"}
    assert "全注意力：36 层" in message(
        "fit.group", Language.CHINESE, kind="full_attention", **group
    )
    assert "layers of new kind" in message("fit.group", Language.ENGLISH, kind="new_kind", **group)
    flags = "--max-model-len 480 (weights in int8)"
    assert written_flags(flags, Language.ENGLISH) == flags
    assert written_flags(flags, Language.CHINESE) == "--max-model-len 480（权重改用 int8）"
    assert written_flags("(a 4-bit AWQ checkpoint)", Language.CHINESE) == "（4 位 AWQ 权重）"


def test_chinese_sentences_have_full_width_stops() -> None:
    placeholder = re.compile(r"{[^}]*}")
    found = {key: zh for key, (_, zh) in MESSAGES.items() if ";" in placeholder.sub("", zh)}
    assert found == {}


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
