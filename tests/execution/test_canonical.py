import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tokenroom import fit
from tokenroom.execution.canonical import digest, file_digest, program_version


class Kind(Enum):
    ONE = 1


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any = None


def test_equal_questions_have_one_name() -> None:
    assert digest({"a": 1, "b": {2, 3}}) == digest({"b": {3, 2}, "a": 1})
    assert digest(Pair((1, 2))) == digest(Pair([1, 2]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1, 1.0),
        (1, True),
        (None, "None"),
        (0.1 + 0.2, 0.3),
        (Kind.ONE, 1),
        (PurePosixPath("a"), "a"),
        (Pair(1, None), Pair(None, 1)),
        ([1, [2]], [[1], 2]),
        ({"a": 1}, [["a", 1]]),
    ],
)
def test_different_questions_have_different_names(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_what_has_no_lasting_name_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no name"):
        digest({"a": object()})


def test_a_deployment_has_the_same_name_in_another_process() -> None:
    code = (
        "from tokenroom import fit; from tokenroom.execution.canonical import digest;"
        "print(digest(fit('llama-3.1-8b', 'h100').deployment))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert done.strip() == digest(fit("llama-3.1-8b", "h100").deployment)
    assert done.strip() != digest(fit("llama-3.1-8b", "h100", block_size=32).deployment)


def test_files_and_the_program_have_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_digest(tmp_path / "a").startswith("ba7816bf8f01cfea")  # FIPS 180-2, B.1
    assert program_version().partition("+")[0]
