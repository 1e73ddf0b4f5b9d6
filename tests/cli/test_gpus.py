import json
from pathlib import Path

import pytest

from tokenroom.cli.main import main
from tokenroom.hardware.catalogue import load_catalogue

Capture = pytest.CaptureFixture[str]


def test_the_list_fits_80_columns(capsys: Capture) -> None:
    assert main(["gpus"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= len(load_catalogue()) + 2  # every GPU one line, a heading and a footer
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:2] == ["h100-sxm-80gb", "79.19"] for line in lines)


def test_words_narrow_the_list(capsys: Capture) -> None:
    assert main(["gpus", "hopper", "nvl"]) == 0
    out = capsys.readouterr().out
    assert "h100-nvl-94gb" in out
    assert "h100-sxm-80gb" not in out


def test_a_name_shows_one_gpu_with_sources(capsys: Capture) -> None:
    assert main(["gpus", "RTX", "4090"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].strip() == "rtx-4090"
    assert "23.64 GiB" in out
    assert "Sources" in out
    assert "VGen issue 104" in out


def test_chinese_is_spoken_on_request(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["gpus", "h200", "--lang", "zh"]) == 0
    assert "来源" in capsys.readouterr().out
    assert main(["--lang", "zh", "gpus", "h200 sxm"]) == 0
    assert "来源" in capsys.readouterr().out
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert main(["gpus", "h200 sxm"]) == 0
    assert "来源" in capsys.readouterr().out
    assert main(["gpus", "h200 sxm", "--lang", "en"]) == 0
    assert "来源" not in capsys.readouterr().out


def test_json_is_ascii_and_in_bytes(capsys: Capture) -> None:
    assert main(["gpus", "H100", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    (gpu,) = json.loads(out)
    assert gpu["key"] == "h100-sxm-80gb"
    assert gpu["memory_bytes"] == round(79.19 * 2**30)
    assert gpu["compute_capability"] == [9, 0]
    assert gpu["sources"]["memory_bytes"]


def test_nothing_found_is_a_no(capsys: Capture) -> None:
    assert main(["gpus", "toaster"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "No GPU matches 'toaster'.\n"
    assert main(["gpus", "toaster", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


def test_a_file_adds_gpus(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("accelerators:\n- {name: Acme X1, memory: 95 GiB}\n", encoding="utf-8")
    assert main(["gpus", "acme", "--gpu-file", str(path)]) == 0
    assert "95.00 GiB" in capsys.readouterr().out
    path.write_text("accelerators:\n- {name: Acme X1}\n", encoding="utf-8")
    assert main(["gpus", "acme", "--gpu-file", str(path)]) == 2
    assert "accelerators[0] in own.yaml has no memory" in capsys.readouterr().err
