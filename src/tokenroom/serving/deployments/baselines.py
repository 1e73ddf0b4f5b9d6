"""A deployment's memory under the schedulers that paging and continuous batching replaced."""

from __future__ import annotations

from typing import Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.serving.deployments.simulated_engine import Setting, SimulatedEngine
from tokenroom.serving.schedulers.contiguous import ContiguousScheduler, ContiguousSchedulerConfig
from tokenroom.serving.schedulers.static import StaticScheduler, StaticSchedulerConfig

STATIC: Final = "static"
"""A batch is assembled, padded and run to the end of its longest answer."""
CONTIGUOUS: Final = "contiguous"
"""Continuous batching, each request in one piece of ``max_model_len`` tokens."""
CONTIGUOUS_EXACT: Final = "contiguous-exact"
"""The same in pieces as long as each request will become."""
BASELINES: Final = (STATIC, CONTIGUOUS, CONTIGUOUS_EXACT)


def check_baseline(name: Setting) -> None:
    """Refuse what is none of them.

    Raises:
        DeploymentError: It is not.
    """
    if name not in BASELINES:
        raise DeploymentError(f"scheduler is {shown(name)}; it may be {', '.join(BASELINES)}")


def static_engine(*, batch_size: int, max_model_len: int) -> SimulatedEngine:
    """Static batching; its pool is counted in requests of ``max_model_len`` tokens.

    Raises:
        DeploymentError: Not one such request fits.
    """
    if batch_size < 1:
        raise DeploymentError(
            f"not one request of max_model_len {max_model_len} fits, and static batching reserves "
            "that for each; lower max_model_len (--context)"
        )
    config = StaticSchedulerConfig(batch_size=batch_size, max_model_len=max_model_len)
    return SimulatedEngine(
        new_scheduler=lambda: StaticScheduler(config),
        config=config,
        block_tokens=1,
        usable_blocks=batch_size,
        max_model_len=max_model_len,
        finds_prefixes=False,
        settings={"scheduler": STATIC, "batch_size": batch_size},
        pool_tokens=batch_size * max_model_len,
    )


def baseline_engine(
    name: Setting,
    *,
    pool_tokens: int,
    max_model_len: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    asynchronous: bool,
) -> SimulatedEngine:
    """A KV pool under one of :data:`BASELINES`, with as many requests and tokens in a step.

    Raises:
        DeploymentError: It is none of them, or not one request fits.
    """
    check_baseline(name)
    if name == STATIC:
        return static_engine(
            batch_size=min(max_num_seqs, pool_tokens // max_model_len),
            max_model_len=max_model_len,
        )
    config = ContiguousSchedulerConfig(
        pool_tokens=pool_tokens,
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        knows_length=name == CONTIGUOUS_EXACT,
        asynchronous=asynchronous,
    )
    return SimulatedEngine(
        new_scheduler=lambda: ContiguousScheduler(config),
        config=config,
        block_tokens=1,
        usable_blocks=pool_tokens,
        max_model_len=max_model_len,
        finds_prefixes=False,
        settings={
            "scheduler": name,
            "max_num_batched_tokens": max_num_batched_tokens,
            "max_num_seqs": max_num_seqs,
            "async_scheduling": asynchronous,
        },
    )
