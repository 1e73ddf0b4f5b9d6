"""Which device holds which tensor: ``llama_model_base::load_tensors`` of llama.cpp 0c1e57098.

The last ``n_gpu_layers`` layers go to the accelerators, the output layer counting as the last one;
the input layer (token embedding) always stays on the host. Several accelerators share the layers by
free memory or ``--tensor-split``; ``--override-tensor`` and its kin move single tensors.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Final

from tokenroom.engines.llama_cpp.tensor_graph import row_bytes
from tokenroom.engines.llama_cpp.tensors import GgufTensor, ModelTensors
from tokenroom.errors import DeploymentError, shown
from tokenroom.memory.weights import Component
from tokenroom.models.patterns import Pattern, compile_pattern
from tokenroom.models.quantization.ggml import BLOCKS

#: ``LLM_FFN_EXPS_REGEX`` and ``LLM_FFN_DENSE_REGEX`` (``common/common.h``).
EXPERTS: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE_FFN: Final = r"\.ffn_(up|down|gate)\."
#: Where an override may put a tensor besides accelerators.
HOST: Final = -1

#: Types that the CPU backend rewrites for its own kernels on x86 with AVX2 and on ARM with dot
#: products, when the matrix has whole groups of rows (``ggml-cpu/repack.cpp``).
_REPACKED: Final[Mapping[str, Mapping[str, int]]] = {
    "x86": {"q4_0": 8, "q4_K": 8, "iq4_nl": 8, "mxfp4": 8},
    "arm": {"q4_0": 4, "q4_K": 8, "q5_K": 8, "q6_K": 8, "iq4_nl": 4, "mxfp4": 4, "q8_0": 4},
}
_CUDA_ROW: Final = 512  # MATRIX_ROW_PADDING, ggml-cuda/common.cuh
_ROW_GROUP: Final = 128  # rows that a row split is rounded to on tensor-core GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One device as ggml sees it.

    Attributes:
        name: ``"CUDA0"``, ``"Metal"``, ``"CPU"``.
        family: ``"cuda"``, ``"rocm"``, ``"metal"``, ``"vulkan"`` or ``"cpu"``.
        alignment: Alignment of its buffers in bytes.
        host_buffer: Name of the pinned host memory it offers, empty for none.
        capability: CUDA compute capability, None otherwise.
    """

    name: str
    family: str
    alignment: int
    host_buffer: str = ""
    capability: tuple[int, int] | None = None

    def tensor_bytes(self, kind: str, row_elements: int, num_bytes: int) -> int:
        """Bytes of a tensor in its buffers (``get_alloc_size``).

        CUDA pads the last row of quantised tensors to whole 512 elements.
        """
        if self.family in ("cuda", "rocm") and BLOCKS.get(kind, (1, 0))[0] > 1:
            past = row_elements % _CUDA_ROW
            if past:
                return num_bytes + row_bytes(kind, _CUDA_ROW - past)
        return num_bytes

    def padded(self, num_bytes: int) -> int:
        """Bytes rounded up to its alignment."""
        return -(-num_bytes // self.alignment) * self.alignment


CPU: Final = Backend(name="CPU", family="cpu", alignment=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """What decides where tensors go.

    Attributes:
        backends: The accelerators in order.
        n_gpu_layers: Layers on them, the output layer counted; more than there are means all.
        splits: Share of each accelerator.
        split_rows: Matrices are divided by rows over all accelerators.
        overrides: (pattern, accelerator or HOST), first match wins.
        mmap: Weights on the host are mapped from the file.
        repack: Weights on the host are rewritten for the CPU's kernels.
        no_host: Pinned host memory is not used.
        cpu: ``"x86"`` or ``"arm"``.
        load_nextn: The multi-token-prediction blocks are loaded.
    """

    backends: tuple[Backend, ...]
    n_gpu_layers: int
    splits: tuple[float, ...]
    split_rows: bool = False
    overrides: tuple[tuple[str, int], ...] = ()
    mmap: bool = True
    repack: bool = True
    no_host: bool = False
    cpu: str = "x86"
    load_nextn: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """Where everything lies. Devices are counted: accelerators first, the host last.

    Attributes:
        rules: What decided.
        layer_devices: Device of each block, which its caches follow.
        output_device: Device of the output layer.
        tensor_devices: For each block, device by stem where it is not the block's own.
        buffers: "model buffer size" by buffer name, as llama.cpp prints it.
        weights: For each device, bytes by component.
        repacked_bytes: Host weights that are rewritten and so no longer mapped.
        mapped_bytes: Host weights that stay mapped from the file.
    """

    rules: PlacementRules
    layer_devices: tuple[int, ...]
    output_device: int
    tensor_devices: tuple[Mapping[str, int], ...]
    buffers: Mapping[str, int]
    weights: tuple[Mapping[str, int], ...]
    repacked_bytes: int = 0
    mapped_bytes: int = 0

    @property
    def host(self) -> int:
        """Index of the host."""
        return len(self.rules.backends)

    @property
    def has_overrides(self) -> bool:
        """Some tensor was moved by a pattern."""
        return bool(self.rules.overrides)

    def device_of(self, layer: int, stem: str) -> int:
        """Device that holds a tensor of a block."""
        return self.tensor_devices[layer].get(stem, self.layer_devices[layer])


@dataclass(slots=True)
class _Totals:
    """Bytes added up while tensors are placed."""

    buffers: dict[str, int] = field(default_factory=dict)
    weights: list[dict[str, int]] = field(default_factory=list)
    repacked: int = 0
    mapped: int = 0


def default_splits(shares: Sequence[float], devices: int) -> tuple[float, ...]:
    """Cumulated shares in float32, as ``load_tensors`` normalises them."""
    total, sums = 0.0, []
    for index in range(devices):
        total = _float32(total + _float32(shares[index] if index < len(shares) else 0.0))
        sums.append(total)
    return tuple(_float32(value / total) for value in sums)


def layer_device(layer: int, layers: int, rules: PlacementRules) -> int:
    """Device of a layer; ``layers`` stands for the output layer's own index."""
    host = len(rules.backends)
    start = max(layers + 1 - rules.n_gpu_layers, 0)
    active = min(rules.n_gpu_layers, layers + 1) if host else 0
    if layer < start or layer - start >= active:
        return host
    at = _float32((layer - start) / active)
    return min(bisect_right(rules.splits, at), host - 1)


def place(model: ModelTensors, rules: PlacementRules) -> Placement:
    """Put every tensor of a model where llama.cpp puts it.

    Raises:
        DeploymentError: A pattern of an override is no regular expression.
    """
    layers = len(model.blocks) + len(model.nextn)
    host = len(rules.backends)
    devices = tuple(layer_device(index, layers, rules) for index in range(layers))
    output = layer_device(layers, layers, rules)
    patterns = [
        (_compiled(pattern), host if device == HOST else device)
        for pattern, device in rules.overrides
    ]
    totals = _Totals(weights=[{} for _ in range(host + 1)])
    moved: list[Mapping[str, int]] = []
    blocks = (*model.blocks, *(model.nextn if rules.load_nextn else ()))
    counted: dict[tuple[int, int, tuple[tuple[str, int], ...]], int] = {}
    held: dict[tuple[int, int, tuple[tuple[str, int], ...]], Mapping[str, GgufTensor]] = {}
    for index, block in enumerate(blocks):
        own = _moved(block, f"blk.{index}.", devices[index], patterns)
        moved.append(own)
        key = (id(block), devices[index], tuple(own.items()))
        counted[key] = counted.get(key, 0) + 1
        held[key] = block
    for key, times in counted.items():
        own = dict(key[2])
        for stem, tensor in held[key].items():
            _add(totals, rules, tensor, own.get(stem, key[1]), times)
    for tensor in model.before.values():
        # The input layer is always on the host; patterns may move it.
        _add(totals, rules, tensor, _first_match(f"{tensor.stem}.weight", patterns, host), 1)
    for tensor in model.after.values():
        _add(totals, rules, tensor, _first_match(f"{tensor.stem}.weight", patterns, output), 1)
    if model.tied:
        head = _as_head(model.embedding)
        device = _first_match("token_embd.weight", patterns, output)
        input_device = _first_match("token_embd.weight", patterns, host)
        if device != input_device or _buffer(rules, model.embedding, input_device) != _buffer(
            rules, head, device
        ):
            _add(totals, rules, head, device, 1)
    if model.rope_freqs is not None:
        # Loaded once for every device that has layers (TENSOR_DUPLICATED).
        for device in sorted(set(devices[: len(model.blocks)])):
            _add(totals, rules, model.rope_freqs, device, 1)
    return Placement(
        rules=rules,
        layer_devices=devices,
        output_device=output,
        tensor_devices=tuple(moved),
        buffers=dict(sorted(totals.buffers.items())),
        weights=tuple(totals.weights),
        repacked_bytes=totals.repacked,
        mapped_bytes=totals.mapped,
    )


#: A pattern that begins with the name of one block.
_ONE_BLOCK: Final = re.compile(r"blk\\\.(\d+)\\\.(?:[^|()]|\([^()]*\))*$")


def _as_head(embedding: GgufTensor) -> GgufTensor:
    return GgufTensor(
        stem="output",
        kind=embedding.kind,
        sizes=embedding.sizes,
        bias_elements=0,
        rest_bytes=0,
        component=Component.HEAD,
    )


def _moved(
    block: Mapping[str, GgufTensor],
    prefix: str,
    device: int,
    patterns: Sequence[tuple[Pattern, int]],
) -> Mapping[str, int]:
    # Patterns that name another block first need not be tried.
    patterns = [
        (pattern, device)
        for pattern, device in patterns
        if not (named := _ONE_BLOCK.match(pattern.pattern)) or f"blk.{named[1]}." == prefix
    ]
    if not patterns:
        return {}
    found = {}
    for stem in block:
        at = _first_match(f"{prefix}{stem}.weight", patterns, device)
        if at != device:
            found[stem] = at
    return found


def _first_match(name: str, patterns: Sequence[tuple[Pattern, int]], otherwise: int) -> int:
    for pattern, device in patterns:
        if pattern.search(name):
            return device
    return otherwise


def _compiled(pattern: str) -> Pattern:
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise DeploymentError(
            f"override_tensor has the pattern {shown(pattern)}, which is no usable regular "
            f"expression ({error}); correct it"
        ) from error


def _add(
    totals: _Totals, rules: PlacementRules, tensor: GgufTensor, device: int, times: int
) -> None:
    """Count a tensor and what belongs to it on its device."""
    host = len(rules.backends)
    weights = totals.weights[device]
    component = tensor.component.value
    if device < host:
        backend = rules.backends[device]
        rest = backend.padded(tensor.rest_bytes) if tensor.rest_bytes else 0
        if rules.split_rows and len(tensor.sizes) == 2 and not tensor.is_expert:
            for index, num_bytes in enumerate(_row_shares(rules, tensor)):
                own = rules.backends[index].padded(num_bytes) * times
                _count(totals.buffers, f"{rules.backends[index].name}_Split", own)
                _count(totals.weights[index], component, own)
            main = 0
        else:
            main = backend.padded(
                backend.tensor_bytes(tensor.kind, tensor.sizes[0], tensor.num_bytes)
            )
        size = (main + rest) * times
        if size:
            _count(totals.buffers, backend.name, size)
            _count(weights, component, size)
        return
    name = _buffer(rules, tensor, device)
    main, rest = CPU.padded(tensor.num_bytes), CPU.padded(tensor.rest_bytes)
    _count(totals.buffers, name, main * times)
    if rest:
        _count(totals.buffers, _plain_host(rules), rest * times)
    _count(weights, component, (main + rest) * times)
    if name == "CPU_REPACK":
        totals.repacked += main * times
        totals.mapped += rest * times if rules.mmap else 0
    elif rules.mmap:
        totals.mapped += (main + rest) * times


def _count(table: dict[str, int], key: str, num_bytes: int) -> None:
    table[key] = table.get(key, 0) + num_bytes


def _plain_host(rules: PlacementRules) -> str:
    if rules.mmap:
        return "CPU_Mapped"
    pinned = rules.backends[0].host_buffer if rules.backends and not rules.no_host else ""
    return pinned or "CPU"


def _buffer(rules: PlacementRules, tensor: GgufTensor, device: int) -> str:
    """Name of the buffer a tensor lies in."""
    if device < len(rules.backends):
        return rules.backends[device].name
    pinned = bool(rules.backends and rules.backends[0].host_buffer and not rules.no_host)
    groups = _REPACKED[rules.cpu].get(tensor.kind, 0)
    if (
        rules.repack
        and not pinned
        and groups
        and len(tensor.sizes) >= 2
        and tensor.stem not in ("token_embd", "ssm_conv1d")
        and tensor.sizes[1] % groups == 0
    ):
        return "CPU_REPACK"
    return _plain_host(rules)


def _row_shares(rules: PlacementRules, tensor: GgufTensor) -> Iterator[int]:
    """Bytes of each accelerator's rows (``get_row_split``, ``ggml-cuda.cu``)."""
    rows = tensor.sizes[1]
    bounds = [0]
    for share in rules.splits[:-1]:
        at = int(rows * share)
        bounds.append(at - at % _ROW_GROUP)
    bounds.append(rows)
    row = row_bytes(tensor.kind, tensor.sizes[0])
    for index, backend in enumerate(rules.backends):
        count = bounds[index + 1] - bounds[index]
        yield backend.tensor_bytes(tensor.kind, tensor.sizes[0], row * count) if count else 0


def _float32(value: float) -> float:
    rounded: float = unpack("f", pack("f", value))[0]
    return rounded
