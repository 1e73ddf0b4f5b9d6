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
    others = out.split("Also matching:")[1]
    assert "rtx-4090-48gb" in others
    assert "rtx-4090-d" in others


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("a100", ["a100-sxm-40gb", "a100-pcie-40gb", "a100-sxm-80gb", "a100-pcie-80gb"]),
        ("l40", ["l40", "l40s"]),
    ],
)
def test_all_that_match_are_listed(words: str, keys: list[str], capsys: Capture) -> None:
    assert main(["gpus", words]) == 0
    first = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert set(keys) <= set(first)


def test_assumed_memory_has_a_tilde(capsys: Capture) -> None:
    assert main(["gpus"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rtx-5000-ada", "~31.6"] in [line[:2] for line in lines]
    assert main(["gpus", "rtx-5000-ada"]) == 0
    assert "31.58 GiB, assumed" in capsys.readouterr().out


def test_mig_slices_are_among_the_details(capsys: Capture) -> None:
    assert main(["gpus", "h100-sxm-80gb"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "MIG slices" in out
    assert "3g.40gb (39.38 GiB)" in out
    assert main(["gpus", "H100 MIG 3g.40gb"]) == 0
    assert "39.38 GiB" in capsys.readouterr().out
    assert main(["gpus", "h100-sxm-80gb", "--json"]) == 0
    (gpu,) = json.loads(capsys.readouterr().out)
    assert gpu["mig"]["3g.40gb"] == round(39.38 * 2**30)


def test_chinese_is_spoken_on_request(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["gpus", "h200 nvl", "--lang", "zh"]) == 0
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
    out = capsys.readouterr().out
    assert "95.00 GiB" in out
    assert "unknown" not in out
    assert "nominal" not in out
    path.write_text("{name: Acme X1, memory: 95 GiB, nominal_memory: 96 GiB}", encoding="utf-8")
    assert main(["gpus", "acme", "--gpu-file", str(path)]) == 0
    assert "96 GiB" in capsys.readouterr().out
    path.write_text("accelerators:\n- {name: Acme X1}\n", encoding="utf-8")
    assert main(["gpus", "acme", "--gpu-file", str(path)]) == 2
    assert "accelerators[0] in own.yaml has no memory" in capsys.readouterr().err
