"""What was measured of a machine's memory: kept beside its speed, used in place of estimates."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tokenroom import find_accelerator, fit, load_model
from tokenroom.cli.main import main
from tokenroom.engines.transformers.memory import activation_shape
from tokenroom.errors import ProfileError
from tokenroom.hardware.measured_memory import MeasuredMemory, MeasuredPass, MeasuredPasses
from tokenroom.performance.factors import UNCALIBRATED
from tokenroom.profile_files import (
    has_speed,
    read_memory,
    read_profile,
    save_memory,
    save_profile,
)
from tokenroom.profiles import Profile, Served
from tokenroom.units import MIB

GPU = "h100-sxm-80gb"
MODEL = "llama-3.1-8b-instruct"


def memory(**fields: object) -> MeasuredMemory:
    """As a machine's measurement might be."""
    passes = tuple(
        MeasuredPass(tokens, tokens * 100_000, tokens * 104_000, tokens * 2_000)
        for tokens in (512, 2048, 8192)
    )
    given: dict[str, object] = {
        "profile": "box",
        "created": "2026-08-12T10:00:00+00:00",
        "gpu": GPU,
        "told_by": "process",
        "context_bytes": 430 * MIB,
        "kernels_bytes": 90 * MIB,
        "workspace_bytes": 33 * MIB,
        "communicators": {2: 700 * MIB},
        "passes": (
            MeasuredPasses(
                model=MODEL,
                shape=activation_shape(load_model(MODEL)),
                dtype="bfloat16",
                attention="sdpa",
                passes=passes,
            ),
        ),
        "versions": {"torch": "2.13.0"},
    }
    return MeasuredMemory(**(given | fields))  # type: ignore[arg-type]


def speed_profile() -> Profile:
    return Profile(
        name="box",
        created="2026-08-01T10:00:00+00:00",
        served=Served(MODEL, None, "vllm", "0.33.0", GPU, 1, 1, 1, 1, 1, None, None),
        factors=UNCALIBRATED,
        spreads=UNCALIBRATED,
        identified=(),
        remaining={"ttft": 0.1, "tpot": 0.1},
        sources=(),
        points=(),
    )


def test_it_comes_back_the_same(tmp_path: Path) -> None:
    save_memory(memory(), tmp_path / "box.json")
    assert read_memory(tmp_path / "box.json") == memory()
    assert not has_speed(tmp_path / "box.json")


def test_memory_and_speed_share_a_file(tmp_path: Path) -> None:
    file = tmp_path / "box.json"
    save_profile(speed_profile(), file)
    with pytest.raises(ProfileError, match="tells of speed alone; tokenroom measure --hardware"):
        read_memory(file)
    save_memory(memory(), file)
    assert read_profile(file) == speed_profile()
    save_profile(replace(speed_profile(), created="2026-09-01T10:00:00+00:00"), file)
    assert read_memory(file) == memory()
    assert has_speed(file)


def test_memory_alone_is_no_speed(tmp_path: Path) -> None:
    save_memory(memory(), tmp_path / "box.json")
    with pytest.raises(ProfileError, match="tells of memory alone; tokenroom calibrate adds"):
        read_profile(tmp_path / "box.json")


def test_another_gpus_file_is_not_touched(tmp_path: Path) -> None:
    save_memory(memory(), tmp_path / "box.json")
    with pytest.raises(ProfileError, match="is of h100-sxm-80gb and l4 was measured"):
        save_memory(memory(gpu="l4"), tmp_path / "box.json")
    assert read_memory(tmp_path / "box.json").gpu == GPU


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"context_bytes": -1}, "context_bytes holds -1, below 0"),
        ({"context_bytes": "x"}, "context_bytes holds 'x'"),
        ({"kernels_bytes": None}, "kernels_bytes holds None"),
        ({"passes": [{"model": "m", "passes": []}]}, "passes are none"),
        ({"versions": 3}, "versions is 3, not an object"),
    ],
)
def test_a_damaged_file_is_told_by_its_field(
    tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    file = tmp_path / "box.json"
    save_memory(memory(), file)
    data = json.loads(file.read_text())
    data["memory"] |= change
    file.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match=sentence):
        read_memory(file)


