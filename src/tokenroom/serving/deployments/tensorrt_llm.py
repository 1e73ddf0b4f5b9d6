"""TensorRT-LLM as the simulator runs it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tokenroom.engines.tensorrt_llm.built_engine import release_of
from tokenroom.engines.tensorrt_llm.plan import TensorRTPlan
from tokenroom.engines.tensorrt_llm.policy import TENSORRT_LLM
from tokenroom.engines.tensorrt_llm.resolve import Resolved
from tokenroom.engines.tensorrt_llm.settings import TensorRTSettings
from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine, check_names
from tokenroom.serving.schedulers.tensorrt_llm import TensorRtLlmScheduler
from tokenroom.serving.schedulers.tensorrt_llm_config import (
    CapacityPolicy,
    ChunkingPolicy,
    TensorRtLlmSchedulerConfig,
)

_SCHEDULING: Final = (
    *("capacity_scheduler_policy", "context_chunking_policy"),
    *("disable_overlap_scheduler", "enable_prefix_aware_scheduling"),
)
_CREDITS_REUSE: Final = (1, 3)
"""NVIDIA/TensorRT-LLM pull request 11637 (February 2026)."""


def simulated_engine(result: FitResult, scheduling: Scheduling) -> SimulatedEngine:
    """One copy of a fitted TensorRT-LLM deployment on the PyTorch backend.

    ``scheduling`` may hold those of its settings that change no memory, as
    ``capacity_scheduler_policy``; it counts before what the deployment's own settings say.

    Raises:
        DeploymentError: It has a setting of another name or value, or a part that is not
            simulated.
    """
    check_names(scheduling, _SCHEDULING, "tensorrt-llm")
    config = scheduler_config(result, scheduling)
    return SimulatedEngine(
        new_scheduler=lambda: TensorRtLlmScheduler(config),
        config=config,
        block_tokens=config.tokens_per_block,
        usable_blocks=config.num_blocks,
        max_model_len=config.max_seq_len,
        finds_prefixes=config.enable_block_reuse,
        settings={
            "max_num_tokens": config.max_num_tokens,
            "max_batch_size": config.max_batch_size,
            "enable_chunked_prefill": config.enable_chunked_prefill,
            "capacity_scheduler_policy": str(config.capacity_scheduler_policy),
        },
    )


def scheduler_config(
    result: FitResult, scheduling: Scheduling = MappingProxyType({})
) -> TensorRtLlmSchedulerConfig:
    """The scheduler's settings of a fitted deployment.

    Args:
        result: The deployment.
        scheduling: Settings that count before its own.

    Raises:
        DeploymentError: A setting has a value that it may not have, or a part of the deployment is
            not simulated.
    """
    deployment, plan = result.deployment, result.plan
    assert isinstance(plan, TensorRTPlan)
    resolved: Resolved = deployment.resolved
    asked = TENSORRT_LLM.settings(deployment.asked, scheduling)
    _check_simulated(asked, plan, resolved)
    return TensorRtLlmSchedulerConfig(
        num_blocks=plan.kv_blocks,
        tokens_per_block=resolved.tokens_per_block,
        max_seq_len=plan.max_model_len,
        max_batch_size=resolved.max_batch_size,
        max_num_tokens=resolved.max_num_tokens,
        enable_block_reuse=resolved.enable_block_reuse,
        enable_chunked_prefill=resolved.enable_chunked_prefill,
        capacity_scheduler_policy=CapacityPolicy(
            asked.capacity_scheduler_policy or CapacityPolicy.GUARANTEED_NO_EVICT
        ),
        context_chunking_policy=ChunkingPolicy(
            asked.context_chunking_policy or ChunkingPolicy.FIRST_COME_FIRST_SERVED
        ),
        enable_prefix_aware_scheduling=asked.enable_prefix_aware_scheduling is not False,
        credits_reuse=release_of(resolved.version) >= _CREDITS_REUSE,
        overlaps=not asked.disable_overlap_scheduler,
    )


def _check_simulated(asked: TensorRTSettings, plan: TensorRTPlan, resolved: Resolved) -> None:
    if resolved.build is not None:
        raise DeploymentError(
            "TensorRT-LLM's built engines are not simulated; take the pytorch backend, which 1.0 "
            "and later have by default"
        )
    if any(window < resolved.max_seq_len for window in resolved.windows):
        raise DeploymentError(
            "max_attention_window is below max_seq_len; pools of windows are not simulated, leave "
            "it out"
        )
    if any(cache.state_bytes for cache in plan.caches):
        raise DeploymentError(
            "TensorRT-LLM's slots of recurrent states are not simulated; take vllm for this model"
        )
    if resolved.max_beam_width > 1:
        raise DeploymentError(
            f"max_beam_width is {resolved.max_beam_width}; beams are not simulated, it may be 1"
        )
    if resolved.host_cache_size:
        raise DeploymentError(
            f"host_cache_size is {resolved.host_cache_size}; blocks in host memory are not "
            "simulated, leave it out"
        )
    if asked.use_kv_cache_manager_v2:
        raise DeploymentError(
            "use_kv_cache_manager_v2 is true; its scheduler is not simulated, leave it out"
        )
