"""How vLLM divides the memory of every rank, and why it would not start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tokenroom.engines.policy import (
    Deployment,
    KVGroup,
    Notice,
    Refusal,
    StageMemory,
    capture_refusal,
)
from tokenroom.engines.vllm.kv_cache import KVCachePlan, max_model_len_that_fits, plan_kv_cache
from tokenroom.engines.vllm.kv_pool import PoolLayout
from tokenroom.engines.vllm.profile_run import decode_peak
from tokenroom.engines.vllm.resolved import ResolvedSettings
from tokenroom.engines.vllm.rules import VersionRules, rules_for
from tokenroom.engines.vllm.stage import (
    encoder_tokens,
    layout_of,
    profile_inputs_of,
    stage_figures,
)
from tokenroom.errors import DeploymentError
from tokenroom.memory.ledger import Line

_WHATEVER_THE_LENGTH: Final = frozenset({"weights_too_big", "free_below_budget"})
"""Causes that no shorter length takes away."""


@dataclass(frozen=True, kw_only=True)
class VLLMPlan:
    """How vLLM divides the memory of every rank; see :class:`tokenroom.engines.policy.MemoryPlan`.

    Attributes:
        deployment: What was planned.
        rules: The version's decisions.
        stages: Memory of each pipeline stage.
        layout: How the pool is cut up.
        kv: What the engine makes of the memory it has for the cache.
        refusal: Why it would not start, None when it does.
    """

    deployment: Deployment
    rules: VersionRules
    stages: tuple[StageMemory, ...]
    layout: PoolLayout
    kv: KVCachePlan
    refusal: Refusal | None

    @property
    def _resolved(self) -> ResolvedSettings:
        resolved: ResolvedSettings = self.deployment.resolved
        return resolved

    @property
    def _available(self) -> list[int]:
        return [stage.available_bytes for stage in self.stages]

    @property
    def max_model_len(self) -> int:
        """Longest sequence in tokens."""
        return self.kv.bounds.max_model_len

    @property
    def max_num_seqs(self) -> int:
        """Requests that run at once at most, over all data-parallel copies."""
        return self._resolved.max_num_seqs * self._resolved.data_parallel_size

    @property
    def kv_block_size(self) -> int:
        """Tokens of a block."""
        return self.kv.block_size

    @property
    def kv_blocks(self) -> int:
        """Blocks of one data-parallel copy."""
        return self.kv.num_blocks

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens of the pool of one data-parallel copy ("GPU KV cache size"), as printed."""
        return self.kv.kv_tokens

    @property
    def max_concurrency(self) -> float:
        """Requests of full length that one copy's pool holds, as printed."""
        return self.kv.max_concurrency

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """Layers that share a block table."""
        return self.kv.groups

    @property
    def pool_is_exact(self) -> bool:
        """The pool's size was given, so that it rests on no estimate."""
        resolved = self._resolved
        return (
            resolved.kv_cache_memory_bytes is not None
            or resolved.num_gpu_blocks_override is not None
        )

    @cached_property
    def governing(self) -> int:
        """Index of the stage with the least room."""
        room = [
            stage.available_bytes / block if block else float("inf")
            for stage, block in zip(self.stages, self.layout.stage_block_bytes, strict=True)
        ]
        return room.index(min(room))

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this division of memory makes worth knowing."""
        found = []
        resolved = self._resolved
        stage = self.stages[self.governing]
        if self.refusal is None and stage.free_bytes < 0:
            found.append(
                Notice(key="tight_at_runtime", values={"missing_bytes": -stage.free_bytes})
            )
        if self.refusal is None and not self.pool_is_exact and not resolved.fits_max_model_len:
            request_bytes = self.kv_bytes_of(resolved.max_model_len)
            missing = request_bytes - stage.available_bytes + stage.estimate_errors[0]
            if missing > 0:
                values = {"tokens": resolved.max_model_len, "missing_bytes": missing}
                found.append(Notice(key="may_not_start", values=values))
        if resolved.data_parallel_size > 1:
            found.append(
                Notice(key="per_replica", values={"replicas": resolved.data_parallel_size})
            )
        return tuple(found)

    def requests_of(self, tokens: int) -> int:
        """How many requests of that length the pools of all data-parallel copies hold at once."""
        return self.kv.requests_of(tokens) * self._resolved.data_parallel_size

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes that one request of that length holds on the governing stage: whole blocks."""
        pages = self.layout.pages_per_request(self.kv.bounds._replace(max_model_len=tokens))
        return pages * self.layout.stage_block_bytes[self.governing]

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of a step that decodes that many requests, on the governing stage."""
        inputs = profile_inputs_of(self.deployment, self.governing)
        seqs = max(1, min(requests, inputs.max_num_seqs))
        return decode_peak(
            self._resolved.engine,
            self.deployment.spec,
            replace(inputs, max_num_seqs=seqs),
            self.rules,
        ).num_bytes

    def max_model_len_that_fits(self) -> int:
        """The longest max_model_len for which the engine starts; 0 when none does.

        Never beyond what the model allows. A shorter length also leaves more room (smaller block
        tables, fewer encoder tokens, a smaller token budget where prefill is not chunked), so what
        the pool holds is only the first guess: the answer is searched among whole plans.
        """
        if self.refusal is not None and self.refusal.cause in _WHATEVER_THE_LENGTH:
            return 0
        from tokenroom.engines.vllm.policy import VLLM  # builds on this module

        old = self.deployment

        def starts(length: int) -> bool:
            asked = replace(old.asked, max_model_len=length)
            try:
                return VLLM.plan(VLLM.deploy(old.spec, old.node, asked, old.draft)).refusal is None
            except DeploymentError:  # refused for another reason than memory
                return False

        longest = _longest_allowed(self._resolved)
        if (self.refusal is None and self.max_model_len == longest) or starts(longest):
            return longest
        good = self.max_model_len if self.refusal is None else 0
        bad = longest
        guess = _longest(old, self.layout, self._available)
        step = self.kv_block_size
        for tried in (guess, guess + step, guess - step):  # most often one of these decides
            if good < tried < bad:
                good, bad = (tried, bad) if starts(tried) else (good, tried)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if starts(middle) else (good, middle)
        return good

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing stage, line by line."""
        from tokenroom.engines.vllm.explain import explain_plan

        return explain_plan(self)


