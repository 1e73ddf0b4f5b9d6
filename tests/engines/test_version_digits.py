"""Versions of more digits than Python reads end in no traceback."""

from __future__ import annotations

import contextlib

import pytest

from tokenroom import fit
from tokenroom.engines.registry import engine_names
from tokenroom.errors import TokenroomError

MANY = "9" * 5000


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize("version", [MANY, f"0.{MANY}", f"0.5.{MANY}", f"v{MANY}.0", f"b{MANY}"])
def test_a_version_of_thousands_of_digits_is_refused_or_of_no_account(
    engine: str, version: str
) -> None:
    with contextlib.suppress(TokenroomError):
        assert fit("Llama-3.1-8B-Instruct", "h100", engine=f"{engine}@{version}").verdict
