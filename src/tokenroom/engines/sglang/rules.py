"""Where SGLang's memory rules changed between versions.

Read in ``server_args.py`` (to 0.5.18), ``arg_groups/memory_hook.py`` and
``arg_groups/cuda_graph_hook.py`` (from 0.5.19), ``model_executor/model_runner.py``,
``model_runner_kv_cache_mixin.py`` and ``pool_configurator.py`` of 33 versions from 0.3.6 to 0.5.23.
A version between two of them takes the rules of the one before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tokenroom.errors import DeploymentError, shown

_OLDEST: Final = (0, 3, 6)
_RELEASE: Final = re.compile(r"\d+(\.\d+)+")
NEWEST_VERSION: Final = "0.5.23"
"""The newest SGLang whose sources were read."""


class FractionRule(StrEnum):
    """How ``mem_fraction_static`` is chosen when the user gives none."""

    BY_RANKS = "by_ranks"  # 0.88 to 0.79 by tensor parallelism, to 0.4.5
    BY_RANKS_OR_13_GIB = "by_ranks_or_13_gib"  # 0.4.6: 13 GiB left on cards above 80 GiB
    BY_RANKS_OR_18_GIB = "by_ranks_or_18_gib"  # 0.4.7
    BY_CARD = "by_card"  # 0.4.8 to 0.5.2: a reserve by size of the card
    BY_WORK = "by_work"  # from 0.5.3: a reserve by prefill chunk, graphs and ranks


class VisionRule(StrEnum):
    """How much less a multimodal model takes."""

    NONE = "none"
    TENTH = "tenth"  # 0.4.9: nine tenths
    BY_TOWER = "by_tower"  # from 0.4.10: by layers and width of the vision tower


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Defaults of cards up to a size (``get_device_memory_capacity``, MiB of the driver).

    Attributes:
        below_mib: Cards with less than this.
        chunk: ``chunked_prefill_size``.
        graphs_few_ranks: ``cuda_graph_max_bs`` under four tensor-parallel ranks; None captures
            the whole list.
        graphs_many_ranks: The same from four on.
    """

    below_mib: float
    chunk: int
    graphs_few_ranks: int | None
    graphs_many_ranks: int | None


_ENDLESS: Final = float("inf")


def _tier(below: float, chunk: int, few: int | None, many: int | None) -> Tier:
    return Tier(below_mib=below, chunk=chunk, graphs_few_ranks=few, graphs_many_ranks=many)


_BY_CARD: Final = (
    _tier(35 * 1024, 2048, 8, 80),
    _tier(160 * 1024, 8192, None, None),
    _tier(_ENDLESS, 16384, None, None),
)
_LARGER: Final = (
    _tier(60 * 1024, 4096, 32, 160),
    _tier(160 * 1024, 8192, 256, 512),
    _tier(_ENDLESS, 16384, 512, 512),
)


def _tiers(version: tuple[int, ...]) -> tuple[Tier, ...]:
    if version < (0, 4):
        return (_tier(25_000, 2048, 4, 4), _tier(_ENDLESS, 8192, 160, 160))
    if version < (0, 4, 3):
        return (_tier(25_000, 2048, 8, 8), _tier(_ENDLESS, 8192, 160, 160))
    if version < (0, 4, 6):
        return (_tier(25_000, 2048, 8, 80), _tier(_ENDLESS, 8192, 160, 160))
    if version < (0, 4, 7):
        return (_tier(25_000, 2048, 8, 80), _tier(_ENDLESS, 8192, None, None))
    if version < (0, 4, 8):
        return (
            _tier(25_000, 2048, 8, 80),
            _tier(180_000.5, 8192, None, None),  # "gpu_mem > 180_000" takes the last
            _tier(_ENDLESS, 16384, None, None),
        )
    if version < (0, 5, 3):
        return _BY_CARD
    small = _tier(20 * 1024, 2048, 8, 8)
    if version < (0, 5, 5):
        return (small, _tier(35 * 1024, 2048, 16, 80), *_LARGER)
    if version < (0, 5, 20):
        return (small, _tier(35 * 1024, 2048, 24, 80), *_LARGER)
    return (small, _tier(35 * 1024, 4096, 48, 160), *_LARGER)


def _fraction_rule(version: tuple[int, ...]) -> FractionRule:
    if version < (0, 4, 6):
        return FractionRule.BY_RANKS
    if version < (0, 4, 7):
        return FractionRule.BY_RANKS_OR_13_GIB
    if version < (0, 4, 8):
        return FractionRule.BY_RANKS_OR_18_GIB
    return FractionRule.BY_CARD if version < (0, 5, 3) else FractionRule.BY_WORK


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """The decisions that differ between versions.

    Attributes:
        version: Numbers of the version.
        name: The version as named.
        fraction: How ``mem_fraction_static`` is chosen.
        vision: How it is lessened for multimodal models.
        tiers: Defaults by size of the card, smallest first.
        prefill_graphs_by_default: Prefill graphs are captured unless switched off; before, only
            when switched on.
    """

    version: tuple[int, ...]
    name: str
    fraction: FractionRule
    vision: VisionRule
    tiers: tuple[Tier, ...]
    prefill_graphs_by_default: bool

    def since(self, *version: int) -> bool:
        """Whether these are the rules of that version or a later one."""
        return self.version >= version


def version_numbers(text: str) -> tuple[int, ...]:
    """``"0.4.8.post1"`` as ``(0, 4, 8, 1)``; a development version counts as its release."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0].split("-")[0])[:4])


@lru_cache(maxsize=64)
def rules_for(text: str | None) -> VersionRules:
    """The rules of a version; the newest read when none is named."""
    name = text or NEWEST_VERSION
    if not _RELEASE.match(name):
        raise DeploymentError(
            f"version is {shown(name)}, which is no release of SGLang; write one such as "
            f"{NEWEST_VERSION}"
        )
    version = version_numbers(name)
    if version < _OLDEST:
        raise DeploymentError(
            f"version is {name}; SGLang's rules are known from {'.'.join(map(str, _OLDEST))} on"
        )
    if version < (0, 4, 9):
        vision = VisionRule.NONE
    elif version < (0, 4, 10):
        vision = VisionRule.TENTH
    else:
        vision = VisionRule.BY_TOWER
    return VersionRules(
        version=version,
        name=name,
        fraction=_fraction_rule(version),
        vision=vision,
        tiers=_tiers(version),
        prefill_graphs_by_default=version >= (0, 5, 10),
    )
