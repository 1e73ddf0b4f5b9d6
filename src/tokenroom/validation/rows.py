"""A row of measurements: what somebody ran, and what the engine printed.

The form is documented in docs/validation.md. A row of the memory form has ``flags`` and
``reported``; one of the speed form states a load, and ``reported`` or a ``metric`` and its
``value``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from tokenroom.errors import RowError, shown
from tokenroom.validation.measured_load import MeasuredLoad, read_load
from tokenroom.validation.oddities import oddities

GRADES: Final = ("A", "B", "C", "D")
#: Grades that count; C is tried and shown apart, D states no figure.
COUNTED_GRADES: Final = ("A", "B")
UNNAMED: Final = "unknown"
"""Engine of a row that names none, which is read but not predicted."""

_UTILISATION: Final = frozenset(
    {
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "kv_cache_memory",
        "mem_fraction_static",
        "free_gpu_memory_fraction",
        "kv_cache_free_gpu_memory_fraction",
        "kv_cache_free_gpu_mem_fraction",
        "n_ctx",
        "ctx_size",
        "num_ctx",
    }
)
_LONGEST: Final = 2000
"""Characters of a name that still can be one."""

_LONGEST_COMMAND: Final = 100_000
_MOST_ODD: Final = 20
"""Sentences on one row; the first of them tell what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of an engine.

    Attributes:
        id: Its name, unique among the rows.
        engine: ``"vllm"``, ``"sglang"``, ...
        engine_version: As it was stated, None when it was not.
        model: Name, Hub id or path, None when it is not known.
        gpu: Name of the accelerator, None when it is not known.
        gpus: How many, 0 for none (CPU only), None when it is not known.
        flags: The engine's arguments under its own names.
        command: The command that started it; None when flags say it. Flags beside a command say
            what it leaves open.
        reported: What the engine printed, by quantity; the unit ends the name (``kv_gib``).
        outcome: ``"ok"``, ``"fails"`` (for memory), ``"fails_other"``, ...
        error: How a start that failed ended, in the log's words; None when it is not known.
        grade: How complete it is: A, B, C or D (docs/validation.md).
        inferred: Fields that were concluded and not read.
        score: False for figures that are no truth (an engine's own estimate, a known defect).
        duplicate_of: Id of the row whose configuration this one repeats, None for none.
        architecture_class: What the row itself calls its kind of model, None when it does not say.
        load: What clients sent while a speed was measured; None of the memory form.
        url: Where it was read.
        note: Anything else worth knowing.
        place: File and line, for messages.
        odd: What it holds that nothing is done with, a sentence each.
        differs: What a log says otherwise than its command or options: what it is of,
            the log's word, theirs.
    """

    id: str
    engine: str
    engine_version: str | None = None
    model: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None
    reported: Mapping[str, Any] = field(default_factory=dict)
    outcome: str | None = None
    error: str | None = None
    grade: str = "C"
    inferred: tuple[str, ...] = ()
    score: bool = True
    duplicate_of: str | None = None
    architecture_class: str | None = None
    load: MeasuredLoad | None = None
    url: str | None = None
    note: str = ""
    place: str = ""
    odd: tuple[str, ...] = ()
    differs: tuple[tuple[str, str, str], ...] = ()


def read_row(data: object, place: str) -> Row:
    """A row from plain JSON values.

    Args:
        data: The object.
        place: Where it stands, ``"rows.jsonl line 3"``.

    Raises:
        RowError: A field is missing or holds something else than it may.
    """
    if not isinstance(data, Mapping):
        raise RowError(f"{place} holds {shown(data)}; a row is an object of fields")
    identity = _text(data, "id", place)
    engine = _text(data, "engine", place)
    if identity is None:
        raise RowError(f"{place} has no id; every row needs one")
    reported = _reported(data, place)
    flags = _mapping(data, "flags", place)
    model, gpu = _text(data, "model", place), _text(data, "gpu", place)
    gpus = _count(data, "gpus", place)
    grade = _text(data, "grade", place)
    if grade is None:
        complete = model is not None and gpu is not None and gpus is not None
        grade = grade_of(reported, flags, complete=complete)
    elif grade not in GRADES:
        raise RowError(f"{place} has grade {shown(grade)}; it may be {', '.join(GRADES)}")
    score = data.get("score")
    if score is not None and not isinstance(score, bool):
        raise RowError(f"{place} has score {shown(score)}; it may be true or false")
    return Row(
        id=identity,
        engine=(engine or UNNAMED).lower(),
        engine_version=_text(data, "engine_version", place),
        model=model,
        gpu=gpu,
        gpus=gpus,
        flags=flags,
        command=_text(data, "command", place, longest=_LONGEST_COMMAND),
        reported=reported,
        outcome=_text(data, "outcome", place),
        error=_text(data, "error", place),
        grade=grade,
        inferred=_texts(data, "inferred", place),
        score=score is not False,
        duplicate_of=_text(data, "duplicate_of", place),
        architecture_class=_text(data, "arch_class", place),
        load=read_load(data, place),
        url=_text(data, "url", place),
        note=_text(data, "note", place) or "",
        place=place,
        odd=tuple(islice(oddities(data, (engine or UNNAMED).lower()), _MOST_ODD)),
    )


def row_data(row: Row) -> dict[str, Any]:
    """The row as plain JSON values, as :func:`read_row` takes them."""
    data: dict[str, Any] = {
        "id": row.id,
        "url": row.url,
        "engine": row.engine,
        "engine_version": row.engine_version,
        "model": row.model,
        "gpu": row.gpu,
        "gpus": row.gpus,
        "flags": dict(row.flags),
        "reported": dict(row.reported),
        "outcome": row.outcome,
        "grade": row.grade,
        "note": row.note,
    }
    if row.command is not None:
        data["command"] = row.command
    if row.error is not None:
        data["error"] = row.error
    if row.inferred:
        data["inferred"] = list(row.inferred)
    return data


def grade_of(reported: Mapping[str, Any], flags: Mapping[str, Any], *, complete: bool) -> str:
    """The grade of a row that states none, by the definition in docs/validation.md.

    Args:
        reported: Its figures.
        flags: Its flags.
        complete: Model, GPU and their number are known.
    """
    if not reported:
        return "D"
    if not complete:
        return "C"
    return "A" if not _UTILISATION.isdisjoint(flags) else "B"


def _reported(data: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    if "reported" in data or "metric" not in data:
        return _mapping(data, "reported", place)
    metric, value = _text(data, "metric", place), data.get("value")
    if metric is None:
        return {}
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RowError(f"{place} has value {shown(value)}; the value of a metric is a number")
    return {metric: value}


def _text(data: Mapping[str, Any], name: str, place: str, *, longest: int = _LONGEST) -> str | None:
    value = data.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise RowError(f"{place} has {name} {shown(value)}; it is a text")
    if len(value) > longest and name != "note":
        raise RowError(f"{place} has a {name} of {len(value)} characters; at most {longest}")
    return value.strip() or None


def _texts(data: Mapping[str, Any], name: str, place: str) -> tuple[str, ...]:
    value = data.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RowError(f"{place} has {name} {shown(value)}; it is a list of texts")
    return tuple(value)


def _mapping(data: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RowError(f"{place} has {name} {shown(value)}; it is an object of names and values")
    return dict(value)


def _count(data: Mapping[str, Any], name: str, place: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100_000:
        raise RowError(f"{place} has {name} {shown(value)}; it is a whole number")
    return value
