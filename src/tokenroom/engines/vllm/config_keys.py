"""Keys of the JSON options that vLLM refuses when it does not know them.

Source: fields of ``SpeculativeConfig`` (every version that takes ``--speculative-config`` builds it
from the keys, 0.8.2 to 0.33.0) and ``CompilationConfig`` (``extra="forbid"`` since 0.13; before,
unknown keys were dropped); those the engine fills in itself are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from tokenroom.engines.vllm.rules import version_number
from tokenroom.errors import CommandLineError, shown

_DATA: Final = Path(__file__).parent / "data" / "config_keys.json"
_STRICT_SINCE: Final = {"SpeculativeConfig": (0, 8, 2), "CompilationConfig": (0, 13, 0)}
_CLASSES: Final = {
    "--speculative-config": "SpeculativeConfig",
    "--compilation-config": "CompilationConfig",
}


def check_keys(flag: str, keys: Iterable[str], version: str) -> None:
    """Refuse keys that the version's configuration class does not have.

    Args:
        flag: ``"--speculative-config"`` or ``"--compilation-config"``.
        keys: Those given.
        version: vLLM version.

    Raises:
        CommandLineError: Which key, and what is near it.
    """
    number = version_number(version)
    name = _CLASSES[flag]
    if number < _STRICT_SINCE[name]:
        return
    known = known_keys(name, number)
    for key in keys:
        if key in known:
            continue
        if name == "SpeculativeConfig" and key == "tensor_parallel_size":
            raise CommandLineError(
                f"{flag} has no key tensor_parallel_size; give draft_tensor_parallel_size"
            )
        from difflib import get_close_matches  # only needed to help after a mistake

        near = get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CommandLineError(f"{flag} of vLLM {version} has no key {shown(key)}{hint}")


@lru_cache(maxsize=32)
def known_keys(name: str, version: tuple[int, ...]) -> frozenset[str]:
    """Keys that the class of a version takes."""
    lives = json.loads(_DATA.read_text())[name]
    return frozenset(
        key
        for key, life in lives.items()
        if version_number(life[0]) <= version
        and (len(life) == 1 or version < version_number(life[1]))
    )
