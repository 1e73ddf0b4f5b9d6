"""Requests to a llama-server one after another, and the same to ours.

A scenario has ``config`` (settings of llama-server), ``requests`` (rows of prompt tokens, output
tokens and names of blocks that others share), ``events`` (``start`` a request and go on when its
first token is out or it waits, ``wait`` for its end) and ``answers`` (the slot of each request and
the tokens of its prompt that were not computed). Requests that must outlast others have answers of
hundreds of tokens, so that the order of events does not depend on how fast a machine is.

This module needs the standard library alone where scenarios are made, so that they can be played in
another Python than ours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

BLOCK = 16
MIB = 1024**2
TOKEN_BYTES = 2 * 2 * 64 * 2  # keys and values of two layers of 64, two bytes each
LONG = 400
DRAWN = 24

Scenario = dict[str, Any]

USUAL = {
    "n_parallel": 4,
    "n_ctx": 8192,
    "kv_unified": True,
    "cache_prompt": True,
    "slot_prompt_similarity": 0.1,
    "cache_ram_mib": 64,
    "cache_idle_slots": True,
}


def one_by_one(name: str, requests: list[list[Any]], **config: Any) -> Scenario:
    events = [[what, index] for index in range(len(requests)) for what in ("start", "wait")]
    return {
        "name": name,
        "config": USUAL | config,
        "requests": requests,
        "events": events,
    }


def scenarios() -> Iterator[Scenario]:
    """Scenarios made for one behaviour each, then drawn ones."""
    apart = [[64 + 16 * index, 5, []] for index in range(6)]
    again = [[80, 9, [1, 2, 3, 4]], [80, 9, [1, 2, 3, 4]], [100, 9, [1, 2]], [80, 3, [1, 2, 3, 4]]]
    plain = {"cache_ram_mib": 0, "kv_unified": False}
    yield one_by_one("slots in turn", apart, **plain)
    yield one_by_one("the same prefix", again, **plain)
    yield one_by_one("the same prefix in a shared cache", again)
    yield one_by_one("prefixes kept by slots that stay", again, cache_idle_slots=False)
    yield one_by_one("nothing is kept", again, cache_prompt=False)
    yield one_by_one("never by likeness", again, slot_prompt_similarity=0.0, **plain)
    yield one_by_one("only when most of it is alike", again, slot_prompt_similarity=0.6, **plain)
    yield one_by_one("whole prompts", [[64, 4, [1, 2, 3, 4]]] * 3, **plain)
    yield one_by_one("whole prompts in a shared cache", [[64, 4, [1, 2, 3, 4]]] * 3)
    small = [[16 * 1024 // 4, 4, list(range(1, 250))], [2000, 4, list(range(300, 420))]]
    yield one_by_one("host memory for little", (small + small) * 2, cache_ram_mib=1)
    yield {
        "name": "more requests than slots",
        "config": USUAL | plain | {"n_parallel": 2},
        "requests": [
            *([64, LONG, [1, 2, 3, 4]], [64, 2 * LONG, [5, 6, 7, 8]], [80, 9, [5, 6, 7, 8]]),
            *([80, 9, [1, 2, 3, 4]], [90, 9, []], [64, 9, [1, 2, 3]]),
        ],
        "events": [
            *[["start", index] for index in range(6)],
            *[["wait", index] for index in range(6)],
        ],
    }
    yield {
        "name": "slots that work are passed over",
        "config": USUAL | plain,
        "requests": [
            *([64, LONG, [1, 2, 3, 4]], [64, 9, [1, 2, 3, 4]], [64, 9, [1, 2, 3, 4]]),
            [64, 9, []],
        ],
        "events": [
            *(["start", 0], ["start", 1], ["wait", 1], ["start", 2], ["wait", 2]),
            *(["start", 3], ["wait", 3], ["wait", 0]),
        ],
    }
    for seed in range(DRAWN):
        yield _drawn(seed)


def _drawn(seed: int) -> Scenario:
    draw = random.Random(seed)
    config = {
        "n_parallel": draw.choice((1, 2, 4)),
        "n_ctx": 8192,
        "kv_unified": draw.random() < 0.5,
        "cache_prompt": draw.random() < 0.9,
        "slot_prompt_similarity": draw.choice((0.0, 0.1, 0.1, 0.5)),
        "cache_ram_mib": draw.choice((0, 1, 64)),
        "cache_idle_slots": draw.random() < 0.7,
    }
    families = [[100 * family + block for block in range(40)] for family in range(1, 5)]
    requests = []
    for _ in range(draw.randint(6, 12)):
        shared = draw.randint(0, 30)
        prompt = BLOCK * shared + draw.randint(1, 200)
        requests.append([prompt, draw.randint(1, 20), draw.choice(families)[:shared]])
    return one_by_one(f"drawn {seed}", requests, **config)


def replay(scenario: Scenario) -> list[list[int]]:
    """Slot and cached tokens of each request, as our slots take them."""
    from tokenroom.serving.request import Request
    from tokenroom.serving.schedulers.llama_cpp import LlamaCppScheduler, LlamaCppSchedulerConfig
    from tokenroom.serving.sequence import Sequence

    config = dict(scenario["config"])
    ram = config.pop("cache_ram_mib") * MIB
    each = config["n_ctx"] if config["kv_unified"] else config["n_ctx"] // config["n_parallel"]
    at = LlamaCppScheduler(
        LlamaCppSchedulerConfig(
            n_ctx_slot=each, cache_ram_bytes=ram, token_bytes=TOKEN_BYTES, **config
        )
    )
    sequences: dict[int, Sequence] = {}
    slots: dict[int, int] = {}

    def step() -> None:
        plan = at.schedule()
        for slot in at.slots:
            if slot.sequence is not None:
                slots[slot.sequence.request.id] = slot.id
        at.complete(plan)

    for what, index in scenario["events"]:
        if what == "start":
            prompt, output, hashes = scenario["requests"][index]
            sequences[index] = at.add(
                Request(
                    id=index,
                    arrival_seconds=0,
                    prompt_tokens=prompt,
                    output_tokens=output,
                    block_hashes=tuple(hashes),
                )
            )
            step()
            while sequences[index].tokens == prompt and sequences[index] not in at.deferred:
                step()
        else:
            while not sequences[index].ended:
                step()
    return [
        [slots[index], sequences[index].hit_tokens or 0]
        for index in range(len(scenario["requests"]))
    ]
