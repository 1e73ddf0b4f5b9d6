"""What a step runs, and what becomes of it: vLLM's scheduler over arrays.

The same as :class:`tokenroom.serving.schedulers.vllm.VllmScheduler`, first come first served, with
the part of :class:`tokenroom.serving.kv_cache_manager.KvCacheManager` that one group of full
attention needs.
"""

from __future__ import annotations

from typing import Any

from tokenroom.serving.compiled.blocks import (
    allocate,
    enlist,
    find,
    release,
    touch,
)
from tokenroom.serving.compiled.jit import called, merged
from tokenroom.serving.compiled.state import (
    FINISHED,
    NEVER,
    NOBODY,
    OWN,
    PREEMPTED,
    RUNNING,
    WAITING,
    Core,
)


@merged
def queue(engine: Any, live: Any, slot: int, front: bool) -> None:
    """Let a request wait: at the end, or before all others."""
    engine.waiting += 1
    if engine.waiting == 1:
        live[slot].before = live[slot].after = NOBODY
        engine.first_waiting = engine.last_waiting = slot
    elif front:
        live[slot].before = NOBODY
        live[slot].after = engine.first_waiting
        live[engine.first_waiting].before = slot
        engine.first_waiting = slot
    else:
        live[slot].after = NOBODY
        live[slot].before = engine.last_waiting
        live[engine.last_waiting].after = slot
        engine.last_waiting = slot


@merged
def leave_queue(engine: Any, live: Any, slot: int) -> None:
    """Let a request wait no longer."""
    engine.waiting -= 1
    before, after = live[slot].before, live[slot].after
    if before == NOBODY:
        engine.first_waiting = after
    else:
        live[before].after = after
    if after == NOBODY:
        engine.last_waiting = before
    else:
        live[after].before = before


@merged
def block_name(request: Any, names: Any, size: int, index: int) -> int:
    """The name of a request's block: one that others may have, or its own.

    Names of blocks of other sizes than the engine's are those of
    :func:`tokenroom.serving.workloads.block_names.renamed_blocks`.
    """
    if index >= request.named_blocks:
        return int(2 * (request.own_name - index) + 1)
    end = (index + 1) * size
    per_name = request.name_tokens
    number = (end - 1) // per_name
    return int(2 * (names[request.names + number] * per_name + end - 1 - number * per_name))


@called
def hit_blocks(core: Core, slot: int) -> int:
    """How many blocks of a waiting request are in the cache, at most all but the last token's."""
    settings, request = core.settings[0], core.live[slot]
    if not settings.caches or not (request.named_blocks or request.preemptions):
        return 0
    size = settings.block_tokens
    most = (request.tokens - 1) // size
    found = 0
    while found < most and find(
        core.blocks, core.buckets, block_name(request, core.names, size, found)
    ):
        found += 1
    return found


