"""What one pipeline stage of a vLLM deployment holds, before its KV pool is cut.

budget = ceil(total x gpu_memory_utilization); what weights, the profile run, memory outside
PyTorch and (from 0.20 on) the CUDA-graph estimate leave of it is available to the pool
(v1/worker/gpu_worker.py ``determine_available_memory``, v1/worker/utils.py ``request_memory``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any, Final

from tokenroom.engines.policy import Deployment, Estimate
from tokenroom.engines.vllm.expert_padding import expert_padding
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.graphs import GraphEstimate
from tokenroom.engines.vllm.kv_pool import PoolLayout, pool_layout
from tokenroom.engines.vllm.kv_rules import kv_cache_rules
from tokenroom.engines.vllm.kv_settings import KVCacheSettings
from tokenroom.engines.vllm.lora import lora_slot_bytes
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.profile_run import RankProfile, decode_peak, profile_run
from tokenroom.engines.vllm.resolved import ResolvedSettings
from tokenroom.engines.vllm.rules import VersionRules, rules_for
from tokenroom.engines.vllm.spread import encoder_runs_whole, with_redundant_experts
from tokenroom.engines.vllm.v0_cache import V0_CACHE_RULES, as_cached
from tokenroom.engines.vllm.v0_rules import v0_rules
from tokenroom.engines.vllm.weights import Ranks, rank_weights, stage_layers
from tokenroom.errors import DeploymentError, shown
from tokenroom.models.spec import Layer

_DECODES_VIDEO_SINCE: Final = (0, 25, 0)
"""``reserve_mm_ipc_gpu_memory`` (multimodal/gpu_ipc_memory.py): frames decoded on the GPU by the
front end are kept out of the pool, whether its size was given or not."""


def profile_inputs_of(deployment: Deployment, rank: int) -> ProfileInputs:
    """What the profile run of a stage depends on."""
    resolved: ResolvedSettings = deployment.resolved
    mode = resolved.cudagraph_mode
    environment = resolved.environment
    return ProfileInputs(
        dtype=resolved.dtype,
        tensor_parallel_size=resolved.tensor_parallel_size,
        pipeline_parallel_size=resolved.pipeline_parallel_size,
        pipeline_rank=rank,
        data_parallel_size=resolved.data_parallel_size,
        enable_expert_parallel=resolved.enable_expert_parallel,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_num_seqs=resolved.max_num_seqs,
        max_model_len=resolved.max_model_len,
        block_size=resolved.block_size,
        accelerator=deployment.node.accelerator,
        attention_backend=resolved.attention_backend,
        kv_cache_dtype=resolved.kv_cache_dtype,
        capture_sizes=resolved.cudagraph_capture_sizes,
        piecewise_graphs="PIECEWISE" in mode,
        full_graphs="FULL" in mode,
        enforce_eager=resolved.enforce_eager,
        speculative_tokens=resolved.num_speculative_tokens,
        max_loras=resolved.max_loras if resolved.enable_lora else 0,
        mm_limits=resolved.limit_mm_per_prompt,
        language_model_only=resolved.language_model_only,
        skip_mm_profiling=resolved.skip_mm_profiling,
        encoder_shares_items=encoder_runs_whole(deployment.spec, deployment.asked),
        disable_custom_all_reduce=resolved.disable_custom_all_reduce,
        second_runner=resolved.second_runner,
        flashinfer_sampler=_switch(environment, "VLLM_USE_FLASHINFER_SAMPLER"),
        quantization=deployment.asked.quantization,
        others_bytes=deployment.node.used_bytes,
    )


def _switch(environment: Mapping[str, str], name: str) -> bool | None:
    value = environment.get(name)
    return None if value is None else value.strip().lower() in ("1", "true")


def stage_figures(deployment: Deployment, rules: VersionRules, rank: int) -> dict[str, Any]:
    """Every field of a :class:`StageMemory` but the pool itself."""
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    inputs = profile_inputs_of(deployment, rank)
    total = deployment.node.accelerator.memory_bytes
    budget = ceil(total * resolved.gpu_memory_utilization)
    weights = _weights(deployment, rules, rank)
    profile = profile_run(resolved.engine, spec, inputs, rules)
    activation, graphs, non_torch = profile.activation, profile.graphs, profile.non_torch
    buffers = profile.buffers_bytes
    if resolved.kv_cache_memory_bytes is not None:
        available = resolved.kv_cache_memory_bytes - decoding_bytes(deployment, rules)
    else:
        available = budget - spent_bytes(deployment, rules, sum(weights.values()), profile)
    if graphs.estimated_bytes:
        shown = Estimate(
            num_bytes=graphs.estimated_bytes,
            low_bytes=graphs.estimated_low_bytes,
            high_bytes=graphs.estimated_high_bytes,
            phase="estimate",
            terms=_captures(graphs),
            source=graphs.source,
        )
    else:
        shown = Estimate(
            num_bytes=graphs.actual_bytes,
            low_bytes=graphs.low_bytes,
            high_bytes=graphs.high_bytes,
            phase="capture",
            terms=_captures(graphs),
            source=graphs.source,
        )
    return {
        "pipeline_parallel_rank": rank,
        "total_bytes": total,
        "budget_bytes": budget,
        "context_bytes": profile.context_bytes,
        "weights": weights,
        "activation": activation,
        "activation_decode_bytes": decode_peak(resolved.engine, spec, inputs, rules).num_bytes,
        "cuda_graphs": shown,
        "cuda_graph_actual_bytes": graphs.actual_bytes,
        "non_torch": non_torch,
        "buffers_bytes": buffers,
        "available_bytes": available,
    }


def spent_bytes(
    deployment: Deployment, rules: VersionRules, weights_bytes: int, profile: RankProfile
) -> int:
    """What is gone of a rank's budget before its pool is cut, in bytes."""
    resolved: ResolvedSettings = deployment.resolved
    graphs = profile.graphs
    charged_graphs = graphs.charged_bytes
    if resolved.environment.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS") in ("0", "1"):
        asked = resolved.environment["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"] == "1"
        charged_graphs = graphs.estimated_bytes if asked else 0
    return (
        weights_bytes
        + profile.activation.num_bytes
        + profile.non_torch.num_bytes
        + charged_graphs
        + (profile.buffers_bytes if rules.counts_persistent_buffers else 0)
        + decoding_bytes(deployment, rules)
    )


