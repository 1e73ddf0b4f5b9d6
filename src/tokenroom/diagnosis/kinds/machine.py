"""What people paste beside a log: tools that show memory."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.sightings import AMOUNT, Kind, kind_of

KINDS: Final[tuple[Kind, ...]] = (
    # what people paste beside a log
    kind_of(
        "smi",
        "MiB /",
        r"(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB",
    ),
    kind_of("smi_process", "MiB |", r"^\|\s+(?P<gpu>\d+)\s.*\s(?P<used>\d+)MiB\s*\|"),
    kind_of(
        "rss",
        ("RSS", "rss"),
        r"(?:\b|Vm|_)RSS\b\D{0,12}(?P<size>[\d.]+ ?[KMG]i?B)",
    ),
    kind_of(
        "summary",
        ("Allocated memory", "GPU reserved memory"),
        r"^\|\s*(?P<row>Allocated memory|GPU reserved memory|Active memory|Non-releasable memory)"
        rf"\s*\|\s*(?P<current>{AMOUNT})\s*\|\s*(?P<peak>{AMOUNT})"
        rf"(?:\s*\|\s*{AMOUNT}\s*\|\s*(?P<freed>{AMOUNT}))?",
    ),
    kind_of("summary_failures", "CUDA OOMs", r"CUDA OOMs:\s*(?P<count>\d+)"),
    kind_of(
        "shards",
        ("shards", "Completed |"),
        r"shards:?\s+(?P<percent>\d+)%(?:.*?(?P<done>\d+)/(?P<of>\d+))?",
    ),
    kind_of(
        "quantizing",
        ("out_dtype", "scaled_fp8_quant", "--qformat", "per_token_quant"),
        r"dtype=out_dtype|scaled_fp8_quant|--qformat|per_token_quant",
    ),
    kind_of(
        "small_budget",
        "max_num_batched_tokens=2048",
        r"max_num_batched_tokens=2048\b",
    ),
)
