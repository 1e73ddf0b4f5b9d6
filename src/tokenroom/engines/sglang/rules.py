"""Where SGLang's memory rules changed between versions.

Read in ``server_args.py`` (to 0.5.18), ``arg_groups/memory_hook.py`` and
``arg_groups/cuda_graph_hook.py`` (from 0.5.19), ``model_executor/model_runner.py``,
``model_runner_kv_cache_mixin.py`` and ``pool_configurator.py`` of 33 versions from 0.3.6 to 0.5.23.
A version between two of them takes the rules of the one before it.

Between two releases ``main`` passes through states that no release has. A build of it is named by
the release it led to and its day, ``0.5.14.dev20260618``: it has that release's rules but for the
commits of :data:`_COMMITS` that came later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from tokenroom.errors import DeploymentError, shown

_OLDEST: Final = (0, 3, 6)
_RELEASE: Final = re.compile(r"\d{1,9}(\.\d{1,9})+(?!\d)")
_DAILY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})+)\.dev(\d{8})(?:\+\w+)?")
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
        draft_reserve: A flat size is kept free for a draft model, its pool and its graphs.
        draft_cells_charged: A token is charged the cells of the draft's own pool.
        drafts_loaded_first: Draft weights are loaded, and counted, before the pools are sized.
    """

    version: tuple[int, ...]
    name: str
    fraction: FractionRule
    vision: VisionRule
    tiers: tuple[Tier, ...]
    prefill_graphs_by_default: bool
    draft_reserve: bool
    draft_cells_charged: bool
    drafts_loaded_first: bool

    def since(self, *version: int) -> bool:
        """Whether these are the rules of that version or a later one."""
        return self.version >= version


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit of ``main`` that changed rules, for builds between two releases.

    Attributes:
        release: Numbers of the first release that has it.
        day: When it was merged.
        before: What the rules were until then.
        source: Pull request and commit.
    """

    release: tuple[int, ...]
    day: date
    before: dict[str, Any]
    source: str


_COMMITS: Final = (
    Commit(
        release=(0, 5, 14),
        day=date(2026, 6, 12),
        before={"draft_reserve": True, "draft_cells_charged": False},
        source="sgl-project/sglang pull 23862, 75998d0421",
    ),
    Commit(
        release=(0, 5, 14),
        day=date(2026, 6, 22),
        before={"drafts_loaded_first": False},
        source="sgl-project/sglang pull 28855, 0c065671c9",
    ),
)
"""Merged for good; pull 28683 was taken back on the day it was merged."""


def version_numbers(text: str) -> tuple[int, ...]:
    """``"0.4.8.post1"`` as ``(0, 4, 8, 1)``; a development version counts as its release."""
    release = text.split("+")[0].split("-")[0].split(".dev")[0]
    return tuple(int(part) for part in re.findall(r"\d{1,9}", release)[:4])


@lru_cache(maxsize=64)
def rules_for(text: str | None) -> VersionRules:
    """The rules of a version; the newest read when none is named.

    Raises:
        DeploymentError: It is no version, or older than any whose rules are known.
    """
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
    rules = VersionRules(
        version=version,
        name=name,
        fraction=_fraction_rule(version),
        vision=vision,
        tiers=_tiers(version),
        prefill_graphs_by_default=version >= (0, 5, 10),
        draft_reserve=version < (0, 5, 14),
        draft_cells_charged=version >= (0, 5, 14),
        drafts_loaded_first=version >= (0, 5, 14),
    )
    return _as_of(_day(name), rules)


def _day(name: str) -> date | None:
    """The day of a build of ``main``, None for a release.

    Raises:
        DeploymentError: The eight digits are no date.
    """
    match = _DAILY.fullmatch(name)
    if match is None:
        return None
    try:
        return date.fromisoformat(match[2])
    except ValueError:
        raise DeploymentError(
            f"version is {shown(name)}, and {match[2]} is no date; write a build of main by the "
            f"release it led to and its day, such as 0.5.14.dev20260618"
        ) from None


def _as_of(day: date | None, rules: VersionRules) -> VersionRules:
    """A release's rules without the commits that came after a day."""
    if day is None:
        return rules
    for commit in _COMMITS:
        if rules.version[:3] == commit.release and day < commit.day:
            rules = replace(rules, **commit.before)
    return rules
