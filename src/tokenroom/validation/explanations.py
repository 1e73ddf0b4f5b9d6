"""What is known about published rows: why one is far off, and which repeat one configuration.

``data/explanations.json`` holds under ``explained``, by the id of a row, the cause in the engine by
quantity (``"*"`` for all of them), and under ``repeats`` the sets of rows that are one
configuration measured again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tokenroom.validation.rows import Row

OUTCOME = "outcome"
"""The quantity under which a cause explains whether the engine started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """Causes and repetitions.

    Attributes:
        explained: Row id to quantity to cause.
        repeats: Row id to the name of its set.
    """

    explained: Mapping[str, Mapping[str, str]]
    repeats: Mapping[str, str]

    def cause(self, row_id: str, quantity: str) -> str | None:
        """Why a row's figure is off, None when no cause is recorded."""
        causes = self.explained.get(row_id, {})
        return causes.get(quantity, causes.get("*"))


@lru_cache(maxsize=1)
def known_explanations() -> Explanations:
    """The packaged ones."""
    data = json.loads(_packaged("explanations.json"))
    return Explanations(
        explained=data["explained"],
        repeats={row_id: members[0] for members in data["repeats"] for row_id in members},
    )


@lru_cache(maxsize=1)
def known_configurations() -> Mapping[str, Mapping[str, object]]:
    """Fields of a model's configuration that read otherwise when a row was posted, by row id.

    Llama 3.1 405B came out in July 2024 with 16 key and value heads, each of its 8 twice, for the
    sake of 16 ranks; later revisions of its config.json have 8
    (``data/thread_configurations.json``).
    """
    found: Mapping[str, Mapping[str, object]] = json.loads(_packaged("thread_configurations.json"))
    return found


@lru_cache(maxsize=1)
def known_facts() -> Mapping[str, Mapping[str, Any]]:
    """What a thread or its repository says beyond the row that was made of it, by row id.

    Each (``data/thread_facts.json``) has the ``url`` of the thread, the ``source`` within or behind
    it, and fields of rows: ``flags`` that the row leaves open, an ``engine_version``, an
    ``outcome``, ``reported`` figures as they were written.
    """
    found: Mapping[str, Mapping[str, Any]] = json.loads(_packaged("thread_facts.json"))
    return found


def completed(row: Row) -> Row:
    """The row with what is known beyond it; a row of another thread that has its id stays."""
    facts = known_facts().get(row.id)
    if facts is None or row.url != facts["url"]:
        return row
    return replace(
        row,
        flags={**facts.get("flags", {}), **row.flags},
        engine_version=row.engine_version or facts.get("engine_version"),
        outcome=facts.get("outcome", row.outcome),
        reported={**row.reported, **facts.get("reported", {})},
    )


@lru_cache(maxsize=1)
def known_versions() -> Mapping[str, str]:
    """Versions of published rows that state none, by id: the release newest when they were posted.

    Dated by the thread they stand in (``data/thread_versions.json``).
    """
    found: Mapping[str, str] = json.loads(_packaged("thread_versions.json"))
    return found


def _packaged(name: str) -> str:
    return files("tokenroom.validation").joinpath(f"data/{name}").read_text("utf-8")
