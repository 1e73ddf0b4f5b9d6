"""How fast the simulator serves, and what memory it takes: requests a second of one core.

    python benchmarks/simulation.py --trace AzureLLMInferenceTrace_conv.csv.gz
    python benchmarks/simulation.py --drawn 10000000 --rate 20

Needs the extra ``simulate``. The first run on a machine compiles, and is not counted. Times are of
the processor, of the whole process; of a trace they are told for reading it alone, for reading and
serving it, and for the figures.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tokenroom import fit
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.compiled.engine import CompiledEngine
from tokenroom.serving.compiled.figures import ArrayCollector
from tokenroom.serving.compiled.sources import Delay, OpenSource, delayed
from tokenroom.serving.compiled.state import BLOCK, ENTERING, LIVE, NO_SESSION
from tokenroom.serving.compiled.trace_tables import tables_of_trace
from tokenroom.serving.run import Run
from tokenroom.serving.workloads.trace import Trace, TraceOptions

_AT_ONCE = 1 << 16


def serve(run: Run, trace: Trace) -> None:
    run.serve_all(OpenLoop(trace), refused=lambda record: None, progress=lambda count, now: None)


def of_trace(path: Path, result: Any, rounds: int) -> None:
    serve(Run(result, compiled=True), Trace(path, TraceOptions(block_tokens=16)))
    best = [math.inf] * 3
    for _ in range(rounds):
        run = Run(result, compiled=True)
        size = run.engine.block_tokens
        begin = time.process_time()
        count = sum(len(table) for table, _ in tables_of_trace(Trace(path), Delay(0, 0), size))
        read = time.process_time()
        serve(run, Trace(path, TraceOptions(block_tokens=size)))
        served = time.process_time()
        metrics = run.outcome().metrics
        done = time.process_time()
        took = (read - begin, served - read, done - served)
        best = [min(pair) for pair in zip(best, took, strict=True)]
    reading, serving, figures = best
    print(
        f"{path.name}: {count:,} requests, {metrics.steps:,} steps; reading {reading:.3f} s, "
        f"reading and serving {serving:.3f} s, figures {figures:.3f} s; "
        f"{count / (serving + figures):,.0f} requests/s end to end"
    )


def drawn(count: int, rate: float, delay: Delay) -> Iterator[tuple[Any, Any]]:
    """Independent arrivals, lengths as in conversations, a piece at a time."""
    draw = np.random.default_rng(1)
    clock = 0.0
    for begin in range(0, count, _AT_ONCE):
        size = min(_AT_ONCE, count - begin)
        table = np.zeros(size, ENTERING)
        table["arrival"] = clock + np.cumsum(draw.exponential(1 / rate, size))
        clock = float(table["arrival"][-1])
        table["id"] = np.arange(begin, begin + size)
        table["session"] = NO_SESSION
        table["prompt"] = np.clip(draw.lognormal(6.3, 1.1, size), 1, 7000).astype(np.int64)
        table["output"] = np.clip(draw.lognormal(4.7, 0.9, size), 1, 1000).astype(np.int64)
        table["name_tokens"] = 1
        delayed(table, delay)
        yield table, np.zeros(0, np.int64)


def of_drawn(count: int, rate: float, result: Any) -> None:
    run = Run(result, compiled=True)
    engine = CompiledEngine(run.engine.config, run._table)
    collector = ArrayCollector()
    source = OpenSource(drawn(count, rate, Delay(*run.pools[0].cost.delays())))
    done, told = 0, 1
    begin = time.process_time()
    for ended in engine.serve(source, collector.gaps):
        collector.requests(ended)
        done += len(ended)
        if done >= told * count // 5:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            places = len(engine.core.live)
            print(f"{done:,} requests: {memory:.0f} MiB at most; room for {places:,} at a time")
            told += 1
    took = time.process_time() - begin
    metrics = collector.result(engine.core)
    print(
        f"{done:,} drawn requests, {metrics.steps:,} steps in {took:.1f} s: "
        f"{done / took:,.0f} requests/s; p99 of TTFT {metrics.ttft.p99_seconds:.3f} s; most that "
        f"wait {metrics.max_waiting:,}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trace", type=Path, action="append", default=[])
    parser.add_argument("--drawn", type=int, help="so many drawn requests")
    parser.add_argument("--rate", type=float, default=20.0, help="of them, requests a second")
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--gpu", default="a100")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    result = fit(asked.model, asked.gpu)
    print(f"{LIVE.itemsize} bytes a request in the engine, {BLOCK.itemsize} a block of the pool")
    for path in asked.trace:
        of_trace(path, result, asked.rounds)
    if asked.drawn:
        of_drawn(asked.drawn, asked.rate, result)


if __name__ == "__main__":
    main()
