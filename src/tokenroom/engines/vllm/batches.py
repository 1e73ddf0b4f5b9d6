"""Room under other batch sizes, lengths and shares of memory, without planning each anew.

Weights, layout of the pool and everything that says how the model is run stay as they were planned
once. Batch sizes and lengths move the profile run and the graphs, which are worked out again; the
share moves nothing but the budget, so that the pool follows by the arithmetic of
:func:`~tokenroom.engines.vllm.kv_cache.plan_kv_cache`. Start-up is checked as
:mod:`tokenroom.engines.vllm.plan` checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from tokenroom.engines.policy import Deployment
from tokenroom.engines.vllm.checks import check
from tokenroom.engines.vllm.default_rules import default_rules
from tokenroom.engines.vllm.defaults import with_batch
from tokenroom.engines.vllm.kv_cache import plan_kv_cache
from tokenroom.engines.vllm.plan import VLLMPlan
from tokenroom.engines.vllm.profile_run import profile_run
from tokenroom.engines.vllm.resolved import ResolvedSettings
from tokenroom.engines.vllm.stage import encoder_tokens, profile_inputs_of, spent_bytes


class _Stage(NamedTuple):
    """What a stage holds whatever the share, in bytes.

    Attributes:
        total: Of the GPU.
        free: Without the context and other processes.
        profiled: What is held at the peak of the profile run, or by weights and buffers alone.
        spent: Of the budget, before the pool.
        captured: What is held beside the pool once graphs are captured.
    """

    total: int
    free: int
    profiled: int
    spent: int
    captured: int


class Batches:
    """Requests that run at once under other ``max_num_seqs``, ``max_model_len`` and shares.

    Args:
        plan: Of the V1 engine, without a size or count of its own for the pool.
        request_tokens: Length of a request.
    """

    def __init__(self, plan: VLLMPlan, request_tokens: int) -> None:
        self._plan = plan
        self._tokens = request_tokens
        resolved: ResolvedSettings = plan.deployment.resolved
        self._inputs = tuple(
            profile_inputs_of(plan.deployment, rank)
            for rank in range(resolved.pipeline_parallel_size)
        )
        self._weights = tuple(stage.weights_bytes for stage in plan.stages)

    def running(
        self,
        max_num_seqs: int | None,
        max_model_len: int | None,
        shares: Sequence[float | None],
    ) -> tuple[int, ...]:
        """For each share, None for vLLM's own; 0 where it would not start.

        Args:
            max_num_seqs: None for vLLM's own.
            max_model_len: None for the plan's.
            shares: Values of ``gpu_memory_utilization``.

        Raises:
            DeploymentError: vLLM would refuse the settings.
        """
        old = self._plan.deployment
        asked = replace(
            old.asked,
            max_num_seqs=max_num_seqs,
            max_model_len=old.asked.max_model_len if max_model_len is None else max_model_len,
        )
        resolved = with_batch(old.resolved, asked, old.spec, old.node)
        check(resolved, old.spec, old.node)
        deployment = replace(old, asked=asked, resolved=resolved)
        stages = tuple(self._stages(deployment))
        if any(stage.profiled > stage.free for stage in stages):
            return (0,) * len(shares)
        own = default_rules(asked.version).gpu_memory_utilization
        return tuple(
            self._at(deployment, stages, own if share is None else share) for share in shares
        )

    def _stages(self, deployment: Deployment) -> Iterator[_Stage]:
        resolved: ResolvedSettings = deployment.resolved
        rules = self._plan.rules
        for rank, weights in enumerate(self._weights):
            inputs = replace(
                self._inputs[rank],
                max_num_batched_tokens=resolved.max_num_batched_tokens,
                max_num_seqs=resolved.max_num_seqs,
                max_model_len=resolved.max_model_len,
                capture_sizes=resolved.cudagraph_capture_sizes,
            )
            profile = profile_run(resolved.engine, deployment.spec, inputs, rules)
            total = deployment.node.accelerator.memory_bytes
            held = weights + profile.buffers_bytes
            outside = profile.non_torch.num_bytes
            yield _Stage(
                total,
                total - profile.context_bytes,
                held + max(0, profile.activation.num_bytes + outside),
                spent_bytes(deployment, rules, weights, profile),
                profile.context_bytes + held + outside + profile.graphs.actual_bytes,
            )

    def _at(self, deployment: Deployment, stages: Sequence[_Stage], share: float) -> int:
        plan = self._plan
        resolved: ResolvedSettings = deployment.resolved
        available = []
        for stage in stages:
            budget = ceil(stage.total * share)
            if plan.rules.checks_free_memory and budget > stage.free:
                return 0
            available.append(budget - stage.spent)
        kv = plan_kv_cache(
            plan.layout,
            available,
            max_model_len=resolved.max_model_len,
            max_in_flight_tokens=resolved.max_in_flight_tokens,
            max_encoder_tokens=encoder_tokens(deployment),
        )
        if not kv.fits:
            return 0
        for rank, stage in enumerate(stages):
            pool = kv.pool_bytes(rank) if available[rank] > 0 else 0
            if stage.captured + pool > stage.total:
                return 0
        copies = resolved.data_parallel_size
        return min(kv.requests_of(self._tokens), resolved.max_num_seqs) * copies
