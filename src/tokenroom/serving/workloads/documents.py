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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.columns import Columns, find_columns
from tokenroom.serving.workloads.rows import Row
from tokenroom.serving.workloads.values import (
    NotANumberError,
    NotATimeError,
    session_number,
    time_reader,
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
    fields: _Keys | None = None
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
                reason = getattr(problem, "msg", "nested too deeply")
                bad.refuse(line, "text", f"it is no JSON ({reason})")
                continue
            if not isinstance(record, dict):
                bad.refuse(line, "text", f"it is {shown(record)}, not an object")
                continue
            if fields is None:
                fields = _Keys(record, kind, asked, bad.name, arrivals=arrivals)
            found = fields.read(record, line, bad)
            if found is not None:
                yield found


class _Keys:
    """Where an object holds what."""

    __slots__ = ("arrivals", "columns", "kind", "time", "unit")

    def __init__(
        self,
        record: Mapping[str, Any],
        kind: str,
        asked: Columns | None,
        name: str,
        *,
        arrivals: bool,
    ) -> None:
        self.kind = kind
        self.arrivals = arrivals
        if kind == "openai":
            names = dict(asked.names) if asked is not None else {}
            self.columns: Mapping[str, str] = names
            self.unit = asked.units_per_second if asked is not None else None
        else:
            told = asked
            if kind == "mooncake" and asked is None:
                told = _MOONCAKE
            found = find_columns(record, told, name=name, arrivals=arrivals)
            self.columns, self.unit = found.names, found.units_per_second
            if kind == "bailian":
                self.columns = {**self.columns, "session": "chat_id"}
        self.time: Callable[[Any], float] | None = None

    def read(self, record: Mapping[str, Any], line: int, bad: BadRows) -> Row | None:
        """An object with every field checked; None when it is left out."""
        try:
            if self.kind == "openai":
                return self._logged(record, line)
            columns = self.columns
            blocks = record.get(columns["blocks"]) if "blocks" in columns else None
            if blocks is not None and not (
                isinstance(blocks, list) and all(type(block) is int for block in blocks)
            ):
                bad.refuse(
                    line, "blocks", f"{columns['blocks']} is {shown(blocks)}, no list of ids"
                )
                return None
            return (
                line,
                self._arrival(record.get(columns["arrival"]), columns["arrival"])
                if self.arrivals
                else 0.0,
                whole_number(record.get(columns["input"]), columns["input"]),
                whole_number(record.get(columns["output"]), columns["output"]),
                session_number(record.get(columns["session"])) if "session" in columns else None,
                whole_number(record.get(columns["priority"], 0), "priority")
                if "priority" in columns
                else 0,
                blocks,
            )
        except NotATimeError as problem:
            bad.refuse(line, "time", str(problem))
        except NotANumberError as problem:
            bad.refuse(line, "number", str(problem))
        except _NoUsageError as problem:
            bad.refuse(line, "missing", str(problem))
        return None

    def _arrival(self, value: Any, field: str) -> float:
        if value is None:
            raise NotATimeError(f"{field} has no value")
        if self.time is None:
            time = time_reader(value, self.unit, field)
            seconds = time(value)
            self.time = time
            return seconds
        return self.time(value)

    def _logged(self, record: Mapping[str, Any], line: int) -> Row:
        """One line of a log of an OpenAI-style API."""
        found = _usage(record)
        if found is None:
            raise _NoUsageError(
                "it has no usage, so nothing tells how many tokens its messages were"
            )
        usage, names = found
        arrival = 0.0
        if self.arrivals:
            wanted = self.columns.get("arrival")
            places = (wanted,) if wanted is not None else _CREATED
            holder, field = next(
                (
                    (inner, name)
                    for name in places
                    for inner in _layers(record)
                    if inner.get(name) is not None
                ),
                (record, places[0]),
            )
            arrival = self._arrival(holder.get(field), field)
        session = self.columns.get("session")
        named = next(
            (
                inner[name]
                for name in ((session,) if session else ("session_id", "conversation_id", "user"))
                for inner in _layers(record)
                if isinstance(inner.get(name), str | int)
            ),
            None,
        )
        return (
            *(line, arrival, whole_number(usage.get(names[0]), names[0])),
            *(whole_number(usage.get(names[1]), names[1]), session_number(named), 0, None),
        )


class _NoUsageError(ValueError):
    """A line of a log does not say how many tokens it was."""


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
