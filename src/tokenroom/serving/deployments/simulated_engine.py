"""What the simulator needs to know of a fitted deployment, whatever its engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tokenroom.errors import DeploymentError
from tokenroom.serving.scheduler import Scheduler

Setting = str | int | float | bool | None

Scheduling = Mapping[str, Setting]
"""Settings that change what steps run but no memory, under the engine's own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEngine:
    """One engine: a server has one, or one for each of its data-parallel copies.

    Attributes:
        new_scheduler: Makes what decides the steps of one run.
        config: The scheduler's settings in its own form.
        block_tokens: Tokens in the blocks that requests' ``block_hashes`` are to name.
        usable_blocks: Blocks of the KV pool that requests can hold.
        max_model_len: The longest context, in tokens.
        finds_prefixes: Blocks are found again by what they hold.
        settings: What else decides the steps, under the engine's own names.
        pool_tokens: Tokens of the pool where the plan of the deployment does not tell.
        transfer_seconds: How long it takes to move so many blocks one way between GPUs and host;
            None where nothing moves.
    """

    new_scheduler: Callable[[], Scheduler]
    config: object
    block_tokens: int
    usable_blocks: int
    max_model_len: int
    finds_prefixes: bool
    settings: Mapping[str, Setting]
    pool_tokens: int | None = None
    transfer_seconds: Callable[[int], float] | None = None


def check_names(scheduling: Scheduling, known: Collection[str], engine: str) -> None:
    """Refuse a setting that the engine's scheduler does not have.

    Raises:
        DeploymentError: There is one.
    """
    for name in scheduling:
        if name not in known:
            raise DeploymentError(
                f"{name} is no setting of {engine}'s scheduler; it may be "
                f"{', '.join(known) or 'none: leave it out'}"
            )
