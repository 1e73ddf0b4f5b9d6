"""Fixtures that every test may use."""

import os
import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what it starts in the background ignore Ctrl-C, the children of tests too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
