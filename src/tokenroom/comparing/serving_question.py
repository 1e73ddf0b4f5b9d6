"""One run of a comparison, as a question that another process can answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenroom.comparing.figures import figures_of
from tokenroom.serving.metrics import LatencyLimits
from tokenroom.serving.served_deployment import ServedDeployment
from tokenroom.serving.served_fleet import ServedFleet
from tokenroom.serving.workloads.source import WorkloadSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingQuestion:
    """What becomes of a workload that a deployment or a fleet serves.

    Attributes:
        servers: What serves.
        workload: What is served, its seed included.
        limits: What requests are promised; None for nothing.
    """

    servers: ServedDeployment | ServedFleet
    workload: WorkloadSource
    limits: LatencyLimits | None = None

    def identity(self) -> dict[str, Any]:
        """Everything that the answer depends on.

        Raises:
            WorkloadError: The workload cannot be read.
        """
        return {
            "servers": self.servers.identity(),
            "workload": self.workload.identity(),
            "limits": self.limits,
        }


def serve(question: ServingQuestion) -> dict[str, Any]:
    """The figures of a run, and what else is to be told of it, as JSON holds them.

    Raises:
        TokenroomError: The deployment is not simulated, or the workload cannot be read.
    """
    run = question.servers.run(question.limits)
    served = question.workload.served(run.engine.block_tokens)
    for _ in run.serve(served.arrivals, waits_for_answers=served.waits_for_answers):
        pass
    done = run.outcome()
    return {
        "arrived": done.arrived,
        "served": done.metrics.requests,
        "falls_behind": done.falls_behind,
        "figures": figures_of(done),
    }
