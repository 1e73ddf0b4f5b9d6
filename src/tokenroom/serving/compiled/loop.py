"""Virtual time, compiled: requests enter, steps are decided and run, over and over.

The same as :func:`tokenroom.serving.simulator.simulate`. Between two events (a request enters,
ends, or loses its blocks; a prompt is computed) steps are alike, and :func:`repeat` runs them
without looking at each request: only the blocks that fill up are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tokenroom.serving.compiled.blocks import allocate
from tokenroom.serving.compiled.clock import by_counts, decoded, hosted, step_seconds
from tokenroom.serving.compiled.jit import called, entry, merged
from tokenroom.serving.compiled.schedule import (
    commit,
    complete,
    queue,
    schedule,
    stays_blocked,
)
from tokenroom.serving.compiled.state import (
    BEYOND_POOL,
    FINISHED,
    NEVER,
    NOBODY,
    NOT_YET,
    SERVED,
    TOO_LONG,
    WAITING,
    Core,
)
from tokenroom.serving.compiled.tally import emit, observe
from tokenroom.serving.step_table import REPLAYED, STARTED

DONE: Final = 0
"""Nothing is left to serve."""
WANTS_REQUESTS: Final = 1
"""The clock has come to where no more requests are known."""
WANTS_NODE: Final = 2
"""A step's time needs a node that is not computed."""
WANTS_ROOM: Final = 3
"""Records or times between tokens are to be taken out, or places for requests to be added."""
TELLS: Final = 4
"""Requests ended, and somebody waits for that."""
STUCK: Final = 5
"""Requests wait, and none can be scheduled."""


@entry
def advance(core: Core) -> int:
    """Serve until something is needed from outside; says what."""
    settings, engine = core.settings[0], core.engine[0]
    most = settings.max_num_seqs
    while True:
        if not engine.runs:
            if engine.clock >= engine.horizon:
                return WANTS_REQUESTS
            if len(core.gaps) - engine.gaps <= most + 1 or len(core.ended) - engine.ended <= most:
                return WANTS_ROOM
            if not enter(core):
                return WANTS_ROOM
            if settings.answers_awaited and engine.ended:
                return TELLS
            if not (engine.prepared or engine.running or engine.waiting):
                if not pass_time(core):
                    return DONE
                continue
            if repeat(core):
                continue
            schedule(core)
            if settings.ahead:
                engine.runs = engine.prepared
                engine.prepared = core.plans[engine.current].entries > 0
                engine.stalled = not (engine.runs or engine.prepared)
            else:
                engine.runs = core.plans[engine.current].entries > 0
                engine.stalled = not engine.runs
            if engine.stalled and not pass_time(core):
                return STUCK
        if engine.runs:
            if not run(core):
                return WANTS_NODE
            engine.runs = 0
            if settings.answers_awaited and engine.ended:
                return TELLS


@merged
def pass_time(core: Core) -> bool:
    """Wait for the next request; False where none comes."""
    engine = core.engine[0]
    until = engine.horizon
    if engine.entered < engine.coming:
        until = min(until, core.entering[engine.entered].enters)
    if until == np.inf:
        return False
    engine.clock = max(engine.clock, until)
    return True


@called
def enter(core: Core) -> bool:
    """Take in the requests that have reached the scheduler; False where there is no room."""
    settings, engine = core.settings[0], core.engine[0]
    while engine.entered < engine.coming and core.entering[engine.entered].enters <= engine.clock:
        if not engine.places or engine.ended >= len(core.ended) - settings.max_num_seqs:
            return False
        coming = core.entering[engine.entered]
        engine.entered += 1
        refused = refusal(settings, coming)
        if refused != SERVED:
            ended = core.ended[engine.ended]
            engine.ended += 1
            ended.id, ended.session, ended.arrival = coming.id, coming.session, coming.arrival
            ended.scheduled = ended.first_token = ended.finish = coming.arrival
            ended.prompt = coming.prompt
            ended.output = ended.cached = ended.preemptions = 0
            ended.refused = refused
            continue
        engine.places -= 1
        slot = core.places[engine.places]
        request = core.live[slot]
        request.id, request.session, request.arrival = coming.id, coming.session, coming.arrival
        request.scheduled = request.first_token = request.last_token = NOT_YET
        request.names, request.num_names = coming.names, coming.num_names
        request.named_blocks = coming.named_blocks
        request.name_tokens = coming.name_tokens
        request.prompt = request.tokens = coming.prompt
        request.last_tokens = min(coming.prompt + coming.output, settings.max_model_len)
        request.own_name = -1 - engine.names_given
        engine.names_given += request.last_tokens
        request.computed = request.in_flight = request.committed = request.blocks = 0
        request.hit_tokens = request.preemptions = 0
        request.commit_at = NEVER
        request.status = WAITING
        request.seat = NOBODY
        queue(engine, core.live, slot, False)
    return True


@merged
def refusal(settings: Any, coming: Any) -> int:
    """Why a request would not be served at all."""
    if coming.prompt >= settings.max_model_len:
        return TOO_LONG
    tokens = min(coming.prompt + coming.output, settings.max_model_len)
    size = settings.block_tokens
    return BEYOND_POOL if (tokens + size - 1) // size >= settings.num_blocks else SERVED


@called
def run(core: Core) -> bool:
    """Run the step that is next; False, with nothing done, where its time is not known yet."""
    engine, settings, live = core.engine[0], core.settings[0], core.live
    number = 1 - engine.current if settings.ahead else engine.current
    plan, entries = core.plans[number], core.entries[number]
    seconds = step_seconds(core, plan, entries)
    if seconds != seconds:
        return False
    start = engine.clock
    engine.clock = start + seconds
    for place in range(plan.entries):
        request = live[entries[place].slot]
        if request.scheduled == NOT_YET:
            request.scheduled = start
    finished = complete(core, plan, entries)
    emit(core, plan, entries)
    observe(core, start, plan)
    for place in range(plan.entries if finished else 0):
        slot = entries[place].slot
        if live[slot].status == FINISHED:
            record(core, slot)
    return True