def test_transformers_takes_what_was_measured() -> None:
    plain = find_accelerator(GPU)
    asked = {"engine": "transformers", "context": 4096, "concurrency": 1, "prompt_tokens": 4000}
    before = fit(MODEL, plain, **asked).plan.stages[0]  # type: ignore[arg-type]
    after = fit(MODEL, replace(plain, measured=memory()), **asked).plan.stages[0]  # type: ignore[arg-type]
    assert after.context_bytes == 430 * MIB
    assert after.non_torch.num_bytes == 90 * MIB
    counted = before.activation.num_bytes - 32 * MIB + 33 * MIB
    assert after.activation.num_bytes == pytest.approx(counted * 1.06, abs=2)
    wide = before.activation.high_bytes - before.activation.low_bytes
    narrow = after.activation.high_bytes - after.activation.low_bytes
    assert narrow < wide / 5
    assert "measured on the machine" in after.activation.source
    lines = {
        line.key: line for line in fit(MODEL, replace(plain, measured=memory())).plan.explain()
    }
    assert "profile box of 2026-08-12" in lines["context"].source


def test_only_passes_of_the_same_layers_are_taken() -> None:
    machine = replace(find_accelerator(GPU), measured=memory())
    for asked in (
        {"model": "qwen3-8b"},
        {"attn_implementation": "eager"},
        {"dtype": "float16"},
        {"weights": "int8"},
    ):
        given = {"model": MODEL, "engine": "transformers", "context": 4096} | asked
        model = given.pop("model")
        found = fit(model, machine, **given).plan.stages[0].activation  # type: ignore[arg-type]
        assert "measured on" not in found.source, asked
        terms = dict(found.terms)
        assert "measured_beyond_counted" not in terms, asked


def test_other_engines_take_the_context_and_nccl() -> None:
    plain = find_accelerator(GPU)
    machine = replace(plain, measured=memory())
    one = fit(MODEL, machine, context=4096)
    assert one.plan.stages[0].context_bytes == 430 * MIB
    assert (
        one.plan.stages[0].activation == fit(MODEL, plain, context=4096).plan.stages[0].activation
    )
    keys = [notice.key for notice in one.notices]
    assert "measured_context" in keys
    assert "measured_memory" not in keys
    two, four = (fit(MODEL, machine, tp=ranks, context=4096) for ranks in (2, 4))
    pair = two.plan.stages[0].context_bytes - 430 * MIB
    assert pair == (700 + 102) * MIB  # vLLM's group of ranks that share layers is estimated still
    assert four.plan.stages[0].context_bytes - 430 * MIB == (942 + 102) * MIB


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fit_says_that_a_profile_was_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    file = tmp_path / "box.json"
    save_memory(memory(), file)
    words = ["fit", MODEL, "--gpu", "h100", "--context", "4k", "--lang", language]
    assert main([*words, "--profile-file", str(file)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert {"en": "note: Measured", "zh": "说明："}[language] in out
    assert {"en": "by profile box", "zh": "由配置文件 box"}[language] in out
    assert "0.42 GiB" in out
    assert main([*words, "--engine", "transformers", "--profile-file", str(file)]) == 0
    assert "cuBLAS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--gpu", "l4"], "was measured on h100-sxm-80gb and says nothing about l4"),
        (["--gpu", "h100", "--profile", "box"], "give one of the two"),
    ],
)
def test_a_profile_that_does_not_suit_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    file = tmp_path / "box.json"
    save_memory(memory(), file)
    assert main(["fit", MODEL, *words, "--profile-file", str(file)]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_a_name_that_nobody_measured_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["fit", MODEL, "--gpu", "h100", "--profile", "box"]) == 2
    assert "tokenroom measure --hardware --name box makes it" in capsys.readouterr().err


def test_calibrations_list_leaves_memory_alone_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "tokenroom" / "profiles"
    save_memory(memory(profile="memory"), folder / "memory.json")
    save_profile(speed_profile(), folder / "box.json")
    assert main(["calibrate", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["profiles"]
    assert [profile["name"] for profile in listed] == ["box"]
