"""How keys and values may be quantised: types, what shares a scale, and the bytes it takes.

``tensor``: one scale for all keys of a layer, as engines load it from a checkpoint or start with
1; ``head``: one a KV head; ``channel``: one a head and channel, over the tokens (KIVI's keys,
arXiv:2402.02750, section 3); ``token``: one a token and head, over the channels (KIVI's values;
vLLM's ``*_per_token_head``). Groups divide what shares a scale further: tokens in ``channel``,
channels in ``token``. A scale, and a zero point where there is one, is kept in float32, as vLLM's
per-token-head caches keep theirs (``memory/kv_cache.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tokenroom.errors import MeasurementError, shown

SCALE_BYTES: Final = 4
"""Of a float32 scale."""


class Granularity(StrEnum):
    """What shares a scale."""

    TENSOR = "tensor"
    HEAD = "head"
    CHANNEL = "channel"
    TOKEN = "token"


class Fp8Scale(StrEnum):
    """Where the scale of a floating-point type comes from."""

    AMAX = "amax"
    """The largest magnitude becomes the type's largest value."""
    UNIT = "unit"
    """1, and what is larger saturates: what vLLM and SGLang do without scales in the checkpoint."""
    VLLM = "vllm"
    """The largest magnitude over 200 for keys and 100 for values, found in the first pass:
    ``calculate_kv_scales`` of vLLM 0.16 (``attention.py``, ``K_SCALE_CONSTANT``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheType:
    """A type that values of a cache are stored in.

    Attributes:
        name: As users write it.
        bits: Of a value.
        largest: The largest finite value of a floating-point type, None for integers.
        zero_point: Integers run from the smallest to the largest value instead of around zero.
    """

    name: str
    bits: int
    largest: float | None = None
    zero_point: bool = False


TYPES: Final = {
    kind.name: kind
    for kind in (
        CacheType(name="fp8_e4m3", bits=8, largest=448.0),
        CacheType(name="fp8_e5m2", bits=8, largest=57344.0),
        *(CacheType(name=f"int{bits}", bits=bits) for bits in (8, 4, 3, 2)),
        *(CacheType(name=f"int{bits}-asym", bits=bits, zero_point=True) for bits in (8, 4, 3, 2)),
    )
}
"""Types by name."""
_ALIASES: Final = {"fp8": "fp8_e4m3", "e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """How keys, or values, are quantised.

    Attributes:
        type: In what.
        granularity: What shares a scale.
        group: Tokens (``channel``) or channels (``token``) that share one, None for all.
        fp8_scale: Where a floating-point type's scale comes from.
    """

    type: CacheType
    granularity: Granularity
    group: int | None = None
    fp8_scale: Fp8Scale = Fp8Scale.AMAX

    @property
    def name(self) -> str:
        """As it is written: ``"int4/channel/32"``."""
        parts = [self.type.name, self.granularity.value]
        if self.group is not None:
            parts.append(str(self.group))
        return "/".join(parts)

    def stored_bytes(self, heads: int, tokens: int, channels: int) -> float:
        """Bytes of so many heads, tokens and channels, with scales and zero points."""
        values = heads * tokens * channels
        match self.granularity:
            case Granularity.TENSOR:
                scales = 1
            case Granularity.HEAD:
                scales = heads
            case Granularity.CHANNEL:
                scales = heads * channels * (-(-tokens // self.group) if self.group else 1)
            case Granularity.TOKEN:
                scales = heads * tokens * (channels // self.group if self.group else 1)
        if self.type.largest is not None and self.fp8_scale is Fp8Scale.UNIT:
            scales = 0
        each = SCALE_BYTES * (2 if self.type.zero_point else 1)
        return values * self.type.bits / 8 + scales * each


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What a cache keeps keys and values as; None is the model's own type."""

    keys: Coding | None
    values: Coding | None

    @property
    def name(self) -> str:
        """``"int8/channel"``, or keys and values apart: ``"int4/channel+int4/token"``."""
        if self.keys == self.values:
            return "full" if self.keys is None else self.keys.name
        return "+".join("full" if part is None else part.name for part in (self.keys, self.values))


FULL: Final = Scheme(keys=None, values=None)
"""The cache in the model's own type."""


def schemes_of(
    types: Sequence[str],
    granularities: Sequence[str],
    *,
    parts: str = "both",
    group: int | None = None,
    fp8_scale: Fp8Scale = Fp8Scale.AMAX,
) -> tuple[Scheme, ...]:
    """Every type at every granularity.

    Args:
        types: Names of :data:`TYPES`.
        granularities: Names of :class:`Granularity`.
        parts: ``"both"``, ``"keys"`` or ``"values"``: what is quantised.
        group: For ``channel`` and ``token``.
        fp8_scale: Of floating-point types.

    Raises:
        MeasurementError: A name is unknown.
    """
    found = []
    for name in types:
        for granularity in granularities:
            words = [name, granularity]
            if group is not None and granularity in ("channel", "token"):
                words.append(str(group))
            coding = parse_coding("/".join(words), fp8_scale)
            found.append(
                Scheme(
                    keys=None if parts == "values" else coding,
                    values=None if parts == "keys" else coding,
                )
            )
    return tuple(dict.fromkeys(found))


def parse_scheme(text: str, fp8_scale: Fp8Scale = Fp8Scale.AMAX) -> Scheme:
    """``"int8/channel"``, or ``"int4/channel/32+int4/token/32"`` for keys + values.

    Raises:
        MeasurementError: It is none.
    """
    parts = [part.strip() for part in text.split("+")]
    if len(parts) > 2:
        raise MeasurementError(f"--scheme is {shown(text)}; write one coding, or keys + values")
    codings = [None if part == "full" else parse_coding(part, fp8_scale) for part in parts]
    return Scheme(keys=codings[0], values=codings[-1])


def parse_coding(text: str, fp8_scale: Fp8Scale = Fp8Scale.AMAX) -> Coding:
    """``"TYPE/GRANULARITY"`` or ``"TYPE/GRANULARITY/GROUP"``.

    Raises:
        MeasurementError: A part is unknown.
    """
    name, _, rest = text.partition("/")
    granularity, _, group = rest.partition("/")
    kind = TYPES.get(_ALIASES.get(name, name))
    if kind is None:
        known = ", ".join(("fp8", *TYPES))
        raise MeasurementError(f"the KV cache type is {shown(name)}; it may be {known}")
    if granularity not in set(Granularity):
        known = ", ".join(Granularity)
        raise MeasurementError(f"the granularity is {shown(granularity)}; it may be {known}")
    chosen = Granularity(granularity)
    if not group:
        return Coding(type=kind, granularity=chosen, fp8_scale=fp8_scale)
    if chosen not in (Granularity.CHANNEL, Granularity.TOKEN):
        raise MeasurementError(
            f"{shown(text)} has a group; only channel (of tokens) and token (of channels) have"
        )
    if not group.isdecimal() or not 1 <= int(group) <= 2**20:
        raise MeasurementError(f"the group in {shown(text)} is no whole number from 1; give one")
    return Coding(type=kind, granularity=chosen, group=int(group), fp8_scale=fp8_scale)
