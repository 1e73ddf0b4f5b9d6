"""How long the steps of a fitted deployment take."""

from __future__ import annotations

from dataclasses import dataclass

from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.host import arrival_seconds, host_cost
from tokenroom.performance.step_time import step_time
from tokenroom.performance.work import Chunk, StepWork
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving_terms import Terms, step_terms_of


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
    terms = step_terms_of(result)
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
