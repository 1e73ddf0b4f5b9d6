"""The answers of ``calibrate`` as JSON objects, whose schema is published beside this module.

The schema (``data/calibration.schema.json``, printed by ``tokenroom calibrate --json-schema``) is
versioned by ``schema_version``: a new key raises the minor number, a changed or dropped one the
major number. Times are seconds, throughput tokens a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from tokenroom.benchmarks.point import Remark
from tokenroom.performance.factors import Factors
from tokenroom.profile_files import profile_data
from tokenroom.profiles import Applied, Profile
from tokenroom.reports.calibration_text import remark_texts
from tokenroom.reports.messages import Language

SCHEMA_VERSION: Final = "1.0"


def calibration_json(
    profile: Profile, remarks: Sequence[tuple[str, Remark]], *, path: Path, language: Language
) -> dict[str, Any]:
    """One profile, where it is kept, and what to know about its points."""
    return {
        "schema_version": SCHEMA_VERSION,
        "file": str(path),
        "profile": profile_data(profile),
        "warnings": remark_texts(remarks, language),
    }


def profiles_json(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Every profile that is kept."""
    return {
        "schema_version": SCHEMA_VERSION,
        "profiles": [profile_data(profile) for profile in profiles],
    }


def removed_json(name: str, path: Path) -> dict[str, Any]:
    """A profile that was removed."""
    return {"schema_version": SCHEMA_VERSION, "removed": name, "file": str(path)}


def applied_json(applied: Applied) -> dict[str, Any]:
    """What a speed takes from a profile."""
    profile = applied.profile
    return {
        "profile": profile.name,
        "created": profile.created,
        "factors": applied.factors._asdict(),
        "identified": [name for name in Factors._fields if name in profile.identified],
        "spread": dict(applied.spread),
        "sources": [source._asdict() for source in profile.sources],
        "differences": [difference._asdict() for difference in applied.differences],
    }


def schema_text() -> str:
    """The JSON schema of all three objects, as text."""
    return files("tokenroom.reports").joinpath("data/calibration.schema.json").read_text("utf-8")
