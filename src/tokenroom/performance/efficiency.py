"""Time of one operator on one accelerator: its work over the share of the peak it reaches.

The share is a smooth function of the operator's extents with few coefficients, fitted by
``scripts/fit_efficiency.py`` from measured operator tables (source and residuals stand beside
each fit in ``data/efficiency.json``). Coefficients are shares of peak and lengths, so those of one
accelerator serve another with its own peaks: one without tables takes those of the most alike
accelerator that has them, with a wider range. So does a type without a table, and an operator
whose extents lie beyond those fitted: :func:`beyond_fit` says by how much.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from math import log, log2
from typing import Any, Final, NamedTuple

from tokenroom.errors import HardwareError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.work import EXTENTS, Kind, Operator

NETWORK_BYTES_PER_SECOND: Final = 50e9
"""One direction of one accelerator's share of the network between hosts: a 400 Gb/s port each, as
in NVIDIA's DGX H100 and DGX B200 (their user guides, "Network interface")."""

NETWORK_LAUNCH_SECONDS: Final = 12e-6
"""What a collective that leaves the host takes at least, beyond one inside it: InfiniBand latency
and proxy threads (NCCL 2.23 ``graph/tuning.cc``: 5 to 14 microseconds a hop by protocol)."""

HOST_LINK_SHARE: Final = 0.88
"""Share of the link to the host that reads of pinned memory reach: 55.6 of 63 GB/s over PCIe 5
(README of NVIDIA nvbandwidth 0.5, ``host_to_device_memcpy_ce``)."""

_HOST_LINK_RANGE: Final = (0.85, 1.25)
"""Measured over predicted: 0.87 of a step of DeepSeek-V4.1 with 35 GiB a GPU in the host's memory
(vLLM issue 57771), 1.22 of copies over PCIe 3 (10.5 GiB/s, lvyufeng/PocketLLM issue 156)."""

_PEAKS: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "fp8_dynamic": "fp8",
    "int8": "int8",
    "nvfp4": "fp4",
    "mxfp4": "bf16",
    "mxfp4_mxfp8": "fp8",
    "w4a16": "bf16",
    "w8a16": "bf16",
    "ggml": "bf16",
    "f16": "fp16",
    "plain": "fp16",
    "mmq": "int8",
    "mmvq": "int8",
}
"""Peak that each type runs at. The last four are llama.cpp's: 16 bits summed in 16 bits, the same
in attention of several kernels, and its int8 products of many rows and of few."""

_SHORT_SUMS: Final = ("f16", "plain")

_WITHOUT_UNITS: Final[Mapping[str, str]] = {
    "fp8": "w8a16",
    "fp8_block": "w8a16",
    "fp8_dynamic": "w8a16",
    "int8": "w8a16",
    "nvfp4": "w4a16",
}
"""What engines fall back to where the accelerator has no units for a type: weights expanded to 16
bits in the kernel (vLLM 0.33 marlin_utils_fp8.py, marlin_utils_fp4.py)."""

HOST_MEMORY_SHARE: Final = 0.75
"""Share of the peak of the host's memory that llama.cpp's processor kernels reach: Qwen2.5 32B in
Q4_K_M at 3.54 tokens a second from two channels of DDR5-5600 (llama.cpp issue 19480)."""

_HOST_MEMORY_RANGE: Final = (0.83, 1.5)
"""Measured over predicted: from 0.9 of the peak to the half of it that experts reach, which are
read in pieces (gpt-oss-120b on an i9-14900K: 25.6 tokens a second)."""

KIN: Final[Mapping[str, tuple[str, ...]]] = {
    "w8a16": ("w4a16", "bf16"),
    "w4a16": ("mxfp4", "bf16"),
    "mxfp4": ("w4a16", "bf16"),
    "mxfp4_mxfp8": ("mxfp4", "nvfp4", "bf16"),
    "int8": ("fp8", "bf16"),
    "fp8": ("fp8_block", "bf16"),
    "fp8_block": ("fp8", "bf16"),
    "fp8_dynamic": ("fp8", "fp8_block", "bf16"),
    "nvfp4": ("fp8", "bf16"),
}
"""Types whose coefficients stand in for a type without a table, nearest first."""

