"""The least time that a step could take: the peaks of its GPU, with nothing lost.

Arithmetic at the peak of each type, weights and cache at the peak bandwidth, messages over the
links, all three at once (the roofline: Williams, Waterman and Patterson, CACM 52(4), 2009). What
only passes activations through memory is left out: a better kernel could fuse it away. No engine
and no setting goes below, save by less work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.performance.efficiency import (
    COLLECTIVES,
    NETWORK_BYTES_PER_SECOND,
    bandwidth_of,
    host_bandwidth,
    link_bandwidth,
    peak_flops,
    sent_bytes,
    supported_arithmetic,
)
from tokenroom.performance.work import Kind, Operator


class Floor(NamedTuple):
    """The least time of a step on one rank, and what sets it.

    Attributes:
        seconds: That time.
        limiter: ``"compute"``, ``"bandwidth"`` or ``"communication"``.
        flops: Multiplications and additions.
        num_bytes: Bytes of weights, cache and activations that its kernels need.
    """

    seconds: float
    limiter: str
    flops: float
    num_bytes: float


def step_floor(operators: Iterable[Operator], accelerator: Accelerator, per_node: int) -> Floor:
    """The least time of a step of these operators.

    Raises:
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    bandwidth = bandwidth_of(accelerator)
    times = {"compute": 0.0, "bandwidth": 0.0, "communication": 0.0}
    flops = num_bytes = 0.0
    for operator in operators:
        if operator.kind is Kind.HOST_READ:
            read_bytes = operator.times * operator.num_bytes
            times["communication"] += read_bytes / host_bandwidth(accelerator)
        elif operator.kind is Kind.HOST_COMPUTE:  # in the host's own memory
            (host_memory,) = operator.shape
            times["bandwidth"] += operator.times * operator.num_bytes / host_memory
        elif operator.kind in COLLECTIVES:
            times["communication"] += operator.times * _sending(operator, accelerator, per_node)
        elif operator.kind is not Kind.MEMORY:
            arithmetic = operator.arithmetic
            if operator.kind in (Kind.GEMM, Kind.GROUPED_GEMM):
                arithmetic = supported_arithmetic(arithmetic, accelerator)
            times["compute"] += (
                operator.times * operator.flops / peak_flops(arithmetic, accelerator)
            )
            times["bandwidth"] += operator.times * operator.num_bytes / bandwidth
            flops += operator.times * operator.flops
            num_bytes += operator.times * operator.num_bytes
    limiter = max(times, key=times.__getitem__)
    return Floor(times[limiter], limiter, flops, num_bytes)


def _sending(operator: Operator, accelerator: Accelerator, per_node: int) -> float:
    """Seconds of one message over the link, or what leaves the host over the network."""
    if operator.ranks > per_node:
        hosts = -(-operator.ranks // per_node)
        message = operator.message_bytes / per_node
        return sent_bytes(operator.kind, message, hosts) / NETWORK_BYTES_PER_SECOND  # type: ignore[no-any-return]
    sent = sent_bytes(operator.kind, operator.message_bytes, operator.ranks)
    return sent / link_bandwidth(accelerator)  # type: ignore[no-any-return]
