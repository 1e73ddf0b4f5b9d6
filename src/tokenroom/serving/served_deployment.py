"""A deployment with everything that decides how it serves: what the simulator is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenroom.fitting import FitResult
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.serving.deployments.simulated_engine import Scheduling, Setting
from tokenroom.serving.metrics import LatencyLimits
from tokenroom.serving.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDeployment:
    """A deployment as it is simulated; it can be sent to another process.

    Attributes:
        fit: The deployment.
        scheduling: Settings that change what steps run but no memory, under the engine's names.
        factors: Those of the machine, where it was calibrated.
        price_per_gpu_hour: In USD; None when not given.
    """

    fit: FitResult
    scheduling: Scheduling = field(default_factory=dict[str, Setting])
    factors: Factors = UNCALIBRATED
    price_per_gpu_hour: float | None = None

    @property
    def fits(self) -> tuple[FitResult, ...]:
        """The deployment, as the only one of a fleet."""
        return (self.fit,)

    @property
    def refused(self) -> FitResult | None:
        """The deployment if it does not start, None when it does."""
        return None if self.fit.plan.refusal is None else self.fit

    def run(self, limits: LatencyLimits | None = None, *, compiled: bool = False) -> Run:
        """One run of it.

        Args:
            limits: What requests are promised; None for nothing.
            compiled: Serve by the compiled engine where that can be done.

        Raises:
            DeploymentError: It does not start, or is not simulated.
            HardwareError: A peak or bandwidth that its speed needs is not known.
        """
        return Run(
            self.fit,
            limits=limits,
            price_per_gpu_hour=self.price_per_gpu_hour,
            factors=self.factors,
            scheduling=self.scheduling,
            compiled=compiled,
        )

    def identity(self) -> Mapping[str, Any]:
        """Everything that a run of it depends on."""
        return {
            "deployment": self.fit.deployment,
            "scheduling": dict(self.scheduling),
            "factors": self.factors,
            "price_per_gpu_hour": self.price_per_gpu_hour,
        }
