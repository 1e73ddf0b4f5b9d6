"""Whoever is asked to work: this process, processes of this machine, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from tokenroom.errors import ExecutionError


@contextmanager
def workers(
    jobs: int | None = None, ray_address: str | None = None
) -> Iterator[tuple[Executor, int]]:
    """An executor, and how many tasks it works on at once; ended at the end, even early.

    Args:
        jobs: Processes of this machine; None for as many as it has CPUs for this one.
        ray_address: Of a Ray cluster that works instead.

    Raises:
        ExecutionError: Both are given, or the cluster cannot be used.
    """
    executor: Executor
    if ray_address is not None:
        if jobs is not None:
            raise ExecutionError("--jobs is of processes here and --ray of a cluster; give one")
        from tokenroom.execution.ray_cluster import RayCluster

        executor = cluster = RayCluster(ray_address)
        count = cluster.workers
    elif (count := jobs or usable_cpus()) == 1:
        from tokenroom.execution.inline import Inline

        executor = Inline()
    else:
        from tokenroom.execution.processes import Processes

        executor = Processes(count)
    try:
        yield executor, count
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
