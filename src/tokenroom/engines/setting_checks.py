"""Checks of settings that people write, with one sentence for each mistake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tokenroom.errors import DeploymentError


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
            raise DeploymentError(f"{engine} has no setting {name!r}{hint}")
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
        raise DeploymentError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def check_share(name: str, value: Any) -> None:
    """Refuse what is no number above 0 and at most 1; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise DeploymentError(f"{name} is {value!r}; it must be above 0 and at most 1")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse what is none of the choices; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    known = tuple(choices)
    if value is not None and value not in known:
        raise DeploymentError(f"{name} is {value!r}; it may be {', '.join(known)}")


def check_switch(name: str, value: Any) -> None:
    """Refuse what is neither true nor false; None is not set.

    Raises:
        DeploymentError: It is not.
    """
    if value is not None and not isinstance(value, bool):
        raise DeploymentError(f"{name} is {value!r}; it must be true or false")
