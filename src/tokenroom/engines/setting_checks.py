"""Checks of settings that people write, with one sentence for each mistake."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator

MAX_ACCELERATORS: Final = 65_536
"""Most accelerators of one deployment."""

MAX_GRAPH_SIZE: Final = 2**20
"""Largest batch or token count that a graph may be captured for."""

MAX_NUMBER: Final = 2**53
"""Largest other number, in bytes or tokens: what a float counts without a gap."""

MAX_LISTED: Final = 65_536
"""Most values of one setting."""

_MAX_LOCAL: Final = 1024  # GPUs of one process
_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "None": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "tuple": (tuple,),
    "Mapping": (Mapping,),
}
_NAMES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a tuple",
    Mapping: "a mapping",
}
_ACCELERATOR_COUNTS: Final = (
    *("_parallel_size", "_parallel_size_local", "tp_size", "pp_size", "dp_size", "ep_size"),
    *("gpus", "nnodes"),
)


def renamed(
    changes: Mapping[str, Any], aliases: Mapping[str, str], known: Iterable[str], engine: str
) -> dict[str, Any]:
    """Settings under the engine's own names.

    Args:
        changes: Settings by the engine's names or by the names that all engines share.
        aliases: Shared name to the engine's.
        known: The engine's names.
        engine: The engine's name, for the error.

    Raises:
        DeploymentError: A name is unknown.
    """
    names = frozenset(known)
    found = {}
    for name, value in changes.items():
        own = name if name in names else aliases.get(name)
        if own is None:
            from difflib import get_close_matches  # only needed to help after a mistake

            near = get_close_matches(name, names | set(aliases), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DeploymentError(f"{engine} has no setting {shown(name)}{hint}")
        found[own] = value
    return found


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number of at least ``least``; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DeploymentError(
            f"{name} is {shown(value)}; it must be a whole number of at least {least}"
        )


def check_bounds(settings: Any) -> None:
    """Refuse numbers beyond any machine, which would take an engine's rules for ever to go through.

    Args:
        settings: An engine's settings object, whatever its fields.

    Raises:
        DeploymentError: A field is of another type than it is declared with, a count of
            accelerators is above :data:`MAX_ACCELERATORS`, a size of a captured graph above
            :data:`MAX_GRAPH_SIZE`, or any number above :data:`MAX_NUMBER`.
    """
    kind: type = type(settings)
    for held, (default, name, largest, outer, inner) in zip(
        _values(kind)(settings), _limits(kind), strict=True
    ):
        if held is default or (held is None and (not outer or type(None) in outer)):
            continue
        if outer and (
            not isinstance(held, outer) or (held.__class__ is bool and bool not in outer)
        ):
            raise DeploymentError(f"{name} is {shown(held)}; it may be {_described(outer)}")
        if held.__class__ is bool or held.__class__ is str:
            continue
        if name == "environment" and not all(
            isinstance(text, str) for pair in held.items() for text in pair
        ):
            raise DeploymentError(
                f"environment is {shown(held)}; it must be a mapping from names to texts"
            )
        if inner and not all(isinstance(item, inner) for item in held):
            raise DeploymentError(f"{name} is {shown(held)}; it may list {_described(inner)}")
        if held == () and largest == MAX_GRAPH_SIZE:
            raise DeploymentError(f"{name} lists nothing; give sizes, or leave it out")
        values = held if isinstance(held, tuple) else (held,)
        for value in values:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and (value != value or abs(value) > largest):
                raise DeploymentError(f"{name} is {shown(value)}; give at most {largest:,}")
        if len(values) > MAX_LISTED:
            raise DeploymentError(
                f"{name} lists {len(values):,} values; give at most {MAX_LISTED:,}"
            )


@cache
def _values(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """What takes every field of a settings class at once."""
    return attrgetter(*(field.name for field in fields(kind)))


@cache
def _limits(
    kind: type,
) -> tuple[tuple[Any, str, int, tuple[type, ...], tuple[type, ...]], ...]:
    """The fields of a settings class: default, name, largest number, types, types of items."""
    return tuple(
        (field.default, field.name, _largest(field.name), *_types(str(field.type)))
        for field in fields(kind)
    )


def _types(annotation: str) -> tuple[tuple[type, ...], tuple[type, ...]]:
    """The types that an annotation names, and those of its items; none where it names others."""
    outer: list[type] = []
    inner: tuple[type, ...] = ()
    for part in annotation.split(" | "):
        name, _, items = part.partition("[")
        if name == "tuple":
            inner = _PLAIN.get(items.partition(",")[0].partition("[")[0], ())
        found = _PLAIN.get(name)
        if found is None:
            return (), ()
        outer += found
    return tuple(outer), inner


def _described(types: tuple[type, ...]) -> str:
    return " or ".join(_NAMES[kind] for kind in types if kind in _NAMES)


def _largest(name: str) -> int:
    if name in ("gpus", "num_gpus"):
        return _MAX_LOCAL
    if name == "concurrency":
        return MAX_LISTED
    if name.endswith(_ACCELERATOR_COUNTS):
        return MAX_ACCELERATORS
    return MAX_GRAPH_SIZE if "graph" in name else MAX_NUMBER


def check_accelerator(
    engine: str,
    accelerator: Accelerator,
    vendors: Container[str],
    least: tuple[int, int] | None = None,
) -> None:
    """Refuse accelerators that an engine has no kernels for; the user's own are let through.

    Args:
        engine: Its name, for the error.
        accelerator: The accelerator.
        vendors: Those it runs on.
        least: The least CUDA compute capability it is built for.

    Raises:
        DeploymentError: It does not run there.
    """
    if accelerator.vendor != "unknown" and accelerator.vendor not in vendors:
        raise DeploymentError(
            f"{engine} does not run on {accelerator.name}; name another GPU, or another engine"
            + (" such as llama.cpp" if accelerator.vendor == "apple" else "")
        )
    capability = accelerator.compute_capability
    if least and accelerator.vendor == "nvidia" and capability and capability < least:
        raise DeploymentError(
            f"{engine} needs compute capability {least[0]}.{least[1]} and {accelerator.name} has "
            f"{capability[0]}.{capability[1]}; name a newer GPU, or another engine"
        )


def check_share(name: str, value: Any) -> None:
    """Refuse what is no number above 0 and at most 1; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise DeploymentError(f"{name} is {shown(value)}; it must be above 0 and at most 1")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse what is none of the choices; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    known = tuple(choices)
    if value is not None and value not in known:
        raise DeploymentError(f"{name} is {shown(value)}; it may be {', '.join(known)}")


def check_switch(name: str, value: Any) -> None:
    """Refuse what is neither true nor false; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    if value is not None and not isinstance(value, bool):
        raise DeploymentError(f"{name} is {shown(value)}; it must be true or false")


def check_text(name: str, value: Any) -> None:
    """Refuse what is no text; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    if value is not None and not isinstance(value, str):
        raise DeploymentError(f"{name} is {shown(value)}; it must be text")