COLLECTIVES: Final = (
    Kind.ALL_REDUCE,
    Kind.ALL_GATHER,
    Kind.REDUCE_SCATTER,
    Kind.ALL_TO_ALL,
    Kind.SEND,
)


_WITHOUT_KERNELS: Final = (*COLLECTIVES, Kind.HOST_READ, Kind.HOST_COMPUTE)


class Shares(NamedTuple):
    """Coefficients of one kind of kernel and type on one accelerator.

    Attributes:
        compute: Share of peak arithmetic of a large product.
        rows: Rows at which half of it is lost: m counts as m / (m + rows).
        columns: The same for columns.
        depth_seconds: Latency of one step along the summed dimension (or along the keys or tokens
            that are gone through one after another).
        memory: Share of peak bandwidth of a large product.
        pieces: Independent pieces at which half of the bandwidth is lost.
        sharpness: Power p of how compute and memory time join: (c^p + m^p)^(1/p).
        launch_seconds: Floor that a kernel takes however small.
    """

    compute: float
    rows: float
    columns: float
    depth_seconds: float
    memory: float
    pieces: float
    sharpness: float
    launch_seconds: float


class Link(NamedTuple):
    """Coefficients of one kind of collective on one kind of link.

    Attributes:
        launch_seconds: Floor for two ranks.
        rank_seconds: What each further rank adds.
        share: Share of the link's peak that large messages reach.
        sharpness: Power p of how floor and transfer join.
    """

    launch_seconds: float
    rank_seconds: float
    share: float
    sharpness: float


class Residual(NamedTuple):
    """How the table kept for checking lies about a fit: measured over predicted at 10 and 90%."""

    low: float
    high: float

    def widened(self, spread: float) -> Residual:
        """The same range, a factor wider at both ends."""
        return Residual(self.low / spread, self.high * spread)


class Tables(NamedTuple):
    """Measured tables that coefficients were fitted to.

    Attributes:
        accelerator: Catalogue key of the accelerator they were measured on.
        names: Folder, engine, version and file of each.
        extents: Least and largest of each extent in them: the shape of a kernel, the bytes of one
            that only moves memory, the message and ranks of a collective.
    """

    accelerator: str
    names: tuple[str, ...]
    extents: tuple[tuple[float, float], ...]


