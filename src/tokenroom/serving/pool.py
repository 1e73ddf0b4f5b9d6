"""A pool of a fleet, ready to be simulated: servers alike, and what each of them is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from tokenroom.errors import DeploymentError, FleetError, shown
from tokenroom.fitting import FitResult
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.serving.copies import Copies, copies_of
from tokenroom.serving.deployments import engine_of
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine
from tokenroom.serving.engine import Accelerators, Engine, Fetch, OneByOne, StepSeconds
from tokenroom.serving.events import Events
from tokenroom.serving.fleet_description import Role, Scaling
from tokenroom.serving.host_link import HostLink
from tokenroom.serving.lockstep import Lockstep, TogetherCost, TogetherSeconds
from tokenroom.serving.pipeline import Pipeline, PipelineCost
from tokenroom.serving.record import StepRecord
from tokenroom.serving.replica import Heard, Replica, ServingEngine
from tokenroom.serving.step_cost import StepCost, step_cost
from tokenroom.serving.step_table import StepTable

_KV_ROLES: Final = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Servers alike.

    Attributes:
        name: Of the pool; unique in a fleet.
        fit: The deployment of each server.
        engine: How each of its data-parallel copies is simulated.
        cost: How long their steps take.
        copies: The copies.
        replicas: Servers at the start.
        role: What they do with a request.
        price_per_gpu_hour: In USD; None when not given.
        max_prompt_tokens: Longest prompts that they are sent; None for any.
        scaling: When servers are started and stopped; None for never.
        step_seconds: How long a step takes, instead of what ``cost`` says.

    Raises:
        FleetError: A number is out of range.
    """

    name: str
    fit: FitResult
    engine: SimulatedEngine
    cost: StepCost
    copies: Copies
    replicas: int = 1
    role: Role = Role.BOTH
    price_per_gpu_hour: float | None = None
    max_prompt_tokens: int | None = None
    scaling: Scaling | None = None
    step_seconds: StepSeconds | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise FleetError(f"replicas is {shown(self.replicas)}; it must be 1 or more")
        if self.price_per_gpu_hour is not None and not 0 < self.price_per_gpu_hour < math.inf:
            raise FleetError(
                f"price_per_gpu_hour is {shown(self.price_per_gpu_hour)}; give USD above 0"
            )

    @property
    def gpus(self) -> int:
        """GPUs of one server."""
        return self.fit.deployment.node.count

    @property
    def pool_tokens(self) -> int:
        """Tokens of the KV pool that requests are given in each engine."""
        told = self.engine.pool_tokens
        return self.fit.plan.kv_pool_tokens if told is None else told

    @property
    def is_one_engine(self) -> bool:
        """Whether it is one server of one copy, and stays that."""
        return self.replicas == self.copies.count == 1 and self.scaling is None

    @property
    def stages(self) -> int:
        """Pipeline stages of each engine."""
        return self.cost.terms.layout.pipeline_parallel_size


def pool_of(
    result: FitResult,
    *,
    name: str = "engine",
    scheduling: Scheduling = MappingProxyType({}),
    factors: Factors = UNCALIBRATED,
    replicas: int = 1,
    role: Role = Role.BOTH,
    price_per_gpu_hour: float | None = None,
    max_prompt_tokens: int | None = None,
    scaling: Scaling | None = None,
    step_seconds: StepSeconds | None = None,
) -> Pool:
    """Servers of a fitted deployment; other arguments are the attributes of :class:`Pool`.

    Args:
        result: The deployment.
        name: Of the pool.
        scheduling: Settings that change what steps run but no memory, under the engine's names.
        factors: Those of the machine, where it was calibrated.
        replicas: Servers at the start.
        role: What they do with a request.
        price_per_gpu_hour: In USD.
        max_prompt_tokens: Longest prompts that they are sent.
        scaling: When servers are started and stopped.
        step_seconds: How long a step takes, instead of what the model of speed says; of engines
            without stages that step by themselves.

    Raises:
        DeploymentError: It does not start, or is not simulated.
        HardwareError: A peak or bandwidth that its speed needs is not known.
        FleetError: A number is out of range.
    """
    if role is not Role.BOTH:
        if result.deployment.engine != "vllm":
            raise DeploymentError(
                f"engine {result.deployment.engine} with role {role} is not simulated; prompts and "
                "answers apart are of vllm"
            )
        scheduling = {**scheduling, "kv_role": _KV_ROLES[role]}
    engine = engine_of(result, scheduling)
    cost = step_cost(result, factors)
    copies = copies_of(result, cost.terms)
    stages = cost.terms.layout.pipeline_parallel_size
    if stages > 1 and copies.count > 1 and copies.lockstep:
        raise DeploymentError(
            f"pipeline_parallel_size is {stages}; pipelines of ranks that step together are not "
            "simulated, it may be 1"
        )
    if step_seconds is not None and (stages > 1 or (copies.count > 1 and copies.lockstep)):
        raise DeploymentError(
            "step_seconds tells the time of one engine's step, and these are pipelines or ranks "
            "that step together; leave it out"
        )
    if engine.transfer_seconds is not None and copies.lockstep and copies.count > 1:
        raise DeploymentError(
            "KV in the host's memory is not simulated of data-parallel copies that step together; "
            "leave kv_offloading_size out"
        )
    return Pool(
        name=name,
        fit=result,
        engine=engine,
        cost=cost,
        copies=copies,
        replicas=replicas,
        role=role,
        price_per_gpu_hour=price_per_gpu_hour,
        max_prompt_tokens=max_prompt_tokens,
        scaling=scaling,
        step_seconds=step_seconds,
    )


