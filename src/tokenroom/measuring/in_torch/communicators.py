"""What NCCL takes of each GPU once ranks have spoken to one another."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, Final

import torch

from tokenroom.errors import MeasurementError
from tokenroom.measuring.in_torch.cuda_counters import CudaCounters

_ELEMENTS: Final = 2**20


def outside_of_cuda(rank: int) -> int:
    """Bytes on the rank's GPU that are not PyTorch's allocator's."""
    counters = CudaCounters(f"cuda:{rank}")
    return counters.used_bytes() - counters.reserved_bytes()


def measure_communicator(
    ranks: int,
    *,
    backend: str = "nccl",
    outside: Callable[[int], int] = outside_of_cuda,
    device: str = "cuda",
) -> int:
    """By how much memory outside the allocator grew on the rank where it grew most.

    Each rank is a process of its own; they sum a tensor over all, as engines do to warm up. Where
    only the memory of a whole device is told, other processes must be still.

    Args:
        ranks: How many.
        backend: Of ``torch.distributed``.
        outside: Reads a rank's memory outside the allocator.
        device: ``"cuda"``, or ``"cpu"``.

    Raises:
        MeasurementError: The ranks do not find one another or fail.
    """
    import torch.multiprocessing as processes

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = processes.get_context("spawn")
    grown = context.SimpleQueue()
    try:
        processes.spawn(
            _rank, args=(ranks, port, backend, outside, device, grown), nprocs=ranks, join=True
        )
    except Exception as problem:  # what a rank raised comes as text of many lines
        last = (str(problem).strip().splitlines() or [type(problem).__name__])[-1][:200]
        raise MeasurementError(f"{ranks} ranks do not work together: {last}") from problem
    largest: int = max(grown.get() for _ in range(ranks))
    return max(0, largest)


def _rank(
    rank: int,
    ranks: int,
    port: int,
    backend: str,
    outside: Callable[[int], int],
    device: str,
    grown: Any,
) -> None:
    import torch.distributed as group

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    place = f"cuda:{rank}" if device == "cuda" else device
    if device == "cuda":
        torch.cuda.set_device(rank)
    tensor = torch.ones(_ELEMENTS, device=place)
    tensor += 1  # so that the kernels of elementwise work are there before
    before = outside(rank)
    group.init_process_group(backend, rank=rank, world_size=ranks)
    group.all_reduce(tensor)
    group.barrier()
    grown.put(outside(rank) - before)
    group.barrier()
    group.destroy_process_group()
