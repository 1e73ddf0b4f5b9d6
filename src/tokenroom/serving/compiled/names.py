"""The names of shared blocks of the requests in the engine: kept as long as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenroom.serving.compiled.jit import entry, merged
from tokenroom.serving.compiled.state import NOBODY, Core


def keep_names(core: Core, coming: Any, more: int) -> tuple[Any, int]:
    """Room for ``more`` names behind those that are still needed, and where it begins.

    Args:
        core: The engine; the places of its requests' names change where they are moved.
        coming: Requests that have not been taken in, changed likewise.
        more: Names to come.
    """
    kept = np.zeros(0, np.int64)
    used = gather(core, coming, kept)
    kept = np.zeros(used + more, np.int64)
    gather(core, coming, kept)
    return kept, used


@entry
def gather(core: Core, coming: Any, kept: Any) -> int:
    """Move names into ``kept``, or only count them where it is empty."""
    engine, live = core.engine[0], core.live
    used = 0
    for index in range(engine.running):
        used = move(core.names, live[core.running[index]], kept, used)
    slot = engine.first_waiting
    while slot != NOBODY:
        used = move(core.names, live[slot], kept, used)
        slot = live[slot].after
    for index in range(len(coming)):
        used = move(core.names, coming[index], kept, used)
    return used


@merged
def move(names: Any, request: Any, kept: Any, used: int) -> int:
    """Move the names of one request; gives where the next one's begin."""
    count = request.num_names
    if len(kept):
        for number in range(count):
            kept[used + number] = names[request.names + number]
        request.names = used
    return int(used + count)
