"""One run of the compiled engine: its memory, and what it asks of Python as it goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tokenroom.errors import WorkloadError
from tokenroom.serving.compiled import loop
from tokenroom.serving.compiled.clock import COEFFICIENTS, DECODING, OUTPUTS, TOKENS
from tokenroom.serving.compiled.names import keep_names
from tokenroom.serving.compiled.sources import Batch, Source
from tokenroom.serving.compiled.state import (
    BLOCK,
    ENDED,
    ENGINE,
    ENTERING,
    ENTRY,
    GAP,
    LIVE,
    NOBODY,
    NOT_YET,
    PLAN,
    SETTINGS,
    Core,
    StepNodes,
)
from tokenroom.serving.metrics import POINTS
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.step_table import CHUNKS, COUNTS, StepTable, place

_ROOM: Final = 1 << 15
"""Records and times between tokens that are kept before they are taken out."""
_FEW: Final = 1024
_WANTED: Final = 64
"""Nodes of step times that are asked for at a time."""


class CompiledEngine:
    """A vLLM scheduler and its clock over arrays.

    Attributes:
        core: Its memory.

    Args:
        config: The scheduler's settings; :func:`.coverage.covers` them.
        table: How long steps take.
        answers_awaited: Somebody has to hear at once when a request ends.
    """

    def __init__(
        self, config: VllmSchedulerConfig, table: StepTable, *, answers_awaited: bool = False
    ) -> None:
        self._table = table
        self.core = _core(config, table, answers_awaited)

    def serve(self, source: Source, gaps: Callable[[Any], object]) -> Iterator[Any]:
        """Serve requests; gives :data:`~.state.ENDED` of those that end, some at a time.

        Args:
            source: They.
            gaps: Takes :data:`~.state.GAP` of the steps that have run, some at a time.

        Raises:
            WorkloadError: Requests wait that can never be scheduled.
        """
        while True:
            state = loop.advance(self.core)
            engine = self.core.engine[0]
            if state == loop.WANTS_NODE:
                self._fill_nodes()
                continue
            if engine["gaps"] and state != loop.TELLS:
                gaps(self.core.gaps[: engine["gaps"]])
                engine["gaps"] = 0
            if engine["ended"]:
                done = self.core.ended[: engine["ended"]].copy()
                engine["ended"] = 0
                source.ended(done, float(engine["clock"]))
                yield done
            if state == loop.DONE:
                return
            if state == loop.STUCK:
                waiting = engine["running"] + engine["waiting"]
                raise WorkloadError(
                    f"{waiting} requests wait and none can be scheduled; the engine "
                    "would hang: give it a larger KV pool or step budget"
                )
            if state == loop.WANTS_REQUESTS or state == loop.TELLS:
                self._take(source.take(float(engine["clock"])))
            elif not engine["places"]:
                self._add_places()

    @property
    def clock(self) -> float:
        """The time, in seconds."""
        return float(self.core.engine[0]["clock"])

    def still_to_come(self) -> int:
        """Requests that are known and have not arrived."""
        engine = self.core.engine[0]
        known = self.core.entering[engine["entered"] : engine["coming"]]
        return int((known["arrival"] > engine["clock"]).sum())

    def _take(self, batch: Batch) -> None:
        engine = self.core.engine[0]
        left = self.core.entering[engine["entered"] : engine["coming"]]
        coming = np.concatenate((left, batch.entering))
        names = self.core.names
        if len(batch.names):
            names, begin = keep_names(self.core, coming[: len(left)], len(batch.names))
            coming["names"][len(left) :] += begin
            names[begin:] = batch.names
        coming = coming[np.argsort(coming["enters"], kind="stable")]
        engine["entered"] = 0
        engine["coming"] = len(coming)
        engine["horizon"] = batch.horizon
        self.core = self.core._replace(entering=coming, names=names)

    def _add_places(self) -> None:
        live = self.core.live
        count = len(live)
        self.core.engine[0]["places"] = count
        self.core = self.core._replace(
            live=np.concatenate((live, np.zeros(count, LIVE))),
            places=np.concatenate(
                (np.arange(count, 2 * count, dtype=np.int32), np.zeros(count, np.int32))
            ),
        )

    def _fill_nodes(self) -> None:
        engine, nodes, table = self.core.engine[0], self.core.nodes, self._table
        for kind, row, column in set(map(tuple, nodes.wanted[: engine["wanted"]].tolist())):
            if kind == TOKENS:
                nodes.tokens[:, row] = table.of_tokens(row)[:2]
            elif kind == OUTPUTS:
                nodes.outputs[:, row] = table.of_outputs(row)[:2]
            elif kind == DECODING:
                nodes.decoding[:, row, column] = table.of_decoding(row, column)[:2]
            else:
                loads = table.loads(row, column)
                nodes.loads[row, column] = [number for load in loads for number in load]
        engine["wanted"] = 0


def _core(config: VllmSchedulerConfig, table: StepTable, answers_awaited: bool) -> Core:
    most = config.max_num_seqs
    size = config.groups[0].block_tokens
    blocks = np.zeros(config.num_blocks, BLOCK)
    blocks["after"] = np.roll(np.arange(config.num_blocks), -1)
    blocks["before"] = np.roll(np.arange(config.num_blocks), 1)
    engine = np.zeros(1, ENGINE)
    engine["ended_at"] = NOT_YET
    engine["horizon"] = -math.inf
    engine["free_blocks"] = config.num_blocks - 1
    engine["seats"] = most
    engine["places"] = _FEW
    engine["first_waiting"] = engine["last_waiting"] = engine["blocked"] = NOBODY
    engine["steps_a_point"] = 1
    return Core(
        settings=_settings(config, table, answers_awaited),
        engine=engine,
        live=np.zeros(_FEW, LIVE),
        places=np.arange(_FEW, dtype=np.int32),
        running=np.zeros(most, np.int32),
        tables=np.empty((most, -(-config.max_model_len // size)), np.int32),
        seats=np.arange(most, dtype=np.int32),
        blocks=blocks,
        buckets=np.zeros(1 << (2 * config.num_blocks).bit_length(), np.int32),
        names=np.zeros(0, np.int64),
        plans=np.zeros(2, PLAN),
        entries=np.zeros((2, most), ENTRY),
        entering=np.zeros(0, ENTERING),
        ended=np.zeros(_ROOM + most, ENDED),
        gaps=np.zeros(_ROOM + most + 2, GAP),
        points=np.zeros((POINTS + 1, 7)),
        phases=np.zeros((most + 1, size), np.int32),
        nodes=_nodes(config, table),
    )


def _settings(config: VllmSchedulerConfig, table: StepTable, answers_awaited: bool) -> Any:
    parts = table.parts
    assert parts is not None
    settings = np.zeros(1, SETTINGS)
    of_tokens, of_outputs, of_decoding, of_prompts = table.starting_seconds
    for name, value in {
        "block_tokens": config.groups[0].block_tokens,
        "num_blocks": config.num_blocks,
        "max_model_len": config.max_model_len,
        "budget": config.step_tokens,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_num_seqs": config.max_num_seqs,
        "threshold": config.long_prefill_token_threshold,
        "adaptive": config.long_prefill_token_threshold_adaptive,
        "spare_blocks": int(config.watermark * config.num_blocks),
        "caches": config.enable_prefix_caching,
        "chunks": config.enable_chunked_prefill,
        "whole": config.scheduler_reserve_full_isl,
        "ahead": config.async_scheduling,
        "answers_awaited": answers_awaited,
        "prepare_seconds": parts.prepare_seconds,
        "sequence_seconds": parts.sequence_seconds,
        "step_seconds": parts.step_seconds,
        "replays": parts.cuda_graphs,
        "starting_tokens": of_tokens,
        "starting_outputs": of_outputs,
        "starting_decoding": of_decoding,
        "starting_prompts": of_prompts,
    }.items():
        settings[name] = value
    return settings


def _nodes(config: VllmSchedulerConfig, table: StepTable) -> StepNodes:
    """Room for the nodes that steps of these settings can need."""

    def empty(*shape: int) -> Any:
        return np.full(shape, np.nan)

    counts = place(COUNTS, config.step_tokens)[0] + 2
    requests = place(COUNTS, config.max_num_seqs)[0] + 2
    contexts = place(table.contexts, config.max_model_len)[0] + 2
    chunks = place(CHUNKS, config.step_tokens)[0] + 2
    before = place(table.before_chunks, config.max_model_len)[0] + 2
    kernels = np.zeros((len(table.kernels), COEFFICIENTS))
    for row, kernel in zip(kernels, table.kernels, strict=True):
        row[:] = [*kernel.shares, kernel.times, *kernel[2:]]
    return StepNodes(
        counts=np.array(COUNTS, float),
        contexts=np.array(table.contexts, float),
        chunks=np.array(CHUNKS, float),
        before_chunks=np.array(table.before_chunks, float),
        tokens=empty(2, counts),
        outputs=empty(2, requests),
        decoding=empty(2, requests, contexts),
        loads=empty(chunks, before, 4 * len(table.kernels)),
        kernels=kernels,
        wanted=np.zeros((_WANTED, 3), np.int64),
    )
