"""What a fleet is: pools of engines, what decides where a request goes, and how KV moves.

Nothing here knows an engine: a pool's deployment is the words of a command, which the command line
turns into a :class:`~tokenroom.fitting.FitResult`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tokenroom.errors import FleetError, shown

MAX_REPLICAS: Final = 1024


class Role(StrEnum):
    """What the engines of a pool do with a request."""

    BOTH = "both"
    """They serve it from its prompt to its last token."""
    PREFILL = "prefill"
    """They compute its prompt, whose KV then goes to a decoding engine."""
    DECODE = "decode"
    """They take over its KV and write the answer."""


class Policy(StrEnum):
    """How a router chooses among engines: :mod:`tokenroom.serving.routers` says what each does."""

    ROUND_ROBIN = "round_robin"
    LEAST_LOAD = "least_load"
    POWER_OF_TWO = "power_of_two"
    CACHE_AWARE = "cache_aware"
    KV_AWARE = "kv_aware"
    STICKY = "sticky"


class Measure(StrEnum):
    """What a pool is scaled by."""

    WAITING = "waiting"
    """Requests that wait, for each replica."""
    RUNNING = "running"
    """Requests that run, for each replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterDescription:
    """What decides which engine serves a request.

    Attributes:
        policy: How it chooses.
        waiting_weight: ``least_load``: running requests that one waiting request counts for.
        cache_threshold: ``cache_aware``: share of a prompt that an engine must have seen to be
            chosen for it.
        balance_abs_threshold: ``cache_aware``: requests between the most and the least loaded
            engine from which on load decides.
        balance_rel_threshold: ``cache_aware``: ratio of the two, which must be exceeded as well.
        overlap_weight: ``kv_aware``: what a block to compute counts beside one that is held.
        seed: ``power_of_two``: of the draws.

    Raises:
        FleetError: A number is out of range.
    """

    policy: Policy = Policy.ROUND_ROBIN
    waiting_weight: float = 4.0
    cache_threshold: float = 0.3
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5
    overlap_weight: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.cache_threshold <= 1:
            raise FleetError(
                f"cache_threshold of router is {shown(self.cache_threshold)}; give a share, 0 to 1"
            )
        for name, least in (
            ("waiting_weight", 0),
            ("balance_abs_threshold", 0),
            ("balance_rel_threshold", 1),
            ("overlap_weight", 0),
            ("seed", 0),
        ):
            if not least <= getattr(self, name) < math.inf:
                raise FleetError(
                    f"{name} of router is {shown(getattr(self, name))}; it must be {least} or more"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """When a pool starts and stops replicas, as Kubernetes' Horizontal Pod Autoscaler decides it.

    Attributes:
        least: Replicas that are always kept.
        most: Replicas at most.
        measure: What is looked at.
        target: What there is to be of it for each replica.
        every_seconds: Between two looks (``--horizontal-pod-autoscaler-sync-period``).
        tolerance: Share by which the measure must be off the target for a change
            (``--horizontal-pod-autoscaler-tolerance``).
        start_up_seconds: From the decision to start a replica until it serves; its GPUs are held.
        cool_down_seconds: Replicas are stopped when this long none more were wanted
            (``--horizontal-pod-autoscaler-downscale-stabilization``).

    Raises:
        FleetError: A number is out of range, or ``most`` is below ``least``.
    """

    least: int = 1
    most: int
    measure: Measure = Measure.WAITING
    target: float
    every_seconds: float = 15.0
    tolerance: float = 0.1
    start_up_seconds: float = 60.0
    cool_down_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most <= MAX_REPLICAS:
            raise FleetError(
                f"scale goes from {shown(self.least)} to {shown(self.most)} replicas; give min and "
                f"max with 1 <= min <= max <= {MAX_REPLICAS}"
            )
        for name, above in (("target", True), ("every_seconds", True), ("tolerance", False)):
            value = getattr(self, name)
            if not 0 <= value < math.inf or (above and not value):
                raise FleetError(
                    f"{name.removesuffix('_seconds')} of scale is {shown(value)}; "
                    f"it must be {'above 0' if above else '0 or more'}"
                )
        for name in ("start_up_seconds", "cool_down_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise FleetError(
                    f"{name.removesuffix('_seconds')} of scale is {shown(getattr(self, name))}; "
                    "it must be a time of 0 or more"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How the KV of a prompt gets from one engine to another.

    Attributes:
        link: ``"nvlink"`` or ``"pcie"``: the GPUs' own link of that kind, by the catalogue;
            ``"network"``: 400 Gbit/s for each GPU. None where ``bytes_per_second`` says it.
        bytes_per_second: What each GPU of the receiving engine takes in; None for the link's.
        latency_seconds: From asking for it to its first byte.

    Raises:
        FleetError: Both or neither of link and bandwidth are given, or one is out of range.
    """

    link: str | None = "network"
    bytes_per_second: float | None = None
    latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.link is None) == (self.bytes_per_second is None):
            raise FleetError("transfer needs either a link or a bandwidth; give one of the two")
        if self.link is not None and self.link not in LINKS:
            raise FleetError(
                f"link of transfer is {shown(self.link)}; it may be {', '.join(LINKS)}, or give "
                "bandwidth, as 50GB/s"
            )
        if self.bytes_per_second is not None and not self.bytes_per_second > 0:
            raise FleetError(
                f"bandwidth of transfer is {shown(self.bytes_per_second)}; it must be above 0"
            )
        if not 0 <= self.latency_seconds < math.inf:
            raise FleetError(
                f"latency of transfer is {shown(self.latency_seconds)}; it must be 0 or more"
            )


LINKS: Final = ("nvlink", "pcie", "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDescription:
    """Engines alike.

    Attributes:
        name: Of the pool; unique in a fleet.
        deployment: The words of its deployment: what follows ``tokenroom simulate``, or an
            engine's own command.
        replicas: How many there are at the start.
        role: What they do with a request.
        price_per_gpu_hour: In USD; None when not given.
        max_prompt_tokens: Longest prompts that they are sent; None for any. A prompt goes to the
            pools with the least limit that admits it.
        scaling: When replicas are started and stopped; None for never.

    Raises:
        FleetError: A field is out of range.
    """

    name: str
    deployment: tuple[str, ...]
    replicas: int = 1
    role: Role = Role.BOTH
    price_per_gpu_hour: float | None = None
    max_prompt_tokens: int | None = None
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise FleetError(
                f"replicas of pool {shown(self.name)} is {shown(self.replicas)}; "
                f"give 1 to {MAX_REPLICAS}"
            )
        if self.price_per_gpu_hour is not None and not 0 < self.price_per_gpu_hour < math.inf:
            raise FleetError(
                f"price of pool {shown(self.name)} is {shown(self.price_per_gpu_hour)}; "
                "give USD above 0 for an hour of one GPU"
            )
        if self.scaling is not None and not (
            self.scaling.least <= self.replicas <= self.scaling.most
        ):
            raise FleetError(
                f"replicas of pool {shown(self.name)} is {self.replicas}, outside of its scale "
                f"from {self.scaling.least} to {self.scaling.most}; start within it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDescription:
    """Pools of engines behind one router.

    Attributes:
        pools: The pools.
        router: What chooses among replicas.
        transfer: How KV moves from prefill to decode engines.
        name: What the fleet is called; None without a name.

    Raises:
        FleetError: No pool, two of one name, or prefill engines without decode engines or the
            other way round.
    """

    pools: tuple[PoolDescription, ...]
    router: RouterDescription = field(default_factory=RouterDescription)
    transfer: Transfer = field(default_factory=Transfer)
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.pools:
            raise FleetError("pools is empty; a fleet has at least one pool")
        names = [pool.name for pool in self.pools]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FleetError(f"two pools are named {shown(twice)}; give each a name of its own")
        check_roles(pool.role for pool in self.pools)

    @property
    def single(self) -> PoolDescription | None:
        """The only pool, where the fleet is one engine that stays one; None otherwise."""
        pool = self.pools[0]
        if len(self.pools) > 1 or pool.replicas > 1 or pool.scaling is not None:
            return None
        return pool


def check_roles(roles: Iterable[Role]) -> None:
    """Refuse servers of prompts without servers of answers, and the other way round.

    Raises:
        FleetError: There are such.
    """
    found = set(roles)
    if (Role.PREFILL in found) != (Role.DECODE in found):
        there, missing = Role.PREFILL, Role.DECODE
        if there not in found:
            there, missing = missing, there
        raise FleetError(
            f"the fleet has a pool with role {there} and none with role {missing}; "
            "prefill and decode engines serve together"
        )
