"""Reads what is to be served by from a file: one deployment, or a fleet of several.

YAML or JSON (which is YAML). One deployment is the short form::

    deployment: llama-3-8b --gpu a100 --max-num-seqs 64
    replicas: 4
    router: least_load

A fleet lists its pools::

    name: long and short prompts apart
    pools:
      - name: short
        deployment: llama-3-8b --gpu l40s
        replicas: 3
        max_prompt: 4k
        price: 1.10
      - name: long
        deployment: "--gpu h100 -- vllm serve meta-llama/Meta-Llama-3-8B"
        scale: {min: 1, max: 4, measure: waiting, target: 10, start_up: 90s}
    router: {policy: cache_aware, cache_threshold: 0.5}
    transfer: {link: network, latency: 1ms}

The fields mean what :mod:`tokenroom.serving.fleet_description` says.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from tokenroom.errors import FleetError, TokenroomError, shown
from tokenroom.files import parse_yaml, read_bounded_text
from tokenroom.serving.fleet_description import (
    FleetDescription,
    Measure,
    Policy,
    PoolDescription,
    Role,
    RouterDescription,
    Scaling,
    Transfer,
)
from tokenroom.units import parse_rate, parse_seconds, parse_tokens

_MAX_BYTES: Final = 2**20
_Choice = TypeVar("_Choice", bound=StrEnum)

_POOL: Final = ("name", "deployment", "replicas", "role", "price", "max_prompt", "scale")
_FLEET: Final = ("name", "pools", "router", "transfer")
_SHORT: Final = ("name", "deployment", "replicas", "price", "scale", "router")
_SCALE: Final = (
    *("min", "max", "measure", "target", "every", "tolerance", "start_up", "cool_down"),
)
_TRANSFER: Final = ("link", "bandwidth", "latency")
_ROUTER: Final = tuple(item.name for item in fields(RouterDescription))
_OF_POLICY: Final[Mapping[Policy, tuple[str, ...]]] = {
    Policy.LEAST_LOAD: ("waiting_weight",),
    Policy.POWER_OF_TWO: ("seed",),
    Policy.CACHE_AWARE: ("cache_threshold", "balance_abs_threshold", "balance_rel_threshold"),
    Policy.KV_AWARE: ("overlap_weight",),
}
_WHOLE: Final = ("balance_abs_threshold", "seed")


def read_fleet_file(path: Path) -> FleetDescription:
    """What a file describes.

    Raises:
        FleetError: It cannot be read, or describes no fleet; the message names file and field.
    """
    text = read_bounded_text(path, _MAX_BYTES, what=str(path), error=FleetError, streams=True)
    try:
        documents = parse_yaml(text, unique_keys=True)
    except ValueError as problem:
        raise FleetError(f"{path} is no YAML or JSON: {problem}") from problem
    if len(documents) != 1:
        raise FleetError(
            f"{path} holds {len(documents)} YAML documents; give one, with deployment or pools"
        )
    try:
        return fleet_description(documents[0])
    except FleetError as problem:
        raise FleetError(f"{path}: {problem}") from problem


def fleet_description(found: object) -> FleetDescription:
    """The fleet that a mapping of such a file describes.

    Raises:
        FleetError: It describes none; the message names the field.
    """
    top = _Fields(found, "the file")
    if "deployment" in top.held:
        top.refuse_others(_SHORT, "; a fleet of several pools lists them under pools instead")
        pool = _pool(top, default_name="engine")
        return FleetDescription(pools=(pool,), router=_router(top), name=top.text("name"))
    top.refuse_others(_FLEET)
    pools = top.held.get("pools")
    if not isinstance(pools, list) or not pools:
        raise FleetError(
            f"pools is {shown(pools)}; list the pools, each with a deployment, or give deployment "
            "alone for one"
        )
    named = [
        _named_pool(item, f"pool {number} of {len(pools)}") for number, item in enumerate(pools, 1)
    ]
    return FleetDescription(
        pools=tuple(named),
        router=_router(top),
        transfer=_transfer(top),
        name=top.text("name"),
    )


def _named_pool(item: object, where: str) -> PoolDescription:
    found = _Fields(item, where)
    found.refuse_others(_POOL)
    return _pool(found, default_name=None)


def _pool(found: _Fields, default_name: str | None) -> PoolDescription:
    name = default_name or found.text("name")
    if name is None:
        raise FleetError(f"{found.where} has no name; give it one")
    replicas = found.whole("replicas")
    scaling = _scaling(found)
    if replicas is None:
        replicas = 1 if scaling is None else scaling.least
    return PoolDescription(
        name=name,
        deployment=_words(found),
        replicas=replicas,
        role=found.choice("role", Role) or Role.BOTH,
        price_per_gpu_hour=found.number("price"),
        max_prompt_tokens=found.measured("max_prompt", parse_tokens, whole=True),
        scaling=scaling,
    )


def _words(found: _Fields) -> tuple[str, ...]:
    held = found.held.get("deployment")
    if isinstance(held, str):
        try:
            words = shlex.split(held)
        except ValueError as problem:
            raise found.refused("deployment", f"balance its quotes ({problem})") from None
    elif isinstance(held, list) and all(isinstance(word, str | int | float) for word in held):
        words = [str(word) for word in held]
    else:
        words = []
    if not words:
        raise found.refused(
            "deployment", "write what follows tokenroom simulate, as llama-3-8b --gpu a100"
        )
    return tuple(words)


def _scaling(found: _Fields) -> Scaling | None:
    if found.held.get("scale") is None:
        return None
    scale = _Fields(found.held["scale"], f"scale of {found.where}")
    scale.refuse_others(_SCALE)
    most, target = scale.whole("max"), scale.number("target")
    if most is None or target is None:
        raise FleetError(
            f"{scale.where} has no {'max' if most is None else 'target'}; "
            "give at least max and target"
        )
    given = {
        "least": scale.whole("min"),
        "measure": scale.choice("measure", Measure),
        "every_seconds": scale.measured("every", parse_seconds),
        "tolerance": scale.number("tolerance"),
        "start_up_seconds": scale.measured("start_up", parse_seconds),
        "cool_down_seconds": scale.measured("cool_down", parse_seconds),
    }
    return Scaling(most=most, target=target, **_told(given))


def _router(top: _Fields) -> RouterDescription:
    held = top.held.get("router")
    if held is None:
        return RouterDescription()
    router = _Fields({"policy": held} if isinstance(held, str) else held, "router")
    router.refuse_others(_ROUTER)
    policy = router.choice("policy", Policy) or Policy.ROUND_ROBIN
    allowed = _OF_POLICY.get(policy, ())
    router.refuse_others(
        ("policy", *allowed), f"; policy {policy} has {' and '.join(allowed) or 'no others'}"
    )
    given = {
        name: router.whole(name) if name in _WHOLE else router.number(name) for name in allowed
    }
    return RouterDescription(policy=policy, **_told(given))


def _transfer(top: _Fields) -> Transfer:
    if top.held.get("transfer") is None:
        return Transfer()
    transfer = _Fields(top.held["transfer"], "transfer")
    transfer.refuse_others(_TRANSFER)
    bandwidth = transfer.measured("bandwidth", parse_rate)
    return Transfer(
        link=transfer.text("link") or (None if bandwidth is not None else "network"),
        bytes_per_second=bandwidth,
        latency_seconds=transfer.measured("latency", parse_seconds) or 0.0,
    )


def _told(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


class _Fields:
    """The fields of one mapping; every refusal names the field, where it is and what it held."""

    def __init__(self, held: object, where: str) -> None:
        if not isinstance(held, Mapping):
            raise FleetError(f"{where} is {shown(held)}; give a mapping of fields")
        self.held: Mapping[object, object] = held
        self.where = where

    def refused(self, name: str, wanted: str) -> FleetError:
        """The error of a field that does not hold what is wanted."""
        return FleetError(f"{name} of {self.where} is {shown(self.held.get(name))}; {wanted}")

    def refuse_others(self, known: tuple[str, ...], hint: str = "") -> None:
        """Refuse fields of another name."""
        for name in self.held:
            if name not in known:
                raise FleetError(
                    f"{self.where} has an unknown field {shown(name)}; the fields are "
                    f"{', '.join(known)}{hint}"
                )

    def text(self, name: str) -> str | None:
        """A text, None where there is none."""
        value = self.held.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
            raise self.refused(name, "give a text that is not empty")
        return str(value).strip()

    def choice(self, name: str, of: type[_Choice]) -> _Choice | None:
        """One of several words; a hyphen does for an underscore."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return of(text.lower().replace("-", "_"))
        except ValueError:
            raise self.refused(name, f"it may be {', '.join(of)}") from None

    def number(self, name: str) -> float | None:
        """A number."""
        value = self.held.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refused(name, "give a number")
        try:
            return float(value)
        except OverflowError:
            raise self.refused(name, "give a smaller number") from None

    def whole(self, name: str) -> int | None:
        """A whole number."""
        value = self.held.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refused(name, "give a whole number")
        return value

    def measured(
        self, name: str, parse: Callable[[str, str], Any], *, whole: bool = False
    ) -> Any | None:
        """A quantity with its unit; a bare 0 is none, and whole numbers are told as they are."""
        value = self.held.get(name)
        if value is None:
            return None
        if value == 0 and not isinstance(value, bool) and not whole:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.refused(name, "give a quantity with its unit")
        try:
            return parse(str(value), f"{name} of {self.where}")
        except TokenroomError as problem:
            raise FleetError(str(problem)) from None
