"""Plain transformers as the simulator runs it: ``generate`` with one static batch after another."""

from __future__ import annotations

from tokenroom.engines.transformers.policy import TransformersPlan
from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.serving.deployments.baselines import static_engine
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine, check_names


def simulated_engine(result: FitResult, scheduling: Scheduling) -> SimulatedEngine:
    """Batches of ``concurrency`` requests, or of as many as fit where it is not given.

    Raises:
        DeploymentError: There is a setting, which transformers has none of, or modules are kept
            off the GPUs.
    """
    check_names(scheduling, (), "transformers")
    plan = result.plan
    assert isinstance(plan, TransformersPlan)
    if plan.placement.host or plan.placement.disk:
        raise DeploymentError(
            "transformers places modules outside of the GPUs, which is not simulated; use more "
            "GPUs or smaller weights"
        )
    given = result.deployment.asked.concurrency
    return static_engine(
        batch_size=plan.requests_of(plan.max_model_len) if given is None else given,
        max_model_len=plan.max_model_len,
    )
