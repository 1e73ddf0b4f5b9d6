"""The link between GPUs and host: transfers take time beside the steps that they come with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tokenroom.serving.engine import Accelerators
from tokenroom.serving.scheduler import StepPlan, Transfer

_LOOKS_EVERY_SECONDS: Final = 1e-3
"""How often an engine that computes nothing asks which transfers have ended, and who has come."""


class HostLink:
    """Accelerators whose steps come with transfers.

    Transfers of one direction follow each other, beside those of the other and beside the steps
    (``vllm/v1/kv_offload/cpu/gpu_worker.py``, vLLM 0.32). What is read begins with its step, what
    is written with the next one; a step waits for those that it awaits.

    Attributes:
        batches: Steps that may be decided and not done.
        keeps_empty: Decisions to run nothing take a place among them.

    Args:
        accelerators: What runs the steps.
        transfer_seconds: How long it takes to move so many blocks one way.
    """

    __slots__ = (
        "_accelerators",
        "_ends",
        "_free",
        "_in_free",
        "_out_free",
        "_to_begin",
        "_transfer_seconds",
        "batches",
        "keeps_empty",
    )

    def __init__(
        self, accelerators: Accelerators, transfer_seconds: Callable[[int], float]
    ) -> None:
        self.batches = accelerators.batches
        self.keeps_empty = accelerators.keeps_empty
        self._accelerators = accelerators
        self._transfer_seconds = transfer_seconds
        self._free = self._in_free = self._out_free = 0.0
        self._to_begin: list[Transfer] = []
        self._ends: dict[int, float] = {}

    def run(self, plan: StepPlan, now: float) -> tuple[float, float]:
        """When a step begins that is decided now, and when it ends; notes what moved by then."""
        moves = plan.transfers
        assert moves is not None
        at = max(now, self._free)
        first = [store for store in moves.stores if store.job in moves.awaited]
        for store in (*self._to_begin, *first):
            self._out_free = max(self._out_free, at) + self._transfer_seconds(store.blocks)
            self._ends[store.job] = self._out_free
        self._to_begin = [store for store in moves.stores if store.job not in moves.awaited]
        at = max([at, *(self._ends[job] for job in moves.awaited & self._ends.keys())])
        for load in moves.loads:
            self._in_free = max(self._in_free, at) + self._transfer_seconds(load.blocks)
            self._ends[load.job] = self._in_free
        start, end = at, at
        if plan.sequences:
            start, end = self._accelerators.run(plan, at)
        elif self._ends:
            end = min(max(at, min(self._ends.values())), at + _LOOKS_EVERY_SECONDS)
        self._free = end
        moves.ended += [job for job, ends in self._ends.items() if ends <= end]
        for job in moves.ended:
            del self._ends[job]
        return start, end
