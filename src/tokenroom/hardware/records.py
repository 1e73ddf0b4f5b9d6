"""One accelerator's record in a catalogue file, checked field by field.

The bundled catalogue and the files that users write have the same format: a mapping with a list
``accelerators``, in a user's file also that list alone or a single item, whose items hold

* ``name`` and ``memory`` (as PyTorch sees it), the two required fields;
* ``key``, ``aliases``, ``vendor``, ``architecture``, ``compute_capability``;
* ``driver_memory``, ``nominal_memory``: sizes like ``memory``, ``"79.19 GiB"`` or whole bytes;
* ``bandwidth``, ``link_bandwidth``, ``pcie_bandwidth``: ``"3350 GB/s"`` or bytes a second;
* ``dense_tflops``: 10**12 operations a second by type, without sparsity;
* ``memory_assumed``, whether ``memory`` was derived rather than read from such a part;
* ``link``, ``multiprocessors``, ``unified_memory``;
* ``mig``: by profile, ``memory``, ``multiprocessors`` and ``memory_eighths``, the share of the
  memory system a slice gets;
* ``sources``: where each figure was read, by field; its first word may be a key of the file's
  ``legend``.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tokenroom.errors import HardwareError, TokenroomError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.units import parse_bytes

FLOP_TYPES: Final = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4")
LINKS: Final = ("nvlink", "nvlink_bridge", "pcie", "xgmi", "ethernet", "ici", "hccs", "none")

MOST_BYTES: Final = 2**60
"""A size beyond this is a slip of the pen, not a memory."""

_SIZE_WANTED: Final = "a size with its unit, such as '79.19 GiB', or whole bytes"
FIELDS: Final = (
    "key",
    "name",
    "aliases",
    "vendor",
    "architecture",
    "compute_capability",
    "memory",
    "memory_assumed",
    "driver_memory",
    "nominal_memory",
    "bandwidth",
    "dense_tflops",
    "link",
    "link_bandwidth",
    "pcie_bandwidth",
    "multiprocessors",
    "unified_memory",
    "mig",
    "sources",
)
_SOURCE_FIELDS: Final = {
    "memory": "memory_bytes",
    "driver_memory": "driver_memory_bytes",
    "nominal_memory": "nominal_memory_bytes",
    "bandwidth": "bandwidth_bytes_per_second",
    "dense_tflops": "flops_per_second",
    "link_bandwidth": "link_bytes_per_second",
    "pcie_bandwidth": "pcie_bytes_per_second",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A MIG profile of a part.

    Attributes:
        memory_bytes: Memory of the instance.
        multiprocessors: Its streaming multiprocessors.
        memory_eighths: Eighths of the memory system, so of the bandwidth, it gets.
    """

    memory_bytes: int
    multiprocessors: int
    memory_eighths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An accelerator with the MIG profiles it can be cut into."""

    accelerator: Accelerator
    slices: Mapping[str, Slice] = field(default_factory=dict)


def read_record(raw: object, where: str, legend: Mapping[str, str] | None = None) -> Record:
    """Check one item of ``accelerators`` and build it.

    Args:
        raw: The item as parsed.
        where: How to name it in an error, such as ``"accelerators[2] in gpus.toml"``.
        legend: Texts that sources may refer to by key.

    Raises:
        HardwareError: A field is missing, unknown or holds an impossible value.
    """
    if not isinstance(raw, Mapping):
        raise HardwareError(
            f"{where} is {reprlib.repr(raw)}; give a table of fields with at least name and memory"
        )
    reader = _Reader(raw, where)
    reader.refuse_unknown()
    name = reader.text("name")
    memory_bytes = reader.size("memory")
    if name is None or memory_bytes is None:
        missing = "name" if name is None else "memory"
        raise HardwareError(f"{where} has no {missing}; name and memory are required")
    accelerator = Accelerator(
        key=reader.text("key") or "-".join(re.findall(r"[a-z0-9.]+", name.lower())),
        name=name,
        aliases=reader.texts("aliases"),
        vendor=reader.text("vendor") or "nvidia",
        architecture=reader.text("architecture") or "",
        compute_capability=reader.capability(),
        memory_bytes=memory_bytes,
        memory_assumed=reader.flag("memory_assumed"),
        driver_memory_bytes=reader.size("driver_memory"),
        nominal_memory_bytes=reader.size("nominal_memory") or memory_bytes,
        bandwidth_bytes_per_second=reader.rate("bandwidth"),
        flops_per_second=reader.flops(),
        link=reader.choice("link", LINKS) or "pcie",
        link_bytes_per_second=reader.rate("link_bandwidth"),
        pcie_bytes_per_second=reader.rate("pcie_bandwidth"),
        multiprocessors=reader.count("multiprocessors"),
        unified_memory=reader.flag("unified_memory"),
        sources=reader.sources(legend or {}),
    )
    return Record(accelerator=accelerator, slices=reader.slices())


class _Reader:
    """Takes typed fields out of one parsed item, naming the field in every refusal."""

    def __init__(self, raw: Mapping[object, object], where: str) -> None:
        self._raw = raw
        self._where = where

    def _refuse(self, name: str, wanted: str) -> HardwareError:
        held = reprlib.repr(self._raw[name])
        return HardwareError(f"{name} of {self._where} is {held}; give {wanted}")

    def refuse_unknown(self) -> None:
        for name in self._raw:
            if name not in FIELDS:
                raise HardwareError(
                    f"{self._where} has an unknown field {reprlib.repr(name)}; the fields are "
                    f"{', '.join(FIELDS)}"
                )

    def text(self, name: str) -> str | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self._refuse(name, "a text that is not empty")
        return value.strip()

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._raw.get(name, ())
        if not isinstance(value, list | tuple) or not all(
            isinstance(item, str) and item.strip() for item in value
        ):
            raise self._refuse(name, "a list of texts")
        return tuple(value)

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is not None and value not in choices:
            raise self._refuse(name, f"one of {', '.join(choices)}")
        return value

    def flag(self, name: str) -> bool:
        value = self._raw.get(name, False)
        if not isinstance(value, bool):
            raise self._refuse(name, "true or false")
        return value

    def count(self, name: str) -> int | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._refuse(name, "a positive whole number")
        return value

    def size(self, name: str) -> int | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if isinstance(value, str) and not value.strip().isdigit():
            try:
                value = parse_bytes(value, name)
            except TokenroomError:
                raise self._refuse(name, _SIZE_WANTED) from None
        if type(value) is int and 1 <= value <= MOST_BYTES:
            return value
        raise self._refuse(name, _SIZE_WANTED)

    def rate(self, name: str) -> float | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if _is_positive(value):
            return float(value)  # type: ignore[arg-type]
        if isinstance(value, str) and value.strip().endswith("/s"):
            try:
                return float(parse_bytes(value.strip()[:-2], name))
            except TokenroomError:
                pass
        raise self._refuse(name, "a rate such as '3350 GB/s', or bytes a second")

    def capability(self) -> tuple[int, int] | None:
        value = self._raw.get("compute_capability")
        if value is None:
            return None
        parts = value.split(".") if isinstance(value, str) else value
        if isinstance(parts, list | tuple) and len(parts) == 2:
            major, minor = (
                int(part) if isinstance(part, str) and part.isdigit() else part for part in parts
            )
            if type(major) is int and type(minor) is int and major >= 1 and minor >= 0:
                return major, minor
        raise self._refuse("compute_capability", "major and minor, such as '9.0' or [9, 0]")

    def flops(self) -> dict[str, float]:
        value = self._raw.get("dense_tflops", {})
        if not isinstance(value, Mapping) or not all(
            kind in FLOP_TYPES and _is_positive(rate) for kind, rate in value.items()
        ):
            raise self._refuse(
                "dense_tflops",
                f"positive numbers by type, the types being {', '.join(FLOP_TYPES)}",
            )
        return {kind: rate * 1e12 for kind, rate in value.items()}

    def slices(self) -> dict[str, Slice]:
        value = self._raw.get("mig", {})
        if not isinstance(value, Mapping):
            raise self._refuse("mig", "a table by profile, such as '3g.40gb'")
        slices = {}
        for profile, entry in value.items():
            where = f"mig profile {profile} of {self._where}"
            if not isinstance(entry, Mapping) or set(entry) != set(Slice.__slots__) - {
                "memory_bytes"
            } | {"memory"}:
                held = reprlib.repr(entry)
                raise HardwareError(
                    f"{where} is {held}; give memory, multiprocessors and memory_eighths"
                )
            reader = _Reader(entry, where)
            slices[str(profile)] = Slice(
                memory_bytes=reader.size("memory") or 0,
                multiprocessors=reader.count("multiprocessors") or 0,
                memory_eighths=reader.count("memory_eighths") or 0,
            )
        return slices

    def sources(self, legend: Mapping[str, str]) -> dict[str, str]:
        value = self._raw.get("sources", {})
        if not isinstance(value, Mapping) or not all(
            isinstance(item, str) for item in (*value, *value.values())
        ):
            raise self._refuse("sources", "a text by field name")
        return {
            _SOURCE_FIELDS.get(str(name), str(name)): _expand(text, legend)
            for name, text in value.items()
        }


def _is_positive(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )


def _expand(text: str, legend: Mapping[str, str]) -> str:
    head = re.match(r"[\w-]+", text)
    if head is None or head[0] not in legend:
        return text
    return legend[head[0]] + text[head.end() :]
