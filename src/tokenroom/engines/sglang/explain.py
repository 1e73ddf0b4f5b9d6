"""Why each figure of an SGLang ledger is what it is: formula, values and source, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenroom.engines.ledger_lines import estimated, exact, weight_parts
from tokenroom.engines.sglang.taken import LOADING_BYTES
from tokenroom.memory.ledger import Line

if TYPE_CHECKING:
    from tokenroom.engines.sglang.plan import SGLangPlan

_PROFILE = "SGLang mem_cache/kv_cache_configurator.py _profile_available_bytes"


def explain_plan(plan: SGLangPlan) -> tuple[Line, ...]:
    """The ledger of the stage whose pools hold the fewest tokens, and the pools themselves."""
    return tuple(_lines(plan))


def _lines(plan: SGLangPlan) -> Iterator[Line]:
    resolved = plan.resolved
    index = plan.governing
    stage, part = plan.stages[index], plan.parts[index]
    accelerator = plan.deployment.node.accelerator
    yield exact(
        "total",
        stage.total_bytes,
        "total memory that torch.cuda.mem_get_info reports",
        {"accelerator": accelerator.name},
        accelerator.sources.get("memory_bytes", "accelerator catalogue"),
    )
    yield exact(
        "context",
        stage.context_bytes,
        "CUDA context and communicators, and what other processes hold",
        {"tp_size": resolved.tp_size, "pp_size": resolved.pp_size},
        "measured; see tokenroom.memory.process_context",
    )
    yield exact(
        "free_before_load",
        part.free_before_bytes,
        "total - context: pre_model_load_memory",
        {},
        "SGLang distributed/bootstrap.py measure_pre_model_load_memory",
    )
    yield exact(
        "weights",
        stage.weights_bytes,
        "sum of the parts the rank holds",
        {
            "attention_tp_size": resolved.attention_tp_size,
            "ep_size": resolved.ep_size,
            "pipeline_parallel_rank": stage.pipeline_parallel_rank,
            "dtype": resolved.dtype,
            "quantization": plan.deployment.spec.quantization or "none",
        },
        plan.deployment.spec.source or "the model's configuration",
        parts=weight_parts(stage.weights),
    )
    yield exact(
        "loading",
        LOADING_BYTES,
        "kernels and segments that loading leaves beside the weights",
        {},
        "measured; see tokenroom.engines.sglang.taken",
    )
    yield exact(
        "slack",
        part.slack_bytes,
        "free_before_load x (1 - mem_fraction_static)",
        {
            "free_before_load": part.free_before_bytes,
            "mem_fraction_static": resolved.mem_fraction_static,
        },
        _PROFILE,
    )
    if part.reserved_bytes:
        yield exact(
            "multimodal_reserve",
            part.reserved_bytes,
            "SGLANG_VLM_CACHE_SIZE_MB",
            {},
            "SGLang mem_cache/kv_cache_configurator.py mm_runtime_reservation_gb",
        )
    if part.states is not None:
        yield exact(
            "states",
            part.states.num_bytes,
            "(slots + padding) x state of a request, and what drafting keeps",
            {
                "max_mamba_cache_size": part.states.slots,
                "slots_per_request": part.states.slots_per_request,
                "mamba_full_memory_ratio": resolved.mamba_full_memory_ratio,
            },
            "SGLang mem_cache/kv_cache_configurator.py _handle_max_mamba_cache",
        )
    yield exact(
        "token_budget",
        part.token_bytes,
        "free_before_load - weights - loading - slack - reserves - states",
        {},
        _PROFILE,
    )
    cells: dict[str, object] = {
        f"{cell.num_layers} {cell.kind}": cell.key_bytes + cell.value_bytes for cell in part.cells
    }
    yield exact(
        "kv_pool",
        stage.kv_pool_bytes,
        "max_total_num_tokens x bytes a token; tokens = token_budget // bytes a token, in whole "
        "pages, at most max_total_tokens, the fewest of all stages",
        {
            "max_total_num_tokens": plan.kv_pool_tokens,
            "bytes_per_token": round(part.pools.bytes_per_token, 2),
            "page_size": resolved.page_size,
            "kv_cache_dtype": resolved.kv_cache_dtype,
            **cells,
        },
        "SGLang model_executor/pool_configurator.py",
    )
    yield exact(
        "buffers",
        stage.buffers_bytes,
        "(max_running_requests + 1) x (context_length + 4) x 4",
        {"max_running_requests": plan.running, "context_length": resolved.context_length},
        "SGLang mem_cache/memory_pool.py ReqToTokenPool",
    )
    yield estimated("cuda_graphs", stage.cuda_graphs, "graphs captured after the pools")
    yield estimated("non_torch", stage.non_torch, "kernels and workspaces after the pools")
    yield estimated("activation_peak", stage.activation, "widest moment of the largest prefill")
    yield exact(
        "free",
        stage.free_bytes,
        "what nobody takes; negative when the largest prefill finds no room",
        {},
        "",
    )
