"""What one set of decisions takes on every device: weights, caches, compute and output buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tokenroom.engines.llama_cpp.caches import CacheLayout, cache_layout
from tokenroom.engines.llama_cpp.compute import ComputeBuffers
from tokenroom.engines.llama_cpp.defaults import ResolvedSettings
from tokenroom.engines.llama_cpp.devices import backends_of, processor
from tokenroom.engines.llama_cpp.model_graph import GraphInputs
from tokenroom.engines.llama_cpp.placement import (
    CPU,
    Backend,
    Placement,
    PlacementRules,
    default_splits,
    place,
)
from tokenroom.engines.llama_cpp.repeats import block_keys, kept_blocks
from tokenroom.engines.llama_cpp.scheduler import PIPELINE_COPIES, ScheduleRules
from tokenroom.engines.llama_cpp.tensors import ModelTensors, model_tensors
from tokenroom.hardware.accelerator import Node
from tokenroom.models.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What fitting may change.

    Attributes:
        n_gpu_layers: Layers on accelerators, the output layer counted.
        tensor_split: Share of each accelerator.
        overrides: Patterns of tensors and the device they go to.
        n_ctx: Cells of all streams.
        n_ctx_seq: Cells of one stream.
    """

    n_gpu_layers: int
    tensor_split: tuple[float, ...]
    overrides: tuple[tuple[str, int], ...]
    n_ctx: int
    n_ctx_seq: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of every device under some decisions; accelerators first, the host last."""

    spec: ModelSpec
    resolved: ResolvedSettings
    backends: tuple[Backend, ...]
    decisions: Decisions
    tensors: ModelTensors
    placement: Placement
    caches: CacheLayout
    copies: int
    known: dict[object, ComputeBuffers] | None = None

    @property
    def host(self) -> int:
        """Index of the host."""
        return len(self.backends)

    @cached_property
    def compute(self) -> ComputeBuffers:
        """Compute buffers of every device."""
        resolved = self.resolved
        keys = block_keys(self.spec, self.tensors, self.placement)
        kept = kept_blocks(keys, exact=self.known is None)
        buffers = ComputeBuffers(
            inputs=GraphInputs(
                spec=self.spec,
                tensors=self.tensors,
                placement=self.placement,
                caches=self.caches,
                layers=kept,
                type_k=resolved.type_k,
                type_v=resolved.type_v,
                flash_attn=resolved.flash_attn,
                kv_offload=resolved.kv_offload,
                rules=resolved.rules,
            ),
            rules=ScheduleRules(
                backends=self.backends,
                op_offload=resolved.op_offload,
                copies=self.copies,
                type_k=resolved.type_k,
                type_v=resolved.type_v,
            ),
            n_ctx=self.decisions.n_ctx,
            n_ubatch=resolved.n_ubatch,
            outputs_max=resolved.n_outputs_max,
        )
        if self.known is None:
            return buffers
        placement = self.placement
        alike = (
            self.decisions.n_ctx,
            self.copies,
            placement.output_device,
            placement.rules.n_gpu_layers > len(placement.layer_devices),
            tuple(keys[index] for index in kept),
        )
        return self.known.setdefault(alike, buffers)

    @cached_property
    def kv_bytes(self) -> tuple[int, ...]:
        """Caches of every device: key/value cells and recurrent states."""
        sizes = [0] * (self.host + 1)
        for cache in self.caches.layers:
            device = self.cache_device(cache.layer)
            backend = self.backends[device] if device < self.host else CPU
            sizes[device] += sum(backend.padded(size) for size in cache.tensors)
        return tuple(sizes)

    def cache_device(self, layer: int) -> int:
        """Device of a block's caches."""
        return self.placement.layer_devices[layer] if self.resolved.kv_offload else self.host

    @property
    def weights_bytes(self) -> tuple[int, ...]:
        """Weights of every device."""
        return tuple(sum(parts.values()) for parts in self.placement.weights)

    @property
    def output_bytes(self) -> int:
        """The output buffer in host memory: logits of ``n_seq_max`` tokens in float32.

        It grows with the outputs of a batch (``llama_context::output_reserve``).
        """
        outputs = max(1, self.resolved.n_seq_max)
        return 4 * self.spec.vocab_size * outputs

    def total_of(self, device: int) -> int:
        """Model, context and compute of one device, as its memory breakdown counts them."""
        compute = self.compute.size_of(device)
        return self.weights_bytes[device] + self.kv_bytes[device] + compute

    def buffers(self) -> Mapping[str, Mapping[str, int]]:
        """The sizes that llama.cpp prints, by kind and buffer name."""
        names = [backend.name for backend in self.backends] + ["CPU"]
        pinned = self.backends[0].host_buffer if self.backends else ""
        compute_names = [*names[:-1], pinned or "CPU"]
        sizes = self.compute.sizes
        return {
            "model": dict(self.placement.buffers),
            "kv": {names[device]: size for device, size in enumerate(self.kv_bytes) if size},
            "compute": {compute_names[device]: size for device, size in enumerate(sizes) if size},
            "output": {pinned or "CPU": self.output_bytes},
        }