def _longest_allowed(resolved: ResolvedSettings) -> int:
    return max(resolved.length.longest or resolved.length.default, resolved.max_model_len)


def _longest(deployment: Deployment, layout: PoolLayout, available: Sequence[int]) -> int:
    resolved: ResolvedSettings = deployment.resolved
    if resolved.num_gpu_blocks_override is not None:
        available = [resolved.num_gpu_blocks_override * block for block in layout.stage_block_bytes]
    return max_model_len_that_fits(
        layout,
        available,
        longest=_longest_allowed(resolved),
        max_in_flight_tokens=resolved.max_in_flight_tokens,
        max_encoder_tokens=encoder_tokens(deployment),
    )


def _growth(layout: PoolLayout, kv: KVCachePlan, rank: int) -> float:
    """Bytes that one more token of a full-length request takes on a stage."""
    length = kv.bounds.max_model_len
    step = kv.largest_block_size
    if not step:
        return 0.0
    wider = layout.pages_per_request(kv.bounds._replace(max_model_len=length + step))
    pages = wider - kv.pages_per_request
    return pages * layout.stage_block_bytes[rank] / step


def _refusal(
    deployment: Deployment, stages: tuple[StageMemory, ...], kv: KVCachePlan
) -> Refusal | None:
    """Why vLLM would not start, by the phase in which it would find out."""
    resolved: ResolvedSettings = deployment.resolved
    given = resolved.kv_cache_memory_bytes is not None
    rules = rules_for(resolved.version)
    for stage in stages:
        free = stage.total_bytes - stage.context_bytes
        if rules.checks_free_memory and not given and stage.budget_bytes > free:
            return Refusal(
                cause="free_below_budget",
                phase="load",
                needed_bytes=stage.budget_bytes,
                available_bytes=free,
                values={"utilization": resolved.gpu_memory_utilization},
            )
    for stage in stages:
        free = stage.total_bytes - stage.context_bytes
        held = stage.weights_bytes + stage.buffers_bytes
        if held > free:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=held + stage.context_bytes,
                available_bytes=stage.total_bytes,
            )
        peak = held + stage.activation.num_bytes + stage.non_torch.num_bytes
        if peak > free:
            return Refusal(
                cause="profile_peak",
                phase="profile",
                needed_bytes=peak + stage.context_bytes,
                available_bytes=stage.total_bytes,
                values={"phase": stage.activation.phase},
            )
    if not kv.fits:
        tightest = stages[kv.deciding_stage]
        if kv.checked_bytes <= 0:
            block_bytes = kv.layout.stage_block_bytes[kv.deciding_stage]
            return Refusal(
                cause="no_room_for_kv",
                phase="kv_init",
                # One block at least, beside the null block where one is set aside.
                needed_bytes=tightest.budget_bytes - kv.checked_bytes + block_bytes,
                available_bytes=tightest.budget_bytes,
                values={"request_bytes": kv.needed_bytes - block_bytes},
            )
        return Refusal(
            cause="kv_below_one_request",
            phase="kv_init",
            needed_bytes=kv.needed_bytes,
            available_bytes=kv.checked_bytes,
            values={
                "max_model_len": kv.bounds.max_model_len,
                "longest": kv.estimated_max_model_len or 0,
            },
        )
    return capture_refusal(stages)


def plan_deployment(deployment: Deployment) -> VLLMPlan:
    """Divide the memory of every pipeline stage."""
    resolved: ResolvedSettings = deployment.resolved
    rules = rules_for(resolved.version)
    layout = layout_of(deployment)
    figures = [
        stage_figures(deployment, rules, rank) for rank in range(resolved.pipeline_parallel_size)
    ]
    available = [stage["available_bytes"] for stage in figures]
    length = resolved.max_model_len
    if resolved.fits_max_model_len:
        length = _longest(deployment, layout, available) or 1
    kv = plan_kv_cache(
        layout,
        available,
        max_model_len=length,
        max_in_flight_tokens=resolved.max_in_flight_tokens,
        max_encoder_tokens=encoder_tokens(deployment),
        num_gpu_blocks_override=resolved.num_gpu_blocks_override,
    )
    stages = tuple(
        StageMemory(
            **stage,
            kv_pool_bytes=kv.pool_bytes(rank) if available[rank] > 0 else 0,
            kv_bytes_per_token=_growth(layout, kv, rank),
        )
        for rank, stage in enumerate(figures)
    )
    return VLLMPlan(
        deployment=deployment,
        rules=rules,
        stages=stages,
        layout=layout,
        kv=kv,
        refusal=_refusal(deployment, stages, kv),
    )
