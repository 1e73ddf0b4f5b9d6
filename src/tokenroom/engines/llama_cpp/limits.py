"""What does not fit: the first buffer that cannot be had, and the longest context that can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tokenroom.engines.llama_cpp.memory import measure
from tokenroom.engines.llama_cpp.outcome import Outcome, outcome_of
from tokenroom.engines.llama_cpp.stages import device_stages
from tokenroom.engines.policy import Deployment, Refusal, StageMemory

_CELLS: Final = 256
"""Step of the lengths that are tried, to which the newest builds pad."""


def first_refusal(outcome: Outcome, stages: tuple[StageMemory, ...]) -> Refusal | None:
    """The first buffer that cannot be had, in the order llama.cpp allocates them."""
    resolved, memory = outcome.resolved, outcome.memory
    steps: tuple[tuple[str, str, Callable[[StageMemory], int]], ...] = (
        ("weights_too_big", "load", lambda stage: stage.weights_bytes),
        ("kv_buffer", "kv_init", lambda stage: stage.kv_pool_bytes),
        ("compute_buffer", "reserve", lambda stage: stage.activation.num_bytes),
    )
    for stage in stages[:-1]:
        held = stage.context_bytes
        for cause, phase, part in steps:
            held += part(stage)
            if held > stage.total_bytes:
                return Refusal(
                    cause=cause,
                    phase=phase,
                    needed_bytes=held,
                    available_bytes=stage.total_bytes,
                    values={"device": stage.device, "buffer_bytes": part(stage)}
                    if cause != "weights_too_big"
                    else {},
                )
    limit = resolved.host_memory_bytes
    if limit is not None:
        host = stages[-1]
        # Mapped weights can be read from disk again and again; all else has to be there.
        needed = (
            host.weights_bytes
            - memory.placement.mapped_bytes
            + host.kv_pool_bytes
            + host.activation.num_bytes
            + host.buffers_bytes
        )
        if needed > limit:
            return Refusal(
                cause="host_memory",
                phase="load",
                needed_bytes=needed,
                available_bytes=limit,
            )
    return None


def longest_context(deployment: Deployment, most: int) -> int:
    """The longest context of a slot, up to ``most`` cells, with which it starts; 0 for none.

    Where ``--fit`` may move layers, each length is placed anew as if it were asked for; otherwise
    the placement stays. Lengths are multiples of 256 cells.
    """
    outcome: Outcome = deployment.resolved
    starts = _placed_anew(deployment) if layers_make_room(outcome) else _placed_as_now(deployment)
    low, high = 0, most // _CELLS
    if starts(high * _CELLS):
        return high * _CELLS
    while high - low > 1:
        middle = (low + high) // 2
        if starts(middle * _CELLS):
            low = middle
        else:
            high = middle
    return low * _CELLS


def _placed_anew(deployment: Deployment) -> Callable[[int], bool]:
    """Whether a context of so many cells a slot starts, with layers where ``--fit`` puts them."""
    outcome: Outcome = deployment.resolved
    streams = _streams(outcome)

    def starts(cells: int) -> bool:
        asked = replace(deployment.asked, n_ctx=cells * streams, kv_unified_per_slot=None)
        tried = outcome_of(deployment.spec, deployment.node, asked)
        return first_refusal(tried, device_stages(tried, deployment.node)) is None

    return starts


def _placed_as_now(deployment: Deployment) -> Callable[[int], bool]:
    """The same with every layer where it is."""
    outcome: Outcome = deployment.resolved
    resolved, node = outcome.resolved, deployment.node
    streams = _streams(outcome)

    def starts(cells: int) -> bool:
        decisions = replace(outcome.memory.decisions, n_ctx=cells * streams, n_ctx_seq=cells)
        memory = measure(
            deployment.spec, node, resolved, decisions, pipeline=outcome.memory.copies > 1
        )
        tried = replace(outcome, memory=memory)
        return first_refusal(tried, device_stages(tried, node)) is None

    return starts


def layers_make_room(outcome: Outcome) -> bool:
    """Whether ``--fit`` moves layers to the CPU for a context that is asked for."""
    resolved = outcome.resolved
    return resolved.fit and resolved.layers_are_free and not resolved.overrides


def _streams(outcome: Outcome) -> int:
    return 1 if outcome.resolved.kv_unified else outcome.resolved.n_seq_max
