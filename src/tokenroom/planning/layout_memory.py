"""How many requests run at once under each tuning of a layout: exactly what ``fit`` says.

What does not move memory is not planned twice: the share of the GPU changes nothing but the budget,
prefix caching and KV offloading often nothing at all, where the engine can tell
(:class:`tokenroom.engines.policy.Engine`, ``shares`` and ``same_memory``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tokenroom.engines.policy import Refusal
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Node
from tokenroom.planning.candidates import PER_NODE, Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.tuning import Tuning, engine_settings

_POOL_CAUSES: Final = frozenset(
    {"weights_too_big", "profile_peak", "no_room_for_kv", "kv_below_one_request"}
)
"""Refusals that a smaller budget, fewer requests and a larger share may take away, and nothing
else that is tried."""


def settings_of(candidate: Candidate, demand: Demand) -> dict[str, Any]:
    """What :func:`tokenroom.fitting.fit` is told beside the model and the GPUs.

    Raises:
        DeploymentError: The engine has no setting for its tuning.
    """
    chosen: dict[str, Any] = {
        "engine": candidate.engine,
        "context": candidate.tuning.max_model_len or demand.longest_tokens,
        "request_tokens": demand.input_tokens + demand.output_tokens,
        "kv": candidate.kv,
        **engine_settings(candidate.engine, candidate.tuning),
    }
    if candidate.gpus > 1:
        chosen["tp"] = candidate.tensor_parallel_size
        if candidate.pipeline_parallel_size > 1:
            chosen["pp"] = candidate.pipeline_parallel_size
        if candidate.data_parallel_size > 1:
            chosen["dp"] = candidate.data_parallel_size
        if candidate.expert_parallel:
            chosen["ep"] = True
    return chosen


def fit_of(candidate: Candidate, demand: Demand) -> FitResult:
    """The memory of a candidate.

    Raises:
        TokenroomError: The engine refuses it.
    """
    node = Node(
        accelerator=candidate.accelerator,
        count=candidate.gpus,
        per_node=min(PER_NODE, candidate.gpus),
    )
    return fit(candidate.spec, node, **settings_of(candidate, demand))


def no_tuning_helps(refusal: Refusal) -> bool:
    """Whether a refusal of the tuning that takes the least is one of every tuning."""
    return refusal.cause in _POOL_CAUSES


class LayoutMemory:
    """Memory of one layout under the tunings of one token budget and one way of drafting.

    Args:
        layout: The layout.
        demand: What is to be served.
        tuning: The budget and the drafts; the engine's own settings otherwise.
        other: The same of another budget: what caching and offloading change is known of it.

    Raises:
        TokenroomError: The engine refuses them.
    """

    def __init__(
        self,
        layout: Candidate,
        demand: Demand,
        tuning: Tuning,
        other: LayoutMemory | None = None,
    ) -> None:
        self._layout = replace(layout, tuning=tuning)
        self._demand = demand
        self._tokens = demand.input_tokens + demand.output_tokens
        self.base = fit_of(self._layout, demand)
        self._alike: dict[Tuning, bool] = {} if other is None else other._alike
        self._known: dict[Tuning, tuple[int, ...]] = {}
        self._batches: dict[Tuning, Any] = {}

    def running(self, tuning: Tuning, shares: tuple[float | None, ...]) -> tuple[int, ...]:
        """Requests that run at once for each share of memory, None for the engine's own.

        They are 0 where the engine does not start or holds none.

        Args:
            tuning: Without a share; its budget and drafts are those of the class.
            shares: Shares of each GPU's memory, the same in each call.
        """
        plain = replace(tuning, prefix_caching=None, kv_offload_bytes=None)
        if plain != tuning and self._is_alike(tuning):
            tuning = plain
        found = self._known.get(tuning)
        if found is None:
            try:
                found = self._found(tuning, shares)
            except TokenroomError:
                found = (0,) * len(shares)
            self._known[tuning] = found
        return found

    def _is_alike(self, tuning: Tuning) -> bool:
        """Whether caching and offloading leave memory as it is, whatever the batches are."""
        same_memory = getattr(self.base.engine, "same_memory", None)
        if same_memory is None:
            return False
        kept = replace(
            self._layout.tuning,
            max_num_batched_tokens=None,
            prefix_caching=tuning.prefix_caching,
            kv_offload_bytes=tuning.kv_offload_bytes,
        )
        found = self._alike.get(kept)
        if found is None:
            now = replace(kept, max_num_batched_tokens=tuning.max_num_batched_tokens)
            try:
                found = same_memory(self.base.deployment, self._fitted(now).deployment)
            except TokenroomError:
                found = False
            self._alike[kept] = found
        return found

    def _found(self, tuning: Tuning, shares: tuple[float | None, ...]) -> tuple[int, ...]:
        kept = replace(tuning, max_num_seqs=None, max_model_len=None)
        if kept not in self._batches:
            result = self._fitted(kept)
            make = getattr(result.engine, "batches", None)
            self._batches[kept] = None if make is None else make(result.plan, self._tokens)
        batches = self._batches[kept]
        if batches is None:
            return tuple(self._planned(replace(tuning, memory_share=share)) for share in shares)
        found: tuple[int, ...] = batches.running(tuning.max_num_seqs, tuning.max_model_len, shares)
        return found

    def _fitted(self, tuning: Tuning) -> FitResult:
        if tuning == self._layout.tuning:
            return self.base
        return fit_of(replace(self._layout, tuning=tuning), self._demand)

    def _planned(self, tuning: Tuning) -> int:
        """By a plan of its own."""
        try:
            return self._fitted(tuning).requests_running
        except TokenroomError:
            return 0
