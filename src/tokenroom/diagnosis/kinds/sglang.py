"""SGLang's own words."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.sightings import Kind, kind_of

KINDS: Final[tuple[Kind, ...]] = (
    # SGLang: srt/managers/scheduler.py, srt/model_executor/model_runner.py
    kind_of(
        "sglang_not_enough",
        "Please try to increase --mem-fraction-static",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        r"mem_fraction_static=(?P<share>[\d.]+)",
    ),
    kind_of(
        "sglang_oom",
        ("Prefill out of memory", "Decode out of memory", "Capture cuda graph failed"),
        r"(?P<phase>Prefill|Decode) out of memory"
        r"|(?P<capture>Capture cuda graph failed)(?=\s*:?\s*$|.*memory)",
    ),
    kind_of(
        "sglang_unbalanced",
        "memory capacity is unbalanced",
        r"memory capacity is unbalanced",
        r"min_per_gpu_memory=(?P<least>[\d.]+)",
        r"local_gpu_memory=(?P<own>[\d.]+)",
    ),
    kind_of(
        "sglang_pool_leak",
        "memory leak detected",
        r"(?:token_to_kv_pool|req_to_token_pool|KV cache pool)\S* (?:memory )?leak detected",
    ),
    kind_of(
        "sglang_retract",
        ("Retract requests", "KV cache pool is full"),
        r"KV cache pool is full\. Retract requests",
        r"#retracted_reqs: (?P<count>\d+)",
    ),
)
