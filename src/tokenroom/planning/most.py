"""The largest load that the GPUs at hand take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.tuned import Verdicts
from tokenroom.planning.tuning import DEFAULTS_ALONE, TuningSpace, space_of
from tokenroom.serving_speed import MAX_CONCURRENCY

_STEP: Final = 0.96
"""A number of users that simulation fails is followed by so much of it."""

_TRIES: Final = 12


def most_users(
    candidates: Sequence[Candidate],
    demand: Demand,
    inventory: Mapping[str, int],
    space: TuningSpace = DEFAULTS_ALONE,
    verdicts: Verdicts | None = None,
) -> int:
    """Users that the best candidate takes on all the GPUs of its kind, by the closed form.

    Args:
        candidates: Layouts to be tried.
        demand: Of how many users does not matter.
        inventory: GPUs of each kind there are, by key.
        space: Settings to be tried of each.
        verdicts: What is known of layouts, which is added to.
    """
    most = 0.0
    known = Verdicts() if verdicts is None else verdicts
    many = replace(demand, users=MAX_CONCURRENCY)  # so that the largest load is not cut to them
    for candidate in candidates:
        replicas = inventory.get(candidate.accelerator.key, 0) // candidate.gpus
        if replicas:
            verdict = known.of(candidate, many, space_of(candidate.engine, space))
            most = max([most, *(tuned.served * replicas for tuned in verdict.tuned)])
    return int(most)


def loads_to_try(users: int) -> Iterator[int]:
    """Numbers of users from the closed form's on down, for a simulation to confirm."""
    tried = float(users)
    last = 0
    for _ in range(_TRIES):
        count = max(1, round(tried))
        if count != last:
            yield count
        last = count
        tried *= _STEP
