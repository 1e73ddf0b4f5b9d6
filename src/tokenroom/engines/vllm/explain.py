"""Why each figure of a vLLM ledger is what it is: formula, values and source, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tokenroom.engines.ledger_lines import estimated, exact, weight_parts
from tokenroom.engines.policy import StageMemory
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.kv_specs import AttentionSpec, KVCacheSpec, MambaSpec
from tokenroom.engines.vllm.resolved import ResolvedSettings
from tokenroom.memory.ledger import Confidence, Line
from tokenroom.memory.process_context import context_source

if TYPE_CHECKING:
    from tokenroom.engines.vllm.plan import VLLMPlan


_CONTEXT: Final = "worker init memory snapshots of vLLM 0.19.0 on H100"
_SOURCES: Final[Mapping[EngineGeneration, Mapping[str, str]]] = {
    EngineGeneration.V1: {
        "budget": "vLLM v1/worker/utils.py request_memory",
        "context": _CONTEXT,
        "context_formula": "CUDA context and communicators set up before the first snapshot",
        "available": "vLLM v1/worker/gpu_worker.py determine_available_memory",
        "block": "vLLM v1/core/kv_cache_utils.py _get_kv_cache_bytes_per_block",
        "blocks": "vLLM v1/core/kv_cache_utils.py get_num_blocks",
        "concurrency": "vLLM v1/core/kv_cache_utils.py get_max_concurrency_for_kv_cache_config",
        "buffers": "vLLM v1/worker/gpu_model_runner.py",
    },
    EngineGeneration.V0: {
        "budget": "vLLM worker/worker.py determine_num_available_blocks",
        "context": f"{_CONTEXT}, in proportion to multiprocessors",
        "context_formula": "CUDA context, where the version did not count it",
        "available": "vLLM worker/worker.py determine_num_available_blocks",
        "block": "vLLM worker/cache_engine.py get_cache_block_size",
        "blocks": "vLLM worker/worker.py determine_num_available_blocks",
        "concurrency": "vLLM worker/worker.py raise_if_cache_size_invalid",
        "buffers": "vLLM worker/model_runner.py: none are kept",
    },
}


def explain_plan(plan: VLLMPlan) -> tuple[Line, ...]:
    """The ledger of the stage with the least room, then the pool that follows from it."""
    return tuple(_lines(plan))


def _lines(plan: VLLMPlan) -> Iterator[Line]:
    resolved: ResolvedSettings = plan.deployment.resolved
    sources = _SOURCES[resolved.engine]
    stage = plan.stages[plan.governing]
    accelerator = plan.deployment.node.accelerator
    yield exact(
        "total",
        stage.total_bytes,
        "total memory that torch.cuda.mem_get_info reports",
        {"accelerator": accelerator.name},
        accelerator.sources.get("memory_bytes", "accelerator catalogue"),
    )
    yield exact(
        "budget",
        stage.budget_bytes,
        "ceil(total x gpu_memory_utilization)",
        {
            "total": stage.total_bytes,
            "gpu_memory_utilization": resolved.gpu_memory_utilization,
        },
        sources["budget"],
    )
    yield exact(
        "weights",
        stage.weights_bytes,
        "sum of the parts the rank holds",
        {
            "tensor_parallel_size": resolved.tensor_parallel_size,
            "pipeline_parallel_rank": stage.pipeline_parallel_rank,
            "dtype": resolved.dtype,
            "quantization": plan.deployment.spec.quantization or "none",
        },
        plan.deployment.spec.source or "the model's configuration",
        parts=weight_parts(stage.weights),
    )
    yield estimated("activation_peak", stage.activation, "what lives at once in the profile run")
    yield estimated("non_torch", stage.non_torch, "driver memory outside PyTorch's allocator")
    yield estimated(
        "cuda_graphs",
        stage.cuda_graphs,
        "engine's estimate: first capture + (graphs - 1) x second capture, per mode"
        if stage.cuda_graphs.phase == "estimate"
        else "what capturing takes",
    )
    yield exact(
        "buffers",
        stage.buffers_bytes,
        "tables and staging buffers of the runner"
        + ("" if plan.rules.counts_persistent_buffers else " (not charged by this version)"),
        {},
        sources["buffers"],
    )
    yield exact(
        "context",
        stage.context_bytes,
        sources["context_formula"],
        {},
        context_source(plan.deployment.node.accelerator, sources["context"]),
        confidence=Confidence.ESTIMATED,
    )
    yield from _pool(plan, stage, resolved, sources)


def _pool(
    plan: VLLMPlan, stage: StageMemory, resolved: ResolvedSettings, sources: Mapping[str, str]
) -> Iterator[Line]:
    terms: dict[str, object] = {
        "budget": stage.budget_bytes,
        "weights": stage.weights_bytes,
        "activation_peak": stage.activation.num_bytes,
        "non_torch": stage.non_torch.num_bytes,
    }
    formula = "budget - weights - activation_peak - non_torch"
    if plan.rules.counts_persistent_buffers:
        formula += " - buffers"
        terms["buffers"] = stage.buffers_bytes
    charged = stage.budget_bytes - sum(
        value for key, value in terms.items() if key != "budget" and isinstance(value, int)
    )
    charged -= stage.available_bytes
    if resolved.kv_cache_memory_bytes is not None:
        formula, terms = "kv_cache_memory_bytes", {}
    elif charged:
        formula += " - cuda_graphs"
        terms["cuda_graphs"] = charged
    yield exact(
        "kv_available",
        stage.available_bytes,
        formula,
        terms,
        sources["available"],
        confidence=Confidence.EXACT if plan.pool_is_exact else Confidence.ESTIMATED,
    )
    block_bytes = plan.layout.stage_block_bytes[plan.governing]
    yield exact(
        "kv_block",
        block_bytes,
        "largest over the groups of (sum of the pages of its layers)",
        {
            f"group {number}": f"{len(group.caches)} layers x {_page(group.spec)}"
            for number, group in enumerate(plan.layout.groups)
        },
        sources["block"],
    )
    yield exact(
        "kv_pool",
        stage.kv_pool_bytes,
        "num_blocks x block, num_blocks = least over the stages of floor(available / block)",
        {
            "num_blocks": plan.kv_blocks,
            "available": stage.available_bytes,
            "block": block_bytes,
            "kv_pool_tokens": plan.kv_pool_tokens,
        },
        sources["blocks"],
        confidence=Confidence.EXACT if plan.pool_is_exact else Confidence.ESTIMATED,
    )
    yield exact(
        "kv_request",
        plan.kv.pages_per_request * block_bytes,
        "blocks of one request of max_model_len x block",
        {
            "blocks": plan.kv.pages_per_request,
            "max_model_len": plan.max_model_len,
            "max_in_flight_tokens": resolved.max_in_flight_tokens,
            "max_concurrency": f"{plan.kv_blocks} / {plan.kv.pages_per_request} = "
            f"{plan.max_concurrency:.2f}",
        },
        sources["concurrency"],
    )


def _page(spec: KVCacheSpec) -> str:
    """How one layer's page comes about."""
    if isinstance(spec, AttentionSpec):
        page = f"{spec.block_size} tokens x {spec.num_kv_heads} KV heads x {spec.cell_bytes} B"
        if spec.tokens_per_state > 1:
            page += f" / {spec.tokens_per_state}"
    elif isinstance(spec, MambaSpec):
        states = zip(spec.shapes, spec.dtypes, strict=True)
        page = " + ".join(f"{'x'.join(map(str, shape))} {dtype}" for shape, dtype in states)
    else:
        page = f"{spec.block_size} tokens"
    padded = "" if spec.page_bytes == spec.own_page_bytes else ", padded"
    return f"{spec.kind.replace('_', ' ')} ({page} = {spec.page_bytes} B{padded})"
