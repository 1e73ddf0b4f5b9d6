"""Which column or key of a trace holds what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import WorkloadError, shown

FIELDS: Final = ("arrival", "input", "output", "session", "priority", "blocks")
"""What a column can hold; the first three every trace has."""

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    # names as letters and digits alone, in lower case, the likeliest first
    "arrival": (
        *("timestamp", "arrivedat", "arrivaltime", "arrivalseconds", "arrivaltimestamp"),
        *("arrival", "ts", "time", "timestampms", "arrivalms", "arrivaltimems", "tsms"),
        *("starttime", "requesttime", "createdat", "created"),
    ),
    "input": (
        *("contexttokens", "numprefilltokens", "requesttokens", "inputlength", "inputtokens"),
        *("prompttokens", "promptlength", "promptlen", "inputlen", "numinputtokens", "isl"),
        *("numprompttokens", "input"),
    ),
    "output": (
        *("generatedtokens", "numdecodetokens", "responsetokens", "outputlength", "outputtokens"),
        *("completiontokens", "outputlen", "genlen", "generatedlength", "numoutputtokens", "osl"),
        *("numgeneratedtokens", "output"),
    ),
    "session": ("sessionid", "session", "conversationid", "userid", "user"),
    "priority": ("priority",),
    "blocks": ("hashids", "blockhashes"),
}
_UNITS: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The name of the column of each field.

    Attributes:
        names: Field to column.
        units_per_second: How many units of the arrival column's numbers make a second; None for
            seconds by default, where a number that can be none is refused.
    """

    names: Mapping[str, str]
    units_per_second: float | None = None


def parse_columns(text: str) -> Columns:
    """Columns as people write them: ``arrival=ts:ms,input=prompt_len,output=gen_len``.

    A unit (s, ms, us, ns) may follow the arrival's column after a colon.

    Raises:
        WorkloadError: A part is not FIELD=COLUMN, or names no field.
    """
    names: dict[str, str] = {}
    unit = None
    for part in text.split(","):
        field, equals, column = (piece.strip() for piece in part.partition("="))
        if field not in FIELDS or not equals or not column:
            raise WorkloadError(
                f"--columns has {shown(part)}; write FIELD=COLUMN with the fields "
                f"{', '.join(FIELDS)}, as in arrival=ts,input=prompt_len,output=gen_len"
            )
        if field in names:
            raise WorkloadError(f"--columns names {field} twice; name it once")
        head, colon, tail = column.rpartition(":")
        if field == "arrival" and colon and tail in _UNITS:
            column, unit = head, _UNITS[tail]
        names[field] = column
    return Columns(names=names, units_per_second=unit)


def find_columns(
    header: Iterable[str], asked: Columns | None, *, name: str, arrivals: bool = True
) -> Columns:
    """The column of each field, as asked for or by the names that traces use.

    Args:
        header: The names of a file's columns.
        asked: What ``--columns`` says.
        name: The file, as messages call it.
        arrivals: Whether arrival times are needed.

    Raises:
        WorkloadError: A column that is needed or asked for is not there.
    """
    columns = list(header)
    plain: dict[str, str] = {}
    for column in columns:
        plain.setdefault(_plain(column), column)
    names: dict[str, str] = {}
    for field in FIELDS:
        wanted = asked.names.get(field) if asked is not None else None
        if wanted is not None:
            if wanted not in columns:
                raise WorkloadError(
                    f"{name} has no column {shown(wanted)}, which --columns names for {field}; it "
                    f"has {_listed(columns)}"
                )
            names[field] = wanted
            continue
        found = next((plain[alias] for alias in _ALIASES[field] if alias in plain), None)
        if found is not None:
            names[field] = found
    for field, column in names.items():
        if columns.count(column) > 1:
            raise WorkloadError(
                f"{name} has {columns.count(column)} columns {shown(column)}, and which of them is "
                f"the {field} is not told; rename the others"
            )
    needed = FIELDS[:3] if arrivals else FIELDS[1:3]
    missing = [field for field in needed if field not in names]
    if missing == ["arrival"]:
        raise WorkloadError(
            f"{name} has no column of arrival times, only {_listed(columns)}; name it with "
            "--columns arrival=NAME, or draw arrivals with this file's lengths, as in "
            f"poisson:rate=1,lengths=trace({name})"
        )
    if missing:
        raise WorkloadError(
            f"{name} has no column of {' and '.join(missing)} lengths that is known by name, only "
            f"{_listed(columns)}; name it, as in --columns "
            f"{','.join(f'{field}=NAME' for field in missing)}"
        )
    unit = asked.units_per_second if asked is not None else None
    if unit is None and "arrival" in names and _plain(names["arrival"]).endswith("ms"):
        unit = _UNITS["ms"]
    return Columns(names=names, units_per_second=unit)


def _plain(column: str) -> str:
    return re.sub(r"[^a-z0-9]", "", column.lower())


def _listed(columns: list[str]) -> str:
    several = ", ".join(columns[:12]) + (", ..." if len(columns) > 12 else "")
    text = shown(several)
    return text if several.strip(", ") else "columns without names"
