"""One deployment in several variations: what ``--vary NAME=VALUE,VALUE`` asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import click

from tokenroom.cli.served_fleet import servers_options
from tokenroom.errors import ComparisonError, shown

_SWITCH: Final = {"on": True, "off": False, "true": True, "false": False, "yes": True, "no": False}
_DEFAULT: Final = "default"
_ALIASES: Final = {"chunk-size": "max-num-batched-tokens"}
_OF_THE_WHOLE: Final = ("from", "service", "set", "gpu-file", "offline", "hub-timeout")


@click.command("servers", add_help_option=False)
@servers_options
def _written(**parameters: Any) -> None:
    """What knows the options of servers; it is never run."""


VARIED_OPTIONS: Final = tuple(
    str(option.name) for option in _written.params if option.name != "words"
)
"""Parameters that a variation is made of."""
_OPTIONS: Final[Mapping[str, click.Parameter]] = {
    name.removeprefix("--"): option
    for option in _written.params
    for name in option.opts
    if name.startswith("--") and name.removeprefix("--") not in _OF_THE_WHOLE
}
"""Options that may be varied, by their names."""


class Variation(NamedTuple):
    """A deployment's options with some of them replaced.

    Attributes:
        name: What sets it apart.
        options: All options.
    """

    name: str
    options: dict[str, Any]


def variations(options: Mapping[str, Any], texts: Sequence[str]) -> Iterator[Variation]:
    """Every combination of the values that the texts list, the first of each first.

    A name is an option of the deployment (``block-size``, ``gpu``, ``kv``), ``prefix-caching`` or
    ``chunk-size``, which engines have by different names, or a setting of the engine's own. The
    value ``default`` leaves an option out.

    Args:
        options: Of the deployment that is varied.
        texts: As ``block-size=16,32``.

    Raises:
        ComparisonError: A text is no list of values, or a value is none of that option.
    """
    varied = [_parsed(text) for text in texts]
    names = [name for name, _ in varied]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ComparisonError(f"--vary {twice} is given twice; list all its values in one")
    for combination in product(*(values for _, values in varied)):
        changed = dict(options)
        chosen = list(zip(names, combination, strict=True))
        # the engine first: other names mean something to it
        for name, value in sorted(chosen, key=lambda pair: pair[0] != "engine"):
            _change(changed, name, value)
        yield Variation(", ".join(f"{name} {value}" for name, value in chosen), changed)


def _parsed(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, listed = text.partition("=")
    values = tuple(value.strip() for value in listed.split(","))
    name = name.strip().lstrip("-").replace("_", "-")
    if not equals or not name or not all(values):
        raise ComparisonError(
            f"--vary is {shown(text)}; write NAME=VALUE,VALUE, such as block-size=16,32"
        )
    if len(set(values)) < len(values):
        raise ComparisonError(f"--vary {text} lists a value twice; list each once")
    return name, values


def _change(options: dict[str, Any], name: str, value: str) -> None:
    """Replace an option by a value as it is written."""
    option = _OPTIONS.get(_ALIASES.get(name, name))
    if value == _DEFAULT and option is not None:
        options[str(option.name)] = None
    elif name == "prefix-caching":
        engine = (options["engine"] or "vllm").partition("@")[0].strip().lower()
        if engine == "sglang":  # its setting says the opposite
            _assign(options, "disable_radix_cache", not _switch(name, value))
        else:
            _assign(options, "enable_prefix_caching", _switch(name, value))
    elif option is None:
        _assign(options, name.replace("-", "_"), _SWITCH.get(value.lower(), value))
    else:
        flag = getattr(option, "is_flag", False)
        written = _switch(name, value) if flag else _converted(option, name, value)
        options[str(option.name)] = written


def _assign(options: dict[str, Any], setting: str, value: Any) -> None:
    """Replace a setting of the engine's own, as ``--set`` does."""
    kept = [text for text in options["assignments"] if text.partition("=")[0].strip() != setting]
    written = value if isinstance(value, str) else json.dumps(value)
    options["assignments"] = (*kept, f"{setting}={written}")


def _switch(name: str, value: str) -> bool:
    if value.lower() not in _SWITCH:
        raise ComparisonError(f"--vary {name} has the value {shown(value)}; it may be on or off")
    return _SWITCH[value.lower()]


def _converted(option: click.Parameter, name: str, value: str) -> Any:
    try:
        return option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise ComparisonError(
            f"--vary {name} has the value {shown(value)}: {error.message}"
        ) from error
