"""llama-server as the simulator runs it."""

from __future__ import annotations

from typing import Final

from tokenroom.engines.llama_cpp.plan import LlamaCppPlan
from tokenroom.engines.llama_cpp.policy import LLAMA_CPP
from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine, check_names
from tokenroom.serving.schedulers.llama_cpp import LlamaCppScheduler, LlamaCppSchedulerConfig
from tokenroom.serving.schedulers.llama_cpp_prompts import BLOCK_TOKENS

_SCHEDULING: Final = ("cache_prompt", "slot_prompt_similarity", "cache_idle_slots")
_SIMILARITY: Final = 0.1


def simulated_engine(result: FitResult, scheduling: Scheduling) -> SimulatedEngine:
    """The slots of a fitted llama-server.

    ``scheduling`` may hold ``cache_prompt``, ``slot_prompt_similarity`` and ``cache_idle_slots``;
    it counts before what the deployment's own settings say.

    Raises:
        DeploymentError: It has a setting of another name or value, is another program, or has a
            cache that is not simulated.
    """
    check_names(scheduling, _SCHEDULING, "llama.cpp")
    plan = result.plan
    assert isinstance(plan, LlamaCppPlan)
    resolved, memory = plan.outcome.resolved, plan.memory
    if resolved.program not in ("server", "ollama"):
        raise DeploymentError(
            f"program is {resolved.program}, which serves nobody; llama-server and Ollama are "
            "simulated"
        )
    if any(cache.kind not in ("full_attention", "mla") for cache in memory.caches.layers):
        raise DeploymentError(
            "llama.cpp's windows and recurrent states, which need checkpoints, are not simulated; "
            "take a model with full attention in every layer"
        )
    asked = LLAMA_CPP.settings(result.deployment.asked, scheduling)
    similarity = asked.slot_prompt_similarity
    config = LlamaCppSchedulerConfig(
        n_parallel=resolved.n_seq_max,
        n_ctx=memory.decisions.n_ctx,
        n_ctx_slot=plan.max_model_len,
        n_batch=resolved.n_batch,
        n_ubatch=resolved.n_ubatch,
        kv_unified=resolved.kv_unified,
        cache_prompt=asked.cache_prompt is not False,
        slot_prompt_similarity=_SIMILARITY if similarity is None else similarity,
        cache_ram_bytes=resolved.cache_ram_bytes,
        cache_idle_slots=asked.cache_idle_slots is not False,
        token_bytes=sum(
            cache.num_bytes // max(1, cache.cells * cache.streams) for cache in memory.caches.layers
        ),
    )
    return SimulatedEngine(
        new_scheduler=lambda: LlamaCppScheduler(config),
        config=config,
        block_tokens=BLOCK_TOKENS,
        usable_blocks=config.n_ctx,
        max_model_len=config.n_ctx_slot,
        finds_prefixes=config.cache_prompt,
        settings={
            "n_parallel": config.n_parallel,
            "n_batch": config.n_batch,
            "n_ubatch": config.n_ubatch,
            "kv_unified": config.kv_unified,
        },
    )
