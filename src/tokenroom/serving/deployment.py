"""A deployment as the simulator runs it: its scheduler's settings and the time of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.host import arrival_seconds, host_cost
from tokenroom.performance.step_time import step_time
from tokenroom.performance.work import Chunk, StepWork
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving_terms import Terms, terms_of

_KINDS: Final = {
    "full_attention": Kind.FULL,
    "mla_attention": Kind.FULL,
    "sliding_window": Kind.SLIDING_WINDOW,
    "sliding_window_mla": Kind.SLIDING_WINDOW,
    "chunked_local_attention": Kind.CHUNKED_LOCAL,
    "mamba": Kind.MAMBA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """How long a planned step takes on a deployment: :func:`tokenroom.performance.step_time`.

    A request that computes one token is a decoding one, whether the token ends a prompt or goes
    on with an answer: the kernels do the same. Other data-parallel ranks are taken to compute as
    many tokens in the same step.

    Attributes:
        spec: The model.
        accelerator: The kind of GPU.
        terms: What the engine's settings mean for speed.
        factors: Those of the machine, where it was calibrated.
    """

    spec: ModelSpec
    accelerator: Accelerator
    terms: Terms
    factors: Factors = UNCALIBRATED

    def __call__(self, plan: StepPlan) -> float:
        """Seconds of a step.

        Raises:
            DeploymentError: The model has parts whose speed is not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        return self.seconds(self.work(plan))

    def work(self, plan: StepPlan) -> StepWork:
        """A step as the model of speed counts it."""
        contexts = plan.decode_contexts()
        others = self.terms.layout.data_parallel_size - 1
        return StepWork(
            prefill=tuple(Chunk(tokens, context) for tokens, context in plan.prefills()),
            decode_sequences=len(contexts),
            decode_context_tokens=sum(contexts) / len(contexts) if contexts else 0.0,
            other_tokens=others * sum(plan.tokens),
        )

    def seconds(self, work: StepWork) -> float:
        """Seconds of such a step."""
        terms = self.terms
        return step_time(
            self.spec,
            terms.layout,
            self.accelerator,
            work,
            engine=terms.engine,
            kv_dtype=terms.kv_dtype,
            cuda_graphs=terms.cuda_graphs,
            asynchronous=terms.asynchronous,
            factors=self.factors,
        ).seconds

    def delay_seconds(self, request: Request) -> float:
        """What a request spends outside of the engine: HTTP, tokenising, queues of processes."""
        host = host_cost(self.terms.engine).scaled(self.factors)
        return arrival_seconds(host, request.prompt_tokens)


def step_cost(result: FitResult, factors: Factors = UNCALIBRATED) -> StepCost:
    """How long the steps of a fitted deployment take.

    Raises:
        DeploymentError: It drafts tokens or is a pipeline, which is not simulated, or its speed is
            not modelled.
    """
    terms = terms_of(result, 1)
    if terms.drafting is not None:
        raise DeploymentError(
            f"speculative decoding by {terms.drafting.method} is not simulated; leave it out"
        )
    if terms.layout.pipeline_parallel_size > 1:
        raise DeploymentError(
            f"pipeline_parallel_size is {terms.layout.pipeline_parallel_size}; pipelines are not "
            "simulated, it may be 1"
        )
    deployment = result.deployment
    return StepCost(
        spec=deployment.spec,
        accelerator=deployment.node.accelerator,
        terms=terms,
        factors=factors,
    )


def scheduler_config(
    result: FitResult,
    *,
    policy: Literal["fcfs", "priority"] = "fcfs",
    long_prefill_token_threshold: int = 0,
    watermark: float = 0.0,
) -> VllmSchedulerConfig:
    """The scheduler's settings of one data-parallel copy of a fitted vLLM deployment.

    Decisions are those of vLLM 0.32. Of older versions it keeps that prompts were let in chunk by
    chunk before 0.19 (``scheduler_reserve_full_isl``), and that windows and states were cached
    everywhere before 0.29 (``prefix_cache_retention_interval``).

    Args:
        result: The deployment.
        policy: ``--scheduling-policy``.
        long_prefill_token_threshold: ``--long-prefill-token-threshold``.
        watermark: ``--watermark``.

    Raises:
        DeploymentError: It does not start, is not served by vLLM's V1, or has a cache that is not
            simulated.
    """
    deployment, plan = result.deployment, result.plan
    if deployment.engine != "vllm":
        raise DeploymentError(f"engine {deployment.engine} is not simulated; it may be vllm")
    from tokenroom.engines.vllm.generation import EngineGeneration  # loaded with the engine
    from tokenroom.engines.vllm.plan import VLLMPlan
    from tokenroom.engines.vllm.rules import version_number

    assert isinstance(plan, VLLMPlan)
    resolved = deployment.resolved
    if resolved.engine is not EngineGeneration.V1:
        raise DeploymentError("vLLM's V0 engine is not simulated; take a version or model with V1")
    if plan.refusal is not None:
        raise DeploymentError(
            "the deployment does not start, so it serves nothing; tokenroom fit says why"
        )
    if resolved.decode_context_parallel_size > 1:
        raise DeploymentError(
            f"decode_context_parallel_size is {resolved.decode_context_parallel_size}; context "
            "parallelism is not simulated, it may be 1"
        )
    version = version_number(deployment.version)
    return VllmSchedulerConfig(
        num_blocks=plan.kv_blocks,
        groups=tuple(_group(group.spec, plan.max_model_len) for group in plan.layout.groups),
        max_model_len=plan.max_model_len,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_num_seqs=resolved.max_num_seqs,
        enable_prefix_caching=resolved.enable_prefix_caching,
        enable_chunked_prefill=resolved.enable_chunked_prefill,
        long_prefill_token_threshold=long_prefill_token_threshold,
        policy=policy,
        scheduler_reserve_full_isl=version >= (0, 19, 0),
        watermark=watermark,
        async_scheduling=resolved.async_scheduling,
        prefix_cache_retention_interval=0 if version >= (0, 29, 0) else None,
    )


def _group(spec: Any, max_model_len: int) -> KvGroup:
    kind = _KINDS.get(spec.kind)
    if kind is None:
        raise DeploymentError(f"the cache of {spec.kind} layers is not simulated")
    if kind is Kind.MAMBA and spec.cache_mode == "align":
        if spec.checkpoint_blocks:
            raise DeploymentError(
                "states that kernels save inside of a chunk (num_prefill_checkpoint_blocks) are "
                "not simulated; serve the model with enable_prefix_caching off"
            )
        kind = Kind.ALIGNED_MAMBA
    window = None
    if kind is Kind.SLIDING_WINDOW:
        window = spec.window
    elif kind is Kind.CHUNKED_LOCAL:
        window = spec.chunk
    # A state that is not cached stands for the whole context.
    size = max_model_len if kind is Kind.MAMBA and spec.cache_mode == "none" else spec.block_size
    return KvGroup(kind=kind, block_tokens=size, window_tokens=window)
