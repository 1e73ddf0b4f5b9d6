"""Why SGLang would not start, by the phase in which it finds out."""

from __future__ import annotations

from collections.abc import Sequence

from tokenroom.engines.policy import Deployment, Refusal, StageMemory
from tokenroom.engines.sglang.plan import StagePools
from tokenroom.engines.sglang.resolved import ResolvedSettings


def refusal_of(
    deployment: Deployment,
    stages: Sequence[StageMemory],
    parts: Sequence[StagePools],
    tokens: int,
) -> Refusal | None:
    """Why it would not start, by the phase in which it would find out."""
    resolved: ResolvedSettings = deployment.resolved
    fraction = resolved.mem_fraction_static
    for stage, part in zip(stages, parts, strict=True):
        if stage.weights_bytes > part.free_before_bytes:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=stage.weights_bytes + stage.context_bytes,
                available_bytes=stage.total_bytes,
            )
    for part in parts:
        static = part.free_before_bytes - part.slack_bytes
        loaded = part.free_before_bytes - part.free_after_bytes
        states = part.states
        if part.token_bytes <= 0 or (states is not None and states.max_requests < 1):
            wanted = loaded + part.reserved_bytes + (states.num_bytes if states else 0)
            return Refusal(
                cause="static_share_too_small",
                phase="kv_init",
                needed_bytes=max(wanted, static + 1),
                available_bytes=static,
                values={
                    "fraction": f"{fraction:g}",
                    "least": f"{wanted / part.free_before_bytes:.3f}",
                },
            )
    if tokens < resolved.page_size or tokens < 2:
        part = min(parts, key=lambda part: part.token_bytes)
        static = part.free_before_bytes - part.slack_bytes
        return Refusal(
            cause="static_share_too_small",
            phase="kv_init",
            needed_bytes=static + 1,
            available_bytes=static,
            values={
                "fraction": f"{fraction:g}",
                "least": f"{static / part.free_before_bytes + 0.001:.3f}",
            },
        )
    for stage in stages:
        held = (
            stage.context_bytes
            + stage.weights_bytes
            + stage.buffers_bytes
            + stage.non_torch.num_bytes
            + stage.kv_pool_bytes
            + stage.cuda_graph_actual_bytes
        )
        if held > stage.total_bytes:
            return Refusal(
                cause="cuda_graphs",
                phase="graph_capture",
                needed_bytes=held,
                available_bytes=stage.total_bytes,
            )
    return None
