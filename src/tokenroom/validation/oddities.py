"""Values of a row that mean nothing here: each is passed over, and said so in one sentence."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tokenroom.errors import shown
from tokenroom.validation.figures import figure
from tokenroom.validation.quantities import is_known

FIELDS: Final = frozenset(
    {
        *("id", "engine", "engine_version", "model", "gpu", "gpus", "flags", "command"),
        *("reported", "outcome", "error", "grade", "inferred", "score", "duplicate_of"),
        *("url", "note", "arch_class", "metric", "value"),
    }
)
"""Fields of rows (docs/validation.md)."""

OUTCOMES: Final = ("ok", "fails", "fails_other", "fails at run time", "unknown")
_RESEMBLANCE: Final = 0.8
"""Share of common letters from which a field is taken for a misspelt one."""


def oddities(data: Mapping[str, Any], engine: str) -> Iterator[str]:
    """A sentence for every value of a row's JSON that nothing is done with.

    Fields of other names are the writer's own and no oddity, unless they are one letter off.
    """
    for name in data:
        if name not in FIELDS:
            close = difflib.get_close_matches(str(name), FIELDS - data.keys(), 1, _RESEMBLANCE)
            if close:
                yield f"field {shown(name)} is not known and is passed over; {close[0]} is"
    version = data.get("engine_version")
    if isinstance(version, str) and version.strip() and not re.search(r"\d", version):
        yield (
            f"engine_version is {shown(version)}, which names no release; write one such as "
            f"0.19.0, or null"
        )
    outcome = data.get("outcome")
    if isinstance(outcome, str) and outcome.strip() and outcome.strip() not in OUTCOMES:
        yield (
            f"outcome is {shown(outcome)}, so that it is not checked; it may be "
            f"{', '.join(OUTCOMES)}"
        )
    reported = data.get("reported")
    if isinstance(reported, Mapping):
        yield from _odd_figures(reported, engine)
    flags = data.get("flags")
    if isinstance(flags, Mapping):
        for name, value in flags.items():
            if isinstance(value, float) and not math.isfinite(value):
                yield f"flags.{name} is {shown(value)}, which is no number; correct it"


def _odd_figures(reported: Mapping[str, Any], engine: str) -> Iterator[str]:
    """Figures that are compared where they are numbers, and are none."""
    for name, value in reported.items():
        by_device = value.items() if isinstance(value, Mapping) else ((None, value),)
        for device, inner in by_device:
            whole = str(name) if device is None else f"{str(device).lower()}_{name}"
            place = f"reported.{name}" if device is None else f"reported.{name}.{device}"
            endless = isinstance(inner, float) and not math.isfinite(inner)
            if inner is None or figure(inner) is not None:
                continue
            if endless or (is_known(engine, whole) and not isinstance(inner, list)):
                yield f"{place} is {shown(inner)}, so that it is not compared; give a number"
