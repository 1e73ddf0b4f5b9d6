"""The catalogue of accelerators: the bundled data file, extended by a file of the user's.

Finding a name costs about a millisecond: the data file is parsed once, only the names of all
parts are indexed, and only the part that was asked for is built and checked. A user's file is
checked as a whole when it is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from tokenroom.errors import HardwareError, shown
from tokenroom.files import parse_yaml, read_bounded_text
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.names import (
    PartName,
    read_name,
    search_words,
    split_count,
    without_remark,
)
from tokenroom.hardware.records import FIELDS, MOST_BYTES, Record, Slice, read_record
from tokenroom.units import GIB

ENVIRONMENT_VARIABLE: Final = "TOKENROOM_GPUS"
_Item: TypeAlias = tuple[Mapping[str, Any], str]
_MOST_FILE_BYTES: Final = 10 * 2**20
_BUNDLED: Final = Path(__file__).parent / "data" / "accelerators.json"


class Catalogue:
    """Accelerators by name. Build it with :func:`load_catalogue`."""

    def __init__(
        self,
        items: Sequence[_Item],
        legend: Mapping[str, str],
        custom: Set[str] = frozenset(),
    ) -> None:
        """Index the names of ``items``, pairs of raw record and how to call it in an error.

        Of two items with the same key or the same name, the later one counts. Those with a key
        in ``custom`` are the user's own.
        """
        self._items = {item["key"]: (item, where) for item, where in items}
        self._legend = legend
        self._custom = custom
        self._records: dict[str, Record] = {}
        self._found: dict[str, Accelerator] = {}
        self._index: dict[str, dict[int | None, list[str]]] = {}
        for key, (item, _) in self._items.items():
            for part in dict.fromkeys(map(read_name, _names(item))):
                by_memory = self._index.setdefault(part.family, {})
                by_memory.setdefault(part.memory_gb, []).append(key)

    def __len__(self) -> int:
        """Number of parts."""
        return len(self._items)

    def __iter__(self) -> Iterator[Accelerator]:
        """Every part in the order of the files."""
        return (self._record(key).accelerator for key in self._items)

    def find(self, name: str) -> Accelerator:
        """The accelerator that ``name`` means, whatever its case, punctuation or vendor prefix.

        A count (``"8xH100"``) is passed over and a MIG profile (``"H100 MIG 3g.40gb"``) is applied.
        A bare family name means its usual part (``"H100"`` the SXM one, ``"A100"`` the SXM one
        of 80 GB), as the catalogue's aliases say.

        Raises:
            HardwareError: Nothing has that name, more than one has, or it is not cut that way.
        """
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Accelerator:
        for spelling in _spellings(name):
            part = read_name(spelling)
            keys = self._match(part)
            if len(keys) == 1:
                record = self._record(keys[0])
                if part.slice_profile is None:
                    return record.accelerator
                return _cut(record, part.slice_profile)
            if keys:
                raise HardwareError(
                    f"GPU {shown(name)} may be {' or '.join(keys)}; write one of these"
                )
        raise HardwareError(self._unknown(name))

    def search(self, words: str) -> tuple[Accelerator, ...]:
        """Every part of which each of ``words`` begins a word.

        Words are those of its key, names, vendor and architecture, and what follows them written
        together: ``"4070ti"`` finds ``"RTX 4070 Ti"``, while ``"40"`` does not find ``"A40"``.
        """
        wanted = search_words(words)
        if not wanted and words.strip():
            return ()
        found = []
        for key, (item, _) in self._items.items():
            texts = (*_names(item), item.get("vendor", "nvidia"), item.get("architecture", ""))
            held = [ending for text in texts for ending in _endings(search_words(text))]
            if all(any(ending.startswith(word) for ending in held) for word in wanted):
                found.append(self._record(key).accelerator)
        return tuple(found)

    def with_key(self, words: str) -> Accelerator | None:
        """The part whose key has exactly these words (``"RTX 4090"`` means ``rtx-4090``)."""
        key = "-".join(search_words(words))
        return self._record(key).accelerator if key in self._items else None

    def slices(self, accelerator: Accelerator) -> Mapping[str, Slice]:
        """The MIG profiles that a part of this catalogue can be cut into, by name."""
        return self._record(accelerator.key).slices if accelerator.key in self._items else {}

    def _record(self, key: str) -> Record:
        if key not in self._records:
            item, where = self._items[key]
            record = read_record(item, where, self._legend)
            if key in self._custom:
                record = replace(record, accelerator=replace(record.accelerator, custom=True))
            self._records[key] = record
        return self._records[key]

    def _match(self, part: PartName) -> list[str]:
        by_memory = self._index.get(part.family, {})
        if part.memory_gb in by_memory:
            return by_memory[part.memory_gb]
        if part.memory_gb is None:
            return _distinct(by_memory)
        return [
            key
            for key in by_memory.get(None, ())
            if round(self._record(key).accelerator.nominal_memory_bytes / 1e9) == part.memory_gb
        ]

    def _unknown(self, name: str) -> str:
        part = read_name(split_count(name)[1])
        siblings = _distinct(self._index.get(part.family, {}))
        if siblings:
            return (
                f"no GPU {shown(name)} is known with that memory; known are {', '.join(siblings)}"
                "; another size can be given with --gpu-memory"
            )
        from difflib import get_close_matches  # only needed to help after a mistake

        near = _distinct(
            {
                family: self._index[family].get(None) or _distinct(self._index[family])
                for family in get_close_matches(part.family, self._index, n=4, cutoff=0.6)
            }
        )
        return (
            f"no GPU is called {shown(name)}; "
            + (f"near it are {', '.join(near)}" if near else "`tokenroom gpus` lists the names")
            + "; for a part that is not listed give its memory, such as --gpu-memory 96GiB, or"
            " describe it in a file (--gpu-file)"
        )


def load_catalogue(path: Path | None = None) -> Catalogue:
    """The bundled catalogue, extended by a user's file.

    Args:
        path: A TOML, JSON or YAML file in the format of :mod:`tokenroom.hardware.records`. None
            takes the file that the environment variable TOKENROOM_GPUS names, if it is set.

    Raises:
        HardwareError: The file cannot be read or one of its fields is wrong.
    """
    named = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if path is None and named:
        path = Path(named)
    bundled = _bundled()
    if path is None:
        return bundled
    return _extend(bundled._items.values(), bundled._legend, _read_file(path), path.name)


def find_accelerator(name: str, catalogue: Catalogue | None = None) -> Accelerator:
    """The accelerator that ``name`` means; see :meth:`Catalogue.find`."""
    return (catalogue or load_catalogue()).find(name)


def search(words: str = "", catalogue: Catalogue | None = None) -> tuple[Accelerator, ...]:
    """The accelerators that hold all of ``words``; see :meth:`Catalogue.search`."""
    return (catalogue or load_catalogue()).search(words)


def custom_accelerator(
    memory_bytes: int, *, bandwidth: float | None = None, base: Accelerator | None = None
) -> Accelerator:
    """An accelerator of the user's own description.

    Args:
        memory_bytes: Memory as the engine sees it.
        bandwidth: Peak memory bandwidth in bytes a second; that of ``base`` when not given.
        base: The part it is like; without one, only its memory is known.

    Raises:
        HardwareError: A figure is not positive.
    """
    if memory_bytes > MOST_BYTES:
        raise HardwareError("GPU memory is more than 1024 PiB; give a size that a GPU may have")
    if memory_bytes < GIB:
        raise HardwareError(
            f"GPU memory is {memory_bytes} bytes; give at least 1 GiB with its unit, as 96GiB"
        )
    if bandwidth is not None and not bandwidth > 0:
        raise HardwareError(f"GPU bandwidth is {bandwidth} bytes/s; give a positive rate")
    if base is None:
        base = Accelerator(
            key="gpu",
            name="GPU",
            vendor="unknown",
            memory_bytes=0,
            nominal_memory_bytes=0,
        )
    changed: dict[str, Any] = {}
    if memory_bytes != base.memory_bytes:
        changed["memory_bytes"] = changed["nominal_memory_bytes"] = memory_bytes
        changed["driver_memory_bytes"] = None
        changed["memory_assumed"] = False
    if bandwidth is not None:
        changed["bandwidth_bytes_per_second"] = bandwidth
    given = {name: "given by the user" for name, value in changed.items() if value}
    return replace(
        base,
        **changed,
        key=f"{base.key}-custom",
        name=f"{base.name} (custom)",
        sources={**base.sources, **given},
        custom=True,
    )


@cache
def _bundled() -> Catalogue:
    data = json.loads(_BUNDLED.read_bytes())
    items = [(item, f"{item['key']} of the catalogue") for item in data["accelerators"]]
    return Catalogue(items, data["legend"])


def _extend(items: Iterable[_Item], legend: Mapping[str, str], raw: object, file: str) -> Catalogue:
    """The bundled items less those a user's file gives anew by key or name, and the user's."""
    own: list[_Item] = []
    claimed: set[PartName] = set()
    for item, where in _entries(raw, file):
        accelerator = read_record(item, where).accelerator
        if any(accelerator.key == other["key"] for other, _ in own):
            raise HardwareError(
                f"{where} has the key {shown(accelerator.key)} of one before it; give each "
                f"GPU its own"
            )
        own.append(({**item, "key": accelerator.key}, where))
        claimed.update(map(read_name, _names(own[-1][0])))
    kept = []
    for item, where in items:
        aliases = [name for name in item.get("aliases", ()) if read_name(name) not in claimed]
        if claimed.isdisjoint({read_name(item["key"]), read_name(item["name"])}):
            kept.append(({**item, "aliases": aliases}, where))
    return Catalogue([*kept, *own], legend, custom={item["key"] for item, _ in own})


def _entries(raw: object, file: str) -> list[tuple[Any, str]]:
    """The GPUs of a user's file: one, a list, or either under ``accelerators``; and their names."""
    held = raw["accelerators"] if isinstance(raw, Mapping) and "accelerators" in raw else raw
    if isinstance(held, list) and held:
        return [(item, f"accelerators[{index}] in {file}") for index, item in enumerate(held)]
    if isinstance(held, Mapping) and any(name in FIELDS for name in held):
        return [(held, f"the GPU in {file}")]
    raise HardwareError(
        f"{file} describes no GPU; write one with its name and memory, such as "
        '{"name": "My GPU", "memory": "95 GiB"} in JSON, or a list of them'
    )


