"""Profiles on disk: written whole, read back the same, refused with the field when damaged."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tokenroom import fit
from tokenroom.benchmarks.read import read_benchmark
from tokenroom.calibrating import calibrate_deployment
from tokenroom.errors import ProfileError
from tokenroom.profile_files import (
    load_profile,
    profile_folder,
    profile_path,
    read_profile,
    remove_profile,
    save_profile,
    saved_names,
)
from tokenroom.profiles import Profile

FIXTURE = Path(__file__).parent / "fixtures/benchmarks/vllm_0.33.json"


@pytest.fixture(scope="module")
def profile() -> Profile:
    result = fit("llama-3.1-8b-instruct", "h100", context=16384)
    now = datetime(2026, 8, 12, 10, tzinfo=UTC)
    return calibrate_deployment(result, [read_benchmark(FIXTURE)], name="box", now=now).profile


def test_a_profile_comes_back_the_same(profile: Profile, tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert saved_names(environment) == ()
    save_profile(profile, profile_path("box", environment))
    assert saved_names(environment) == ("box",)
    assert load_profile("box", environment) == profile
    assert [file.name for file in profile_folder(environment).iterdir()] == ["box.json"]
    assert profile.created == "2026-08-12T10:00:00+00:00"
    assert profile.sources[0].sha256 == read_benchmark(FIXTURE).sha256
    remove_profile("box", environment)
    assert saved_names(environment) == ()


def test_folders_of_each_system() -> None:
    home = {"HOME": "/home/x"}
    assert profile_folder(home, "linux") == Path("/home/x/.config/tokenroom/profiles")
    told = home | {"XDG_CONFIG_HOME": "/c"}
    assert profile_folder(told, "linux") == Path("/c/tokenroom/profiles")
    relative = home | {"XDG_CONFIG_HOME": "c"}
    assert profile_folder(relative, "linux") == profile_folder(home, "linux")
    mac = profile_folder(home, "darwin")
    assert mac == Path("/home/x/Library/Application Support/tokenroom/profiles")
    windows = profile_folder({"APPDATA": "/roaming"}, "win32")
    assert windows == Path("/roaming/tokenroom/profiles")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a b", "a\n"])
def test_names_that_are_no_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="the profile's name is"):
        profile_path(name, {"XDG_CONFIG_HOME": str(tmp_path)})


def test_missing_profiles_are_named_with_those_that_are_there(
    profile: Profile, tmp_path: Path
) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    with pytest.raises(ProfileError, match=r"no profile 'box' \(there is none yet\)"):
        load_profile("box", environment)
    save_profile(profile, profile_path("other", environment))
    with pytest.raises(ProfileError, match=r"no profile 'box' \(other\)"):
        load_profile("box", environment)
    with pytest.raises(ProfileError, match=r"no profile 'box' to remove \(other\)"):
        remove_profile("box", environment)


def test_damaged_files_are_refused_with_the_field(profile: Profile, tmp_path: Path) -> None:
    file = tmp_path / "box.json"
    save_profile(profile, file)
    good = json.loads(file.read_text(encoding="utf-8"))
    for change, words in [
        ({"form": 2}, "is of form 2; this version reads form 1"),
        ({"form": "1"}, "form holds '1'"),
        ({"factors": {**good["factors"], "compute": 0}}, "factors: compute holds 0.0, not above 0"),
        ({"factors": {**good["factors"], "host": "x"}}, "factors: host holds 'x'"),
        ({"served": {**good["served"], "gpus": True}}, "served: gpus holds True"),
        ({"remaining": {"ttft": 0.1}}, "remaining: tpot is missing"),
        ({"points": [5]}, r"points\[0\] is 5"),
        ({"spreads": None}, "spreads is None"),
    ]:
        file.write_text(json.dumps(good | change), encoding="utf-8")
        with pytest.raises(ProfileError, match=words):
            read_profile(file)
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ProfileError, match="is no JSON"):
        read_profile(file)


def test_a_folder_that_cannot_be_written_is_said(profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ProfileError, match="cannot be written"):
        save_profile(profile, tmp_path / "file" / "box.json")
