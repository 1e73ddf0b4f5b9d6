"""Where ``device_map="auto"`` puts a model's modules (``integrations/accelerate.py`` of 5.24).

``get_balanced_memory`` gives each GPU but the last an even share and a little more, a single GPU
nine tenths of what is free; ``infer_auto_device_map`` then fills the devices in order, module by
module, never splitting a decoder layer, and keeps room on the first GPU and in host memory for the
largest layer that may have to be brought back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tokenroom.memory.weights import Component, component_of
from tokenroom.models.quantization.size import stored_bytes
from tokenroom.models.spec import ModelSpec, Weight

_SINGLE_SHARE = 0.9
_BUFFER = 1.25


class DeviceMap(StrEnum):
    """Values of ``device_map``."""

    AUTO = "auto"
    BALANCED = "balanced"
    SEQUENTIAL = "sequential"
    NONE = "none"  # the whole model on one GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A part of the model that stays in one piece.

    Attributes:
        name: ``"embedding"``, ``"layer"``, ``"output"`` or a tower.
        num_bytes: Its parameters.
        components: The same by component.
        sizes: Bytes of each tensor.
        layer: Index of the decoder layer, None for other modules.
        in_base: Belongs to the base model, not to the head.
    """

    name: str
    num_bytes: int
    components: dict[Component, int]
    sizes: tuple[int, ...]
    layer: int | None = None
    in_base: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Modules by device.

    Attributes:
        gpus: Modules of each GPU.
        host: Modules kept in host memory, brought to the first GPU when they run.
        disk: Modules kept on disk.
    """

    gpus: tuple[tuple[Module, ...], ...]
    host: tuple[Module, ...]
    disk: tuple[Module, ...]


def modules_of(spec: ModelSpec, dtype: str) -> tuple[Module, ...]:
    """The modules in the order in which the model lists them."""

    def module(
        name: str, weights: Sequence[Weight], section: str, index: int | None, base: bool
    ) -> Module:
        components: dict[Component, int] = {}
        sizes = []
        for weight in weights:
            size = stored_bytes(weight, dtype)
            component = component_of(section, weight)
            components[component] = components.get(component, 0) + size
            sizes.append(size)
        return Module(
            name=name,
            num_bytes=sum(sizes),
            components=components,
            sizes=tuple(sizes),
            layer=index,
            in_base=base,
        )

    found = [module(tower.name, tower.weights, tower.name, None, True) for tower in spec.towers]
    found.append(module("embedding", spec.input_weights, "embedding", None, True))
    found += [
        module("encoder", layer.weights, "encoder", None, True) for layer in spec.encoder_layers
    ]
    kinds: dict[int, Module] = {}
    for index, layer in enumerate(spec.layers):
        known = kinds.get(id(layer))
        if known is None:
            known = kinds[id(layer)] = module("layer", layer.weights, "layers", index, True)
        found.append(
            Module(
                name="layer",
                num_bytes=known.num_bytes,
                components=known.components,
                sizes=known.sizes,
                layer=index,
            )
        )
    norms = [weight for weight in spec.output_weights if len(weight.shape) < 2]
    heads = [weight for weight in spec.output_weights if len(weight.shape) > 1]
    found.append(module("norm", norms, "head", None, True))
    found.append(module("output", heads, "head", None, False))
    return tuple(found)


def place(
    modules: Sequence[Module],
    free_bytes: Sequence[int],
    device_map: DeviceMap,
    host_bytes: int | None = None,
) -> Placement:
    """Put modules on devices.

    Args:
        modules: In order.
        free_bytes: What is free on each GPU.
        device_map: How.
        host_bytes: Host memory that is available, None for enough.
    """
    if device_map is DeviceMap.NONE:
        rest = ((),) * (len(free_bytes) - 1)
        return Placement(gpus=(tuple(modules), *rest), host=(), disk=())
    limits: list[float] = [float(size) for size in free_bytes]
    if device_map is not DeviceMap.SEQUENTIAL:
        limits = _balanced(modules, limits)
    limits.append(float("inf") if host_bytes is None else host_bytes * _SINGLE_SHARE)
    return _fill(modules, limits)


def _balanced(modules: Sequence[Module], limits: list[float]) -> list[float]:
    if len(limits) == 1:
        return [limits[0] * _SINGLE_SHARE]
    total = sum(module.num_bytes for module in modules)
    layers = [module.num_bytes for module in modules if module.layer is not None]
    leaves = [size for module in modules for size in module.sizes]
    buffer = int(_BUFFER * max(max(layers, default=0), max(leaves, default=0)))
    share = total // len(limits) + buffer
    return [*(min(share, limit) for limit in limits[:-1]), limits[-1]]


def _fill(modules: Sequence[Module], limits: Sequence[float]) -> Placement:
    """Devices in order, the last one host memory, then disk.

    The base model is tried whole, then its parts; the layers together, then one by one: while a
    group fits as a whole it is not split, which only matters for what is kept free meanwhile.
    """
    base = tuple(index for index, module in enumerate(modules) if module.in_base)
    queue = [base, *((index,) for index in range(len(modules)) if index not in base)]
    placed: list[list[Module]] = [[] for _ in limits]
    disk: list[Module] = []
    used = [0.0] * len(limits)
    device = 0
    largest, names = _largest(modules, queue)
    while queue:
        group = queue.pop(0)
        names = names.difference(group)
        if not names:
            largest, names = _largest(modules, queue)
        if device == len(limits):
            disk += (modules[index] for index in group)
            continue
        size = sum(modules[index].num_bytes for index in group)
        reserve = largest if device in (0, len(limits) - 1) else 0
        if used[device] + size <= limits[device] - reserve:
            placed[device] += (modules[index] for index in group)
            used[device] += size
        elif len(group) > 1:
            queue = [*_split(modules, group), *queue]
            largest, names = _largest(modules, queue)
        else:
            used[device] += reserve
            device += 1
            queue.insert(0, group)
    return Placement(gpus=tuple(map(tuple, placed[:-1])), host=tuple(placed[-1]), disk=tuple(disk))


def _split(modules: Sequence[Module], group: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The children of a group: layers stay together until they have to be split themselves."""
    layers = tuple(index for index in group if modules[index].layer is not None)
    if len(layers) in (0, len(group)):
        return [(index,) for index in group]
    found: list[tuple[int, ...]] = []
    for index in group:
        if index == layers[0]:
            found.append(layers)
        elif index not in layers:
            found.append((index,))
    return found


def _largest(
    modules: Sequence[Module], queue: Sequence[tuple[int, ...]]
) -> tuple[int, frozenset[int]]:
    """The size of the largest module that is still to be placed, and which have it."""
    waiting = [index for group in queue for index in group]
    size = max((modules[index].num_bytes for index in waiting), default=0)
    return size, frozenset(index for index in waiting if modules[index].num_bytes == size)
