"""Names of accelerators as people, drivers and tables write them, brought to one form.

``"NVIDIA H100 80GB HBM3"``, ``"h100-sxm-80gb"`` and ``"H100 SXM5 80 GB"`` name one part. A name is
read into a family (what is left without vendor, memory type and punctuation) and, when it is
written, the memory in GB; both are compared, never the raw text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(r"[a-z0-9.+]+")
_MEMORY: Final = re.compile(r"(\d+)(?:g|gb|gib)")
_BRAND: Final = re.compile(r"(?:rtx|gtx|rx)(a?\d.*)")
_SLICE: Final = re.compile(r"\b(?:mig[\s_-]*)?(\d+g\.\d+gb)(?:\+me)?\b")
_REMARK: Final = re.compile(r"\s*\(([^()]*)\)\s*$")
_COUNT_FIRST: Final = re.compile(
    r"\s*(?:([1-9][0-9]{0,2})x|([1-9][0-9]{0,4})(?:\s+x\s+|\s*[×*]\s*))\s*(\S.*)", re.IGNORECASE
)
_COUNT_LAST: Final = re.compile(r"\s*(.*\S)(?:(?<=\d)|\s)\s*[x×*]\s*([1-9][0-9]{0,4})\s*", re.I)
_COUNT_AFTER_COLON: Final = re.compile(r"\s*(.*[^\s:])\s*:\s*([1-9][0-9]{0,4})\s*")
_NOISE: Final = frozenset(
    {
        *("nvidia", "geforce", "tesla", "amd", "radeon", "instinct", "intel", "apple"),
        *("google", "huawei", "gpu", "rtx", "gtx", "rx", "generation", "class", "vgpu"),
        *("hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr5", "gddr6", "gddr6x", "gddr7"),
    }
)
_SAME: Final = {"sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm"}


@dataclass(frozen=True, slots=True)
class PartName:
    """A name taken apart.

    Attributes:
        family: Letters and digits that tell the part, ``"h100sxm"``.
        memory_gb: Memory written in the name, in vendor GB, None when it is not.
        slice_profile: MIG profile such as ``"3g.40gb"``, None for the whole part.
    """

    family: str
    memory_gb: int | None = None
    slice_profile: str | None = None


def read_name(text: str) -> PartName:
    """Take a name apart; never fails, an unknown name merely matches nothing."""
    text = text.lower()
    found = _SLICE.search(text) if "g." in text else None
    if found:
        text = text[: found.start()] + " " + text[found.end() :]
    memory_gb = None
    parts: list[str] = []
    tokens = _TOKEN.findall(text)
    for token in tokens:
        if token in _NOISE:
            continue
        if token in ("gb", "gib") and parts and parts[-1].isdigit():
            memory_gb = int(parts.pop())
            continue
        size = _MEMORY.fullmatch(token) if token[0].isdigit() else None
        if size:
            memory_gb = int(size[1])
            continue
        brand = _BRAND.fullmatch(token) if token[0] in "rg" else None
        parts.append(brand[1] if brand else _SAME.get(token, token))
    family = "".join(parts or tokens)  # a name of nothing but brands is taken at its word
    return PartName(family, memory_gb, found[1] if found else None)


def search_words(text: str) -> tuple[str, ...]:
    """The words of a name or of a search, in lower case: ``"rtx-4090"`` and ``"RTX4090"`` hold two.

    Spellings of one form factor (``sxm4``, ``sxm5``) become one.
    """
    words: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        brand = _BRAND.fullmatch(token)
        if brand:
            words.append(token[: brand.start(1)])
        words.append(brand[1] if brand else _SAME.get(token, token))
    return tuple(words)


def without_remark(text: str) -> str | None:
    """The name without a closing remark in brackets; None when there is none to drop.

    A remark that states a size (``"H200 (80 GB emulated)"``) changes the part, so it stays.
    """
    remark = _REMARK.search(text)
    if remark is None or read_name(remark[1]).memory_gb is not None or not remark.start():
        return None
    return text[: remark.start()]


def split_count(text: str) -> tuple[int | None, str]:
    """A count written with a name: ``"8xH100"``, ``"H100 x8"`` and ``"H100:8"`` give (8, "H100").

    The count is None when none is written. ``"7900 XTX"`` and ``"RTX 4090"`` hold none.
    """
    first = _COUNT_FIRST.fullmatch(text)
    if first:
        return int(first[1] or first[2]), first[3].strip()
    last = _COUNT_LAST.fullmatch(text) or _COUNT_AFTER_COLON.fullmatch(text)
    if last:
        return int(last[2]), last[1]
    return None, text.strip()
