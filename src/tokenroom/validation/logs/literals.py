"""Python values as logs print them, without running anything."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any, Final

_NAME: Final = re.compile(r"(?:'(\w+)'\s*:|\b(\w+)=)\s*")
_OPEN: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
_MAX_VALUE: Final = 20_000


def named_values(text: str) -> Iterator[tuple[str, Any]]:
    """Pairs of ``{'name': value, ...}`` or ``name=value, ...``; what is no literal is passed over.

    Values nested in others are not pairs of their own.
    """
    place = 0
    while (match := _NAME.search(text, place)) is not None:
        end = _value_end(text, match.end())
        raw = text[match.end() : end].strip()
        place = max(end, match.end())
        known, value = _literal(raw)
        if known:
            yield match[1] or match[2], value


def _value_end(text: str, start: int) -> int:
    """Where the value that begins at ``start`` ends: at a comma or bracket outside of it."""
    depth: list[str] = []
    quote = ""
    place = start
    while place < len(text) and place - start < _MAX_VALUE:
        char = text[place]
        if quote:
            if char == "\\":
                place += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            depth.append(_OPEN[char])
        elif depth and char == depth[-1]:
            depth.pop()
        elif not depth and char in ",)}]":
            return place
        place += 1
    return place


def _literal(raw: str) -> tuple[bool, Any]:
    """Whether a text is a literal, and its value; bare words as config lines print them are."""
    if not raw or len(raw) > _MAX_VALUE:
        return False, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # "1in" is no literal, and no matter
            return True, ast.literal_eval(raw)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    if re.fullmatch(r"torch\.\w+", raw):
        return True, raw.removeprefix("torch.")
    if re.fullmatch(r"[\w./:@+-]+", raw):
        return True, raw
    return False, None
