"""vLLM's command-line flags by version, parsed by the rules of vLLM's own parser.

The table ``data/flags.json`` is read out of vLLM's sources by ``scripts/extract_vllm_flags.py``.
vLLM parses with ``argparse`` after rewriting the words; this module does the same rewriting
(``FlexibleArgumentParser.parse_args``, vllm/utils/argparse_utils.py, read in 0.8.0 to 0.33.0) and
hands the words to ``argparse``, so abbreviations, ``--flag=value``, lists and negations follow the
same rules by construction.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn

from tokenroom.engines.shell import hole_in, hole_sentence
from tokenroom.errors import CommandLineError

_DATA: Final = Path(__file__).parent / "data"
_HUMAN: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NEGATIVE_NUMBER: Final = re.compile(r"^-\d+$|^-\d*\.\d+$")
_MAX_JSON_DEPTH: Final = 100
_MAX_DIGITS: Final = 400
_LEVELS: Final = (["0"], ["1"], ["2"], ["3"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One command-line option of vLLM.

    Attributes:
        names: Option strings, such as ``("--tensor-parallel-size", "-tp")``.
        dest: Name of the engine argument.
        kind: How its value is read: ``"flag"``, ``"switch"`` (with ``--no-``),
            ``"enable-disable"`` (also ``--disable-`` for ``--enable-``), ``"flag-or-str"``,
            ``"bool-value"``, ``"int"``, ``"float"``, ``"str"``,
            ``"lower-str"`` (lower case, dashes to underscores), ``"human-int"``,
            ``"human-int-or-auto"``, ``"json"``, ``"json-or-str"``, ``"config"``, ``"key-values"``.
        nargs: ``"+"`` for lists, ``"?"`` for an optional value, None for one value.
        choices: Allowed values, empty for any.
        optional: ``None`` or nothing written means unset.
        append: Each use adds to a list.
        since: First version read that has it in this form.
        until: First version read without it, None while it lasts.
    """

    names: tuple[str, ...]
    dest: str
    kind: str
    nargs: str | None = None
    choices: tuple[str | int, ...] = ()
    optional: bool = False
    append: bool = False
    since: str
    until: str | None = None

    @property
    def name(self) -> str:
        """The first long spelling."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def negative_names(self) -> tuple[str, ...]:
        """Spellings that switch it off."""
        if self.kind not in ("switch", "enable-disable"):
            return ()
        long_names = [name for name in self.names if name.startswith("--")]
        negative = [f"--no-{name[2:]}" for name in long_names]
        if self.kind == "enable-disable":
            for name in long_names:
                if name.startswith("--enable-"):
                    negative.append(f"--disable-{name.removeprefix('--enable-')}")
                elif name.startswith("--disable-"):
                    negative.append(f"--enable-{name.removeprefix('--disable-')}")
        return tuple(negative)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFlags:
    """What a flag list says.

    Attributes:
        version: The version whose flags applied.
        model: The positional model, None when not given.
        values: Engine argument to value, only those that were given.
        unknown: Flags this version does not have, as written.
        notes: One sentence for each unknown flag.
    """

    version: str
    model: str | None
    values: Mapping[str, Any]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


def version_key(version: str) -> tuple[int, ...]:
    """Sortable form of ``"0.19.0"``; suffixes such as ``rc1`` are cut off.

    Raises:
        CommandLineError: It does not start with two numbers.
    """
    match = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", version)
    if match is None:
        raise CommandLineError(f"version is {version!r}; give one such as 0.19.0")
    return tuple(int(part or 0) for part in match.groups())


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[str, ...], tuple[Flag, ...]]:
    text = _DATA.joinpath("flags.json").read_text()
    data = json.loads(text)
    flags = tuple(
        Flag(
            names=tuple(row["names"]),
            dest=row["dest"],
            kind=row["kind"],
            nargs=row.get("nargs"),
            choices=tuple(row.get("choices", ())),
            optional=row.get("optional", False),
            append=row.get("append", False),
            since=row["since"],
            until=row.get("until"),
        )
        for row in data["flags"]
    )
    return tuple(data["versions"]), flags


def known_versions() -> tuple[str, ...]:
    """Versions whose sources were read, oldest first."""
    return _table()[0]


def all_flags() -> tuple[Flag, ...]:
    """Every row of the table, every version."""
    return _table()[1]


def nearest_version(version: str | None) -> str:
    """The version read that stands for another one.

    The same minor version when it was read (a later patch before an earlier one), otherwise the
    next one read; the newest for None and for versions newer than any read.
    """
    versions = known_versions()
    if version is None:
        return versions[-1]
    wanted = version_key(version)
    later = [known for known in versions if version_key(known) >= wanted]
    earlier = [known for known in versions if version_key(known) <= wanted]
    if later and version_key(later[0])[:2] == wanted[:2]:
        return later[0]
    if earlier and version_key(earlier[-1])[:2] == wanted[:2]:
        return earlier[-1]
    return later[0] if later else versions[-1]


@lru_cache(maxsize=32)
def flags_of(version: str) -> tuple[Flag, ...]:
    """Flags of one of :func:`known_versions`."""
    key = version_key(version)
    return tuple(
        flag
        for flag in all_flags()
        if version_key(flag.since) <= key and (not flag.until or key < version_key(flag.until))
    )


def human_readable_int(value: str) -> int:
    """``"1k"`` is 1000, ``"1K"`` 1024, ``"25.6k"`` 25600; a binary suffix takes no decimals.

    Raises:
        ValueError: It is no such number.
    """
    value = value.strip()
    match = _HUMAN.fullmatch(value)
    if match:
        number, suffix = match.groups()
        if suffix in _DECIMAL:
            return int(float(number) * _DECIMAL[suffix])
        return int(number) * _BINARY[suffix]
    return int(value)


class _Parser(argparse.ArgumentParser):
    """``argparse`` that raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise CommandLineError(f"the flags cannot be read: {message}")


