"""Typed reading of a config.json whose absent fields take their class's defaults.

Absent and null differ: an absent field takes the default of its configuration class, an explicit
null stays None (``q_lora_rank: null`` turns query compression off, while leaving the key out turns
it on for a class whose default is a number).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NoReturn

from tokenroom.errors import ModelError, shown
from tokenroom.models.class_defaults import ClassDefaults, class_defaults

MAX_INTEGER: Final = 2**31 - 1
"""Largest count or width a field may hold; anything above is damage, not a model."""


MAX_LAYERS: Final = 4096
"""More blocks than any model has: a larger figure is damage."""

_MAX_PARTS: Final = 65_536  # experts or heads of one layer
_LARGEST_NUMBER: Final = 1e15  # of rates, factors and multipliers
_LAYER_COUNT: Final = re.compile(r"(^|_)(layers?|depths?|blocks?|stages|stacks)$")
_PART_COUNT: Final = re.compile(r"(experts?|heads?)$|^(n|num)_.*(experts?|heads?)")


class _Missing:
    """Marks "no default given", since None is a value a field may hold."""


_MISSING: Final = _Missing()


@cache
def _largest(key: str) -> int:
    """The largest count or width that a field of this name may hold."""
    if _LAYER_COUNT.search(key):
        return MAX_LAYERS
    if _PART_COUNT.search(key):
        return _MAX_PARTS
    return MAX_INTEGER


class Config:
    """A configuration mapping together with its model type's class defaults.

    Every getter takes one or more spellings of a field: the first that the file has wins, then
    the first that the class has a default for, then ``default``. Getters remember what was read
    (:meth:`unread`) and what had to be taken from the class (:meth:`defaulted`).

    Attributes:
        model_type: The type whose defaults apply.
        path: Where this configuration lies in the file (``""`` or ``"text_config"``).
    """

    __slots__ = ("_data", "_defaulted", "_defaults", "_read", "_subs", "model_type", "path")

    def __init__(self, data: Mapping[str, object], model_type: str, path: str = "") -> None:
        self._data = data
        self._defaults: ClassDefaults = class_defaults(model_type)
        self._read: set[str] = {"model_type"}
        self._defaulted: dict[str, object] = {}
        self._subs: list[Config] = []
        self.model_type = model_type
        self.path = path

    def field(self, key: str) -> str:
        """The full name of ``key`` for messages, such as ``"text_config.hidden_size"``."""
        return f"{self.path}.{key}" if self.path else key

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise the error that says what ``key`` held and what it may hold.

        Raises:
            ModelError: Always.
        """
        if not self.has(key) and key not in self._defaults.values:
            raise ModelError(
                f"the model configuration ({self.model_type}) has no {self.field(key)}; "
                f"it must hold {expected}"
            )
        raise ModelError(
            f"{self.field(key)} in the model configuration is {shown(self.get(key))}; "
            f"it must hold {expected}"
        )

    def has(self, key: str) -> bool:
        """Whether the file itself has ``key``, be it null."""
        return self._spelling(key) is not None

    def _spelling(self, key: str) -> str | None:
        if key in self._data:
            return key
        aliases = self._defaults.aliases
        target = aliases.get(key)
        if target is not None and target in self._data:
            return target
        for alias, field in aliases.items():
            if field == (target or key) and alias in self._data:
                return alias
        return None

    def get(self, *keys: str, default: object = None) -> object:
        """The raw value: of the file, else the class default, else ``default``."""
        for key in keys:
            spelling = self._spelling(key)
            if spelling is not None:
                self._read.add(spelling)
                return self._data[spelling]
        for key in keys:
            for name in (key, self._defaults.aliases.get(key, key)):
                if name in self._defaults.values:
                    self._defaulted[key] = self._defaults.values[name]
                    return self._defaults.values[name]
        return default

    def _named(self, keys: tuple[str, ...]) -> str:
        return next((key for key in keys if self.has(key)), keys[0])

    def optional_integer(
        self,
        *keys: str,
        default: int | None = None,
        minimum: int = 1,
        maximum: int | None = None,
    ) -> int | None:
        """A whole number, or None for null or nothing.

        Args:
            keys: Spellings of the field.
            default: What it is when neither the file nor the class has it.
            minimum: Smallest value.
            maximum: Largest value; by default 4,096 for a number of layers, 65,536 for one of
                experts or heads, and :data:`MAX_INTEGER` for anything else.

        Raises:
            ModelError: The field holds something else or is out of [minimum, maximum].
        """
        value = self.get(*keys, default=default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(self._named(keys), "a whole number")
        largest = _largest(keys[0]) if maximum is None else maximum
        if not minimum <= value <= largest:
            self.refuse(self._named(keys), f"a whole number from {minimum} to {largest}")
        return value

    def integer(
        self,
        *keys: str,
        default: int | None = None,
        minimum: int = 1,
        maximum: int | None = None,
    ) -> int:
        """A whole number; see :meth:`optional_integer`.

        Raises:
            ModelError: The field is absent without a default, null, not whole or out of range.
        """
        value = self.optional_integer(*keys, default=default, minimum=minimum, maximum=maximum)
        if value is None:
            self.refuse(self._named(keys), f"a whole number of at least {minimum}")
        return value

    def optional_number(self, *keys: str, default: float | None = None) -> float | None:
        """A finite number, or None for null or nothing.

        Raises:
            ModelError: The field holds something else, or more than 1e15 either way.
        """
        value = self.get(*keys, default=default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(self._named(keys), "a finite number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) <= _LARGEST_NUMBER:  # nan, too, fails this
            self.refuse(self._named(keys), f"a number of at most {_LARGEST_NUMBER:g}")
        return number

    def number(self, *keys: str, default: float | None = None) -> float:
        """A finite number.

        Raises:
            ModelError: The field is absent without a default, null or not a finite number.
        """
        value = self.optional_number(*keys, default=default)
        if value is None:
            self.refuse(self._named(keys), "a finite number")
        return value

    def text(self, *keys: str, default: str = "") -> str:
        """A string; null and nothing give ``default``.

        Raises:
            ModelError: The field holds something else.
        """
        value = self.get(*keys, default=default)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(self._named(keys), "a string")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        """True or false; null is false, nothing is the class default or ``default``.

        Raises:
            ModelError: The field holds something else.
        """
        value = self.get(*keys, default=default)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.refuse(self._named(keys), "true or false")
        return value

    def sequence(self, *keys: str) -> tuple[object, ...] | None:
        """A list as a tuple, or None for null or nothing.

        Raises:
            ModelError: The field holds something else.
        """
        value = self.get(*keys)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            self.refuse(self._named(keys), "a list")
        return tuple(value)

    def integers(self, *keys: str, minimum: int = 0) -> tuple[int, ...] | None:
        """A list of whole numbers as a tuple, or None for null or nothing.

        Raises:
            ModelError: The field holds something else.
        """
        values = self.sequence(*keys)
        if values is None:
            return None
        whole: list[int] = []
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int):
                self.refuse(self._named(keys), "a list of whole numbers")
            if not minimum <= value <= MAX_INTEGER:
                self.refuse(self._named(keys), f"whole numbers from {minimum} to {MAX_INTEGER}")
            whole.append(value)
        return tuple(whole)

    def texts(self, *keys: str) -> tuple[str, ...] | None:
        """A list of strings as a tuple, or None for null or nothing.

        Raises:
            ModelError: The field holds something else.
        """
        values = self.sequence(*keys)
        if values is None:
            return None
        strings = tuple(value for value in values if isinstance(value, str))
        if len(strings) != len(values):
            self.refuse(self._named(keys), "a list of strings")
        return strings

    def mapping(self, *keys: str) -> Mapping[str, object] | None:
        """A nested object as it stands, or None for null or nothing.

        Raises:
            ModelError: The field holds something else.
        """
        value = self.get(*keys)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.refuse(self._named(keys), "an object")
        return value

    def sub(self, key: str, model_type: str | None = None, *, fixed: bool = False) -> Config:
        """The nested configuration under ``key``, empty (all defaults) when absent or null.

        Args:
            key: Its field.
            model_type: Its type, unless it names one itself; None takes the class's choice, and
                failing that the outer type.
            fixed: Whether the outer class fixes the type, whatever the nested object names.

        Raises:
            ModelError: The field is not an object.
        """
        data = self.mapping(key) or {}
        named = data.get("model_type")
        fallback = model_type or self._defaults.sub_types.get(key) or self.model_type
        chosen = named if isinstance(named, str) and not fixed else fallback
        nested = Config(data, chosen, self.field(key))
        self._subs.append(nested)
        return nested

    def viewed_as(self, model_type: str) -> Config:
        """The same fields under another type's defaults (older files keep a text model flat)."""
        view = Config(self._data, model_type, self.path)
        view._read = self._read
        view._defaulted = self._defaulted
        view._subs = self._subs
        return view

    def mark_read(self, *keys: str) -> None:
        """Count ``keys`` as read: they are understood and change nothing here."""
        self._read.update(keys)

    def defaulted(self) -> Mapping[str, object]:
        """What was read, is not in the file, and has its class's default."""
        return self._defaulted

    def nested(self) -> tuple[Config, ...]:
        """The nested configurations that were read."""
        return tuple(self._subs)

    def unread(self) -> dict[str, object]:
        """What the file has and nobody read, by full field name, nested ones included."""
        found = {
            self.field(key): value for key, value in self._data.items() if key not in self._read
        }
        for nested in self._subs:
            found.update(nested.unread())
        return found
