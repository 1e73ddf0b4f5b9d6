"""Workloads of common uses, each with where its figures come from (``data/presets.json``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A workload that has a name.

    Attributes:
        name: Its name.
        workload: Its description, see :mod:`tokenroom.serving.workloads.grammar`.
        sources: Where its figures come from, and what is assumed.
        sources_chinese: The same in Chinese.
    """

    name: str
    workload: str
    sources: tuple[str, ...]
    sources_chinese: tuple[str, ...]


@cache
def load_presets() -> Mapping[str, Preset]:
    """All presets by name."""
    text = files("tokenroom.serving.workloads").joinpath("data/presets.json").read_text("utf-8")
    return {
        name: Preset(
            name=name,
            workload=entry["workload"],
            sources=tuple(entry["sources"]),
            sources_chinese=tuple(entry["sources_chinese"]),
        )
        for name, entry in json.loads(text).items()
    }