class ReplicaFactory:
    """Makes the servers of a pool, which share the tables of the times of steps.

    Args:
        pool: The pool.
        events: Where the servers plan what they do.
        observe: Called with each step when it has ended.
        heard: Hears which requests ended.
        fetch: Hears whose KV is to come to an engine that only writes answers.
        new_engine: Makes the engine of the server of a number, of servers of one copy; None for
            those of the pool, step by step.
    """

    __slots__ = (
        "_events",
        "_fetch",
        "_heard",
        "_new_engine",
        "_observe",
        "_pipeline",
        "_pool",
        "_step_seconds",
        "_together",
    )

    def __init__(
        self,
        pool: Pool,
        events: Events,
        observe: Callable[[StepRecord], object],
        heard: Heard,
        fetch: Fetch,
        new_engine: Callable[[int], ServingEngine] | None = None,
    ) -> None:
        self._new_engine = new_engine
        self._pool = pool
        self._events = events
        self._observe = observe
        self._heard = heard
        self._fetch = fetch
        self._step_seconds = pool.step_seconds or StepTable(pool.cost)
        self._pipeline = PipelineCost(pool.cost) if pool.stages > 1 else None
        self._together: TogetherSeconds | None = None
        if pool.copies.lockstep and pool.copies.count > 1:
            self._together = TogetherCost(pool.cost)

    def __call__(self, number: int) -> Replica:
        """A new server of that number."""
        copies, delay_seconds = self._pool.copies, self._pool.cost.delay_seconds
        if self._new_engine is not None:
            return Replica(
                number,
                self._events,
                [self._new_engine(number)],
                delay_seconds=delay_seconds,
                heard=self._heard,
            )
        engines = [self._engine(number, rank) for rank in range(copies.count)]
        return Replica(
            number,
            self._events,
            engines,
            lockstep=None if self._together is None else Lockstep(engines, self._together),
            balancer=copies.new_balancer() if copies.count > 1 else None,
            delay_seconds=delay_seconds,
            heard=self._heard,
        )

    def _engine(self, replica: int, rank: int) -> Engine:
        scheduler: Any = self._pool.engine.new_scheduler()
        return Engine(
            scheduler,
            self._accelerators(),
            number=rank,
            replica=replica,
            usable_blocks=self._pool.engine.usable_blocks,
            sends=scheduler if self._pool.role is Role.PREFILL else None,
            receives=scheduler if self._pool.role is Role.DECODE else None,
            fetch=self._fetch,
            observe=self._observe,
        )

    def _accelerators(self) -> Accelerators:
        if self._pipeline is None:
            alone = OneByOne(self._step_seconds)
            transfer_seconds = self._pool.engine.transfer_seconds
            return alone if transfer_seconds is None else HostLink(alone, transfer_seconds)
        config: Any = self._pool.engine.config
        return Pipeline(
            self._pipeline,
            batches=config.max_concurrent_batches,
            keeps_empty=config.staggers,
        )
