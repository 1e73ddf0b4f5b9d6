"""Workloads whose every step vLLM's own scheduler decided, and the same steps by ours.

A scenario is one line of JSON. ``requests`` are rows of arrival step, abort step (0 for none),
prompt tokens, output tokens, priority and block hashes; where tokens are drafted also how many of
them are kept, in a list that is read by the tokens a request has, over and over; where KV moves
between engines, in how many steps it has been read, or is there. ``steps`` are rows of

- ``scheduled``: id and tokens of each scheduled request, in the scheduler's order,
- ``loads`` and ``stores``: number and blocks of each transfer from and to the host,
- ``awaited`` and ``moved``: transfers that had to end before the step, and that ended by its end,
- ``drafted``: id and drafted tokens among those,
- ``admitted`` and ``resumed``: id and tokens found in the cache,
- ``preempted``, ``finished`` and ``aborted``: ids,
- ``decided`` and ``returned``: free blocks, running and waiting requests when the step had been
  decided, and when its tokens had come back,
- ``tables``: a checksum of the block tables of the scheduled requests and of the free queue.

Step t: requests of that arrival step are added, those of that abort step end, the step is
decided, and its tokens return; under asynchronous scheduling those of the step before return, and
over several ``stages`` those of as many steps before as are under way.
"""

from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmDrafts, VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.schedulers.vllm_drafting import DraftingScheduler
from tokenroom.serving.schedulers.vllm_offloading import OffloadingScheduler, VllmOffloadingConfig
from tokenroom.serving.schedulers.vllm_pipeline import VllmPipelineConfig, VllmPipelineScheduler
from tokenroom.serving.schedulers.vllm_transfers import VllmDecodeScheduler, VllmPrefillScheduler
from tokenroom.serving.sequence import Sequence

STUCK_AFTER = 4
MOST_STEPS = 3000

Scenario = dict[str, Any]


def read(path: Path) -> Iterator[Scenario]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def write(path: Path, scenarios: Iterable[Scenario]) -> None:
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in scenarios)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def config_of(scenario: Scenario) -> VllmSchedulerConfig:
    config = dict(scenario["config"])
    groups = tuple(
        KvGroup(kind=Kind(kind), block_tokens=size, window_tokens=window)
        for kind, size, window in config.pop("groups")
    )
    if (offload := config.pop("offload", None)) is not None:
        host = {name: value for name, value in offload.items() if name != "durations"}
        return VllmOffloadingConfig(groups=groups, **config, **host)
    if (drafts := config.pop("drafts", None)) is not None:
        reread = tuple(drafts["reread_groups"])
        config["drafts"] = VllmDrafts(**{**drafts, "reread_groups": reread})
    config.pop("kv_role", None)
    kind = VllmPipelineConfig if "stages" in config else VllmSchedulerConfig
    return kind(groups=groups, **config)


