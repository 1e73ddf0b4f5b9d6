"""vLLM's V1 as the simulator runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import gcd
from types import MappingProxyType
from typing import Any, Final

from tokenroom.engines.vllm.connectors import connector_of
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.plan import VLLMPlan
from tokenroom.engines.vllm.policy import VLLM
from tokenroom.engines.vllm.rules import version_number
from tokenroom.errors import DeploymentError, shown
from tokenroom.fitting import FitResult
from tokenroom.performance.drafting import Drafting
from tokenroom.performance.efficiency import HOST_LINK_SHARE, host_bandwidth
from tokenroom.serving.deployments.baselines import baseline_engine
from tokenroom.serving.deployments.simulated_engine import (
    Scheduling,
    Setting,
    SimulatedEngine,
    check_names,
)
from tokenroom.serving.kept_drafts import KeptDrafts
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.schedulers.vllm import VllmDrafts, VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.schedulers.vllm_drafting import DraftingScheduler
from tokenroom.serving.schedulers.vllm_offloading import OffloadingScheduler, VllmOffloadingConfig
from tokenroom.serving.schedulers.vllm_pipeline import VllmPipelineConfig, VllmPipelineScheduler
from tokenroom.serving.schedulers.vllm_transfers import (
    VllmDecodeScheduler,
    VllmPrefillScheduler,
    check_groups,
)
from tokenroom.serving_terms import terms_of

_KINDS: Final = {
    "full_attention": Kind.FULL,
    "mla_attention": Kind.FULL,
    "sliding_window": Kind.SLIDING_WINDOW,
    "sliding_window_mla": Kind.SLIDING_WINDOW,
    "chunked_local_attention": Kind.CHUNKED_LOCAL,
    "mamba": Kind.MAMBA,
}
_SCHEDULING: Final = (
    "scheduling_policy",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "max_num_active_seqs",
    "max_num_scheduled_tokens",
    "scheduler_reserve_full_isl",
    "watermark",
    "prefix_cache_retention_interval",
)
_OF_DRAFTS: Final = ("acceptance", "draft_seed")
_LOOKED_UP: Final = ("ngram", "ngram_gpu", "suffix")
"""Methods that look drafts up and keep no cache of their own."""
_NATIVE: Final = "OffloadingConnector"
_PAGE_BYTES: Final = 4096
"""``SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT``: a page of memory."""

_SCHEDULERS: Final[Mapping[Setting, type[VllmScheduler]]] = {
    # kv_role of --kv-transfer-config
    None: VllmScheduler,
    "kv_producer": VllmPrefillScheduler,
    "kv_consumer": VllmDecodeScheduler,
}


def simulated_engine(result: FitResult, scheduling: Scheduling) -> SimulatedEngine:
    """One data-parallel copy of a fitted vLLM deployment.

    ``scheduling`` may hold those of its settings that change no memory, as ``scheduling_policy``;
    it counts before what the deployment's own settings say. ``scheduler`` in it names one of
    :data:`~tokenroom.serving.deployments.baselines.BASELINES` instead of vLLM's own.
    ``acceptance`` says how many drafted tokens are kept, as
    :func:`tokenroom.serving_drafting.drafting_of` takes it, and ``draft_seed`` draws which.
    ``kv_role`` is ``"kv_producer"`` of an engine that only computes prompts, ``"kv_consumer"`` of
    one that only writes answers.

    Raises:
        DeploymentError: It has a setting of another name, is not served by V1, or has a cache
            that is not simulated.
    """
    check_names(scheduling, (*_SCHEDULING, *_OF_DRAFTS, "scheduler", "kv_role"), "vllm")
    own = {name: value for name, value in scheduling.items() if name in _SCHEDULING}
    config = scheduler_config(result, own)
    stages = result.deployment.resolved.pipeline_parallel_size
    role = scheduling.get("kv_role")
    if stages > 1 and (role is not None or "scheduler" in scheduling):
        raise DeploymentError(
            f"pipeline_parallel_size is {stages}; it may be 1 where KV is moved between engines or "
            "scheduler is given"
        )
    if role not in _SCHEDULERS:
        raise DeploymentError(
            f"kv_role is {shown(role)}; it may be kv_producer or kv_consumer, or left out"
        )
    if "scheduler" in scheduling and not result.deployment.asked.kv_offload_bytes:
        if role is not None:
            raise DeploymentError(
                f"transfers of KV are not simulated under scheduler {scheduling['scheduler']}; "
                "leave it out"
            )
        _check_baseline_settings(scheduling, config)
        return _under(scheduling["scheduler"], result, config)
    drafting, keeps = _kept_drafts(result, scheduling)
    if drafting is not None and role is not None:
        raise DeploymentError(
            "transfers of KV are not simulated with speculative decoding; leave it out"
        )
    if role is not None:
        check_groups(config)
    host_bytes = result.deployment.asked.kv_offload_bytes
    if host_bytes and (stages > 1 or role is not None or "scheduler" in scheduling):
        raise DeploymentError(
            "KV in the host's memory is not simulated over pipeline stages, where KV is moved "
            "between engines, or under another scheduler; leave kv_offloading_size out"
        )
    settings: dict[str, Setting] = {
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_num_seqs": config.max_num_seqs,
        "async_scheduling": config.async_scheduling,
    }
    if drafting is not None:
        settings["num_speculative_tokens"] = drafting.depth
        settings["acceptance"] = drafting.acceptance.rate
    if stages > 1:
        config = _staged(config, result)
    transfer_seconds = None
    if host_bytes:
        config = _offloading(config, result, host_bytes)
        settings["kv_offloading_chunks"] = config.chunks
        transfer_seconds = _transfer_seconds(result)
    return SimulatedEngine(
        new_scheduler=lambda: _new_scheduler(config, role, keeps),
        config=config,
        block_tokens=_named_block_tokens(config),
        usable_blocks=config.num_blocks - 1,
        max_model_len=config.max_model_len,
        finds_prefixes=config.enable_prefix_caching,
        settings=settings,
        transfer_seconds=transfer_seconds,
    )


def _check_baseline_settings(scheduling: Scheduling, config: VllmSchedulerConfig) -> None:
    """Refuse settings of vLLM's own scheduler, or of drafts, beside another scheduler.

    Raises:
        DeploymentError: There is one, which would change nothing.
    """
    given = [name for name in scheduling if name in (*_SCHEDULING, *_OF_DRAFTS)]
    if config.policy != "fcfs" and "scheduling_policy" not in given:
        given.append("scheduling_policy")
    if given:
        raise DeploymentError(
            f"{given[0]} is of vLLM's own scheduler, and scheduler {scheduling['scheduler']} has "
            "none; leave one of the two out"
        )


def _new_scheduler(
    config: VllmSchedulerConfig, role: Setting, keeps: KeptDrafts | None
) -> VllmScheduler:
    if keeps is not None:
        return DraftingScheduler(config, keeps)
    if isinstance(config, VllmPipelineConfig):
        return VllmPipelineScheduler(config)
    if isinstance(config, VllmOffloadingConfig):
        return OffloadingScheduler(config)
    return _SCHEDULERS[role](config)


def _offloading(
    config: VllmSchedulerConfig, result: FitResult, host_bytes: int
) -> VllmOffloadingConfig:
    """The settings with KV in the host's memory, by the native connector of vLLM 0.32.

    A chunk is a block of every rank, up to whole pages of memory; latents that all ranks have alike
    are kept once. Source: ``CPUOffloadingSpec``, ``vllm/v1/kv_offload/cpu/spec.py``, and
    ``build_offloading_config``, ``.../kv_connector/v1/offloading/config.py``.

    Raises:
        DeploymentError: Another connector keeps it, or the scheduler is not simulated with it.
    """
    resolved, plan = result.deployment.resolved, result.plan
    assert isinstance(plan, VLLMPlan)
    connector = connector_of(resolved.asked)
    if connector != _NATIVE:
        raise DeploymentError(
            f"KV in the host's memory is simulated of {_NATIVE}, and kv_connector is {connector}; "
            "leave kv_connector out"
        )
    latent = all(group.spec.kind == "mla_attention" for group in plan.layout.groups)
    copies = 1 if latent else resolved.tensor_parallel_size
    chunk_bytes = -(-copies * plan.layout.bytes_per_block // _PAGE_BYTES) * _PAGE_BYTES
    return VllmOffloadingConfig(
        **{field.name: getattr(config, field.name) for field in fields(config)},
        chunks=host_bytes // chunk_bytes,
    )


def _transfer_seconds(result: FitResult) -> Callable[[int], float]:
    """How long it takes to move blocks over a GPU's link to the host; each moves its own part.

    Raises:
        HardwareError: The link is not known.
    """
    plan = result.plan
    assert isinstance(plan, VLLMPlan)
    rate = host_bandwidth(result.deployment.node.accelerator) * HOST_LINK_SHARE
    block_seconds = plan.layout.bytes_per_block / rate
    return lambda blocks: blocks * block_seconds


def _staged(config: VllmSchedulerConfig, result: FitResult) -> VllmPipelineConfig:
    """The settings over several stages (``max_concurrent_batches`` of ``vllm/config/vllm.py``)."""
    resolved = result.deployment.resolved
    return VllmPipelineConfig(
        **{field.name: getattr(config, field.name) for field in fields(config)},
        stages=resolved.pipeline_parallel_size,
        staggers=resolved.async_scheduling and resolved.second_runner,
    )


def _under(scheduler: Setting, result: FitResult, config: VllmSchedulerConfig) -> SimulatedEngine:
    """The deployment's pool and step under another scheduler.

    Raises:
        DeploymentError: It is no such scheduler, some layers keep less than the whole context, or
            tokens are drafted.
    """
    if config.drafts is not None:
        raise DeploymentError(
            f"scheduler {scheduler} is simulated without speculative decoding; leave one of the "
            "two out"
        )
    if any(group.kind is not Kind.FULL for group in config.groups):
        raise DeploymentError(
            f"scheduler {scheduler} is simulated for models with full attention in every layer; "
            "leave it out"
        )
    return baseline_engine(
        scheduler,
        pool_tokens=result.plan.kv_pool_tokens,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        asynchronous=config.async_scheduling,
    )


def _kept_drafts(
    result: FitResult, scheduling: Scheduling
) -> tuple[Drafting, KeptDrafts] | tuple[None, None]:
    """How tokens are drafted and how many are kept, None without speculative decoding."""
    given: Any = scheduling.get("acceptance")
    seed = scheduling.get("draft_seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise DeploymentError(f"draft_seed is {shown(seed)}; it must be a whole number")
    drafting = terms_of(result, 1, given).drafting
    if drafting is None:
        return None, None
    return drafting, KeptDrafts((drafting.acceptance.rate,) * drafting.depth, seed)


def scheduler_config(
    result: FitResult, scheduling: Scheduling = MappingProxyType({})
) -> VllmSchedulerConfig:
    """The scheduler's settings of one data-parallel copy of a fitted vLLM deployment.

    Decisions are those of vLLM 0.32. Of older versions it keeps that prompts were let in chunk by
    chunk before 0.19 (``scheduler_reserve_full_isl``), and that windows and states were cached
    everywhere before 0.29 (``prefix_cache_retention_interval``).

    Args:
        result: The deployment.
        scheduling: Settings that count before its own.

    Raises:
        DeploymentError: It does not start, is not served by vLLM's V1, has a cache that is not
            simulated, or a setting holds what vLLM does not take.
    """
    deployment, plan = result.deployment, result.plan
    assert isinstance(plan, VLLMPlan)
    resolved = deployment.resolved
    if resolved.engine is not EngineGeneration.V1:
        raise DeploymentError("vLLM's V0 engine is not simulated; take a version or model with V1")
    if resolved.decode_context_parallel_size > 1:
        raise DeploymentError(
            f"decode_context_parallel_size is {resolved.decode_context_parallel_size}; context "
            "parallelism is not simulated, it may be 1"
        )
    version = version_number(deployment.version)
    asked = VLLM.settings(resolved.asked, scheduling)
    whole, retention = asked.scheduler_reserve_full_isl, asked.prefix_cache_retention_interval
    if retention is None:
        retention = 0 if version >= (0, 29, 0) else None
    return VllmSchedulerConfig(
        num_blocks=plan.kv_blocks,
        groups=tuple(_group(group.spec, plan.max_model_len) for group in plan.layout.groups),
        max_model_len=plan.max_model_len,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_num_scheduled_tokens=asked.max_num_scheduled_tokens,
        max_num_seqs=asked.max_num_active_seqs or resolved.max_num_seqs,
        enable_prefix_caching=resolved.enable_prefix_caching,
        enable_chunked_prefill=resolved.enable_chunked_prefill,
        long_prefill_token_threshold=asked.long_prefill_token_threshold or 0,
        long_prefill_token_threshold_adaptive=bool(asked.long_prefill_token_threshold_adaptive),
        policy="priority" if asked.scheduling_policy == "priority" else "fcfs",
        scheduler_reserve_full_isl=version >= (0, 19, 0) if whole is None else whole,
        watermark=asked.watermark or 0.0,
        async_scheduling=resolved.async_scheduling,
        prefix_cache_retention_interval=retention,
        drafts=_drafts(result),
    )


def _drafts(result: FitResult) -> VllmDrafts | None:
    """How tokens are drafted, by the rules of vLLM 0.32 (``config/vllm.py``, ``speculative.py``).

    Drafts of EAGLE are in no group that is told apart, so that the last found block of every group
    is computed anew; those of MTP are in the group of the layer that was registered last
    (``_annotate_eagle_groups``, ``v1/core/kv_cache_utils.py``).
    """
    draft = result.deployment.resolved.speculative
    if draft is None:
        return None
    assert isinstance(result.plan, VLLMPlan)
    groups = result.plan.layout.groups
    method, tokens = draft.method, draft.num_speculative_tokens
    if method in _LOOKED_UP:
        return VllmDrafts(tokens=tokens)
    if method == "draft_model":
        return VllmDrafts(tokens=tokens, lookahead_tokens=tokens, input_slots=1)
    reread = tuple(range(len(groups)))
    if method == "mtp":
        if min(len(result.deployment.spec.mtp_layers), tokens) > 1:
            raise DeploymentError(
                "drafts by several MTP blocks, which hold back the ends of chunks, are not "
                "simulated; set num_speculative_tokens to 1"
            )
        last = max(cache for group in groups for cache in group.caches)
        reread = tuple(index for index in reread if last in groups[index].caches)
    extra = {"dflash": tokens, "dspark": tokens - 1}.get(method, 0)
    return VllmDrafts(
        tokens=tokens,
        lookahead_tokens=tokens + (method == "dflash"),
        input_slots=extra,
        reread_groups=reread,
    )


def _named_block_tokens(config: VllmSchedulerConfig) -> int:
    sizes = [group.block_tokens for group in config.groups]
    return gcd(*sizes) if config.enable_prefix_caching else sizes[0]


def _group(spec: Any, max_model_len: int) -> KvGroup:
    kind = _KINDS.get(spec.kind)
    if kind is None:
        raise DeploymentError(f"the cache of {spec.kind} layers is not simulated")
    if kind is Kind.MAMBA and spec.cache_mode == "align":
        if spec.checkpoint_blocks:
            raise DeploymentError(
                "states that kernels save inside of a chunk (num_prefill_checkpoint_blocks) are "
                "not simulated; serve the model with enable_prefix_caching off"
            )
        kind = Kind.ALIGNED_MAMBA
    window = None
    if kind is Kind.SLIDING_WINDOW:
        window = spec.window
    elif kind is Kind.CHUNKED_LOCAL:
        window = spec.chunk
    # A state that is not cached stands for the whole context.
    size = max_model_len if kind is Kind.MAMBA and spec.cache_mode == "none" else spec.block_size
    return KvGroup(kind=kind, block_tokens=size, window_tokens=window)
