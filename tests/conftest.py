"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def shared() -> Path:
    """The validation data that TOKENROOM_SHARED points at; the test is skipped without it."""
    folder = os.environ.get("TOKENROOM_SHARED")
    if not folder:
        pytest.skip("TOKENROOM_SHARED does not name the folder of validation data")
    return Path(folder)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see no catalogue, language or colour settings of whoever runs them."""
    for name in ("TOKENROOM_GPUS", "LC_ALL", "LC_MESSAGES", "LANG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