def _read_file(path: Path) -> object:
    """The parsed content of a user's catalogue, by the file's suffix."""
    suffix = path.suffix.lower()
    if suffix not in (".toml", ".json", ".yaml", ".yml"):
        raise HardwareError(
            f"the GPU file {shown(path.name)} has the suffix {shown(suffix)}; it may be "
            f".toml, .json, .yaml "
            "or .yml"
        )
    text = read_bounded_text(
        path,
        _MOST_FILE_BYTES,
        what=f"the GPU file {shown(str(path))}",
        error=HardwareError,
        streams=True,
    )
    try:
        return _parse(text, suffix)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise HardwareError(f"{path.name} is not valid {suffix[1:].upper()}: {reason}") from None


def _parse(text: str, suffix: str) -> object:
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        import tomllib

        return tomllib.loads(text)
    documents = parse_yaml(text, unique_keys=True)
    return documents[0] if documents else None


def _names(item: Mapping[str, Any]) -> tuple[str, ...]:
    return item["key"], item["name"], *item.get("aliases", ())


def _endings(words: Sequence[str]) -> Iterator[str]:
    """What follows from each word on, written together."""
    for index in range(len(words)):
        yield "".join(words[index:])


def _spellings(name: str) -> Iterator[str]:
    """The name as written, without its count, and without a closing remark."""
    yield name
    bare = split_count(name)[1]
    if bare != name:
        yield bare
    plain = without_remark(bare)
    if plain is not None:
        yield plain