@called
def commit(core: Core, slot: int, computed: int) -> None:
    """Name the blocks that are full with so many tokens computed."""
    settings, engine, request = core.settings[0], core.engine[0], core.live[slot]
    size = settings.block_tokens
    blocks = core.blocks
    for index in range(request.committed, computed // size):
        block = core.tables[request.seat, index]
        if index < request.named_blocks:
            name = block_name(request, core.names, size, index)
            enlist(engine, blocks, core.buckets, block, name)
        else:
            blocks[block].kind = OWN
    request.committed = computed // size
    request.commit_at = (computed // size + 1) * size


@merged
def grow(core: Core, slot: int, room: int) -> None:
    """Give a request blocks for so many tokens; there are enough."""
    engine, request = core.engine[0], core.live[slot]
    size = core.settings[0].block_tokens
    for index in range(request.blocks, (room + size - 1) // size):
        core.tables[request.seat, index] = allocate(engine, core.blocks, core.buckets)
        request.blocks = index + 1


@called
def enlist_own(core: Core, slot: int) -> None:
    """List the names that only a request itself looks for: it was preempted and comes back."""
    engine, request, blocks = core.engine[0], core.live[slot], core.blocks
    size = core.settings[0].block_tokens
    for index in range(request.named_blocks, request.committed):
        block = core.tables[request.seat, index]
        if blocks[block].kind == OWN:
            name = block_name(request, core.names, size, index)
            enlist(engine, blocks, core.buckets, block, name)


@called
def free(core: Core, slot: int) -> None:
    """Take back the blocks of a request, and its seat."""
    engine, request = core.engine[0], core.live[slot]
    table = core.tables[request.seat]
    if request.status == PREEMPTED:
        enlist_own(core, slot)
    release(engine, core.blocks, table, request.blocks)
    core.seats[engine.seats] = request.seat
    engine.seats += 1
    request.seat = NOBODY
    request.blocks = request.committed = 0
    request.commit_at = NEVER


@merged
def extend(core: Core, slot: int, end: int) -> bool:
    """Give a running request room for its tokens up to ``end``, if there is room."""
    settings, engine, request = core.settings[0], core.engine[0], core.live[slot]
    size = settings.block_tokens
    room = min(end, settings.max_model_len)
    more = (room + size - 1) // size - request.blocks
    if more > 0:
        if more > engine.free_blocks:
            return False
        grow(core, slot, room)
    if min(end, request.tokens) >= request.commit_at:
        commit(core, slot, min(end, request.tokens))
    return True


@called
def admit(core: Core, slot: int, new: int, hits: int) -> bool:
    """Give a waiting request what it hit and room for its first tokens, if there is room."""
    settings, engine, request = core.settings[0], core.engine[0], core.live[slot]
    size = settings.block_tokens
    free_blocks = engine.free_blocks - (settings.spare_blocks if engine.running else 0)
    tokens = min(request.tokens if settings.whole else hits * size + new, settings.max_model_len)
    wanted = max((tokens + size - 1) // size - hits, 0)
    if wanted > free_blocks:
        return False
    blocks = core.blocks
    for index in range(hits):  # what it hit may be free: it then leaves the queue
        name = block_name(request, core.names, size, index)
        wanted += not blocks[find(blocks, core.buckets, name)].holders
    if wanted > free_blocks:
        return False
    engine.seats -= 1
    request.seat = core.seats[engine.seats]
    for index in range(hits):
        name = block_name(request, core.names, size, index)
        block = find(blocks, core.buckets, name)
        touch(engine, blocks, block)
        core.tables[request.seat, index] = block
    request.blocks = request.committed = hits
    request.commit_at = (hits + 1) * size if settings.caches else NEVER
    end = hits * size + new
    grow(core, slot, min(end, settings.max_model_len))
    if min(end, request.tokens) >= request.commit_at:
        commit(core, slot, min(end, request.tokens))
    return True


@called
def schedule(core: Core) -> None:
    """Decide the next step: running requests first, then waiting ones, as tokens remain."""
    settings, engine = core.settings[0], core.engine[0]
    engine.current = 1 - engine.current
    engine.blocked = NOBODY
    plan, entries = core.plans[engine.current], core.entries[engine.current]
    plan.entries = plan.tokens = plan.preempted = 0
    plan.decodes = 1
    unfinished = engine.running + engine.waiting
    threshold = settings.threshold
    if threshold and unfinished == 1:
        threshold = 0
    elif threshold and settings.adaptive and unfinished:
        threshold = max(threshold, settings.max_num_batched_tokens // unfinished)
    budget = schedule_running(core, plan, entries, settings.budget, threshold)
    if not plan.preempted and budget and engine.waiting:
        schedule_waiting(core, plan, entries, budget, threshold)
    plan.decodes = plan.decodes and plan.entries == engine.running
    plan.used_blocks = settings.num_blocks - 1 - engine.free_blocks
    plan.running = engine.running
    plan.waiting = engine.waiting


@merged
def enter_plan(plan: Any, entries: Any, request: Any, slot: int, end: int, ahead: int) -> None:
    """Let a step compute a request's tokens up to ``end``."""
    entry = entries[plan.entries]
    entry.slot = slot
    entry.tokens = end - request.computed
    entry.context = request.computed
    entry.silent = end < request.tokens
    plan.entries += 1
    plan.tokens += entry.tokens
    if entry.tokens != 1 or entry.silent:
        plan.decodes = 0
    if ahead:
        request.in_flight += entry.tokens
    request.computed = end


@merged
def schedule_running(core: Core, plan: Any, entries: Any, budget: int, threshold: int) -> int:
    """Schedule running requests; returns the tokens that remain."""
    engine, live, running = core.engine[0], core.live, core.running
    ahead = core.settings[0].ahead
    index = 0
    while index < engine.running and budget:
        slot = running[index]
        request = live[slot]
        context = request.computed
        new = min(max(request.tokens, context + 1), request.last_tokens - 1) - context
        if threshold:
            new = min(new, threshold)
        end = context + min(new, budget)
        index += 1
        if end <= context:
            continue
        while not extend(core, slot, end):
            if preempt_last(core, plan) == slot:
                return budget
        enter_plan(plan, entries, request, slot, end, ahead)
        budget -= end - context
    return budget


@merged
def preempt_last(core: Core, plan: Any) -> int:
    """Take the blocks of the request that is served last; returns it."""
    engine = core.engine[0]
    engine.running -= 1
    slot = core.running[engine.running]
    request = core.live[slot]
    request.status = PREEMPTED
    free(core, slot)
    request.computed = 0
    request.preemptions += 1
    queue(engine, core.live, slot, True)
    plan.preempted += 1
    plan.decodes = 0
    return int(slot)


@merged
def schedule_waiting(core: Core, plan: Any, entries: Any, budget: int, threshold: int) -> None:
    """Let waiting requests in."""
    settings, engine = core.settings[0], core.engine[0]
    size = settings.block_tokens
    while budget and engine.waiting and engine.running < settings.max_num_seqs:
        slot = engine.first_waiting
        request = core.live[slot]
        hits = hit_blocks(core, slot)
        new = request.tokens - hits * size
        if threshold and new > threshold:
            new = threshold
        if new > budget:
            if not settings.chunks:
                block(engine, slot)
                break
            new = budget
        if not admit(core, slot, new, hits):
            block(engine, slot)
            break
        leave_queue(engine, core.live, slot)
        core.running[engine.running] = slot
        engine.running += 1
        if request.status == WAITING:
            request.hit_tokens = hits * size
        request.status = RUNNING
        request.computed = hits * size
        enter_plan(plan, entries, request, slot, hits * size + new, settings.ahead)
        plan.decodes = 0
        budget -= new


@merged
def block(engine: Any, slot: int) -> None:
    """Note who was not let in, and what that depended on."""
    engine.blocked = slot
    engine.blocked_free = engine.free_blocks
    engine.blocked_listed = engine.listed


@merged
def stays_blocked(settings: Any, engine: Any) -> bool:
    """Whether nobody who waits would be let in by the next decision either.

    Where whole prompts must fit, whoever did not fit does not fit with fewer free blocks and as
    much of the prompt in the cache: one found block less is one more to be taken.
    """
    if not engine.waiting or engine.running >= settings.max_num_seqs:
        return True
    return (
        bool(settings.whole)
        and engine.blocked == engine.first_waiting
        and engine.blocked_listed == engine.listed
        and engine.free_blocks <= engine.blocked_free
    )


@called
def complete(core: Core, plan: Any, entries: Any) -> int:
    """Take in the tokens of a step, in the order of scheduling; how many requests it finished.

    Those have the status of it; :func:`dismiss` lets them go.
    """
    settings, engine, live = core.settings[0], core.engine[0], core.live
    finished = 0
    for place in range(plan.entries):
        entry = entries[place]
        slot = entry.slot
        request = live[slot]
        if settings.ahead:
            request.in_flight -= entry.tokens
        elif request.status != RUNNING:
            continue
        if entry.silent:
            continue
        request.tokens += 1
        last = request.tokens >= request.last_tokens
        if request.status == RUNNING:
            if settings.ahead and request.tokens > request.commit_at:
                commit(core, slot, request.tokens - 1)
        elif last:  # preempted while its last token was in flight, which returns all the same
            leave_queue(engine, live, slot)
        if last:
            if request.seat != NOBODY:
                free(core, slot)
            request.status = FINISHED
            finished += 1
    if finished:
        kept = 0
        for index in range(engine.running):
            slot = core.running[index]
            if live[slot].status == RUNNING:
                core.running[kept] = slot
                kept += 1
        engine.running = kept
    return finished
