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
from tokenroom.hardware.measured_memory import MeasuredMemory, MeasuredPass, MeasuredPasses
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
    data = _opened(path)
    if "memory" in data.data and "served" not in data.data:
        raise ProfileError(
            f"{data.what} tells of memory alone; tokenroom calibrate adds speed to it"
        )
    return _profile(data)


def _opened(path: str | os.PathLike[str]) -> _Reader:
    what = f"profile {Path(path)}"
    text = read_bounded_text(path, _MAX_BYTES, what=what, error=ProfileError)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ProfileError(f"{what} is no JSON; calibrate again") from problem
    reader = _Reader(data, what)
    form = reader.value("form", int)
    if form != FORM:
        raise ProfileError(
            f"{what} is of form {form}; this version reads form {FORM}: calibrate again"
        )
    return reader


def has_speed(path: str | os.PathLike[str]) -> bool:
    """Whether a profile's file tells of speed, and not of memory alone.

    Raises:
        ProfileError: Its file is damaged.
    """
    data = _opened(path).data
    return "served" in data or "memory" not in data


def load_memory(name: str, environment: Mapping[str, str]) -> MeasuredMemory:
    """What the profile of this name tells of memory.

    Raises:
        ProfileError: There is none, its file is damaged, or it tells of speed alone.
    """
    file = profile_path(name, environment)
    if not file.exists():
        known = ", ".join(saved_names(environment)) or "there is none yet"
        raise ProfileError(
            f"there is no profile {name!r} ({known}); tokenroom measure --hardware --name {name} "
            f"makes it"
        )
    return read_memory(file)


def read_memory(path: str | os.PathLike[str]) -> MeasuredMemory:
    """What a profile's file tells of memory.

    Raises:
        ProfileError: It cannot be read, is damaged, or tells of speed alone.
    """
    data = _opened(path)
    if "memory" not in data.data:
        raise ProfileError(
            f"{data.what} tells of speed alone; tokenroom measure --hardware adds memory to it"
        )
    return _memory(data)


def save_memory(memory: MeasuredMemory, path: Path) -> None:
    """Write what was measured of memory; what the file tells of speed on the same GPU stays.

    Raises:
        ProfileError: The file is damaged, of another GPU, or cannot be written.
    """
    data: dict[str, Any] = {"form": FORM, "name": memory.profile, "created": memory.created}
    if path.exists():
        before = _opened(path)
        if (gpu := _gpu_of(before)) != memory.gpu:
            raise ProfileError(
                f"{before.what} is of {gpu} and {memory.gpu} was measured; give another --name"
            )
        data = dict(before.data)
    _write(data | {"memory": memory_data(memory)}, path)


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
    """Write a profile as a whole or not at all; what its file tells of memory stays.

    Raises:
        ProfileError: The file cannot be written.
    """
    data = profile_data(profile)
    if path.exists():
        with suppress(ProfileError):  # a damaged one is replaced
            before = _opened(path)
            if "memory" in before.data and _gpu_of(before) == profile.served.gpu:
                data["memory"] = before.data["memory"]
    _write(data, path)


def _gpu_of(data: _Reader) -> str:
    """The GPU that a file is of."""
    part = data.inside("served" if "served" in data.data else "memory")
    gpu: str = part.value("gpu", str)
    return gpu


def _write(data: Mapping[str, Any], path: Path) -> None:
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
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


def memory_data(memory: MeasuredMemory) -> dict[str, Any]:
    """What was measured of memory as plain JSON values, in the form of its file."""
    return {
        "created": memory.created,
        "gpu": memory.gpu,
        "told_by": memory.told_by,
        "context_bytes": memory.context_bytes,
        "kernels_bytes": memory.kernels_bytes,
        "workspace_bytes": memory.workspace_bytes,
        "communicators": [
            {"ranks": ranks, "num_bytes": size} for ranks, size in memory.communicators.items()
        ],
        "passes": [
            {
                "model": done.model,
                "shape": done.shape,
                "dtype": done.dtype,
                "attention": done.attention,
                "passes": [one._asdict() for one in done.passes],
            }
            for done in memory.passes
        ],
        "versions": dict(memory.versions),
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

    def size(self, name: str) -> int:
        """Bytes, or a count, of 0 or more."""
        found: int = self.value(name, int)
        if found < 0:
            raise ProfileError(f"{self.what}: {name} holds {found}, below 0; measure again")
        return found

    def inside(self, name: str) -> _Reader:
        """An object inside."""
        return _Reader(self.data.get(name), f"{self.what}: {name}")

    def items(self, name: str) -> Iterator[_Reader]:
        """Objects of a list."""
        listed: Sequence[Any] = self.value(name, list)
        for number, item in enumerate(listed):
            yield _Reader(item, f"{self.what}: {name}[{number}]")


def _memory(data: _Reader) -> MeasuredMemory:
    part = data.inside("memory")
    versions = part.inside("versions")
    return MeasuredMemory(
        profile=data.value("name", str),
        created=part.value("created", str),
        gpu=part.value("gpu", str),
        told_by=part.value("told_by", str),
        context_bytes=part.size("context_bytes"),
        kernels_bytes=part.size("kernels_bytes"),
        workspace_bytes=part.size("workspace_bytes"),
        communicators={
            item.size("ranks"): item.size("num_bytes") for item in part.items("communicators")
        },
        passes=tuple(_passes(item) for item in part.items("passes")),
        versions={name: versions.value(name, str) for name in versions.data},
    )


def _passes(item: _Reader) -> MeasuredPasses:
    found = [
        MeasuredPass(
            int(one.positive("tokens")),
            int(one.positive("predicted_bytes")),
            one.size("transient_bytes"),
            one.size("gap_bytes"),
        )
        for one in item.items("passes")
    ]
    if not found or [one.tokens for one in found] != sorted({one.tokens for one in found}):
        raise ProfileError(f"{item.what}: passes are none, or not by tokens; measure again")
    return MeasuredPasses(
        model=item.value("model", str),
        shape=item.value("shape", str),
        dtype=item.value("dtype", str),
        attention=item.value("attention", str),
        passes=tuple(found),
    )


def _profile(data: _Reader) -> Profile:
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
