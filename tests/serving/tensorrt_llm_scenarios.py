"""Workloads whose every step TensorRT-LLM's own policies decided, and the same steps by ours.

A scenario is one line of JSON. ``requests`` are rows of arrival step, prompt tokens, output tokens
and names of shared blocks. ``steps`` are rows of

- ``scheduled``: id, tokens and the context before them of each scheduled request, in order,
- ``paused`` and ``finished``: ids,
- ``free``: free blocks when the step had been decided.

Step t: requests of that arrival step are fetched as far as there is room, the step is decided, and
its tokens return; with overlap those of the step before return.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Scenario = dict[str, Any]

MOST_STEPS = 2000
BLOCK = 8
LONGEST = 96


def read(path: Path) -> Iterator[Scenario]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def write(path: Path, scenarios: Iterable[Scenario]) -> None:
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in scenarios)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def drawn(seed: int) -> Scenario:
    """A workload without its steps."""
    draw = random.Random(seed)
    chunked = draw.random() < 0.5
    config = {
        "num_blocks": LONGEST // BLOCK + draw.choice((0, 2, 6, 15, 40)),
        "tokens_per_block": BLOCK,
        "max_seq_len": LONGEST,
        "max_batch_size": draw.choice((2, 5, 16)),
        "max_num_tokens": draw.choice((24, 40, 100) if chunked else (LONGEST, 150)),
        "enable_block_reuse": draw.random() < 0.7,
        "enable_chunked_prefill": chunked,
        "capacity_scheduler_policy": draw.choice(
            (*["GUARANTEED_NO_EVICT"] * 2, *["MAX_UTILIZATION"] * 3, "STATIC_BATCH")
        ),
        "context_chunking_policy": draw.choice(("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS")),
        "enable_prefix_aware_scheduling": draw.random() < 0.8,
        "credits_reuse": draw.random() < 0.8,
        "overlaps": draw.random() < 0.6,
    }
    requests = []
    step = 1
    for _ in range(draw.randint(1, 24)):
        step += draw.choice((0, 0, 0, 1, 7))
        prompt = draw.randint(1, draw.choice((30, LONGEST - 1)))
        if draw.random() < 0.2:
            prompt -= prompt % BLOCK
            prompt = max(prompt, BLOCK)
        family = draw.randint(0, 3)
        shared = draw.randint(0, prompt // BLOCK) if family else 0
        if family and draw.random() < 0.3:
            shared = prompt // BLOCK
        output = min(draw.randint(1, 70), LONGEST - prompt)
        requests.append([step, prompt, output, [1000 * family + block for block in range(shared)]])
    return {"name": f"drawn {seed}", "config": config, "requests": requests}


def replay(scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario as our scheduler decides them."""
    from tokenroom.serving.request import Request
    from tokenroom.serving.schedulers.tensorrt_llm import TensorRtLlmScheduler
    from tokenroom.serving.schedulers.tensorrt_llm_config import (
        CapacityPolicy,
        ChunkingPolicy,
        TensorRtLlmSchedulerConfig,
    )

    config = dict(scenario["config"])
    at = TensorRtLlmScheduler(
        TensorRtLlmSchedulerConfig(
            capacity_scheduler_policy=CapacityPolicy(config.pop("capacity_scheduler_policy")),
            context_chunking_policy=ChunkingPolicy(config.pop("context_chunking_policy")),
            **config,
        )
    )
    rows: list[dict[str, Any]] = []
    behind = None
    last = max(row[0] for row in scenario["requests"])
    while len(rows) < MOST_STEPS:
        step = len(rows) + 1
        for index, (arrival, prompt, output, names) in enumerate(scenario["requests"]):
            if arrival == step:
                at.add(
                    Request(
                        id=index,
                        arrival_seconds=0,
                        prompt_tokens=prompt,
                        output_tokens=output,
                        block_hashes=tuple(names),
                    )
                )
        if not at.unfinished and step > last and behind is None:
            break
        plan = at.schedule()
        free = at.blocks.tree.num_free
        if config["overlaps"]:
            behind, due = (plan if plan.sequences else None), behind
        else:
            due = plan
        finished = at.complete(due) if due is not None else []
        rows.append(
            {
                "scheduled": [
                    [sequence.request.id, tokens, context]
                    for sequence, tokens, context in zip(
                        plan.sequences, plan.tokens, plan.contexts, strict=True
                    )
                ],
                "paused": [sequence.request.id for sequence in plan.preempted],
                "finished": sorted(sequence.request.id for sequence in finished),
                "free": free,
            }
        )
    return rows
