import importlib.util

import pytest

from tokenroom.cli.main import main
from tokenroom.errors import MeasurementError
from tokenroom.measuring import libraries


def test_the_extra_is_named_where_a_library_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    with pytest.raises(MeasurementError, match=r"tokenroom\[measure\]"):
        libraries.require_torch()
    assert main(["measure", "llama-3.2-1b"]) == 2
    captured = capsys.readouterr()
    assert "torch is not installed" in captured.err
    assert captured.err.count("\n") == 1


def test_a_library_that_is_there_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find_spec", importlib.util.find_spec)
    monkeypatch.setattr(libraries, "find_spec", lambda name: object())
    libraries.require_torch("transformers")