def initial_decisions(resolved: ResolvedSettings) -> Decisions:
    """The decisions before anything is fitted."""
    return Decisions(
        n_gpu_layers=resolved.n_gpu_layers if resolved.gpus else 0,
        tensor_split=resolved.tensor_split,
        overrides=resolved.overrides,
        n_ctx=resolved.n_ctx,
        n_ctx_seq=resolved.n_ctx_seq,
    )


def with_context(decisions: Decisions, n_ctx: int, resolved: ResolvedSettings) -> Decisions:
    """The same decisions with another context, divided over streams as llama.cpp does."""
    if resolved.kv_unified:
        return replace(decisions, n_ctx=n_ctx, n_ctx_seq=n_ctx)
    each = -(-(n_ctx // resolved.n_seq_max) // 256) * 256
    return replace(decisions, n_ctx=each * resolved.n_seq_max, n_ctx_seq=each)


def measure(
    spec: ModelSpec,
    node: Node,
    resolved: ResolvedSettings,
    decisions: Decisions,
    *,
    pipeline: bool = True,
    known: dict[object, ComputeBuffers] | None = None,
) -> Memory:
    """What the decisions take.

    Args:
        spec: The model.
        node: The accelerators.
        resolved: Settings.
        decisions: Where layers go and how long the context is.
        pipeline: Let several accelerators work on batches in turn, with copies of their inputs;
            llama.cpp goes without when the buffers cannot be had.
        known: Compute buffers of placements that are alike, to compare many decisions quickly: a
            few KiB off. None to find the buffers exactly.

    Raises:
        DeploymentError: llama.cpp does not load the model's layout.
    """
    tensors = model_tensors(spec)
    backends = backends_of(node, resolved.gpus)
    placement = place(
        tensors,
        PlacementRules(
            backends=backends,
            n_gpu_layers=decisions.n_gpu_layers,
            splits=default_splits(decisions.tensor_split, resolved.gpus) if backends else (),
            split_rows=resolved.split_mode == "row" and len(backends) > 1,
            overrides=decisions.overrides,
            mmap=resolved.mmap,
            repack=resolved.repack,
            no_host=resolved.no_host,
            cpu=processor(node.accelerator),
        ),
    )
    layers = len(tensors.blocks) + len(tensors.nextn)
    in_turn = (
        pipeline
        and len(backends) > 1
        and decisions.n_gpu_layers > layers
        and resolved.split_mode == "layer"
        and resolved.kv_offload
        and not decisions.overrides
        and backends[0].family in ("cuda", "rocm")
    )
    caches = cache_layout(
        spec,
        cells=decisions.n_ctx_seq,
        sequences=resolved.n_seq_max,
        unified=resolved.kv_unified,
        n_ubatch=resolved.n_ubatch,
        type_k=resolved.type_k,
        type_v=resolved.type_v,
        flash_attn=resolved.flash_attn,
        swa_full=resolved.swa_full,
    )
    return Memory(
        spec=spec,
        resolved=resolved,
        backends=backends,
        decisions=decisions,
        tensors=tensors,
        placement=placement,
        caches=caches,
        copies=PIPELINE_COPIES if in_turn else 1,
        known=known,
    )
