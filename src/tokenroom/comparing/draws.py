"""One workload several times over: drawn with several seeds, or a trace in stretches of time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from tokenroom.errors import ComparisonError
from tokenroom.serving.workloads.source import DrawnSource, Part, TraceSource, WorkloadSource

USUAL_SEEDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What each deployment serves, one after the other.

    Attributes:
        by: What tells them apart; None of a single one of which nothing is drawn.
        workloads: The workloads, by seed or by the number of the stretch, from 1 on.
    """

    by: Literal["seed", "stretch"] | None
    workloads: Mapping[int | None, WorkloadSource]


def draws_of(workload: WorkloadSource, count: int | None = None) -> Draws:
    """A workload that is drawn with so many seeds from its own on, or a trace in so many stretches.

    Stretches are of equal time between the first and the last request. Each is served from an empty
    engine on.

    Args:
        workload: The workload.
        count: How many; None for 10 seeds, or for a trace as a whole.

    Raises:
        ComparisonError: The count is below 1, or a trace is to be cut that has no duration.
        WorkloadError: The workload cannot be read.
    """
    if count is not None and count < 1:
        raise ComparisonError(f"the workload is to be drawn {count} times; give 1 or more")
    if isinstance(workload, DrawnSource):
        first = workload.drawn(1).seed
        seeds = range(first, first + (count or USUAL_SEEDS))
        return Draws(by="seed", workloads={seed: replace(workload, seed=seed) for seed in seeds})
    if count is None or count == 1:
        return Draws(by=None, workloads={None: workload})
    begin, end = _span(workload)
    edges = [begin + (end - begin) * number / count for number in range(count)]
    edges.append(math.nextafter(end, math.inf))  # the last request is in the last of them
    return Draws(
        by="stretch",
        workloads={
            number: replace(
                workload,
                part=replace(workload.part, window_seconds=(edges[number - 1], edges[number])),
            )
            for number in range(1, count + 1)
        },
    )


def _span(source: TraceSource) -> tuple[float, float]:
    """When the first and the last request of the part come, on the trace's own clock."""
    part: Part = replace(source.part, time_scale=None)
    arrivals = replace(source, part=part).served(1).arrivals
    first = last = arrivals.next_seconds()
    while (seconds := arrivals.next_seconds()) is not None:
        last = seconds
        arrivals.pop()
    if first is None or last is None or not last > first:
        raise ComparisonError(
            f"{source.name} has all of its requests at one time; give a trace that lasts"
        )
    window = source.part.window_seconds
    offset = window[0] if window is not None else 0.0
    return offset + first, offset + last
