"""Values of a row that mean nothing here: each is passed over, and said so in one sentence."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from tokenroom.errors import shown
from tokenroom.validation.figures import figure
from tokenroom.validation.measured_load import LOAD_FIELDS
from tokenroom.validation.quantities import is_known

FIELDS: Final = frozenset(
    {
        *("id", "engine", "engine_version", "model", "gpu", "gpus", "flags", "command"),
        *("reported", "outcome", "error", "grade", "inferred", "score", "duplicate_of"),
        *("url", "note", "arch_class", "metric", "value"),
        *LOAD_FIELDS,
    }
)
"""Fields of rows (docs/validation.md)."""

OUTCOMES: Final = ("ok", "fails", "fails_other", "fails at run time", "unknown")
_RESEMBLANCE: Final = 0.8
"""Share of common letters from which a field is taken for a misspelt one."""
_LONGEST_NAME: Final = 20
_MOST_NAMES: Final = 100
"""Of so many fields, of names no longer than the other, misspellings are looked for."""


def oddities(data: Mapping[str, Any], engine: str) -> Iterator[str]:
    """A sentence for every value of a row's JSON that nothing is done with.

    Fields of other names are the writer's own and no oddity, unless they are one letter off.
    """
    absent = FIELDS - data.keys()
    others = (name for name in data if name not in FIELDS and len(name) <= _LONGEST_NAME)
    for name in islice(others, _MOST_NAMES):
        if close := difflib.get_close_matches(name, absent, 1, _RESEMBLANCE):
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
                yield f"flags.{_short(name)} is {shown(value)}, which is no number; correct it"


def _odd_figures(reported: Mapping[str, Any], engine: str) -> Iterator[str]:
    """Figures that are compared where they are numbers, and are none."""
    for name, value in reported.items():
        by_device = value.items() if isinstance(value, Mapping) else ((None, value),)
        for device, inner in by_device:
            whole = str(name) if device is None else f"{str(device).lower()}_{name}"
            place = f"reported.{_short(name)}"
            if device is not None:
                place += f".{_short(device)}"
            endless = isinstance(inner, float) and not math.isfinite(inner)
            if inner is None or figure(inner) is not None:
                continue
            if endless or (is_known(engine, whole) and not isinstance(inner, list)):
                yield f"{place} is {shown(inner)}, so that it is not compared; give a number"


def _short(name: object) -> str:
    """A field's name, cut when it is long."""
    return shown(str(name))[1:-1]