class Beyond(NamedTuple):
    """An extent of an operator outside of what was fitted.

    Attributes:
        extent: Its name, of :data:`tokenroom.performance.work.EXTENTS`.
        value: What the operator has.
        limit: The nearest that was fitted.
        widening: Factor by which the range grows for it, at both ends.
    """

    extent: str
    value: float
    limit: float
    widening: float

    @property
    def times(self) -> float:
        """How many times beyond the limit the value lies."""
        return max(self.value / self.limit, self.limit / self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Everything fitted for one accelerator.

    Attributes:
        key: Accelerator whose tables were fitted.
        spread: Factor by which ranges widen: 1 for the accelerator's own tables, else how far
            another's coefficients miss (each accelerator with tables left out in turn).
        kernels: Coefficients by kind and type.
        links: Coefficients by kind of collective.
        residuals: Range of measured over predicted, by kind and type; collectives have type "".
        tables: Accelerator whose tables were fitted, their names and extents, by kind and type
            likewise.
        kin_spread: Factor by which ranges widen where another type's coefficients stand in: how far
            those miss the tables of types that have their own.
        growth: By kind and extent, the powers of the distance below and above the fitted range by
            which ranges grow: what it takes to hold 80% of rows that lie as far outside of a fit
            (``scripts/fit_efficiency.py``, ``beyond``). An extent that no table varies has the
            largest of its kind.
        chosen: What stands for each kind and type that was asked for, kept since a step asks often.
    """

    key: str
    spread: float
    kernels: Mapping[tuple[Kind, str], Shares]
    links: Mapping[Kind, Link]
    residuals: Mapping[tuple[Kind, str], Residual]
    tables: Mapping[tuple[Kind, str], Tables]
    kin_spread: float
    growth: Mapping[Kind, tuple[tuple[float, float], ...]]
    chosen: dict[tuple[Kind, str], tuple[Shares, Residual, Tables]] = field(
        default_factory=dict, compare=False, repr=False
    )


class Duration(NamedTuple):
    """Time of one operator, all its runs together.

    Attributes:
        seconds: The estimate.
        low_seconds: Lower end of the range its table supports.
        high_seconds: Upper end.
        limiter: ``"compute"``, ``"bandwidth"``, ``"communication"`` or ``"launch"``.
    """

    seconds: float
    low_seconds: float
    high_seconds: float
    limiter: str


def kernel_parts(
    shares: Any, flops: Any, num_bytes: Any, shape: Any, peak: float, bandwidth: float
) -> tuple[Any, Any, Any]:
    """Seconds of latency, arithmetic and memory of a kernel (numbers, or arrays while fitting).

    latency = launch + depth_seconds x k;
    compute = FLOPs / (peak x share) x (1 + rows/m)(1 + columns/n);
    memory = bytes / (bandwidth x share) x (1 + pieces/w).
    """
    compute, rows, columns, depth_seconds, memory, pieces, _, launch_seconds = shares
    m, n, k, w = shape
    arithmetic = flops / (peak * compute) * (1 + rows / m) * (1 + columns / n)
    transfer = num_bytes / (bandwidth * memory) * (1 + pieces / w)
    return launch_seconds + depth_seconds * k, arithmetic, transfer


def joined(first: Any, second: Any, sharpness: Any) -> Any:
    """(a^p + b^p)^(1/p): the larger of two times for a large p, more when they overlap less."""
    return (first**sharpness + second**sharpness) ** (1 / sharpness)


def link_seconds(link: Any, volume: Any, ranks: Any, bandwidth: float) -> Any:
    """Seconds of a collective whose busiest rank sends ``volume`` bytes over its own link."""
    launch, rank, share, sharpness = link
    return joined(launch + rank * (ranks - 2), volume / (bandwidth * share), sharpness)


def sent_bytes(kind: Kind, message_bytes: Any, ranks: Any) -> Any:
    """Bytes that a rank sends for a message of ``message_bytes`` (the whole buffer).

    All-reduce as reduce-scatter and all-gather: 2 (n-1)/n; the others (n-1)/n; a send all of it.
    """
    if kind is Kind.SEND:
        return message_bytes
    once = message_bytes * (ranks - 1) / ranks
    return 2 * once if kind is Kind.ALL_REDUCE else once


def supported_arithmetic(arithmetic: str, accelerator: Accelerator) -> str:
    """Type that products of a weight are made in on this accelerator."""
    peaks = accelerator.flops_per_second
    if arithmetic == "mxfp4" and "fp4" in peaks:  # activations converted to MXFP8 (gpt-oss)
        return "mxfp4_mxfp8"
    if _PEAKS[arithmetic] in peaks or _PEAKS[arithmetic] == "bf16":
        return arithmetic
    return _WITHOUT_UNITS.get(arithmetic, arithmetic)


def peak_flops(arithmetic: str, accelerator: Accelerator) -> float:
    """Dense peak of the units that a type runs on, in FLOPs a second.

    Raises:
        HardwareError: The accelerator's peak is not known.
    """
    peaks = accelerator.flops_per_second
    found = peaks.get(_PEAKS[arithmetic]) or peaks.get("bf16") or peaks.get("fp16")
    found = found or peaks.get("fp32")
    if arithmetic in _SHORT_SUMS and found is not None:
        found = max(found, peaks.get("int8", 0.0) / 2)  # GeForce sums in 32 bits at half this rate
    if found is None:
        raise HardwareError(
            f"flops_per_second of {accelerator.key} holds nothing for 16-bit types, which speed "
            f"rests on; describe the accelerator with its dense peak"
        )
    return found


def _growth(rows: Mapping[str, list[list[float] | None]]) -> dict[Kind, tuple[Any, ...]]:
    found = {}
    for name, extents in rows.items():
        powers = [tuple(extent) for extent in extents if extent is not None]
        most = max(power for ends in powers for power in ends)
        found[Kind(name)] = tuple(
            (most, most) if extent is None else tuple(extent) for extent in extents
        )
    return found


def _tables(key: str, row: Mapping[str, Any]) -> Tables:
    return Tables(key, tuple(row["fitted_on"]), tuple(map(tuple, row["extents"])))


def _of_dynamic_scales(key: str, engine: str) -> str:
    """The type whose experts stand for 8-bit floats with scales computed from each input.

    On Hopper the table of vLLM is of FlashInfer's kernel for stored scales, which those with
    computed ones do not get (fused_moe/oracle/fp8.py of 0.24 and 0.33), and which reaches a fifth
    of the bandwidth: on H200 Qwen3-235B-A22B's experts at TP8 take 0.10 ms for 32 tokens by vLLM
    0.19's table, whose kernel was another, and 0.65 ms by 0.24's. Blocks of scales, whose inputs
    are scaled as they come too, are 0.10 ms by 0.24's.
    """
    hopper = find_accelerator(key).architecture == "hopper"
    return "fp8_block" if hopper and engine == "vllm" else "fp8"


@lru_cache(maxsize=1)
def _fitted() -> tuple[float, dict[tuple[str, str], Efficiency]]:
    text = files("tokenroom.performance").joinpath("data/efficiency.json").read_text("utf-8")
    found = {}
    document = json.loads(text)
    growth = _growth(document["beyond"])
    for key, item in document["accelerators"].items():
        for engine in item["kernels"]:
            kernels, residuals, links, tables = {}, {}, {}, {}
            for source in ("any", engine):
                for name, row in item["kernels"][source].items():
                    kind, _, arithmetic = name.partition(":")
                    at = (Kind(kind), arithmetic)
                    kernels[at] = Shares(*row["coefficients"])
                    residuals[at] = Residual(*row["check"]["range"])
                    tables[at] = _tables(key, row)
                for name, row in item["links"].get(source, {}).items():
                    links[Kind(name)] = Link(*row["coefficients"])
                    residuals[Kind(name), ""] = Residual(*row["check"]["range"])
                    tables[Kind(name), ""] = _tables(key, row)
            stand_in = _of_dynamic_scales(key, engine)
            at, own = (Kind.GROUPED_GEMM, "fp8_dynamic"), (Kind.GROUPED_GEMM, stand_in)
            if own in kernels:
                spread = 1.0 if stand_in == "fp8" else document["kin_spread"]
                kernels[at], tables[at] = kernels[own], tables[own]
                residuals[at] = residuals[own].widened(spread)
            found[key, engine] = Efficiency(
                key=key,
                spread=1.0,
                kernels=kernels,
                links=links,
                residuals=residuals,
                tables=tables,
                kin_spread=document["kin_spread"],
                growth=growth,
            )
    return document["borrowed_spread"], found


@lru_cache(maxsize=64)
def efficiency_by_traits(accelerator_key: str, kin: Traits, engine: str) -> Efficiency:
    """What :func:`efficiency_of` answers, by what tells accelerators apart."""
    spread, fitted = _fitted()

    def distance(key: str) -> tuple[bool, bool, float]:
        other = traits_of(find_accelerator(key))
        return (
            other.architecture != kin.architecture,
            (other.link == "nvlink") != (kin.link == "nvlink"),
            abs(log(kin.balance / other.balance)),
        )

    nearest = sorted({key for key, _ in fitted}, key=distance)
    own = accelerator_key in nearest
    if own:
        nearest.sort(key=lambda key: key != accelerator_key)
    found = fitted.get((nearest[0], engine)) or fitted[nearest[0], "any"]
    kernels, links = dict(found.kernels), dict(found.links)
    residuals, tables = dict(found.residuals), dict(found.tables)
    for key in nearest[1:]:  # kinds of which the nearest has no table
        other = fitted[key, "any"]
        known = {kind for kind, _ in kernels}
        for at in (at for at in other.kernels if at[0] not in known):
            kernels[at] = other.kernels[at]
            residuals[at] = other.residuals[at].widened(spread)
            tables[at] = other.tables[at]
        for kind in other.links.keys() - links.keys():
            links[kind] = other.links[kind]
            residuals[kind, ""] = other.residuals[kind, ""].widened(spread)
            tables[kind, ""] = other.tables[kind, ""]
    return Efficiency(
        key=found.key,
        spread=1.0 if own else spread,
        kernels=kernels,
        links=links,
        residuals=residuals,
        tables=tables,
        kin_spread=found.kin_spread,
        growth=found.growth,
    )


class Traits(NamedTuple):
    """What makes accelerators alike: the balance is FLOPs a byte where both limits meet."""

    architecture: str
    link: str
    balance: float


def traits_of(accelerator: Accelerator) -> Traits:
    """What an accelerator is likened to others by.

    Raises:
        HardwareError: Its peak or bandwidth is not known.
    """
    balance = peak_flops("bf16", accelerator) / bandwidth_of(accelerator)
    return Traits(accelerator.architecture, accelerator.link, balance)


def bandwidth_of(accelerator: Accelerator) -> float:
    """Peak memory bandwidth in bytes a second.

    Raises:
        HardwareError: It is not known.
    """
    bandwidth = accelerator.bandwidth_bytes_per_second
    if bandwidth is None:
        raise HardwareError(
            f"bandwidth_bytes_per_second of {accelerator.key} is unknown, which speed rests on; "
            f"describe the accelerator with it"
        )
    return bandwidth


def efficiency_of(accelerator: Accelerator, engine: str = "any") -> Efficiency:
    """What was fitted for an accelerator under an engine, or for the accelerator most like it.

    Most alike: the same architecture, then the same kind of link, then the nearest ratio of
    arithmetic to bandwidth. An engine without tables of its own gets what fits all of them.

    Args:
        accelerator: The GPU.
        engine: ``"vllm"``, ``"sglang"``, ``"tensorrt_llm"``, or any other.

    Raises:
        HardwareError: Its peak or bandwidth is not known.
    """
    return efficiency_by_traits(accelerator.key, traits_of(accelerator), engine)


def kernel_shares(
    efficiency: Efficiency, kind: Kind, arithmetic: str
) -> tuple[Shares, Residual, Tables]:
    """Coefficients of a kernel: of its type, or of the nearest type with a table."""
    found = efficiency.chosen.get((kind, arithmetic))
    if found is None:
        at = kind, _fitted_type(efficiency, kind, arithmetic)
        residual = efficiency.residuals[at]
        if at[1] != arithmetic:
            residual = residual.widened(efficiency.kin_spread)
        found = efficiency.kernels[at], residual, efficiency.tables[at]
        efficiency.chosen[kind, arithmetic] = found
    return found


def _fitted_type(efficiency: Efficiency, kind: Kind, arithmetic: str) -> str:
    """The type itself, or the nearest one with a table."""
    for name in (arithmetic, *KIN.get(arithmetic, ("bf16",))):
        if (kind, name) in efficiency.kernels:
            return name
    return "bf16"


def tables_of_operator(
    efficiency: Efficiency, operator: Operator, accelerator: Accelerator
) -> Tables:
    """The tables behind an operator's time."""
    kind, arithmetic = operator.kind, operator.arithmetic
    if kind in (Kind.HOST_READ, Kind.HOST_COMPUTE):
        return Tables(efficiency.key, (), ())
    if kind in COLLECTIVES:
        return efficiency.tables[Kind.ALL_GATHER if kind is Kind.SEND else kind, ""]
    if kind in (Kind.GEMM, Kind.GROUPED_GEMM):
        arithmetic = supported_arithmetic(arithmetic, accelerator)
    return kernel_shares(efficiency, kind, arithmetic)[2]


def beyond_fit(
    efficiency: Efficiency, operator: Operator, tables: Tables, per_node: int
) -> list[Beyond]:
    """The extents of an operator that lie outside of those its coefficients were fitted over.

    Of a collective that leaves the host, the part inside it counts: beyond it the network's own
    figures hold.
    """
    kind = operator.kind
    if not tables.extents:  # not from tables at all
        return []
    if kind in COLLECTIVES:
        kind = Kind.ALL_GATHER if kind is Kind.SEND else kind
        values: tuple[float, ...] = (operator.message_bytes, min(operator.ranks, per_node))
    else:
        values = (operator.num_bytes,) if kind is Kind.MEMORY else operator.shape
    found = []
    for number, (value, (least, largest)) in enumerate(zip(values, tables.extents, strict=True)):
        if least <= value <= largest or not value:
            continue
        limit = largest if value > largest else least
        distance = max(value / limit, limit / value)
        power = efficiency.growth[kind][number][value > largest]
        found.append(Beyond(EXTENTS[kind][number], value, limit, distance**power))
    return found


def link_bandwidth(accelerator: Accelerator) -> float:
    """One direction of the link to neighbours, or of PCIe where there is none, in bytes a second.

    Raises:
        HardwareError: Neither is known.
    """
    found = accelerator.link_bytes_per_second or accelerator.pcie_bytes_per_second
    if found is None:
        raise HardwareError(
            f"link_bytes_per_second of {accelerator.key} is unknown, which the speed of more than "
            f"one accelerator rests on; describe the accelerator with it"
        )
    return found


def collective_seconds(
    efficiency: Efficiency, operator: Operator, accelerator: Accelerator, per_node: int
) -> float:
    """Seconds of one collective: over the link inside a host, over the network beyond it.

    Across hosts each accelerator sends what leaves its host over its own port, after the exchange
    inside it (NCCL's hierarchical rings and trees).

    Raises:
        HardwareError: The link's bandwidth is not known.
    """
    kind = operator.kind
    link = efficiency.links[Kind.ALL_GATHER if kind is Kind.SEND else kind]
    if kind is Kind.SEND and operator.ranks > per_node:
        return NETWORK_LAUNCH_SECONDS + float(
            operator.message_bytes / (NETWORK_BYTES_PER_SECOND * link.share)
        )
    inside = min(operator.ranks, per_node)
    message = operator.message_bytes
    if kind is Kind.ALL_TO_ALL:  # what is for ranks in other hosts does not pass the link inside
        message *= inside / operator.ranks
    volume = sent_bytes(kind, message, inside)
    seconds: float = link_seconds(link, volume, inside, link_bandwidth(accelerator))
    if operator.ranks > per_node:
        hosts = -(-operator.ranks // per_node)
        share = operator.message_bytes / (1 if kind is Kind.ALL_TO_ALL else inside)
        outside = sent_bytes(kind, share, hosts) / (NETWORK_BYTES_PER_SECOND * link.share)
        seconds += NETWORK_LAUNCH_SECONDS * log2(hosts) + outside
    return seconds


def host_bandwidth(accelerator: Accelerator) -> float:
    """One direction of the link to the host, in bytes a second.

    Raises:
        HardwareError: It is not known.
    """
    found = accelerator.pcie_bytes_per_second
    if found is None:
        raise HardwareError(
            f"pcie_bytes_per_second of {accelerator.key} is unknown, which the speed of weights in "
            f"host memory rests on; describe the accelerator with it"
        )
    return found


class OperatorSeconds(NamedTuple):
    """Time of an operator, all its runs, as its table tells it.

    Attributes:
        latency: What its start takes, which a kernel before it may hide.
        busy: What its work takes, or all of it where there is no kernel.
    """

    latency: float
    busy: float


def operator_seconds(
    efficiency: Efficiency,
    operator: Operator,
    accelerator: Accelerator,
    per_node: int,
    factors: Factors = UNCALIBRATED,
) -> OperatorSeconds:
    """Time of an operator without its range; raises as :func:`operator_duration`."""
    times = operator.times
    if operator.kind in _WITHOUT_KERNELS:
        return OperatorSeconds(
            0.0, times * _transfer_seconds(efficiency, operator, accelerator, per_node, factors)
        )
    shares, _, _ = _kernel_of(efficiency, operator, accelerator)
    latency, _, _, busy = _kernel_seconds(shares, operator, accelerator, factors)
    return OperatorSeconds(times * latency, times * busy)


def _transfer_seconds(
    efficiency: Efficiency,
    operator: Operator,
    accelerator: Accelerator,
    per_node: int,
    factors: Factors,
) -> float:
    """Seconds of one run of what no kernel of the accelerator does alone."""
    if operator.kind is Kind.HOST_COMPUTE:
        (bandwidth,) = operator.shape
        return float(operator.num_bytes / (bandwidth * HOST_MEMORY_SHARE))
    if operator.kind is Kind.HOST_READ:
        return float(operator.num_bytes / (host_bandwidth(accelerator) * HOST_LINK_SHARE))
    seconds = collective_seconds(efficiency, operator, accelerator, per_node)
    return seconds * factors.communication


def _kernel_of(
    efficiency: Efficiency, operator: Operator, accelerator: Accelerator
) -> tuple[Shares, Residual, Tables]:
    arithmetic = operator.arithmetic
    if operator.kind in (Kind.GEMM, Kind.GROUPED_GEMM):
        arithmetic = supported_arithmetic(arithmetic, accelerator)
    return kernel_shares(efficiency, operator.kind, arithmetic)


def _kernel_seconds(
    shares: Shares, operator: Operator, accelerator: Accelerator, factors: Factors
) -> tuple[float, float, float, float]:
    """Seconds of one run of a kernel: latency, arithmetic, memory, and the last two joined."""
    bandwidth = bandwidth_of(accelerator)
    if operator.kind is Kind.MEMORY:
        moved = factors.bandwidth * operator.num_bytes / (bandwidth * shares.memory)
        return shares.launch_seconds, 0.0, moved, moved
    arithmetic = operator.arithmetic
    if operator.kind in (Kind.GEMM, Kind.GROUPED_GEMM):
        arithmetic = supported_arithmetic(arithmetic, accelerator)
    latency, work, moved = kernel_parts(
        shares,
        operator.flops,
        operator.num_bytes,
        operator.shape,
        peak_flops(arithmetic, accelerator),
        bandwidth,
    )
    work, moved = factors.compute * work, factors.bandwidth * moved
    return latency, work, moved, joined(work, moved, shares.sharpness)


def operator_duration(
    efficiency: Efficiency,
    operator: Operator,
    accelerator: Accelerator,
    per_node: int,
    overlap_seconds: float = 0.0,
    factors: Factors = UNCALIBRATED,
) -> Duration:
    """Time of an operator, all its runs.

    Tables time a kernel alone; in a step the start of one overlaps the end of the one before it by
    ``overlap_seconds`` at most. The range is that of the kind's residuals, wider for borrowed
    tables and for extents beyond them. ``factors`` are those of the machine, where it was
    calibrated.

    Raises:
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    times, kind = operator.times, operator.kind
    if kind in _WITHOUT_KERNELS:
        seconds = times * _transfer_seconds(efficiency, operator, accelerator, per_node, factors)
        if kind is Kind.HOST_COMPUTE:
            low, high = _HOST_MEMORY_RANGE
        elif kind is Kind.HOST_READ:
            low, high = _HOST_LINK_RANGE
        else:
            kind = Kind.ALL_GATHER if kind is Kind.SEND else kind
            spread = efficiency.spread
            for out in beyond_fit(efficiency, operator, efficiency.tables[kind, ""], per_node):
                spread *= out.widening
            low, high = efficiency.residuals[kind, ""].widened(spread)
        limiter = "bandwidth" if kind is Kind.HOST_COMPUTE else "communication"
        return Duration(seconds, seconds * low, seconds * high, limiter)
    shares, residual, tables = _kernel_of(efficiency, operator, accelerator)
    spread = efficiency.spread
    for out in beyond_fit(efficiency, operator, tables, per_node):
        spread *= out.widening
    latency, work, moved, busy = _kernel_seconds(shares, operator, accelerator, factors)
    limiter = "compute" if work > moved else "bandwidth"
    latency = max(0.0, latency - overlap_seconds)
    if latency > busy:
        limiter = "launch"
    seconds = times * (latency + busy)
    low, high = residual.widened(spread)
    return Duration(seconds, seconds * low, seconds * high, limiter)
