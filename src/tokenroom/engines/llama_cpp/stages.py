"""The buffers of every device as stages of a memory plan, the accelerators first, then the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tokenroom.engines.llama_cpp.devices import context_memory, runtime_memory
from tokenroom.engines.llama_cpp.memory import Memory
from tokenroom.engines.llama_cpp.outcome import Outcome
from tokenroom.engines.policy import Estimate, StageMemory
from tokenroom.hardware.accelerator import Node

_NONE: Final = Estimate(num_bytes=0, low_bytes=0, high_bytes=0)


def device_stages(outcome: Outcome, node: Node) -> tuple[StageMemory, ...]:
    """Memory of every accelerator, then of the host."""
    memory = outcome.memory
    context = context_memory(node.accelerator)
    runtime = runtime_memory(node.accelerator)
    stages = []
    for device, backend in enumerate(memory.backends):
        total = node.accelerator.memory_bytes
        taken = context.num_bytes + node.used_bytes
        stages.append(
            _stage(
                memory,
                device,
                name=backend.name,
                total_bytes=total,
                context_bytes=taken,
                non_torch=replace(
                    runtime,
                    low_bytes=runtime.low_bytes + context.low_bytes - context.num_bytes,
                    high_bytes=runtime.high_bytes + context.high_bytes - context.num_bytes,
                ),
                buffers_bytes=0,
            )
        )
    stages.append(_host_stage(outcome))
    return tuple(stages)


def _stage(
    memory: Memory,
    device: int,
    *,
    name: str,
    total_bytes: int,
    context_bytes: int,
    non_torch: Estimate,
    buffers_bytes: int,
) -> StageMemory:
    weights = memory.placement.weights[device]
    kv = memory.kv_bytes[device]
    prompt, generation = memory.compute.sizes[device], memory.compute.generation[device]
    held = sum(weights.values()) + buffers_bytes + non_torch.num_bytes
    cells = max(1, memory.decisions.n_ctx)
    growing = sum(
        cache.num_bytes
        for cache in memory.caches.layers
        if memory.cache_device(cache.layer) == device
        and cache.kind not in ("recurrent", "sliding_window")
    )
    return StageMemory(
        pipeline_parallel_rank=device,
        total_bytes=total_bytes,
        budget_bytes=total_bytes - context_bytes,
        context_bytes=context_bytes,
        weights=weights,
        activation=Estimate(
            num_bytes=prompt,
            low_bytes=prompt,
            high_bytes=prompt,
            phase="compute_graph",
            source="llama.cpp src/llama-context.cpp sched_reserve, ggml/src/ggml-alloc.c",
        ),
        activation_decode_bytes=generation,
        cuda_graphs=_NONE,
        cuda_graph_actual_bytes=0,
        non_torch=non_torch,
        buffers_bytes=buffers_bytes,
        available_bytes=total_bytes - context_bytes - held - prompt,
        kv_pool_bytes=kv,
        kv_bytes_per_token=growing / cells,
        device=name,
    )


def _host_stage(outcome: Outcome) -> StageMemory:
    """Host memory; what it needs stands for its size when that is not known."""
    memory, resolved = outcome.memory, outcome.resolved
    host = memory.host
    # Saved prompts and snapshots of windowed and recurrent states come with use.
    snapshot = sum(
        cache.num_bytes // max(1, cache.streams if cache.streams > 1 else resolved.n_seq_max)
        for cache in memory.caches.layers
        if cache.kind in ("sliding_window", "recurrent")
    )
    later = resolved.cache_ram_bytes + snapshot * resolved.ctx_checkpoints * resolved.n_seq_max
    saved = Estimate(
        num_bytes=0,
        low_bytes=0,
        high_bytes=later,
        phase="prompt_cache",
        source="llama.cpp common/common.h cache_ram_mib, n_ctx_checkpoints",
    )
    output = memory.output_bytes
    needed = (
        memory.weights_bytes[host] + memory.kv_bytes[host] + memory.compute.sizes[host] + output
    )
    stage = _stage(
        memory,
        host,
        name="CPU",
        total_bytes=resolved.host_memory_bytes or needed,
        context_bytes=0,
        non_torch=saved,
        buffers_bytes=output,
    )
    return replace(stage, is_host=True)
