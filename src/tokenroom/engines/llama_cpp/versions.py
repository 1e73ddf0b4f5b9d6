"""Which rules of llama.cpp hold in which build; builds are numbered, ``b8766``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.llama_cpp.settings import COMMIT, VERSION
from tokenroom.errors import DeploymentError, shown


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
        cell_padding: Cells of a cache are a multiple of this: 256 since pull 17046 (November
            2025), 1 for two weeks before (pull 16812), 0 for 256 with flash attention and 32
            without it (pull 7257, May 2024).
        indexed_writes: Rows of the cache are written by an index for each, which transposed values
            need element by element (pull 14959, August 2025).
        takes_embeddings: The graph has room for given embeddings beside those of tokens (pull
            18898, January 2026).
        rotates_caches: Quantised caches are rotated (pull 21038, April 2026).
        latent_caches: Latents of MLA are cached (pull 12801, April 2025); keys and values of every
            head before.
    """

    version: str
    flash_attn_auto: bool = True
    auto_slots: bool = True
    fits: bool = True
    limits_outputs: bool = True
    cell_padding: int = 256
    indexed_writes: bool = True
    takes_embeddings: bool = True
    rotates_caches: bool = True
    latent_caches: bool = True
    int8_products: bool = True

    def padded_cells(self, tokens: int, flash_attn: bool) -> int:
        """Cells that hold that many tokens."""
        step = self.cell_padding or (256 if flash_attn else 32)
        return -(-tokens // step) * step


#: First build with each change. The pulls carry dates; the builds are those of their days.
_FLASH_AUTO: Final = 6325
_AUTO_SLOTS: Final = 6930
_FITS: Final = 7400
_LIMITS_OUTPUTS: Final = 9400
_ANY_CELLS: Final = 6880
_PADS_CELLS: Final = 7010
_INDEXED_WRITES: Final = 6080
_TAKES_EMBEDDINGS: Final = 7780
_ROTATES: Final = 8615
_LATENTS: Final = 5140
_INT8_PRODUCTS: Final = 3220


def rules_for(version: str | None) -> VersionRules:
    """The rules of a build such as ``"b8766"``; the newest read when none is named.

    Raises:
        DeploymentError: It is no build number.
    """
    if version is None or version.lower() in (VERSION, COMMIT, "newest"):
        return VersionRules(version=VERSION)
    match = re.fullmatch(r"b?(\d{3,6})", version.lower())
    if match is None:
        raise DeploymentError(
            f"version is {shown(version)}; llama.cpp's builds are numbered, such as llama.cpp@b8766"
        )
    build = int(match[1])
    return VersionRules(
        version=f"b{build}",
        flash_attn_auto=build >= _FLASH_AUTO,
        auto_slots=build >= _AUTO_SLOTS,
        fits=build >= _FITS,
        limits_outputs=build >= _LIMITS_OUTPUTS,
        cell_padding=256 if build >= _PADS_CELLS else 1 if build >= _ANY_CELLS else 0,
        indexed_writes=build >= _INDEXED_WRITES,
        takes_embeddings=build >= _TAKES_EMBEDDINGS,
        rotates_caches=build >= _ROTATES,
        latent_caches=build >= _LATENTS,
        int8_products=build >= _INT8_PRODUCTS,
    )
