"""What may have happened: a module for each place that memory goes."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.causes.devices import CAUSES as DEVICES
from tokenroom.diagnosis.causes.ggml import CAUSES as GGML
from tokenroom.diagnosis.causes.host import CAUSES as HOST
from tokenroom.diagnosis.causes.pool import CAUSES as POOL
from tokenroom.diagnosis.causes.said import CAUSES as SAID
from tokenroom.diagnosis.causes.snapshot import CAUSES as SNAPSHOT
from tokenroom.diagnosis.causes.tensorrt import CAUSES as TENSORRT
from tokenroom.diagnosis.causes.torch_figures import CAUSES as FIGURES
from tokenroom.diagnosis.causes.torch_memory import CAUSES as TORCH
from tokenroom.diagnosis.finding import Cause

CAUSES: Final[tuple[Cause, ...]] = (
    *SAID,
    *POOL,
    *TORCH,
    *FIGURES,
    *GGML,
    *TENSORRT,
    *HOST,
    *DEVICES,
    *SNAPSHOT,
)
"""Every cause that is looked for."""