class _Switch(argparse.Action):
    """A boolean with its negations, as ``BooleanOptionalAction`` and vLLM's extension of it."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, *, off: tuple[str, ...], default: Any = None
    ) -> None:
        super().__init__([*option_strings, *off], dest, nargs=0, default=default)
        self.off = frozenset(off)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, option_string not in self.off)


def parse_flags(
    words: Sequence[str],
    version: str,
    *,
    influential: frozenset[str],
    serve: bool = True,
    extra_flags: frozenset[str] = frozenset(),
    load_config: Callable[[str], Mapping[str, Any]] | None = None,
) -> ParsedFlags:
    """Read the words after ``vllm serve`` (or after an API server module).

    Args:
        words: The words, the program left out.
        version: One of :func:`known_versions`.
        influential: Engine arguments whose value must be known; elsewhere holes are let through.
        serve: ``vllm serve``, which moves ``--model`` to the front.
        extra_flags: Further options with one value each that the program has beside the engine's.
        load_config: Reads the file of ``--config``; None when files may not be read.

    Raises:
        CommandLineError: A value is missing, cannot be read or is not among the choices.
    """
    for word in words:
        if word.startswith("-") and (unknown_value := hole_in(word.partition("=")[0])):
            raise CommandLineError(hole_sentence("a flag", unknown_value))
    flags = flags_of(version)
    parser, options = _build_parser(version, influential)
    words = list(words)
    if serve:
        words = _model_first(words)
    words = _insert_config(words, options, load_config, serve=serve)
    words = _merge_dotted(_normalise(words, version))
    kept, unknown = _split_unknown(words, options, extra_flags)
    try:
        namespace, rest = parser.parse_known_args(kept)
    except argparse.ArgumentError as error:
        raise CommandLineError(_sentence(error, flags)) from error
    if rest and (cannot := hole_in(rest[0])):
        raise CommandLineError(hole_sentence("a word of the command", cannot))
    if rest and not unknown:
        raise CommandLineError(
            f"the command has the extra word {rest[0]!r}, which vLLM would refuse; "
            "leave it out or put it behind its flag"
        )
    values = dict(vars(namespace))
    model = values.pop("model_tag", None)
    return ParsedFlags(
        version=version,
        model=model,
        values=values,
        unknown=tuple(dict.fromkeys(unknown)),
        notes=tuple(_unknown_note(name, version, options) for name in dict.fromkeys(unknown)),
    )


@lru_cache(maxsize=8)
def _build_parser(
    version: str, influential: frozenset[str]
) -> tuple[_Parser, Mapping[str, Flag | None]]:
    """The parser of one version and its option strings."""
    parser = _Parser(
        add_help=False, exit_on_error=False, argument_default=argparse.SUPPRESS, prog="vllm"
    )
    options: dict[str, Flag | None] = {"--help": None, "-h": None, "--version": None}
    for name in options:
        parser.add_argument(name, dest="help", action="store_true", default=argparse.SUPPRESS)
    parser.add_argument("model_tag", nargs="?", default=argparse.SUPPRESS)
    for flag in flags_of(version):
        names = [name for name in flag.names if name not in options]
        off = tuple(name for name in flag.negative_names if name not in options)
        if not names:
            continue
        options.update(dict.fromkeys([*names, *off], flag))
        if flag.kind == "flag":
            parser.add_argument(*names, dest=flag.dest, action="store_true")
        elif flag.kind in ("switch", "enable-disable"):
            parser.add_argument(*names, dest=flag.dest, action=_Switch, off=off)
        elif flag.kind in ("flag-or-str", "bool-value"):
            convert = _boolean if flag.kind == "bool-value" else str
            parser.add_argument(*names, dest=flag.dest, nargs="?", const=True, type=convert)
        else:
            parser.add_argument(
                *names,
                dest=flag.dest,
                type=_converter(flag, required=flag.dest in influential),
                nargs=flag.nargs if not flag.append else None,
                action="append" if flag.append else "store",
            )
    return parser, options


def _converter(flag: Flag, *, required: bool) -> Callable[[str], Any]:
    """How the text of one value becomes a value; errors are whole sentences."""
    kinds: dict[str, tuple[Callable[[str], Any], str]] = {
        "int": (int, "a whole number"),
        "float": (float, "a number"),
        "human-int": (human_readable_int, "a whole number such as 8192, 32k (32000) or 32K"),
        "human-int-or-auto": (
            _human_int_or_auto,
            "a whole number such as 8192, 32k (32000) or 32K (32768), or auto",
        ),
        "json": (json.loads, "JSON such as '{\"key\": 1}'"),
        "config": (_config_json, "a JSON object such as '{\"key\": 1}'"),
        "json-or-str": (_json_or_str, "a JSON object or a name"),
        "key-values": (_key_values, "pairs such as image=2,video=1"),
        "str": (str, "a text"),
        "lower-str": (lambda text: text.lower().replace("-", "_"), "a text"),
    }
    convert, wanted = kinds[flag.kind]

    def read(text: str) -> Any:
        if unknown_value := hole_in(text):
            if required:
                raise argparse.ArgumentTypeError(hole_sentence(flag.name, unknown_value))
            return text
        if flag.optional and text in ("", "None"):
            return None
        try:
            if len(text) > _MAX_DIGITS and flag.kind in ("int", "float"):
                raise ValueError
            value = convert(text)
        except (ValueError, OverflowError, RecursionError, ArithmeticError):
            shown = text if len(text) <= 80 else text[:77] + "..."
            raise argparse.ArgumentTypeError(f"{flag.name} is {shown!r}; give {wanted}") from None
        if flag.choices and value not in flag.choices:
            allowed = ", ".join(str(choice) for choice in flag.choices)
            raise argparse.ArgumentTypeError(f"{flag.name} is {text!r}; choose from {allowed}")
        return value

    return read


def _human_int_or_auto(text: str) -> int:
    text = text.strip()
    return -1 if text == "-1" or text.lower() == "auto" else human_readable_int(text)


def _config_json(text: str) -> Any:
    """JSON of a config class; bare numbers may carry a suffix, as ``80g``.

    Source: ``_expand_json_human_readable_numbers``, vllm/engine/arg_utils.py 0.21.0.
    """
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(
            r"\b\d+(?:\.\d+)?[kKmMgGtT]\b",
            lambda match: str(human_readable_int(match.group())),
            parts[index],
        )
    value = json.loads("".join(parts))
    if not isinstance(value, dict | int):  # a bare level was allowed before 0.12
        raise ValueError
    return value


def _json_or_str(text: str) -> Any:
    """Source: ``union_dict_and_str``, vllm/engine/arg_utils.py."""
    if not re.match(r"(?s)^\s*{.*}\s*$", text):
        return text
    return json.loads(text)


def _key_values(text: str) -> dict[str, int]:
    """Source: ``nullable_kvs``, vllm/engine/arg_utils.py 0.8.0."""
    result: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        key, separator, value = item.partition("=")
        if not separator or key.strip().lower() in result:
            raise ValueError
        result[key.strip().lower()] = int(value)
    return result


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"it is {text!r}; give true or false")
    return text.lower() == "true"


def _model_first(words: list[str]) -> list[str]:
    """Move the value of ``--model`` to the front, as vLLM does for ``serve``."""
    for index, word in enumerate(words):
        if word == "--model":
            if index + 1 == len(words):
                raise CommandLineError("--model has no value; give the model's name or folder")
            return [words[index + 1], *words[:index], *words[index + 2 :]]
        if word.startswith("--model=") and word != "--model=":
            return [word.removeprefix("--model="), *words[:index], *words[index + 1 :]]
    return words


def _insert_config(
    words: list[str],
    options: Mapping[str, Flag | None],
    load_config: Callable[[str], Mapping[str, Any]] | None,
    *,
    serve: bool,
) -> list[str]:
    """Put the options of ``--config FILE`` before the others, so that the command line wins.

    Source: ``FlexibleArgumentParser._pull_args_from_config`` and ``load_config_file``.
    """
    words = [
        part
        for word in words
        for part in (
            ("--config", word.removeprefix("--config="))
            if word.startswith("--config=")
            else (word,)
        )
    ]
    if "--config" not in words:
        return words
    if words.count("--config") > 1:
        raise CommandLineError("--config is given more than once; give it once")
    index = words.index("--config")
    if index + 1 == len(words):
        raise CommandLineError("--config has no value; give a .yaml file")
    path = words[index + 1]
    if unknown_value := hole_in(path):
        raise CommandLineError(hole_sentence("--config", unknown_value))
    if path.rsplit(".", 1)[-1] not in ("yaml", "yml"):
        raise CommandLineError(f"--config is {path!r}; give a file that ends in .yaml or .yml")
    if load_config is None:
        raise CommandLineError(
            f"--config names the file {path!r}, which may not be read here; "
            "write its options on the command line"
        )
    inserted: list[str] = []
    for key, value in load_config(path).items():
        name = f"--{key}"
        if isinstance(value, bool):
            off = f"--no-{key}".replace("_", "-")
            inserted += [name] if value else [off] if off in options else []
        elif isinstance(value, list):
            inserted += [name, *map(str, value)] if value else []
        elif isinstance(value, dict):
            inserted += [name, json.dumps(value)]
        else:
            inserted += [name, str(value)]
    before, after = words[:index], words[index + 2 :]
    if not serve:
        return inserted + before + after
    if before and not before[0].startswith("-"):
        for place in range(len(inserted)):
            if inserted[place] == "--model":
                del inserted[place : place + 2]
                break
        return [before[0], *inserted, *before[1:], *after]
    return _model_first(inserted + before + after)


def _normalise(words: Sequence[str], version: str) -> list[str]:
    """Dashes for underscores in option names, and the forms of ``-O``."""
    dashed = re.compile(r"(?<=--)[^\.]*")
    levels = version_key(version) >= (0, 12)  # -O became the optimisation level
    result: list[str] = []
    for index, word in enumerate(words):
        if word.startswith("--"):
            key, separator, value = word.partition("=")
            key = dashed.sub(lambda match: match.group().replace("_", "-"), key, count=1)
            result.append(key + separator + value)
        elif word.startswith("-O.") and version_key(version) < (0, 13):
            result.append(("-cc" if levels else "-O") + word[2:])
        elif word.startswith("-O") and word != "-O":
            value = word[3:] if word[2] == "=" else word[2:]
            result += ["--optimization-level" if levels else "-O", value]
        elif (
            word == "-O" and levels and words[index + 1 : index + 2] in (["0"], ["1"], ["2"], ["3"])
        ):
            result.append("--optimization-level")
        else:
            result.append(word)
    return result


def _merge_dotted(words: list[str]) -> list[str]:
    """Collect ``--json-flag.key value`` pairs into one JSON value a flag, put at the end."""
    collected: dict[str, dict[str, Any]] = {}
    kept: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        name, separator, text = word.partition("=")
        if not (word.startswith("-") and "." in name) or _NEGATIVE_NUMBER.match(word):
            kept.append(word)
            index += 1
            continue
        if not separator:
            if index + 1 == len(words):
                raise CommandLineError(f"{name} has no value; give one")
            index += 1
            text = words[index]
        index += 1
        if name.endswith("+"):
            name, text = name[:-1], json.dumps(text.split(","))
        key, *path = name.split(".")
        if len(path) > _MAX_JSON_DEPTH:
            raise CommandLineError(
                f"{key} is nested deeper than {_MAX_JSON_DEPTH} keys; flatten it"
            )
        nested: Any = _dotted_value(text)
        for part in reversed(path):
            nested = {part: nested}
        _update(collected.setdefault(key, {}), nested)
    for key, value in collected.items():
        kept += [key, json.dumps(value)]
    return kept


def _dotted_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        try:
            return human_readable_int(text)
        except ValueError:
            return text


def _update(original: dict[str, Any], update: Mapping[str, Any]) -> None:
    for key, value in update.items():
        present = original.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _update(present, value)
        elif isinstance(value, list) and isinstance(present, list):
            present += value
        else:
            original[key] = value


def _split_unknown(
    words: Sequence[str], options: Mapping[str, Flag | None], extra_flags: frozenset[str]
) -> tuple[list[str], list[str]]:
    """Take out options this version does not have, each with the value that follows it."""
    kept: list[str] = []
    unknown: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            kept += [word, *words[index:]]
            break
        name, separator, _ = word.partition("=")
        if not word.startswith("-") or word == "-" or _is_known(word, options):
            kept.append(word)
            continue
        if name not in extra_flags:
            unknown.append(name)
        if not separator and index < len(words) and not words[index].startswith("-"):
            index += 1
    return kept, unknown


def _is_known(word: str, options: Mapping[str, Flag | None]) -> bool:
    """Whether argparse finds an option for a word: itself, an abbreviation, or ``-qVALUE``."""
    name = word.partition("=")[0]
    if word in options or name in options or _NEGATIVE_NUMBER.match(word):
        return True
    if word.startswith("--"):
        if any(option.startswith(name) for option in options):
            return True
    elif any(option == word[:2] or option.startswith(word) for option in options):
        return True
    return " " in word


def _sentence(error: argparse.ArgumentError, flags: Sequence[Flag]) -> str:
    """One sentence for what argparse found."""
    message = str(error.message)
    name = (error.argument_name or "").split("/")[0]
    for flag in flags:
        if name in flag.names:
            name = flag.name
    if message.startswith("expected"):
        return f"{name} has no value; give one"
    if message.startswith("ignored explicit argument"):
        value = message.removeprefix("ignored explicit argument ")
        return f"{name} takes no value but was given {value}; leave the value out"
    if message.startswith("it is "):
        return f"{name} {message.removeprefix('it ')}"
    if "ambiguous option" in message:
        return f"{message.replace('ambiguous option: ', 'the flag ')} flags; write it out"
    return message


def version_with(name: str) -> str:
    """The newest version read that has a flag of that name; empty when none has."""
    found = [flag for flag in all_flags() if name in flag.names or name in flag.negative_names]
    for version in reversed(known_versions()):
        if any(flag in flags_of(version) for flag in found):
            return version
    return ""


def _unknown_note(name: str, version: str, options: Mapping[str, Flag | None]) -> str:
    """Why a flag is not taken: of another version, or the nearest one there is."""
    others = [flag for flag in all_flags() if name in flag.names or name in flag.negative_names]
    if others:
        newest = max(others, key=lambda flag: version_key(flag.since))
        if version_key(newest.since) > version_key(version):
            oldest = min(others, key=lambda flag: version_key(flag.since))
            return f"vLLM {version} does not have {name} yet; it came by {oldest.since}"
        return f"vLLM {version} no longer has {name}; it was removed by {newest.until}"
    import difflib  # only a misspelt flag needs it

    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.7)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"vLLM {version} has no flag {name}{hint}"
