"""Which engines there are, by the name people give them (``vllm`` or ``vllm@0.19.0``)."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Final, cast

from tokenroom.engines.policy import Engine
from tokenroom.errors import DeploymentError

_ENGINES: Final = {
    # name: (module, attribute that holds the policy)
    "vllm": ("tokenroom.engines.vllm.policy", "VLLM"),
}


def engine_names() -> tuple[str, ...]:
    """Names of all engines."""
    return tuple(_ENGINES)


@lru_cache(maxsize=64)
def engine_named(text: str) -> tuple[Engine, str | None]:
    """The engine and the version asked for, None when no version is named.

    Raises:
        DeploymentError: The engine is unknown.
    """
    name, _, version = text.strip().lower().partition("@")
    if name not in _ENGINES:
        raise DeploymentError(
            f"--engine is {text!r}; it may be {', '.join(_ENGINES)}, "
            f"with a version after @ when it is not the newest (vllm@0.19.0)"
        )
    module, attribute = _ENGINES[name]
    return cast(Engine, getattr(import_module(module), attribute)), version or None
