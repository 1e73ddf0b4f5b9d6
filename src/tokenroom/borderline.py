"""Whether the verdict of a fit would be another one within the range of its estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenroom.engines.policy import copies_of
from tokenroom.fitting import FitResult, Verdict

_ESTIMATED_CAUSES: Final = frozenset(
    {
        "no_room_for_kv",
        "kv_below_one_request",
        "profile_peak",
        "pass_peak",
        "static_share_too_small",
    }
)
"""Refusals that rest on an estimate; others compare sizes that are exact, or shares."""

_POOL_CAUSES: Final = frozenset({"no_room_for_kv", "kv_below_one_request"})
"""Those for which a shorter request is a way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Borderline:
    """The verdict at one end of the range of the estimates, where it is another one there.

    Attributes:
        verdict: The verdict at that end.
        kv_pool_tokens: Tokens in the pool there.
        requests_running: Requests of the asked length that run at once there.
    """

    verdict: Verdict
    kv_pool_tokens: int
    requests_running: int


def borderline(result: FitResult) -> Borderline | None:
    """What else the verdict may be if the estimates err as far as they were measured to.

    A deployment that does not start may start at the hopeful end; one that starts may not at the
    cautious end, or may run another number of the requests asked for. None where both ends agree
    with the verdict.
    """
    if result.plan.refusal is not None:
        return _hopeful_start(result)
    if result.plan.pool_is_exact or not result.plan.kv_blocks:
        return None
    if any(notice.key == "may_not_start" for notice in result.plan.notices):
        return Borderline(verdict="does_not_fit", kv_pool_tokens=0, requests_running=0)
    if result.verdict == "fits":
        end = _at(result, -result.governing_stage.estimate_errors[0])
    else:
        end = _at(result, result.governing_stage.estimate_errors[1])
    return None if end.verdict == result.verdict else end


def longest_at_best(result: FitResult) -> int | None:
    """The longest request, in tokens, that a deployment which does not start may hold at best.

    None where it starts, where no estimate decides, or where the best is what is expected.
    """
    refusal, stage = result.plan.refusal, result.governing_stage
    if refusal is None or refusal.cause not in _POOL_CAUSES:
        return None
    tokens = _at(result, stage.estimate_errors[1]).kv_pool_tokens
    if tokens <= result.max_model_len_that_fits:
        return None
    return min(tokens, result.plan.max_model_len)


def _hopeful_start(result: FitResult) -> Borderline | None:
    refusal, better = result.plan.refusal, result.governing_stage.estimate_errors[1]
    if refusal is None or refusal.cause not in _ESTIMATED_CAUSES:
        return None
    # An engine that finds no room at all would next ask for the room of one request.
    missing = refusal.needed_bytes - refusal.available_bytes
    missing += int(str(refusal.values.get("request_bytes", 0)))
    return _at(result, better) if missing <= better else None


def _at(result: FitResult, more_bytes: int) -> Borderline:
    """The verdict if so much more, or less, were left for the pool."""
    stage, plan = result.governing_stage, result.plan
    available = stage.available_bytes + more_bytes
    if available <= 0:
        return Borderline(verdict="does_not_fit", kv_pool_tokens=0, requests_running=0)
    if plan.kv_pool_tokens and stage.available_bytes > 0:
        tokens = round(plan.kv_pool_tokens * available / stage.available_bytes)
    else:
        length = plan.max_model_len
        tokens = round(available * length / max(1, plan.kv_bytes_of(length)))
    held = copies_of(plan) * (available // max(1, plan.kv_bytes_of(result.request_tokens)))
    # Blocks are whole: what the plan itself says bounds the count from its side.
    if plan.refusal is None:
        held = (
            min(held, result.requests_held) if more_bytes < 0 else max(held, result.requests_held)
        )
    running = min(held, plan.max_num_seqs)
    verdict: Verdict = "fits" if running >= result.requests_wanted else "fits_with_less"
    return Borderline(verdict=verdict, kv_pool_tokens=tokens, requests_running=running)
