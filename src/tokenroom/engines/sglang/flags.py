"""SGLang's command-line flags by version, parsed as its own parser does.

The table ``data/flags.json`` is read out of SGLang's sources by
``scripts/extract_sglang_flags.py``. SGLang parses with ``argparse``, so abbreviations (``--tp``),
``--flag=value`` and lists follow its rules by construction.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from tokenroom.engines.sglang.rules import version_numbers
from tokenroom.engines.shell import hole_in
from tokenroom.errors import CommandLineError

_LONGEST: Final = 160
_DATA: Final = Path(__file__).parent / "data" / "flags.json"
_HUMAN: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)")
_FACTORS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""``human_readable_int``: lower case is decimal, upper case binary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFlags:
    """What a list of words says.

    Attributes:
        values: Destination to value, of flags that were given.
        unknown: Flags that the version does not have.
        positional: Words that belong to no flag.
    """

    values: dict[str, Any]
    unknown: tuple[str, ...]
    positional: tuple[str, ...]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        shown = message if len(message) <= _LONGEST else message[:_LONGEST] + ", ..."
        raise CommandLineError(f"SGLang's command line: {shown}")


def _human_int(text: str) -> int:
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match.group(1)) * _FACTORS[match.group(2)])


def _whole(text: str) -> int:
    if len(text) > 40:
        raise ValueError(text)
    return int(text)


_KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "int": _whole,
    "float": float,
    "human-int": _human_int,
    "str": str,
    "json": str,
}


class Flag(NamedTuple):
    """One command-line option.

    Attributes:
        names: Its spellings.
        dest: Name of the server argument.
        kind: How its value is read: one of the kinds above, ``"flag"``, or ``"switch"`` (with
            ``--no-``).
        nargs: ``"+"`` or ``"*"`` for lists, None for one value.
        since: First version read that has it in this form.
        until: First version read without it, None while it lasts.
    """

    names: Sequence[str]
    dest: str
    kind: str
    nargs: str | None
    since: str
    until: str | None

    @property
    def name(self) -> str:
        """The spelling of the argument's own name, else the first."""
        own = "--" + self.dest.replace("_", "-")
        return own if own in self.names else self.names[0]


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[str, ...], tuple[Flag, ...]]:
    data = json.loads(_DATA.read_text("utf-8"))
    return tuple(data["versions"]), tuple(Flag(*row) for row in data["flags"])


def known_versions() -> tuple[str, ...]:
    """Versions whose flags were read, oldest first."""
    return _table()[0]


def nearest_version(version: str | None) -> str:
    """The newest read version that is not newer; the oldest for older ones."""
    versions = known_versions()
    if version is None:
        return versions[-1]
    numbers = version_numbers(version)
    found = [name for name in versions if version_numbers(name) <= numbers]
    return found[-1] if found else versions[0]


@lru_cache(maxsize=32)
def flags_of(version: str) -> tuple[Flag, ...]:
    """Flags of one of :func:`known_versions`."""
    numbers = version_numbers(version)
    return tuple(
        flag
        for flag in _table()[1]
        if version_numbers(flag.since) <= numbers
        and (flag.until is None or numbers < version_numbers(flag.until))
    )


@lru_cache(maxsize=4)
def _parser(version: str) -> _Parser:
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for names, dest, kind, nargs, _, _ in flags_of(version):
        options = [name for name in names if name.startswith("-")]
        if kind == "flag":
            parser.add_argument(*options, dest=dest, action="store_true")
        elif kind == "switch":
            parser.add_argument(*options, dest=dest, action=argparse.BooleanOptionalAction)
        else:
            parser.add_argument(*options, dest=dest, type=_KINDS[kind], nargs=nargs)
    parser.add_argument("--config", dest="config")
    return parser


def parse_flags(words: Sequence[str], version: str) -> ParsedFlags:
    """Flags of a version; those it does not have are named, not refused.

    Args:
        words: What follows ``sglang.launch_server``.
        version: A version of :func:`known_versions`.

    Raises:
        CommandLineError: A value cannot be read, or a variable in it is not set.
    """
    for word in words:
        if hole := hole_in(word):
            raise CommandLineError(
                f"{hole} is not set and the command uses it; export it first or write it out"
            )
    given, rest = _parser(version).parse_known_args(list(words))
    unknown = [word.partition("=")[0] for word in rest if word.startswith("-")]
    positional: list[str] = []
    after_unknown = False
    for word in rest:
        if word.startswith("-"):
            after_unknown = "=" not in word
        elif after_unknown:
            after_unknown = False  # the value of a flag that is not known
        else:
            positional.append(word)
    return ParsedFlags(
        values=vars(given), unknown=tuple(dict.fromkeys(unknown)), positional=tuple(positional)
    )


def unknown_sentence(name: str, version: str) -> str:
    """That a version has no flag of that name: of another version, or the nearest one there is."""
    others = [flag for flag in _table()[1] if name in flag.names]
    if others:
        oldest = min(others, key=lambda flag: version_numbers(flag.since))
        if version_numbers(oldest.since) > version_numbers(version):
            return f"SGLang {version} does not have {name} yet; it came by {oldest.since}"
        ends = [flag.until for flag in others if flag.until is not None]
        gone = max(ends, key=version_numbers)
        return f"SGLang {version} no longer has {name}; it was removed by {gone}"
    import difflib  # only a misspelt flag needs it

    names = [option for flag in flags_of(version) for option in flag.names]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"SGLang {version} has no flag {name}{hint}"


def version_with(name: str) -> str:
    """The newest version read that has a flag of that name; empty when none has."""
    for version in reversed(known_versions()):
        if any(name in flag.names for flag in flags_of(version)):
            return version
    return ""
