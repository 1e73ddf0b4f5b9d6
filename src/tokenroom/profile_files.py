"""Where calibration profiles are kept: one JSON file each, in the user's configuration folder.

``XDG_CONFIG_HOME`` by the XDG Base Directory Specification 0.8, ``%APPDATA%`` on Windows,
``~/Library/Application Support`` on macOS; or any file that is named.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import ProfileError, shown
from tokenroom.files import read_bounded_text
from tokenroom.performance.factors import Factors
from tokenroom.profiles import PointRecord, Profile, Served, Source

FORM: Final = 1
"""Version of the file's form; a change that older readers misread raises it."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_BYTES: Final = 16 * 2**20


def profile_folder(environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Where profiles are kept.

    Raises:
        ProfileError: There is no home folder to keep them in.
    """
    if platform == "win32" and environment.get("APPDATA"):
        return Path(environment["APPDATA"], "tokenroom", "profiles")
    told = environment.get("XDG_CONFIG_HOME", "")
    if told and os.path.isabs(told):  # relative ones are to be ignored
        return Path(told, "tokenroom", "profiles")
    try:
        home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    except RuntimeError as problem:
        raise ProfileError(
            "there is no home folder to keep profiles in; set XDG_CONFIG_HOME or name the file "
            "with --profile-file"
        ) from problem
    config = "Library/Application Support" if platform == "darwin" else ".config"
    return home / config / "tokenroom" / "profiles"


def profile_path(name: str, environment: Mapping[str, str]) -> Path:
    """The file of the profile of this name.

    Raises:
        ProfileError: The name cannot be a file's.
    """
    if not _NAME.fullmatch(name):
        raise ProfileError(
            f"the profile's name is {shown(name)}; use up to 64 letters, digits, '.', '_' and '-', "
            f"with a letter or digit first"
        )
    return profile_folder(environment) / f"{name}.json"


def saved_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the profiles that are kept, in order."""
    try:
        return tuple(sorted(file.stem for file in profile_folder(environment).glob("*.json")))
    except OSError:
        return ()


def load_profile(name: str, environment: Mapping[str, str]) -> Profile:
    """The profile of this name.

    Raises:
        ProfileError: There is none, or its file is damaged.
    """
    file = profile_path(name, environment)
    if not file.exists():
        known = ", ".join(saved_names(environment)) or "there is none yet"
        raise ProfileError(
            f"there is no profile {name!r} ({known}); tokenroom calibrate --name {name} makes it"
        )
    return read_profile(file)


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """The profile in a file.

    Raises:
        ProfileError: It cannot be read or is damaged; the message says which field.
    """
    what = f"profile {Path(path)}"
    text = read_bounded_text(path, _MAX_BYTES, what=what, error=ProfileError)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ProfileError(f"{what} is no JSON; calibrate again") from problem
    return _profile(_Reader(data, what))


def remove_profile(name: str, environment: Mapping[str, str]) -> Path:
    """Delete a profile and say where it was.

    Raises:
        ProfileError: There is none, or it cannot be deleted.
    """
    file = profile_path(name, environment)
    try:
        file.unlink()
    except FileNotFoundError as problem:
        known = ", ".join(saved_names(environment)) or "there is none"
        raise ProfileError(f"there is no profile {name!r} to remove ({known})") from problem
    except OSError as problem:
        raise ProfileError(f"{file} cannot be removed: {problem.strerror}") from problem
    return file


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile as a whole or not at all.

    Raises:
        ProfileError: The file cannot be written.
    """
    text = json.dumps(profile_data(profile), indent=1, ensure_ascii=False) + "\n"
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as problem:
        with suppress(OSError):
            beside.unlink()
        raise ProfileError(f"profile {path} cannot be written: {problem.strerror}") from problem


def profile_data(profile: Profile) -> dict[str, Any]:
    """A profile as plain JSON values, in the form of its file."""
    return {
        "form": FORM,
        "name": profile.name,
        "created": profile.created,
        "served": profile.served._asdict(),
        "factors": profile.factors._asdict(),
        "spreads": profile.spreads._asdict(),
        "identified": list(profile.identified),
        "remaining": dict(profile.remaining),
        "sources": [source._asdict() for source in profile.sources],
        "points": [asdict(point) for point in profile.points],
    }


class _Reader:
    """One object of a profile's file, with errors that name the field."""

    __slots__ = ("data", "what")

    def __init__(self, data: Any, what: str) -> None:
        if not isinstance(data, Mapping):
            raise ProfileError(f"{what} is {shown(data)}, not an object; calibrate again")
        self.data = data
        self.what = what

    def value(self, name: str, *kinds: type) -> Any:
        """A field of one of these types."""
        found = self.data.get(name)
        wrong = isinstance(found, bool) or not isinstance(found, kinds)
        if wrong or (isinstance(found, float) and not math.isfinite(found)):
            held = f"holds {shown(found)}" if name in self.data else "is missing"
            raise ProfileError(f"{self.what}: {name} {held}; calibrate again")
        return found

    def positive(self, name: str) -> float:
        """A number above 0."""
        found = float(self.value(name, int, float))
        if found <= 0:
            raise ProfileError(f"{self.what}: {name} holds {found}, not above 0; calibrate again")
        return found

    def inside(self, name: str) -> _Reader:
        """An object inside."""
        return _Reader(self.data.get(name), f"{self.what}: {name}")

    def items(self, name: str) -> Iterator[_Reader]:
        """Objects of a list."""
        listed: Sequence[Any] = self.value(name, list)
        for number, item in enumerate(listed):
            yield _Reader(item, f"{self.what}: {name}[{number}]")


def _profile(data: _Reader) -> Profile:
    form = data.value("form", int)
    if form != FORM:
        raise ProfileError(
            f"{data.what} is of form {form}; this version reads form {FORM}: calibrate again"
        )
    served, factors, spreads = (data.inside(name) for name in ("served", "factors", "spreads"))
    optional = {"quantization", "kv_dtype", "drafting"}
    counts = {name for name in Served._fields if name.endswith(("_size", "gpus"))}
    remaining = data.inside("remaining")
    return Profile(
        name=data.value("name", str),
        created=data.value("created", str),
        served=Served(
            **{
                name: served.value(name, int)
                if name in counts
                else served.value(name, str, *((type(None),) if name in optional else ()))
                for name in Served._fields
            }
        ),
        factors=Factors(*map(factors.positive, Factors._fields)),
        spreads=Factors(*map(spreads.positive, Factors._fields)),
        identified=tuple(
            name for name in Factors._fields if name in data.value("identified", list)
        ),
        remaining={name: remaining.positive(name) for name in ("ttft", "tpot")},
        sources=tuple(
            Source(*(item.value(name, str) for name in Source._fields))
            for item in data.items("sources")
        ),
        points=tuple(
            PointRecord(
                file=item.value("file", str),
                place=item.value("place", str),
                figure=item.value("figure", str),
                concurrency=item.positive("concurrency"),
                input_tokens=float(item.value("input_tokens", int, float)),
                output_tokens=float(item.value("output_tokens", int, float)),
                measured=item.positive("measured"),
                before=item.positive("before"),
                after=item.positive("after"),
                held_out=item.positive("held_out"),
                weight=item.positive("weight"),
            )
            for item in data.items("points")
        ),
    )
