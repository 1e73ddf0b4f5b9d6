"""Workloads whose every step SGLang's own scheduler decided, and the same steps by ours.

A scenario is one line of JSON. ``requests`` are rows of arrival step, abort step (0 for none),
prompt tokens, output tokens, ``max_new_tokens``, ``ignore_eos``, priority and block hashes.
``steps`` are rows of

- ``scheduled``: id, tokens and context of each scheduled request, in the scheduler's order,
- ``admitted``: id and tokens found in the cache of those that are scheduled for the first time,
- ``retracted``, ``finished`` and ``aborted``: ids,
- ``decided``: free and evictable tokens, requests that decode, requests that wait, whether nobody
  is let in before somebody leaves, and whether a prompt goes on, when the step had been decided,
- ``queue``: ids of those that wait, ``ratio``: the new token ratio while there are requests, then,
- ``tree``: runs in the tree, and a checksum of their places, holders and order of use, then,
- ``returned``: free and evictable tokens when its tokens had come back,
- ``fatal``: SGLang had no room for what it had let in and ended.

Step t: requests of that arrival step are added, those of that abort step end, the step is
decided, and its tokens return; with overlap those of the step before return.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from tokenroom.errors import WorkloadError
from tokenroom.serving.radix_cache import RadixSequence
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.sglang import SglangPlan, SglangScheduler
from tokenroom.serving.schedulers.sglang_config import SglangSchedulerConfig

OWN_TOKEN = 1 << 40
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


def checksum(rows: list[list[int]]) -> int:
    return crc32(json.dumps(rows).encode())


class Steps:
    """Collects the rows of ``steps`` alike for both schedulers, and says when to stop."""

    def __init__(self, requests: list[list[Any]]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.last_event = max(max(row[0], row[1]) for row in requests)
        self._idle = 0

    def add(self, **row: Any) -> bool:
        """Append a row; False once nothing can happen any more."""
        self.rows.append({name: value for name, value in row.items() if value})
        idle = not row["scheduled"] and not row["finished"] and len(self.rows) >= self.last_event
        self._idle = self._idle + 1 if idle else 0
        return self._idle < STUCK_AFTER and len(self.rows) < MOST_STEPS


def config_of(scenario: Scenario) -> SglangSchedulerConfig:
    config = dict(scenario["config"])
    return SglangSchedulerConfig(overlap_schedule=config.pop("overlap"), **config)


def replay(scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario as our scheduler decides them."""
    return Replay(scenario).run()


class Replay:
    def __init__(self, scenario: Scenario) -> None:
        self.rows = scenario["requests"]
        self.config = config_of(scenario)
        self.scheduler = SglangScheduler(self.config)
        self.steps = Steps(self.rows)
        self.known: dict[int, RadixSequence] = {}
        self.index_of: dict[int, int] = {}
        self.seen: set[int] = set()

    def run(self) -> list[dict[str, Any]]:
        scheduler, steps = self.scheduler, self.steps
        behind: SglangPlan | None = None
        while True:
            step = len(steps.rows) + 1
            if not self.known and behind is None and step > steps.last_event:
                return steps.rows
            aborted = self._arrive(step)
            before = {index: one.preemptions for index, one in self.known.items()}
            try:
                plan = scheduler.schedule()
            except WorkloadError:
                steps.rows.append({"fatal": True})
                return steps.rows
            row = self._decided(plan, before)
            if self.config.overlap_schedule:
                behind, due = (plan if plan.sequences else None), behind
            else:
                due = plan
            if due is not None and due.sequences:
                scheduler.complete(due)
            finished = sorted(index for index, one in self.known.items() if one.ended)
            for index in finished:
                del self.known[index]
            if not steps.add(aborted=aborted, **row, finished=finished, returned=self._sizes()):
                return steps.rows

    def _arrive(self, step: int) -> list[int]:
        aborted = []
        for index, (arrival, abort, prompt, output, most, forced, _, hashes) in enumerate(
            self.rows
        ):
            if arrival == step:
                sequence = self.scheduler.add(
                    Request(
                        id=index,
                        arrival_seconds=float(index),
                        prompt_tokens=prompt,
                        output_tokens=output,
                        block_hashes=tuple(hashes),
                    ),
                    max_new_tokens=most,
                    ignore_eos=bool(forced),
                )
                self.known[index] = sequence
                self.index_of[sequence.own_name] = index
            if abort == step and index in self.known:
                aborted.append(index)
                self.scheduler.abort(self.known[index])
        return aborted

    def _decided(self, plan: SglangPlan, before: dict[int, int]) -> dict[str, Any]:
        scheduler = self.scheduler
        admitted = []
        for sequence, context in zip(plan.sequences, plan.contexts, strict=True):
            if sequence.request.id not in self.seen:
                self.seen.add(sequence.request.id)
                admitted.append([sequence.request.id, context])
        return {
            "scheduled": [
                [sequence.request.id, tokens, context]
                for sequence, tokens, context in zip(
                    plan.sequences, plan.tokens, plan.contexts, strict=True
                )
            ],
            "admitted": admitted,
            "retracted": sorted(
                index for index, count in before.items() if self.known[index].preemptions > count
            ),
            "decided": [
                *self._sizes(),
                len(scheduler.running),
                len(scheduler.waiting),
                int(scheduler.full),
                int(scheduler.chunked is not None),
            ],
            "queue": [sequence.request.id for sequence in scheduler.waiting],
            "ratio": round(scheduler.ratio.value, 9) if self.known else 0,
            "tree": self._shape(),
        }

    def _sizes(self) -> list[int]:
        cache = self.scheduler.cache
        return [cache.free_tokens, cache.tree.evictable_tokens]

    def _shape(self) -> list[int]:
        if self.config.disable_radix_cache:
            return []
        found = sorted(
            [node.touched, node.end, self._first_token(node), node.start, node.end, node.locks]
            for node in self.scheduler.cache.tree.nodes()
        )
        return [len(found), checksum([row[2:] for row in found])]

    def _first_token(self, node: Any) -> int:
        block, past = divmod(node.start, self.config.name_tokens)
        if block < len(node.names):
            return node.names[block] * self.config.name_tokens + past
        return OWN_TOKEN * (self.index_of[node.own_name] + 1) + node.start
