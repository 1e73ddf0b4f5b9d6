"""How the functions of this package are compiled, and where the result is kept."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import numba
from numba import njit

from tokenroom.serving.compiled.coverage import cache_folder

gc.freeze()  # what numba brings stays to the end: looking through it stops a run again and again

_OPTIONS: Final[dict[str, Any]] = {"error_model": "numpy", "_nrt": False}
"""Nothing is allocated, so nothing is counted: counting holders of the arrays takes most of the
time of what is done with them."""
_WITHOUT_WRAPPERS: Final[dict[str, Any]] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

P = ParamSpec("P")
R = TypeVar("R")


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """A function that Python calls: compiled with all that it calls, and kept where that goes."""
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder())
    try:
        made: Callable[P, R] = njit(cache=True, **_OPTIONS)(function)
    except (OSError, RuntimeError):  # nowhere to write
        made = njit(**_OPTIONS)(function)
    finally:
        config.CACHE_DIR = before
    return made


def called(function: Callable[P, R]) -> Callable[P, R]:
    """A function that only compiled ones call, as it is."""
    made: Callable[P, R] = njit(**_OPTIONS, **_WITHOUT_WRAPPERS)(function)
    return made


def merged(function: Callable[P, R]) -> Callable[P, R]:
    """A function that only compiled ones call, which becomes part of each of them.

    Passing all the arrays of an engine takes as long as what small functions do with them.
    """
    made: Callable[P, R] = njit(forceinline=True, **_OPTIONS, **_WITHOUT_WRAPPERS)(function)
    return made
