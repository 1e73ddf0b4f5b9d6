"""Why each figure of a vLLM ledger is what it is: formula, values and source, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tokenroom.engines.policy import Estimate, StageMemory
from tokenroom.engines.vllm.defaults import ResolvedSettings
from tokenroom.memory.ledger import Confidence, Line

if TYPE_CHECKING:
    from tokenroom.engines.vllm.policy import VLLMPlan


def explain_plan(plan: VLLMPlan) -> tuple[Line, ...]:
    """The ledger of the stage with the least room, then the pool that follows from it."""
    return tuple(_lines(plan))


def _lines(plan: VLLMPlan) -> Iterator[Line]:
    resolved: ResolvedSettings = plan.deployment.resolved
    stage = plan.stages[plan.governing]
    accelerator = plan.deployment.node.accelerator
    yield _exact(
        "total",
        stage.total_bytes,
        "total memory that torch.cuda.mem_get_info reports",
        {"accelerator": accelerator.name},
        accelerator.sources.get("memory_bytes", "accelerator catalogue"),
    )
    yield _exact(
        "budget",
        stage.budget_bytes,
        "ceil(total x gpu_memory_utilization)",
        {
            "total": stage.total_bytes,
            "gpu_memory_utilization": resolved.gpu_memory_utilization,
        },
        "vLLM v1/worker/utils.py request_memory",
    )
    yield _exact(
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
        parts=_weight_parts(stage.weights),
    )
    yield _estimated("activation_peak", stage.activation, "what lives at once in the profile run")
    yield _estimated("non_torch", stage.non_torch, "driver memory outside PyTorch's allocator")
    yield _estimated(
        "cuda_graphs",
        stage.cuda_graphs,
        "engine's estimate: first capture + (graphs - 1) x second capture, per mode"
        if stage.cuda_graphs.phase == "estimate"
        else "what capturing takes",
    )
    yield _exact(
        "buffers",
        stage.buffers_bytes,
        "tables and staging buffers of the runner"
        + ("" if plan.rules.counts_persistent_buffers else " (not charged by this version)"),
        {},
        "vLLM v1/worker/gpu_model_runner.py",
    )
    yield _exact(
        "context",
        stage.context_bytes,
        "CUDA context and communicators set up before the first snapshot",
        {},
        "worker init memory snapshots of vLLM 0.19.0 on H100",
        confidence=Confidence.ESTIMATED,
    )
    yield from _pool(plan, stage, resolved)


def _pool(plan: VLLMPlan, stage: StageMemory, resolved: ResolvedSettings) -> Iterator[Line]:
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
    yield _exact(
        "kv_available",
        stage.available_bytes,
        formula,
        terms,
        "vLLM v1/worker/gpu_worker.py determine_available_memory",
        confidence=Confidence.EXACT if plan.pool_is_exact else Confidence.ESTIMATED,
    )
    block_bytes = plan.layout.stage_block_bytes[plan.governing]
    yield _exact(
        "kv_block",
        block_bytes,
        "largest over the groups of (sum of the pages of its layers)",
        {
            f"group {number}": f"{group.num_layers} x {group.kind}, {group.block_size} tokens, "
            f"{group.page_bytes} B a page"
            for number, group in enumerate(plan.kv_groups)
        },
        "vLLM v1/core/kv_cache_utils.py _get_kv_cache_bytes_per_block",
    )
    yield _exact(
        "kv_pool",
        stage.kv_pool_bytes,
        "num_blocks x block, num_blocks = least over the stages of floor(available / block)",
        {"num_blocks": plan.kv_blocks, "block": block_bytes},
        "vLLM v1/core/kv_cache_utils.py get_num_blocks",
        confidence=Confidence.EXACT if plan.pool_is_exact else Confidence.ESTIMATED,
    )
    yield _exact(
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
        "vLLM v1/core/kv_cache_utils.py get_max_concurrency_for_kv_cache_config",
    )


def _weight_parts(weights: Mapping[str, int]) -> Iterable[Line]:
    for name, num_bytes in weights.items():
        yield _exact(f"weights.{name}", num_bytes, "", {}, "")


def _exact(
    key: str,
    num_bytes: int,
    formula: str,
    values: Mapping[str, object],
    source: str,
    *,
    parts: Iterable[Line] = (),
    confidence: Confidence = Confidence.EXACT,
) -> Line:
    return Line(
        key=key,
        num_bytes=num_bytes,
        confidence=confidence,
        low_bytes=num_bytes,
        high_bytes=num_bytes,
        formula=formula,
        values=values,
        source=source,
        parts=tuple(parts),
    )


def _estimated(key: str, estimate: Estimate, formula: str) -> Line:
    terms = tuple(estimate.terms)
    parts = tuple(_exact(f"{key}.{name}", size, "", {}, "") for name, size in terms)
    return Line(
        key=key,
        num_bytes=estimate.num_bytes,
        confidence=Confidence.ESTIMATED,
        low_bytes=estimate.low_bytes,
        high_bytes=estimate.high_bytes,
        formula=formula + (f" ({estimate.phase})" if estimate.phase else ""),
        source=estimate.source,
        parts=parts,
    )
