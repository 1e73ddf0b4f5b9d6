"""What llama.cpp's placement of a model makes worth knowing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenroom.engines.llama_cpp.defaults import ALL_LAYERS
from tokenroom.engines.llama_cpp.limits import layers_make_room
from tokenroom.engines.llama_cpp.memory import Memory
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings
from tokenroom.engines.llama_cpp.speed import speed_class
from tokenroom.engines.policy import Notice
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.spec import ModelSpec

if TYPE_CHECKING:
    from tokenroom.engines.llama_cpp.plan import LlamaCppPlan


def setting_notices(settings: LlamaCppSettings, draft: ModelSpec | None) -> tuple[Notice, ...]:
    """What the settings ask for that is left out or not counted."""
    found = [Notice(key="unknown_flag", values={"flag": flag}) for flag in settings.unknown_flags]
    if settings.ignored_flags:
        found.append(
            Notice(key="ignored_flags", values={"flags": ", ".join(settings.ignored_flags)})
        )
    if draft is not None:
        size = checkpoint_weights(draft).total_bytes
        values = {"model": draft.name, "weights_bytes": size}
        found.append(Notice(key="draft_left_out", values=values))
    if settings.mmproj is not None:
        found.append(Notice(key="projector_not_counted", values={"file": settings.mmproj}))
    return tuple(found)


def plan_remarks(plan: LlamaCppPlan) -> tuple[Notice, ...]:
    """What to say under the verdict: where the model lies, how fast that is, what it hangs on."""
    outcome = plan.outcome
    resolved, fitted = outcome.resolved, outcome.fitted
    found = []
    if plan.refusal is None:
        placed = speed_class(plan.memory)
        found.append(placed.notice)
        host = plan.stages[-1]
        if resolved.host_memory_bytes is None and (placed.name != "all_gpu" or host.kv_pool_bytes):
            needed = {"needed_bytes": host.total_bytes}
            found.append(Notice(key="host_memory_unknown", values=needed))
    if fitted.context_lowered:
        found.append(
            Notice(
                key="context_fitted_first" if layers_make_room(outcome) else "context_fitted",
                values={
                    "asked": resolved.n_ctx,
                    "asked_flag": str(resolved.n_ctx),
                    "tokens": plan.memory.decisions.n_ctx,
                },
            )
        )
    if fitted.layers_lowered:
        found.append(Notice(key="layers_fitted", values={"flags": fitted_flags(plan.memory)}))
    return tuple(found)


def plan_notices(plan: LlamaCppPlan) -> tuple[Notice, ...]:
    """What this division of memory makes worth knowing."""
    found = []
    if plan.outcome.pipeline_given_up:
        found.append(Notice(key="pipeline_given_up"))
    resolved = plan.outcome.resolved
    asked = plan.deployment.asked.n_ctx
    if resolved.program == "ollama" and asked and asked > resolved.n_ctx:
        found.append(
            Notice(
                key="ollama_context_cut",
                values={"tokens": asked // resolved.n_seq_max, "trained": resolved.n_ctx_train},
            )
        )
    if plan.max_model_len > resolved.n_ctx_train:
        found.append(
            Notice(
                key="beyond_trained_context",
                values={"tokens": plan.max_model_len, "trained": resolved.n_ctx_train},
            )
        )
    if plan.refusal is not None:
        return tuple(found)
    found += [
        Notice(
            key="libraries_short",
            values={"device": stage.device, "missing_bytes": -stage.free_bytes},
        )
        for stage in plan.stages[:-1]
        if stage.free_bytes < 0
    ]
    limit = resolved.host_memory_bytes
    if limit is not None and plan.stages[-1].weights_bytes > limit:
        mapped = plan.memory.placement.mapped_bytes
        values = {"mapped_bytes": mapped, "host_bytes": limit}
        found.append(Notice(key="paged_from_disk", values=values))
    return tuple(found)


def fitted_flags(memory: Memory) -> str:
    """What llama.cpp decided, as the flags that would say so."""
    layers = len(memory.placement.layer_devices)
    decisions = memory.decisions
    flags = [f"-ngl {min(decisions.n_gpu_layers, layers + 1)}"]
    if decisions.n_gpu_layers >= ALL_LAYERS:
        flags = ["-ngl all"]
    moved = [
        pattern for pattern, device in decisions.overrides if device >= memory.host or device < 0
    ]
    if moved:
        layers_moved = "1 layer" if len(moved) == 1 else f"{len(moved)} layers"
        flags.append(f"with parts of {layers_moved} on the CPU (-ot)")
    if len(memory.backends) > 1:
        flags.append("-ts " + ",".join(f"{share:g}" for share in decisions.tensor_split))
    return " ".join(flags)
