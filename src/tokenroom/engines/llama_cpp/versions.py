"""Which rules of llama.cpp hold in which build; builds are numbered, ``b8766``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.llama_cpp.settings import VERSION
from tokenroom.errors import DeploymentError


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """What changed between builds.

    Attributes:
        version: What to call it.
        flash_attn_auto: Flash attention is on where the device has it (pull 15434, August 2025);
            off by default before.
        auto_slots: The server takes four slots over one pool when their number is not given
            (pull 16736, November 2025); one before.
        fits: Unset layers and context are lowered to fit (pull 16653, December 2025); no layer is
            offloaded by default before.
        limits_outputs: The server reserves logits for its slots' tokens only (pull 23861, June
            2026); for a whole micro-batch before.
    """

    version: str
    flash_attn_auto: bool = True
    auto_slots: bool = True
    fits: bool = True
    limits_outputs: bool = True


#: First build with each change. The pulls carry dates; the builds are those of their days.
_FLASH_AUTO: Final = 6325
_AUTO_SLOTS: Final = 6930
_FITS: Final = 7400
_LIMITS_OUTPUTS: Final = 9400


def rules_for(version: str | None) -> VersionRules:
    """The rules of a build such as ``"b8766"``; the newest read when none is named.

    Raises:
        DeploymentError: It is no build number.
    """
    if version is None or version.lower() in (VERSION, "newest"):
        return VersionRules(version=VERSION)
    match = re.fullmatch(r"b?(\d{3,6})", version.lower())
    if match is None:
        raise DeploymentError(
            f"version is {version!r}; llama.cpp's builds are numbered, such as llama.cpp@b8766"
        )
    build = int(match[1])
    return VersionRules(
        version=f"b{build}",
        flash_attn_auto=build >= _FLASH_AUTO,
        auto_slots=build >= _AUTO_SLOTS,
        fits=build >= _FITS,
        limits_outputs=build >= _LIMITS_OUTPUTS,
    )
