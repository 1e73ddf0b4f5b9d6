"""Rows of a JSON Lines trace: Mooncake's, Bailian's, a log of an OpenAI-style API, or any other.

Mooncake (github.com/kvcache-ai/Mooncake, ``FAST25-release/traces``): ``timestamp`` in milliseconds,
``input_length``, ``output_length``, ``hash_ids`` of blocks of 512 tokens, the last partly filled.
Bailian (github.com/alibaba-edu/qwen-bailian-usagetraces-anon): the same with ``timestamp`` in
seconds, blocks of 16 tokens and ``chat_id``. A log of an OpenAI-style API has an object a line with
``created`` (seconds) and ``usage`` (``prompt_tokens`` and ``completion_tokens``, or
``input_tokens`` and ``output_tokens``), itself or inside ``response`` and its ``body``; messages
without ``usage`` do not tell how many tokens they were.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.columns import Columns, find_columns
from tokenroom.serving.workloads.records import Records, Times
from tokenroom.serving.workloads.rows import Row
from tokenroom.serving.workloads.values import (
    NotANumberError,
    NotATimeError,
    json_problem,
    session_number,
    whole_number,
)

BLOCK_TOKENS: Final = {"mooncake": 512, "bailian": 16}
"""Tokens in a block that ``hash_ids`` name, by format."""

_LENGTHS: Final = frozenset({"timestamp", "input_length", "output_length"})
_MOONCAKE: Final = Columns(
    names={"arrival": "timestamp", "input": "input_length", "output": "output_length"},
    units_per_second=1e3,
)
_USAGE: Final = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
_CREATED: Final = ("created", "created_at", "timestamp", "request_time", "time")
_SESSIONS: Final = ("session_id", "conversation_id", "user")
_MAX_LINE_CHARACTERS: Final = 2**26


def json_format(record: Mapping[str, Any]) -> str:
    """The format that an object's keys tell."""
    if set(record) >= _LENGTHS:
        return "bailian" if "chat_id" in record else "mooncake"
    if _usage(record) is not None or "messages" in record:
        return "openai"
    return "jsonl"


def json_rows(
    text: io.TextIOWrapper,
    bad: BadRows,
    kind: str,
    asked: Columns | None,
    *,
    arrivals: bool = True,
) -> Iterator[Row]:
    """The rows of a file with an object a line.

    Args:
        text: The file's content.
        bad: Where lines go that cannot be read.
        kind: ``mooncake``, ``bailian``, ``openai`` or ``jsonl``.
        asked: Names of keys, where they are told.
        arrivals: Whether arrival times are needed; without them every row arrives at 0.

    Raises:
        WorkloadError: A key is missing in the first object; or a line cannot be read and is not
            left out.
    """
    line = 0
    records: Records | _Log | None = None
    with bad.until_damage(lambda: line):
        while True:
            written = text.readline(_MAX_LINE_CHARACTERS)
            if not written:
                return
            line += 1
            if written.isspace():
                continue
            try:
                record = json.loads(written)
            except (ValueError, RecursionError) as problem:
                bad.refuse(line, "text", f"it is no JSON ({json_problem(problem)})")
                continue
            if not isinstance(record, dict):
                bad.refuse(line, "text", f"it is {shown(record)}, not an object")
                continue
            if records is None:
                records = (
                    _Log(asked, arrivals=arrivals)
                    if kind == "openai"
                    else _records(record, kind, asked, bad.name, arrivals=arrivals)
                )
            found = records.read(record, line, bad)
            if found is not None:
                yield found


def _records(
    record: Mapping[str, Any], kind: str, asked: Columns | None, name: str, *, arrivals: bool
) -> Records:
    """Where the objects of a file hold what, by its first one."""
    told = _MOONCAKE if kind == "mooncake" and asked is None else asked
    columns = find_columns(record, told, name=name, arrivals=arrivals)
    if kind == "bailian":
        columns = replace(columns, names={**columns.names, "session": "chat_id"})
    return Records(columns, arrivals=arrivals)


class _Log:
    """A log of an OpenAI-style API: where its lines hold what."""

    __slots__ = ("_created", "_session", "_times")

    def __init__(self, asked: Columns | None, *, arrivals: bool) -> None:
        named = asked.names if asked is not None else {}
        self._created = (named["arrival"],) if "arrival" in named else _CREATED
        self._session = (named["session"],) if "session" in named else _SESSIONS
        unit = asked.units_per_second if asked is not None else None
        self._times = Times(self._created[0], unit) if arrivals else None

    def read(self, record: Mapping[str, Any], line: int, bad: BadRows) -> Row | None:
        """One line as a row; None when it is left out."""
        found = _usage(record)
        if found is None:
            sentence = "it has no usage, so nothing tells how many tokens its messages were"
            bad.refuse(line, "missing", sentence)
            return None
        usage, (prompt, output) = found
        try:
            arrival = (
                0.0 if self._times is None else self._times.seconds(_first(record, self._created))
            )
            return (
                *(line, arrival, whole_number(usage.get(prompt), prompt)),
                *(whole_number(usage.get(output), output),),
                *(session_number(_first(record, self._session)), 0, None),
            )
        except NotATimeError as problem:
            bad.refuse(line, "time", str(problem))
        except NotANumberError as problem:
            bad.refuse(line, "number", str(problem))
        return None


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of the names that has a value, in the object or in what it wraps."""
    return next(
        (
            layer[name]
            for name in names
            for layer in _layers(record)
            if isinstance(layer.get(name), str | int | float)
        ),
        None,
    )


def _layers(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """An object, and what it wraps a request or an answer in."""
    yield record
    for name in ("response", "request", "body"):
        inner = record.get(name)
        if isinstance(inner, dict):
            yield from _layers(inner)


def _usage(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, str]] | None:
    for layer in _layers(record):
        usage = layer.get("usage")
        if isinstance(usage, dict):
            for names in _USAGE:
                if names[0] in usage:
                    return usage, names
    return None


def check_keys(name: str, kind: str, record: Mapping[str, Any]) -> None:
    """Refuse a file that is said to be of a format whose keys it lacks.

    Raises:
        WorkloadError: Keys are missing.
    """
    missing = _LENGTHS - set(record) if kind in BLOCK_TOKENS else frozenset()
    if missing:
        raise WorkloadError(
            f"{name} is said to be of format {kind}, but its first object has no "
            f"{', '.join(sorted(missing))}; leave --format out"
        )
