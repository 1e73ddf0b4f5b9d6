"""How long the steps of a fitted deployment take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.host import arrival_seconds, host_cost
from tokenroom.performance.step_time import StepTime, step_time
from tokenroom.performance.work import Chunk, StepWork
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving_terms import Terms, step_terms_of

_DRAFTS: Final = ("vllm",)
"""Engines whose scheduler is simulated with drafts."""

_PIPELINES: Final = ("vllm",)
"""Engines whose scheduler is simulated with several stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """How long a planned step takes on a deployment: :func:`tokenroom.performance.step_time`.

    A request that computes one token is a decoding one, whether the token ends a prompt or goes
    on with an answer: the kernels do the same. Where tokens are drafted, each decoding one is taken
    to bring as many as they do in the mean, rounded. Other data-parallel ranks are taken to compute
    as many tokens in the same step.

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
        if plan.passes:
            return sum(map(self, plan.passes))
        return self.seconds(self.work(plan))

    def work(self, plan: StepPlan) -> StepWork:
        """A step as the model of speed counts it."""
        contexts = plan.decode_contexts()
        rows = 1 + round(sum(plan.drafted.values()) / len(contexts)) if contexts else 1
        return self.decoding(
            len(contexts),
            sum(contexts) / len(contexts) if contexts else 0.0,
            rows,
            prefill=tuple(Chunk(tokens, context) for tokens, context in plan.prefills()),
            tokens=sum(plan.tokens),
        )

    def decoding(
        self,
        sequences: int,
        context_tokens: float,
        rows: int = 1,
        *,
        prefill: tuple[Chunk, ...] = (),
        tokens: int,
    ) -> StepWork:
        """A step of so many decoding requests.

        Args:
            sequences: The requests.
            context_tokens: Mean tokens in their caches.
            rows: Tokens that each brings, drafted ones among them.
            prefill: Chunks of prompts beside them.
            tokens: Tokens of the whole step.
        """
        return StepWork(
            prefill=prefill,
            decode_sequences=sequences,
            decode_context_tokens=context_tokens,
            decode_tokens=rows,
            decode_outputs=rows,
            other_tokens=(self.terms.layout.data_parallel_size - 1) * tokens,
        )

    def seconds(self, work: StepWork) -> float:
        """Seconds of such a step."""
        return self.time(work).seconds

    def time(self, work: StepWork) -> StepTime:
        """The time of such a step, with that of each stage of a pipeline."""
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
            drafting=terms.drafting,
            factors=self.factors,
        )

    def delays(self) -> tuple[float, float]:
        """Seconds that a request spends outside of the engine: each, and for a prompt's token."""
        host = host_cost(self.terms.engine).scaled(self.factors)
        return host.request_seconds, host.token_seconds

    def delay_seconds(self, request: Request) -> float:
        """What a request spends outside of the engine: HTTP, tokenising, queues of processes."""
        host = host_cost(self.terms.engine).scaled(self.factors)
        return arrival_seconds(host, request.prompt_tokens)


def step_cost(result: FitResult, factors: Factors = UNCALIBRATED) -> StepCost:
    """How long the steps of a fitted deployment take.

    Raises:
        DeploymentError: It is a pipeline or drafts tokens in an engine of which that is not
            simulated, does both, or its speed is not modelled.
    """
    terms = step_terms_of(result)
    if terms.drafting is not None and result.deployment.engine not in _DRAFTS:
        raise DeploymentError(
            f"speculative decoding by {terms.drafting.method} is simulated of vllm alone; leave it "
            "out"
        )
    layout = terms.layout
    if layout.pipeline_parallel_size > 1 and result.deployment.engine not in _PIPELINES:
        raise DeploymentError(
            f"pipeline_parallel_size is {layout.pipeline_parallel_size}; pipelines of "
            f"{result.deployment.engine} are not simulated, it may be 1"
        )
    if layout.pipeline_parallel_size > 1 and terms.drafting is not None:
        raise DeploymentError(
            f"speculative decoding by {terms.drafting.method} is not simulated in a pipeline; "
            "leave it out"
        )
    deployment = result.deployment
    return StepCost(
        spec=deployment.spec,
        accelerator=deployment.node.accelerator,
        terms=terms,
        factors=factors,
    )