@merged
def record(core: Core, slot: int) -> None:
    """Write down what became of a request, and give its place away."""
    engine, request = core.engine[0], core.live[slot]
    ended = core.ended[engine.ended]
    engine.ended += 1
    ended.id, ended.session, ended.arrival = request.id, request.session, request.arrival
    ended.scheduled, ended.first_token = request.scheduled, request.first_token
    ended.finish = request.last_token
    ended.prompt, ended.output = request.prompt, request.tokens - request.prompt
    ended.cached, ended.preemptions = request.hit_tokens, request.preemptions
    ended.refused = SERVED
    request.status = WAITING
    core.places[engine.places] = slot
    engine.places += 1


@merged
def alike_steps(core: Core) -> int:
    """For how many steps everything that runs gets one token each and nobody ends."""
    settings, engine, live = core.settings[0], core.engine[0], core.live
    ahead = settings.ahead
    if engine.running == 0 or engine.running > settings.budget or settings.block_tokens < 2:
        return 0
    if not core.plans[engine.current].decodes or (ahead and not engine.prepared):
        return 0
    if not stays_blocked(settings, engine):
        return 0
    steps = NEVER
    for index in range(engine.running):
        request = live[core.running[index]]
        if request.last_token != engine.ended_at:
            return 0
        if ahead:
            if request.tokens != request.computed:
                return 0
            steps = min(steps, request.last_tokens - 1 - request.computed)
        else:
            if request.tokens != request.computed + 1:
                return 0
            steps = min(steps, request.last_tokens - request.computed - 2)
    return steps


@called
def repeat(core: Core) -> bool:
    """Run steps in which everything that runs gets one token, as long as they stay alike.

    False, with nothing done, where the next step is not such a one or its time is not known.
    """
    settings, engine, live, nodes = core.settings[0], core.engine[0], core.live, core.nodes
    if engine.stalled:
        return False
    most = alike_steps(core)
    if most < 2:
        return False
    ahead, size, count = settings.ahead, settings.block_tokens, engine.running
    way = REPLAYED if settings.replays else STARTED
    fixed = by_counts(engine, nodes, way, count, count)
    contexts = 0
    for index in range(count):
        contexts += live[core.running[index]].computed
    if ahead:
        contexts -= count
    by_phase(core)
    plan = core.plans[engine.current]
    until = engine.horizon
    if engine.entered < engine.coming:
        until = min(until, core.entering[engine.entered].enters)
    listed = engine.listed
    steps = 0
    while steps < most and engine.clock < until and engine.gaps < len(core.gaps):
        # The step that runs was decided before (ahead) or is decided now.
        seconds = decoded(engine, nodes, way, count, contexts / count)
        seconds = hosted(settings, fixed + seconds, way, count, count, 0)
        phase = steps % size
        if seconds != seconds or core.phases[0, phase] > engine.free_blocks:
            break
        for number in range(core.phases[0, phase]):
            fill(core, core.phases[1 + number, phase], steps)
        if not ahead:
            name_filled(core, steps + 1)
            decide_alike(core, plan)
        start = engine.clock
        engine.clock = start + seconds
        gap = core.gaps[engine.gaps]
        engine.gaps += 1
        gap.seconds, gap.times = engine.clock - engine.ended_at, count
        engine.ended_at = engine.clock
        observe(core, start, plan)
        if ahead:
            decide_alike(core, plan)
        contexts += count
        steps += 1
        if engine.waiting and engine.listed != listed:
            break  # who waits may now find more of its prompt, or less
    for index in range(count if steps else 0):
        request = live[core.running[index]]
        request.computed += steps
        request.tokens += steps
        request.last_token = engine.ended_at
        core.entries[engine.current, index].context += steps
    return steps > 0


@merged
def decide_alike(core: Core, plan: Any) -> None:
    """What the engine looks like when a step like the one before is decided."""
    engine = core.engine[0]
    plan.tokens = engine.running
    plan.preempted = 0
    plan.used_blocks = core.settings[0].num_blocks - 1 - engine.free_blocks
    plan.running = engine.running
    plan.waiting = engine.waiting


@merged
def name_filled(core: Core, steps: int) -> None:
    """Name the blocks that a step fills, where that is known when it is decided."""
    settings = core.settings[0]
    phase = steps % settings.block_tokens
    for number in range(core.phases[0, phase] if settings.caches else 0):
        slot = core.phases[1 + number, phase]
        commit(core, slot, core.live[slot].computed + steps)


@merged
def by_phase(core: Core) -> None:
    """Sort who runs by the step, modulo a block's tokens, in which each needs a block."""
    settings, engine, live, phases = core.settings[0], core.engine[0], core.live, core.phases
    size = settings.block_tokens
    phases[0, :size] = 0
    for index in range(engine.running):
        slot = core.running[index]
        phase = -live[slot].computed % size
        phases[0, phase] += 1
        phases[phases[0, phase], phase] = slot


@merged
def fill(core: Core, slot: int, steps: int) -> None:
    """Give a request its next block, and ahead name the one that has just been filled."""
    settings, engine, request = core.settings[0], core.engine[0], core.live[slot]
    core.tables[request.seat, request.blocks] = allocate(engine, core.blocks, core.buckets)
    request.blocks += 1
    if settings.ahead and settings.caches:
        commit(core, slot, request.computed + steps)
