"""Every kind of line that says something about memory, by who prints it."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.kinds import ggml, host, machine, pytorch, sglang, tensorrt_llm, vllm
from tokenroom.diagnosis.sightings import Kind

KINDS: Final[tuple[Kind, ...]] = (
    *pytorch.KINDS,
    *vllm.KINDS,
    *sglang.KINDS,
    *tensorrt_llm.KINDS,
    *ggml.KINDS,
    *host.KINDS,
    *machine.KINDS,
)
"""In no order."""