def decoding_bytes(deployment: Deployment, rules: VersionRules) -> int:
    """What the front end decodes videos in, kept out of the pool."""
    if not deployment.spec.towers or rules.version < _DECODES_VIDEO_SINCE:
        return 0
    return deployment.resolved.asked.mm_ipc_gpu_memory_bytes or 0


def _captures(graphs: GraphEstimate) -> tuple[tuple[str, int], ...]:
    """The first capture of each mode and all further ones, as explanations list them."""
    return tuple(
        term
        for mode in graphs.modes
        for term in (
            (f"{mode.name.lower()}_first_of_{mode.count}", mode.first_bytes),
            (f"{mode.name.lower()}_each_further", mode.second_bytes),
        )
    )


def layer_partition_of(resolved: ResolvedSettings) -> tuple[int, ...] | None:
    """Blocks of each pipeline stage that ``VLLM_PP_LAYER_PARTITION`` asks for, None without it.

    Raises:
        DeploymentError: It holds no whole numbers.
    """
    text = resolved.environment.get("VLLM_PP_LAYER_PARTITION")
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DeploymentError(
            f"VLLM_PP_LAYER_PARTITION is {shown(text)}; it must hold whole numbers separated "
            f"by commas"
        ) from None


def _weights(deployment: Deployment, rules: VersionRules, rank: int) -> dict[str, int]:
    """Weights of a rank by component: the model's, the draft's, adapter slots, position tables."""
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    capability = deployment.node.accelerator.compute_capability
    stages = resolved.pipeline_parallel_size
    ranks = Ranks(
        tp=resolved.tensor_parallel_size,
        pp=stages,
        pp_rank=rank,
        dp=resolved.data_parallel_size,
        pcp=resolved.prefill_context_parallel_size,
        expert_parallel=resolved.enable_expert_parallel,
        layer_partition=layer_partition_of(resolved),
    )
    weighed = spec
    if resolved.asked.enable_eplb and resolved.asked.num_redundant_experts:
        weighed = with_redundant_experts(spec, resolved.asked.num_redundant_experts)
    own = rank_weights(
        weighed,
        ranks=ranks,
        dtype=resolved.dtype,
        towers=not resolved.language_model_only,
        mtp=_drafts_with_mtp(resolved),
        version=rules.version,
        padding=expert_padding(capability, rules.version),
        cpu_offload_bytes=resolved.cpu_offload_bytes,
    )
    found = {component.value: count for component, count in own.components.items()}
    if own.buffer_bytes:
        found["positions"] = own.buffer_bytes
    rounding = own.allocated_bytes - own.total_bytes - own.buffer_bytes
    if rounding:
        found["rounding"] = rounding
    if deployment.draft is not None and rank == stages - 1:
        drafted = replace(ranks, pp=1, pp_rank=0, layer_partition=None)
        speculative = resolved.speculative
        if speculative is not None and speculative.draft_tensor_parallel_size is not None:
            drafted = replace(drafted, tp=speculative.draft_tensor_parallel_size)
        found["draft"] = rank_weights(
            deployment.draft,
            ranks=drafted,
            dtype=resolved.dtype,
            towers=False,
            version=rules.version,
        ).total_bytes
    if resolved.enable_lora:
        layers = stage_layers(spec.num_layers, stages, rank, ranks.layer_partition)
        counted: dict[int, tuple[Layer, int]] = {}
        for index in layers:
            layer = spec.layers[index]
            counted[id(layer)] = (layer, counted.get(id(layer), (layer, 0))[1] + 1)
        found["lora"] = lora_slot_bytes(
            spec,
            counted.values(),
            first_stage=rank == 0,
            last_stage=rank == stages - 1,
            tensor_parallel_size=ranks.tp,
            expert_parallel_size=ranks.expert_ranks if ranks.expert_parallel else 1,
            max_loras=resolved.max_loras,
            max_lora_rank=resolved.max_lora_rank,
            fully_sharded=resolved.fully_sharded_loras,
            lora_dtype=resolved.dtype if resolved.lora_dtype == "auto" else resolved.lora_dtype,
        )
    return found


