"""Layouts judged by several workers, a few at a time; what becomes of each comes in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from tokenroom.execution.lost import WorkerLostError
from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.judging import Bounds, Judged, judged_layout
from tokenroom.planning.tuning import TuningSpace, space_of

WORTH_IT: Final = 64
"""Layouts from which on workers are told of them: fewer are sooner judged here."""

_EACH: Final = 8
"""Layouts a worker is told of at a time."""

_AHEAD: Final = 2
"""Times as many are given out as there are workers, so that none waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """A few layouts to be judged.

    Attributes:
        layouts: Each with what there is of its kind of GPU.
        demand: What is to be served.
        space: Settings to be tried, as far as an engine has them.
    """

    layouts: tuple[tuple[Candidate, Bounds], ...]
    demand: Demand
    space: TuningSpace


def judged_layouts(asked: Layouts) -> list[Judged]:
    """What becomes of each."""
    return [
        judged_layout(layout, asked.demand, space_of(layout.engine, asked.space), bounds)
        for layout, bounds in asked.layouts
    ]


def judged_together(
    layouts: Sequence[tuple[Candidate, Bounds]],
    demand: Demand,
    space: TuningSpace,
    executor: Executor,
    workers: int,
) -> Iterator[Judged]:
    """What becomes of each layout, in their order, by the workers of an executor.

    Args:
        layouts: Each with what there is of its kind of GPU.
        demand: What is to be served; requests of a trace do not count.
        space: Settings to be tried, as far as an engine has them.
        executor: What calls functions elsewhere.
        workers: How many it works on at once.
    """
    means = replace(demand, requests=None)
    few = (Layouts(layouts=part, demand=means, space=space) for part in _parts(layouts))
    waiting: deque[tuple[Layouts, Future[list[Judged]]]] = deque()
    while True:
        for asked in islice(few, workers * _AHEAD - len(waiting)):
            waiting.append((asked, executor.submit(judged_layouts, asked)))
        if not waiting:
            return
        asked, future = waiting.popleft()
        try:
            yield from future.result()
        except WorkerLostError:
            yield from judged_layouts(asked)


def _parts(
    layouts: Sequence[tuple[Candidate, Bounds]],
) -> Iterator[tuple[tuple[Candidate, Bounds], ...]]:
    for start in range(0, len(layouts), _EACH):
        yield tuple(layouts[start : start + _EACH])
