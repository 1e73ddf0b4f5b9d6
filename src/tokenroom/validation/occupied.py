"""Memory that others held while a row was measured, as far as the row states it.

It is no flag of the engine but a state of the machine, so it is taken from what was printed: less
memory free at the start, or more in use after loading, than the engine itself accounts for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tokenroom.fitting import FitResult
from tokenroom.units import GIB
from tokenroom.validation.figures import numbers
from tokenroom.validation.rows import Row

FREE_FIGURES: Final = frozenset({"free_at_start_gib", "free_start_gib"})
"""Quantities that say how much was free when the engine started."""

_OTHER_RANKS: Final = "free_at_start_gib_other_ranks"
_NOTE: Final = re.compile(r"([\d.]+) of ([\d.]+) GiB free at start")
_LEAST_BYTES: Final = GIB
"""What less than this is missing is the spread of CUDA contexts, not another process."""


def occupied_bytes(row: Row, result: FitResult) -> int:
    """Bytes of each accelerator that others held, 0 when nothing points to any.

    Args:
        row: The row.
        result: Its fit on accelerators that nobody else uses.
    """
    stage = result.plan.stages[0]
    idle = stage.total_bytes - stage.context_bytes
    missing = [idle - round(free * GIB) for free in _free(row)]
    for in_use in numbers(row.reported.get("initial_memory_usage_gib")):
        own = stage.context_bytes + stage.weights_bytes + stage.non_torch.num_bytes
        missing.append(round(in_use * GIB) - own)
    most = max(missing, default=0)
    return most if most > _LEAST_BYTES else 0


def _free(row: Row) -> Iterator[float]:
    """Every statement of how much was free at the start, in GiB."""
    for quantity in (*FREE_FIGURES, _OTHER_RANKS):
        yield from numbers(row.reported.get(quantity))
    if match := _NOTE.search(row.note):
        yield float(match[1])