def due_of(moving: list[tuple[int, int]], step: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Requests whose KV has moved by the end of a step, and what is still to move."""
    due = [index for at, index in moving if at <= step]
    return due, [one for one in moving if one[0] > step]


def under_way(config: dict[str, Any]) -> int:
    """Steps that are decided and not done when the oldest of them returns."""
    if "stages" in config:
        return int(config["stages"] + config["staggers"])
    return 2 if config["async_scheduling"] else 1


def kept(row: list[Any], tokens: int) -> int:
    """How many tokens, drafted to follow so many of a request, are kept."""
    outcomes = row[6]
    return int(outcomes[tokens % len(outcomes)])


def scheduler_of(scenario: Scenario) -> VllmScheduler:
    config, rows = config_of(scenario), scenario["requests"]
    if (role := scenario["config"].get("kv_role")) is not None:
        return (
            VllmPrefillScheduler(config) if role == "kv_producer" else VllmDecodeScheduler(config)
        )
    if isinstance(config, VllmPipelineConfig):
        return VllmPipelineScheduler(config)
    if isinstance(config, VllmOffloadingConfig):
        return OffloadingScheduler(config)
    if config.drafts is None:
        return VllmScheduler(config)
    return DraftingScheduler(config, lambda request, tokens: kept(rows[request.id], tokens))


def checksum(tables: list[list[list[int]]], free: list[int]) -> int:
    return crc32(json.dumps([tables, free]).encode())


class Host:
    """What moves blocks to and from the host: each transfer takes so many steps, in turn.

    It keeps the order of vLLM's worker: what is awaited is done first, what was decided to be
    stored in one step is begun with the next.
    """

    def __init__(self, durations: list[int]) -> None:
        self._durations = durations
        self._unsubmitted: list[int] = []
        self._left: dict[int, int] = {}

    def step(self, loads: list[int], stores: list[int], awaited: Iterable[int]) -> list[int]:
        """Let a step pass; gives the transfers that ended with it."""
        at_once = [job for job in stores if job in awaited]
        for job in (*self._unsubmitted, *at_once, *loads):
            self._left[job] = self._durations[job % len(self._durations)]
        self._unsubmitted = [job for job in stores if job not in at_once]
        for job in self._left.keys() & set(awaited):  # others have ended meanwhile
            self._left[job] = 0
        ended = [job for job, left in self._left.items() if not left]
        self._left = {job: left - 1 for job, left in self._left.items() if left}
        return ended


class Steps:
    """Collects the rows of ``steps`` alike for both schedulers, and says when to stop."""

    def __init__(self, requests: list[list[Any]]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.last_event = max(max(row[0], row[1]) for row in requests)
        self._idle = 0

    def add(self, **row: Any) -> bool:
        """Append a row; False once nothing can happen any more."""
        self.rows.append({name: value for name, value in row.items() if value and name != "moving"})
        idle = not row["scheduled"] and not row["finished"] and len(self.rows) >= self.last_event
        idle = idle and not row.get("moving")
        self._idle = self._idle + 1 if idle else 0
        return self._idle < STUCK_AFTER and len(self.rows) < MOST_STEPS


def replay(scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario as our scheduler decides them."""
    scheduler = scheduler_of(scenario)
    config = scheduler.config
    rows = scenario["requests"]
    steps = Steps(rows)
    host = Host(scenario["config"].get("offload", {}).get("durations", [0]))
    sequences: dict[int, Sequence] = {}
    behind: deque[StepPlan] = deque()
    moving: list[tuple[int, int]] = []
    while True:
        step = len(steps.rows) + 1
        for index, (arrival, _, prompt, output, priority, hashes, *_) in enumerate(rows):
            if arrival == step:
                sequences[index] = scheduler.add(
                    Request(
                        id=index,
                        arrival_seconds=float(index),
                        prompt_tokens=prompt,
                        output_tokens=output,
                        priority=priority,
                        block_hashes=tuple(hashes),
                    )
                )
        aborted = [
            index
            for index, row in enumerate(rows)
            if row[1] == step and index in sequences and not sequences[index].ended
        ]
        for index in aborted:
            scheduler.abort(sequences[index])
        under_move = isinstance(scheduler, OffloadingScheduler) and scheduler.is_moving
        done = not scheduler.unfinished and not under_move and not moving
        if done and step >= steps.last_event and not behind:
            return steps.rows
        plan = scheduler.schedule()
        if isinstance(scheduler, VllmDecodeScheduler):
            given = [sequence.request.id for sequence, _ in scheduler.wanted()]
            moving += [(step + rows[index][6], index) for index in given]
        decided = [config.num_blocks - 1 - plan.used_blocks, plan.num_running, plan.num_waiting]
        tables = checksum(
            [sequence.blocks for sequence in plan.sequences],
            list(scheduler.kv.pool.free_blocks()),
        )
        behind.append(plan)
        due = behind.popleft() if len(behind) == under_way(scenario["config"]) else None
        if due is not None and (transfers := due.transfers) is not None:
            transfers.ended += host.step(
                [load.job for load in transfers.loads],
                [store.job for store in transfers.stores],
                sorted(transfers.awaited),
            )
        finished = scheduler.complete(due) if due is not None else []
        if due is not None:
            read, moving = due_of(moving, step)
            for index in read:
                if isinstance(scheduler, VllmDecodeScheduler):
                    scheduler.arrived(sequences[index])
                elif isinstance(scheduler, VllmPrefillScheduler):
                    scheduler.release(sequences[index])
        if isinstance(scheduler, VllmPrefillScheduler):
            ended = sorted(sequence.request.id for sequence in finished)
            moving += [(step + rows[index][6], index) for index in ended]
        moves = plan.transfers
        more = steps.add(
            scheduled=[
                [sequence.request.id, tokens]
                for sequence, tokens in zip(plan.sequences, plan.tokens, strict=True)
            ],
            drafted=[[sequence.request.id, tokens] for sequence, tokens in plan.drafted.items()],
            loads=[list(load) for load in moves.loads] if moves else [],
            stores=[list(store) for store in moves.stores] if moves else [],
            awaited=sorted(moves.awaited) if moves else [],
            moved=sorted(due.transfers.ended) if due is not None and due.transfers else [],
            admitted=[_hit(plan, sequence) for sequence in plan.admitted],
            resumed=[_hit(plan, sequence) for sequence in plan.resumed],
            preempted=[sequence.request.id for sequence in plan.preempted],
            finished=sorted(sequence.request.id for sequence in finished),
            aborted=aborted,
            decided=decided,
            returned=[
                scheduler.kv.pool.num_free,
                len(scheduler.running),
                scheduler.unfinished - len(scheduler.running),
            ],
            tables=tables,
            moving=isinstance(scheduler, OffloadingScheduler) and scheduler.is_moving,
        )
        if not more:
            return steps.rows
        if not plan.sequences and not scheduler.unfinished and plan.transfers is None:
            behind.clear()


def _hit(plan: Any, sequence: Sequence) -> list[int]:
    return [sequence.request.id, plan.contexts[plan.sequences.index(sequence)]]
