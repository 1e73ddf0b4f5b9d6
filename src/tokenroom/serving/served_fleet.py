"""A fleet with everything that decides how it serves: its description, and its deployments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenroom.fitting import FitResult
from tokenroom.serving.engine import StepSeconds
from tokenroom.serving.fleet_description import FleetDescription
from tokenroom.serving.metrics import LatencyLimits
from tokenroom.serving.pool import pool_of
from tokenroom.serving.run import Run
from tokenroom.serving.served_deployment import ServedDeployment


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFleet:
    """A fleet as it is simulated; it can be sent to another process.

    Attributes:
        description: Its pools, router and transfers.
        deployments: What each pool's servers are, in the order of the pools.
    """

    description: FleetDescription
    deployments: tuple[ServedDeployment, ...]

    @property
    def fits(self) -> tuple[FitResult, ...]:
        """The deployment of each pool's servers."""
        return tuple(one.fit for one in self.deployments)

    @property
    def refused(self) -> FitResult | None:
        """The first deployment that does not start, None when all do."""
        return next((fit for fit in self.fits if fit.plan.refusal is not None), None)

    def run(
        self,
        limits: LatencyLimits | None = None,
        *,
        compiled: bool = False,
        step_seconds: StepSeconds | None = None,
    ) -> Run:
        """One run of it.

        Args:
            limits: What requests are promised; None for nothing.
            compiled: Serve by the compiled engine where that can be done.
            step_seconds: How long a step of any of its engines takes, instead of what the model of
                speed says.

        Raises:
            DeploymentError: A deployment does not start, or is not simulated.
            HardwareError: A peak or bandwidth that its speed needs is not known.
        """
        pools = [
            pool_of(
                one.fit,
                name=pool.name,
                scheduling=one.scheduling,
                factors=one.factors,
                replicas=pool.replicas,
                role=pool.role,
                price_per_gpu_hour=pool.price_per_gpu_hour or one.price_per_gpu_hour,
                max_prompt_tokens=pool.max_prompt_tokens,
                scaling=pool.scaling,
                step_seconds=step_seconds,
            )
            for pool, one in zip(self.description.pools, self.deployments, strict=True)
        ]
        described = self.description
        return Run(
            pools,
            limits=limits,
            router=described.router,
            transfer=described.transfer,
            compiled=compiled,
        )

    def identity(self) -> Mapping[str, Any]:
        """Everything that a run of it depends on."""
        return {
            "description": self.description,
            "deployments": [one.identity() for one in self.deployments],
        }
