"""One accelerator and a node of them, with the figures that memory and speed depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenroom.hardware.measured_memory import MeasuredMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU model.

    Attributes:
        key: Short catalogue key, for example ``"h100-sxm"``.
        name: The name the driver reports, for example ``"NVIDIA H100 80GB HBM3"``.
        aliases: Other spellings people use.
        vendor: ``"nvidia"``, ``"amd"``, ``"intel"``, ``"apple"``, ``"google"``, ...
        architecture: ``"hopper"``, ``"ada"``, ``"cdna3"``, ...
        compute_capability: (major, minor) for NVIDIA, None otherwise.
        memory_bytes: Memory as PyTorch sees it (total of ``mem_get_info``); engines share it out.
        memory_assumed: ``memory_bytes`` was derived from the nominal size; nobody was found to have
            read it from such a part.
        driver_memory_bytes: Memory as the driver's tool reports it, None when unknown.
        nominal_memory_bytes: The marketing size.
        bandwidth_bytes_per_second: Peak memory bandwidth.
        flops_per_second: Dense peak by type: ``"bf16"``, ``"fp16"``, ``"fp8"``, ``"int8"``,
            ``"fp4"``, ``"fp32"``.
        link: ``"nvlink"``, ``"pcie"``, ``"xgmi"``, ... to its neighbours in a node.
        link_bytes_per_second: One-direction bandwidth of that link for one accelerator, None when
            unknown.
        pcie_bytes_per_second: One-direction bandwidth to the host, None when unknown.
        multiprocessors: SMs or compute units, None when unknown.
        unified_memory: The host shares the memory (GB10, Apple, Strix Halo).
        sources: Source of each figure by field name.
        custom: Described by the user, not from the catalogue.
        measured: What a profile of the machine tells of its memory, None without one.
    """

    key: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = "nvidia"
    architecture: str = ""
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int
    memory_assumed: bool = False
    driver_memory_bytes: int | None = None
    nominal_memory_bytes: int
    bandwidth_bytes_per_second: float | None = None
    flops_per_second: Mapping[str, float] = field(default_factory=dict)
    link: str = "pcie"
    link_bytes_per_second: float | None = None
    pcie_bytes_per_second: float | None = None
    multiprocessors: int | None = None
    unified_memory: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    custom: bool = False
    measured: MeasuredMemory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Alike accelerators that serve together.

    Attributes:
        accelerator: Their kind.
        count: How many the deployment may use, over all nodes.
        per_node: How many sit in one host.
        used_bytes: Memory that other processes hold on each accelerator.
    """

    accelerator: Accelerator
    count: int = 1
    per_node: int = 8
    used_bytes: int = 0
