"""Typed access to the metadata of a GGUF file, under its architecture's prefix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from tokenroom.errors import ModelError
from tokenroom.models.gguf.container import Value

_MAX_SIZE: Final = 2**40  # beyond every dimension of every model


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Keys are given without the prefix, such as ``attention.head_count``.

    Attributes:
        values: The file's metadata.
        architecture: The prefix.
        file: Name of the file, for errors.
        notes: Sentences on what was assumed while reading; filled by :meth:`assume`.
    """

    values: Mapping[str, Value]
    architecture: str
    file: str
    notes: dict[str, None] = field(default_factory=dict)

    def assume(self, sentence: str) -> None:
        """Notes an assumption once."""
        self.notes.setdefault(sentence)

    def assumptions(self) -> tuple[str, ...]:
        """What was assumed, in order."""
        return tuple(self.notes)

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return f"{self.architecture}.{key}" in self.values

    def raw(self, key: str) -> Value | None:
        """The value as stored, None without one."""
        return self.values.get(f"{self.architecture}.{key}")

    def integer(
        self,
        key: str,
        *,
        index: int | None = None,
        default: int | None = None,
        minimum: int = 1,
        maximum: int = _MAX_SIZE,
    ) -> int:
        """An integer, or its value for one block where the file has one a block.

        Args:
            key: The key.
            index: The block for which to read a list; without it a list is refused.
            default: The value when the key is absent; None: it must be there.
            minimum: Least value allowed.
            maximum: Largest value allowed.

        Raises:
            ModelError: The key is missing, of another type, too short a list or out of range.
        """
        name = f"{self.architecture}.{key}"
        value = self.values.get(name, default)
        if value is None:
            raise ModelError(f"{self.file} has no {name}, which its architecture needs")
        if isinstance(value, tuple) and index is not None:
            if index >= len(value):
                raise ModelError(
                    f"{self.file} has {len(value)} values in {name}, none for block {index}"
                )
            value = value[index]
        if type(value) is not int or not minimum <= value <= maximum:
            raise ModelError(
                f"{self.file} has {name} = {str(value)[:60]}; it must be a whole number of"
                f" {minimum:,} to {maximum:,}"
            )
        return value

    def general_integer(self, key: str, default: int) -> int:
        """An integer under ``general.``, ``default`` when absent or of another type."""
        value = self.values.get(f"general.{key}")
        return value if type(value) is int else default

    def number(self, key: str, default: float) -> float:
        """A finite number, ``default`` when absent or of another type."""
        value = self.raw(key)
        return float(value) if isinstance(value, int | float) and isfinite(value) else default

    def positive_number(self, key: str) -> bool:
        """Whether the key holds a number above zero."""
        value = self.raw(key)
        return isinstance(value, int | float) and value > 0
