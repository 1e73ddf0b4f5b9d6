"""How fast a placement is: what has to be read in which memory for one token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from tokenroom.engines.llama_cpp.memory import Memory
from tokenroom.engines.policy import Notice
from tokenroom.models.spec import MoEFFN

_MOSTLY: Final = 0.75
#: Share of dense weights beside experts in host memory that makes no difference: one in so many.
_FEW: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedClass:
    """Where a token's bytes are read.

    Attributes:
        name: ``"all_gpu"``, ``"mostly_gpu"``, ``"experts_on_cpu"``, ``"cpu_bound"`` or
            ``"cpu_only"``.
        gpu_layers: Layers on accelerators, the output layer counted.
        layers: All layers with the output layer.
        gpu_share: Share of a token's weights that accelerators read.
        host_bytes: Weights in host memory.
        host_read_bytes: Of them, what one token reads.
    """

    name: str
    gpu_layers: int
    layers: int
    gpu_share: float
    host_bytes: int
    host_read_bytes: int

    @property
    def notice(self) -> Notice:
        """The class as a sentence."""
        return Notice(
            key=f"placement_{self.name}",
            values={
                "layers": self.gpu_layers,
                "total": self.layers,
                "host_bytes": self.host_bytes,
                "read_bytes": self.host_read_bytes,
                "share": f"{self.gpu_share:.0%}",
            },
        )


class HostBlocks(NamedTuple):
    """Blocks that the host computes, by their number.

    Attributes:
        layers: Those of which all but routed experts are there, with their caches.
        experts: Those whose routed experts are there.
        output: The output projection is there.
    """

    layers: frozenset[int]
    experts: frozenset[int]
    output: bool


def host_blocks(memory: Memory) -> HostBlocks:
    """What of a placement the host computes; a block that is divided counts by its greater part."""
    host, placement = memory.host, memory.placement
    layers: set[int] = set()
    experts: set[int] = set()
    for index, block in enumerate(memory.tensors.blocks):
        sizes = {False: [0, 0], True: [0, 0]}  # of experts or not: there, in all
        for stem, tensor in block.items():
            held = sizes[tensor.is_expert]
            held[0] += tensor.num_bytes * (placement.device_of(index, stem) == host)
            held[1] += tensor.num_bytes
        for is_expert, found in ((False, layers), (True, experts)):
            there, whole = sizes[is_expert]
            if whole and 2 * there > whole:
                found.add(index)
    return HostBlocks(frozenset(layers), frozenset(experts), placement.output_device == host)


def speed_class(memory: Memory) -> SpeedClass:
    """The class of a placement, by the bytes that one token reads on each side.

    A token reads every dense weight once, the chosen experts only, and one row of the embedding.
    """
    host = memory.host
    gpu_read = host_read = 0.0
    host_experts = host_dense = 0
    placement = memory.placement
    for index, block in enumerate(memory.tensors.blocks):
        ffn = memory.spec.layers[index].ffn
        used = ffn.experts_per_token / ffn.num_experts if isinstance(ffn, MoEFFN) else 1.0
        for stem, tensor in block.items():
            read = tensor.num_bytes * (used if tensor.is_expert else 1.0)
            if placement.device_of(index, stem) != host:
                gpu_read += read
                continue
            host_read += read
            if tensor.is_expert:
                host_experts += tensor.num_bytes
            elif len(tensor.sizes) > 1 and stem != "ffn_gate_inp":  # a router is small
                host_dense += tensor.num_bytes
    head = memory.tensors.after.get("output", memory.tensors.embedding)
    if placement.output_device != host:
        gpu_read += head.num_bytes
    else:
        host_read += head.num_bytes
        host_dense += head.num_bytes
    share = gpu_read / max(gpu_read + host_read, 1.0)
    if host == 0 or not gpu_read:
        name = "cpu_only"
    elif not host_dense and not host_experts:
        name = "all_gpu"
    elif host_experts and host_dense * _FEW < host_experts:
        name = "experts_on_cpu"
    else:
        name = "mostly_gpu" if share >= _MOSTLY else "cpu_bound"
    layers = len(placement.layer_devices) + 1
    on_gpu = sum(1 for device in placement.layer_devices if device != host)
    return SpeedClass(
        name=name,
        gpu_layers=on_gpu + (placement.output_device != host),
        layers=layers,
        gpu_share=share,
        host_bytes=memory.weights_bytes[host],
        host_read_bytes=round(host_read),
    )
