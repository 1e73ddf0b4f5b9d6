"""What is to be served, and what its clients are promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

from tokenroom.errors import DeploymentError, shown
from tokenroom.objectives import Objectives
from tokenroom.serving.request import Request
from tokenroom.serving.workloads.distributions import Pairs
from tokenroom.serving_speed import MAX_CONCURRENCY, ServingSpeed

Statistic: TypeAlias = Literal["mean", "p50", "p90", "p95", "p99"]
STATISTICS: Final[tuple[Statistic, ...]] = ("mean", "p50", "p90", "p95", "p99")

BURST_SHARE: Final = 0.1
"""Of the time, that bursts take."""

_LIMITS: Final[Mapping[str, float]] = {
    "think_seconds": 86_400 * 365,
    "requests_per_second": 1e9,
}


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Requests that come, and what each of their clients is promised.

    Either ``users`` who wait for an answer and think before they ask again (a closed system:
    the load falls when answers are slow), or requests that come at a rate whatever becomes of those
    before (an open one).

    Attributes:
        input_tokens: Prompt of a request, on average.
        output_tokens: Tokens of its answer, on average.
        longest_tokens: The longest request, prompt and answer together.
        lengths: What the lengths of each request are drawn from.
        objectives: What is promised.
        users: How many there are; None where requests come at a rate.
        think_seconds: Mean time from an answer to the user's next request.
        requests_per_second: The rate; None for users.
        burst: Of a rate: for a tenth of the time requests come so many times as often, and less
            often in between, so that the mean stays. 1 for a steady rate.
        requests: Requests of a trace that are served when simulated, of a rate; None to draw them.
        statistic: What of all requests has to keep the objectives in the simulation.

    Raises:
        DeploymentError: A figure is out of range, or not just one of the two loads is given.
    """

    input_tokens: int
    output_tokens: int
    longest_tokens: int
    lengths: Pairs
    objectives: Objectives
    users: int | None = None
    think_seconds: float = 0.0
    requests_per_second: float | None = None
    burst: float = 1.0
    requests: Sequence[Request] | None = None
    statistic: Statistic = "p95"

    def __post_init__(self) -> None:
        if (self.users is None) == (self.requests_per_second is None):
            raise DeploymentError("a plan is for users or for a rate of requests; give one of them")
        if self.users is not None and not 1 <= self.users <= MAX_CONCURRENCY:
            raise DeploymentError(
                f"users is {shown(self.users)}; give a whole number from 1 to {MAX_CONCURRENCY:,}"
            )
        for name, most in _LIMITS.items():
            value = getattr(self, name)
            least_excluded = name == "requests_per_second"
            if value is None:
                continue
            if not 0 <= value <= most or (least_excluded and not value):
                raise DeploymentError(
                    f"{name} is {shown(value)}; give a number "
                    f"{'above' if least_excluded else 'from'} 0 {'and ' * least_excluded}up to "
                    f"{most:g}"
                )
        for name in ("input_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise DeploymentError(f"{name} is {shown(getattr(self, name))}; give 1 or more")
        if self.output_tokens < 2 and self.objectives.tpot_seconds is not None:
            raise DeploymentError(
                "requests of one output token have no time per further token; leave the TPOT "
                "out, or ask about 2 tokens or more"
            )
        if self.users is None and self.think_seconds:
            raise DeploymentError("think_seconds belongs to users; leave it out of a rate")
        if self.users is not None and self.burst != 1:
            raise DeploymentError("burst belongs to a rate; leave it out of users")
        if not 1 <= self.burst < 1 / BURST_SHARE:
            raise DeploymentError(
                f"burst is {shown(self.burst)}; give a factor from 1 to below {1 / BURST_SHARE:g}"
            )
        if self.longest_tokens < self.input_tokens + self.output_tokens:
            raise DeploymentError(
                f"longest_tokens is {self.longest_tokens:,}, below the mean request of "
                f"{self.input_tokens + self.output_tokens:,}; raise it"
            )
        if self.statistic not in STATISTICS:
            raise DeploymentError(
                f"statistic is {shown(self.statistic)}; it may be {', '.join(STATISTICS)}"
            )

    @cached_property
    def amount(self) -> float:
        """All of the load: users, or requests a second."""
        return float(self.users if self.users is not None else self.requests_per_second or 0.0)

    def served(self, point: ServingSpeed) -> float:
        """The part of the load that a deployment takes at a point, in the unit of ``amount``.

        Of users who think for ``Z`` seconds, ``N = X (R + Z)`` (the interactive response time law:
        Denning and Buzen, The Operational Analysis of Queueing Network Models, 1978): those whose
        requests are in flight, ``X R``, and those who think, ``X Z``.
        """
        return self.served_by(point.concurrency, point.requests_per_second.value)

    def served_by(self, clients: int, requests_per_second: float) -> float:
        """The same of clients in flight and the rate at which they are answered."""
        if self.users is None:
            return requests_per_second
        return clients + requests_per_second * self.think_seconds