def _drafts_with_mtp(resolved: ResolvedSettings) -> bool:
    method = resolved.speculative.method if resolved.speculative is not None else ""
    return method.endswith("mtp")


def layout_of(deployment: Deployment) -> PoolLayout:
    """How the deployment's pool is cut up.

    Raises:
        DeploymentError: vLLM cannot run the layers under these settings.
    """
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    draft_layers: tuple[Layer, ...] = ()
    if _drafts_with_mtp(resolved):
        draft_layers = spec.mtp_layers
    elif deployment.draft is not None:
        draft_layers = deployment.draft.layers
    rules = kv_cache_rules(resolved.version)
    if resolved.engine is EngineGeneration.V0:
        spec, rules = as_cached(spec, v0_rules(rules_for(resolved.version).version)), V0_CACHE_RULES
    return pool_layout(
        spec,
        KVCacheSettings(
            tensor_parallel_size=resolved.tensor_parallel_size,
            pipeline_parallel_size=resolved.pipeline_parallel_size,
            decode_context_parallel_size=resolved.decode_context_parallel_size,
            layer_partition=layer_partition_of(resolved),
            block_size=resolved.block_size,
            kv_cache_dtype=resolved.kv_cache_dtype,
            model_dtype=resolved.dtype,
            mamba_cache_dtype=resolved.mamba_cache_dtype,
            mamba_ssm_cache_dtype=resolved.mamba_ssm_cache_dtype,
            mamba_cache_mode=resolved.mamba_cache_mode,
            mamba_block_size=resolved.mamba_block_size,
            num_speculative_tokens=resolved.num_speculative_tokens,
            hybrid_manager=resolved.hybrid_manager,
        ),
        rules,
        draft_layers=draft_layers,
    )


def encoder_tokens(deployment: Deployment) -> int:
    """The encoder budget that cross attention is sized by: the token budget of a step."""
    resolved: ResolvedSettings = deployment.resolved
    return resolved.max_num_batched_tokens if deployment.spec.encoder_layers else 0