def _distinct(groups: Mapping[Any, Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(key for keys in groups.values() for key in keys))


def _cut(record: Record, profile: str) -> Accelerator:
    """One MIG slice: its own memory, and its share of multiprocessors and bandwidth.

    Source: NVIDIA Multi-Instance GPU user guide, supported profiles; a slice has no link to others.
    """
    whole = record.accelerator
    cut: Slice | None = record.slices.get(profile)
    if cut is None:
        known = ", ".join(record.slices)
        raise HardwareError(
            f"no MIG profile {profile} of {whole.name} is known; "
            + (f"known are {known}" if known else "give its memory with --gpu-memory instead")
        )
    share = cut.multiprocessors / whole.multiprocessors if whole.multiprocessors else None
    bandwidth = whole.bandwidth_bytes_per_second
    source = whole.sources.get("mig", "")
    return replace(
        whole,
        key=f"{whole.key}-mig-{profile}",
        name=f"{whole.name} MIG {profile}",
        aliases=(),
        memory_bytes=cut.memory_bytes,
        memory_assumed=False,
        driver_memory_bytes=None,
        nominal_memory_bytes=int(profile.split(".")[1][:-2]) * 10**9,
        bandwidth_bytes_per_second=bandwidth * cut.memory_eighths / 8 if bandwidth else None,
        flops_per_second={kind: rate * share for kind, rate in whole.flops_per_second.items()}
        if share
        else {},
        link="none",
        link_bytes_per_second=None,
        multiprocessors=cut.multiprocessors,
        sources={
            "memory_bytes": source,
            "multiprocessors": source,
            "bandwidth_bytes_per_second": f"{cut.memory_eighths}/8 of the whole part",
            "flops_per_second": f"{cut.multiprocessors}/{whole.multiprocessors} of the whole part",
        },
    )
