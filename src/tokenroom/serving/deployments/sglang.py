"""SGLang as the simulator runs it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from tokenroom.engines.sglang.plan import SGLangPlan
from tokenroom.engines.sglang.policy import SGLANG
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.rules import version_numbers
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.errors import DeploymentError, shown
from tokenroom.fitting import FitResult
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine, check_names
from tokenroom.serving.schedulers.sglang import SglangScheduler
from tokenroom.serving.schedulers.sglang_config import SglangSchedulerConfig

_OWN: Final = (
    *("schedule_policy", "schedule_conservativeness"),
    *("enable_mixed_chunk", "prefill_max_requests", "scheduler_recv_interval"),
)
_SCHEDULING: Final = (*_OWN, "max_new_tokens")
_FCFS_SINCE: Final = (0, 4, 4)
"""The default of ``--schedule-policy``; ``lpm`` before (``server_args.py``)."""
_LEAST_NAMED_TOKENS: Final = 16
"""Shared prefixes are named in blocks of at least so many tokens: by the token, names of long
prompts would take more memory than what they save from computing is worth."""
_CHANGES_STEPS: Final = frozenset(
    {
        *("--enable-priority-scheduling", "--radix-eviction-policy", "--retraction-policy"),
        *("--prefill-decode-interval", "--enable-prefill-delayer", "--min-free-slots-delay"),
        *("--enable-dynamic-chunking", "--enable-session-radix-cache", "--enable-lmcache"),
        *("--enable-flexkv", "--radix-cache-backend", "--enable-pdmux"),
    }
)
"""Flags that change what steps run and that memory does not depend on."""


def simulated_engine(result: FitResult, scheduling: Scheduling) -> SimulatedEngine:
    """One data-parallel copy of a fitted SGLang deployment.

    ``scheduling`` may hold ``schedule_policy``, ``schedule_conservativeness``,
    ``enable_mixed_chunk``, ``prefill_max_requests`` and ``scheduler_recv_interval``, which count
    before the deployment's own settings, and ``max_new_tokens``: what requests ask for, whatever
    their answers have.

    Raises:
        DeploymentError: It has a setting of another name or value, or a part that is not
            simulated.
    """
    check_names(scheduling, _SCHEDULING, "sglang")
    config = scheduler_config(result, scheduling)
    return SimulatedEngine(
        new_scheduler=lambda: SglangScheduler(config),
        config=config,
        block_tokens=config.name_tokens,
        usable_blocks=config.max_total_num_tokens // config.page_size,
        max_model_len=config.context_length,
        finds_prefixes=not config.disable_radix_cache,
        settings={
            "chunked_prefill_size": config.chunked_prefill_size,
            "max_prefill_tokens": config.max_prefill_tokens,
            "max_running_requests": config.max_running_requests,
            "schedule_policy": config.schedule_policy,
            "schedule_conservativeness": config.schedule_conservativeness,
            "enable_mixed_chunk": config.enable_mixed_chunk,
            "overlap_schedule": config.overlap_schedule,
        },
    )


def scheduler_config(
    result: FitResult, scheduling: Scheduling = MappingProxyType({})
) -> SglangSchedulerConfig:
    """The scheduler's settings of one data-parallel copy of a fitted deployment.

    Decisions are those of SGLang 0.5.23; of older versions the default of ``schedule_policy`` is
    kept.

    Args:
        result: The deployment.
        scheduling: Settings that count before its own.

    Raises:
        DeploymentError: A setting has a value that it may not have, or a part of the deployment is
            not simulated.
    """
    deployment, plan = result.deployment, result.plan
    assert isinstance(plan, SGLangPlan)
    resolved = plan.resolved
    own = {name: value for name, value in scheduling.items() if name in _OWN}
    asked: SGLangSettings = SGLANG.settings(deployment.asked, own)
    _check_simulated(asked, plan, resolved)
    most: Any = scheduling.get("max_new_tokens")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise DeploymentError(
            f"max_new_tokens is {shown(most)}; it must be a whole number of at least 1"
        )
    chunk, page = resolved.chunked_prefill_size, resolved.page_size
    policy: Any = asked.schedule_policy
    if policy is None:
        policy = "fcfs" if version_numbers(deployment.version) >= _FCFS_SINCE else "lpm"
    return SglangSchedulerConfig(
        max_total_num_tokens=plan.kv_pool_tokens,
        page_size=page,
        context_length=resolved.context_length,
        max_running_requests=plan.running,
        max_prefill_tokens=resolved.max_prefill_tokens,
        chunked_prefill_size=chunk if chunk > 0 else None,
        prefill_max_requests=asked.prefill_max_requests,
        scheduler_recv_interval=asked.scheduler_recv_interval or 1,
        enable_mixed_chunk=bool(asked.enable_mixed_chunk),
        disable_radix_cache=not resolved.radix_cache,
        overlap_schedule=resolved.overlap,
        schedule_policy=policy,
        schedule_conservativeness=asked.schedule_conservativeness or 1.0,
        max_new_tokens=most,
        ignore_eos=most is None,
        name_tokens=-(-_LEAST_NAMED_TOKENS // page) * page,
    )


def _check_simulated(asked: SGLangSettings, plan: SGLangPlan, resolved: ResolvedSettings) -> None:
    for flag in asked.ignored_flags:
        if flag in _CHANGES_STEPS:
            raise DeploymentError(f"SGLang's {flag} is not simulated; leave it out")
    if plan.pools.window_tokens is not None:
        raise DeploymentError(
            "SGLang's pool of sliding windows is not simulated; set disable_hybrid_swa_memory, or "
            "take vllm for this model"
        )
    if any(part.states is not None for part in plan.parts):
        raise DeploymentError(
            "SGLang's pool of recurrent states is not simulated; take vllm for this model"
        )
    if resolved.hicache_bytes or resolved.hicache_ratio:
        raise DeploymentError(
            "enable_hierarchical_cache is true; tokens in host memory are not simulated, leave it "
            "out"
        )
    if resolved.disaggregation_mode != "null":
        raise DeploymentError(
            f"disaggregation_mode is {resolved.disaggregation_mode}; transfers of KV are not "
            "simulated, leave it out"
        )
