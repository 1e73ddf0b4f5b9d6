"""Damaged configurations through the whole of a fit: which values, where, and how long."""

from __future__ import annotations

import copy
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tokenroom import fit
from tokenroom.errors import TokenroomError
from tokenroom.models.hf_config import read_config

VALUES: tuple[Any, ...] = (
    *(1e308, -1e308, float("inf"), float("-inf"), float("nan"), 2**63, 10**400, -1, 0, 1, 3, 1.5),
    *(2**31 - 1, 10**6, 4096, "", "x", [], {}, None, True, False),
    *([None], [0] * 5, [[]], ["full_attention"], {"a": 1}, {"rope_type": "yarn"}, "float16"),
)
ENGINES = ("vllm@0.33.0", "vllm@0.11.0", "vllm@0.8.5", "vllm@0.6.3")

Place = tuple[Any, ...]


class TooSlowError(AssertionError):
    """A fit took longer than anybody waits."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise :class:`TooSlowError` inside when it takes longer."""

    def ring(number: int, frame: object) -> None:
        raise TooSlowError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def places(data: object, place: Place = ()) -> Iterator[Place]:
    """Where a value may be exchanged: every field of every object, and the first item of lists."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield (*place, key)
            yield from places(value, (*place, key))
    elif isinstance(data, list) and data:
        yield (*place, 0)
        yield from places(data[0], (*place, 0))


def changed(data: Mapping[str, Any], place: Place, value: object) -> dict[str, Any]:
    """A copy with another value at a place."""
    found: Any = copy.deepcopy(dict(data))
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = copy.deepcopy(value)
    return found  # type: ignore[no-any-return]


def answers(data: Mapping[str, Any], engine: str, gpus: int = 1) -> str:
    """How a fit of the configuration ends: a verdict, or the sentence of its refusal."""
    try:
        result = fit(read_config(data, "fuzzed"), "h100", gpus=gpus, engine=engine)
        return f"{result.verdict} {result.max_model_len_that_fits}"
    except TokenroomError as error:
        return str(error)
