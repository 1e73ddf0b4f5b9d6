"""Memory that others held while a row was measured, as far as the row states it.

It is no flag of the engine but a state of the machine, so it is taken from what was printed: less
memory free at the start, or more in use after loading, than the engine itself accounts for. Of what
is in use after loading the weights are the largest part: SGLang prints what loading them took
(``mem usage`` of "Load weight end"), and where a row leaves that out, only what no layout of the
weights could be counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tokenroom.fitting import FitResult
from tokenroom.units import GIB
from tokenroom.validation.figures import numbers
from tokenroom.validation.rows import Row

_FREE_FIGURES: Final = (
    "free_at_start_gib",
    "free_start_gib",
    "avail_start_gib",
    "avail_before_weights_gib",
)
"""Quantities that say how much was free when the engine started. SGLang prints them once its
communicators are there, which count as its own."""

_LOADED: Final = "avail_after_weights_gib"
_TOOK: Final = "weights_gib"
_OTHER_RANKS: Final = "free_at_start_gib_other_ranks"
_NOTE: Final = re.compile(r"([\d.]+) of ([\d.]+) GiB free at start")
_LEAST_BYTES: Final = GIB
"""What less than this is missing is the spread of CUDA contexts and communicators (SGLang's were
measured to be 0.9 GiB off at most, ``engines/sglang/taken.py``), not another process."""

_WIDEST_PARAMETER_BYTES: Final = 4
"""Engines hold a parameter in float32 at the widest."""


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
    missing.extend(_missing_after_loading(row, result))
    most = max(missing, default=0)
    return most if most > _LEAST_BYTES else 0


def is_source(row: Row, quantity: str) -> bool:
    """Whether what others held was taken from that figure, which then agrees by itself."""
    return quantity in _FREE_FIGURES or (quantity == _LOADED and _TOOK not in row.reported)


def _free(row: Row) -> Iterator[float]:
    """Every statement of how much was free at the start, in GiB."""
    for quantity in (*_FREE_FIGURES, _OTHER_RANKS):
        yield from numbers(row.reported.get(quantity))
    if match := _NOTE.search(row.note):
        yield float(match[1])
    for took in numbers(row.reported.get(_TOOK)):
        for left in numbers(row.reported.get(_LOADED)):
            yield left + took


def _missing_after_loading(row: Row, result: FitResult) -> Iterator[int]:
    """Bytes in use after loading beyond the plan's, where they cannot be an error of its weights.

    That they are not is known when more is in use than the whole model on this one accelerator
    would be, every parameter in float32, whichever share and layout of it the rank really holds.
    """
    printed: Mapping[str, int] = getattr(result.plan, "engine_figures", {})
    planned = printed.get("avail_mem_after_load")
    if planned is None or _TOOK in row.reported:
        return
    stage = result.plan.stages[0]
    idle = stage.total_bytes - stage.context_bytes
    widest = _WIDEST_PARAMETER_BYTES * result.deployment.spec.parameters_total
    for left in numbers(row.reported.get(_LOADED)):
        free = round(left * GIB)
        if idle - free - max(widest, stage.weights_bytes) > _LEAST_BYTES:
            yield planned - free
