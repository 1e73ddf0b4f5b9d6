"""Typed reading of a quantisation block, with errors that name the field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tokenroom.errors import QuantizationError, shown
from tokenroom.models.config import MAX_INTEGER


def refuse(field: str, value: object, expected: str) -> QuantizationError:
    """The error that says what ``field`` held and what it may hold."""
    return QuantizationError(
        f"{field} in the quantization configuration is {shown(value)}; it must be {expected}"
    )


def integer(config: Mapping[str, object], field: str, default: int | None = None) -> int:
    """A whole number; a string of digits counts, null and nothing give ``default``.

    Raises:
        QuantizationError: It is something else, or absent without a default.
    """
    value = config.get(field)
    if value is None:
        if default is None:
            raise refuse(field, value, "a whole number")
        return default
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,10}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(field, value, "a whole number")
    if abs(value) > MAX_INTEGER:
        raise refuse(field, value, f"a whole number of at most {MAX_INTEGER:,}")
    return value


def bits(config: Mapping[str, object], field: str, default: int | None = None) -> int:
    """The width of a packed weight, 1 to 8 bits.

    Raises:
        QuantizationError: It is out of that range.
    """
    value = integer(config, field, default)
    if not 1 <= value <= 8:
        raise refuse(field, value, "from 1 to 8 bits")
    return value


def group(config: Mapping[str, object], field: str, default: int) -> int:
    """A group size: a positive count, or -1 for one group an output row.

    Raises:
        QuantizationError: It is neither.
    """
    value = integer(config, field, default)
    if value == 0 or value < -1:
        raise refuse(field, value, "a positive count of input elements, or -1 for whole rows")
    return value


def flag(config: Mapping[str, object], field: str, default: bool = False) -> bool:
    """True or false; null and nothing give ``default``.

    Raises:
        QuantizationError: It is something else.
    """
    value = config.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise refuse(field, value, "true or false")
    return value


def text(config: Mapping[str, object], field: str, default: str = "") -> str:
    """A string; null and nothing give ``default``.

    Raises:
        QuantizationError: It is something else.
    """
    value = config.get(field)
    if value is None:
        return default
    if not isinstance(value, str):
        raise refuse(field, value, "a string")
    return value


def names(config: Mapping[str, object], *fields: str) -> tuple[str, ...]:
    """A list of module names from the first of ``fields`` that holds one.

    Nested lists (GPTQ's ``modules_in_block_to_quantize``) are flattened.

    Raises:
        QuantizationError: It is not a list of strings.
    """
    for field in fields:
        value = config.get(field)
        if value:
            return tuple(_flat(field, value))
    return ()


def _flat(field: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence):
        raise refuse(field, value, "a list of module names")
    found: list[str] = []
    for item in value:
        found += _flat(field, item)
    return found


def mapping(config: Mapping[str, object], field: str) -> Mapping[str, object]:
    """A nested block; null and nothing give an empty one.

    Raises:
        QuantizationError: It is something else.
    """
    value = config.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refuse(field, value, "a block of settings")
    return value


def block_shape(config: Mapping[str, object], field: str) -> tuple[int, int] | None:
    """An (out, in) block; null and nothing give None.

    Raises:
        QuantizationError: It is not two positive whole numbers.
    """
    value = config.get(field)
    if value is None:
        return None
    if (
        not isinstance(value, Sequence)
        or len(value) != 2
        or any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in value)
    ):
        raise refuse(field, value, "two positive whole numbers, such as [128, 128]")
    return value[0], value[1]
