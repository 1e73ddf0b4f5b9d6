"""What a step adds to the figures, as for a :class:`~tokenroom.serving.metrics.Timeline`."""

from __future__ import annotations

from typing import Any

from tokenroom.serving.compiled.jit import merged
from tokenroom.serving.compiled.state import NOT_YET, Core


@merged
def add_gap(core: Core, first: int, seconds: float, times: int) -> None:
    """Count times between two tokens; equal ones of a step (from ``first`` on) together."""
    engine, gaps = core.engine[0], core.gaps
    for place in range(first, engine.gaps):
        if gaps[place].seconds == seconds:
            gaps[place].times += times
            return
    gaps[engine.gaps].seconds = seconds
    gaps[engine.gaps].times = times
    engine.gaps += 1


@merged
def emit(core: Core, plan: Any, entries: Any) -> None:
    """Note the time of the tokens that came out with a step that has just ended."""
    engine, live = core.engine[0], core.live
    clock, before = engine.clock, engine.ended_at
    first = engine.gaps
    steady = 0
    for place in range(plan.entries):
        if entries[place].silent:
            continue
        request = live[entries[place].slot]
        last = request.last_token
        request.last_token = clock
        if last == NOT_YET:
            request.first_token = clock
        elif last == before:
            steady += 1
        else:
            add_gap(core, first, clock - last, 1)
    if steady:
        add_gap(core, first, clock - before, steady)
    engine.ended_at = clock


@merged
def observe(core: Core, start: float, plan: Any) -> None:
    """Take in a step that began at ``start`` and has just ended."""
    engine, points = core.engine[0], core.points
    engine.steps += 1
    engine.computed_tokens += plan.tokens
    engine.preemptions += plan.preempted
    engine.max_running = max(engine.max_running, plan.running)
    engine.max_waiting = max(engine.max_waiting, plan.waiting)
    engine.max_used = max(engine.max_used, plan.used_blocks)
    seconds = engine.clock - start
    point = engine.points - 1
    if point < 0 or points[point, 6] >= engine.steps_a_point:
        point += 1
        engine.points = point + 1
        points[point, 0] = start
        for column in range(1, 7):
            points[point, column] = 0.0
    row = points[point]
    row[1] += seconds
    row[2] += seconds * plan.running
    row[3] += seconds * plan.waiting
    row[4] += seconds * plan.used_blocks
    row[5] += plan.tokens
    row[6] += 1
    most = len(points) - 1
    if engine.points > most:
        for pair in range(most // 2):
            points[pair, 0] = points[2 * pair, 0]
            for column in range(1, 7):
                points[pair, column] = points[2 * pair, column] + points[2 * pair + 1, column]
        for column in range(7):
            points[most // 2, column] = points[most, column]
        engine.points = most // 2 + 1
        engine.steps_a_point *= 2
