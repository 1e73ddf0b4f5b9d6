"""Times Vidur and tokenroom on the same requests: lengths, arrivals, model, card, bounds of a step.

    python benchmarks/vidur.py CHECKOUT PYTHON TRACE [--requests 2048] [--folder DIR]

CHECKOUT is microsoft/vidur (MIT, at 7d47513) with its ``data`` folder, PYTHON an interpreter of an
environment that has its requirements, TRACE any trace that ``tokenroom workload`` reads. Requests
are cut to 4,096 tokens, the most that Vidur's model of Llama 3 8B takes. Both run as whole
processes; each has one run before that is not counted: Vidur's trains its predictors, tokenroom's
compiles its loop, and both keep that. Processor time is told beside that of the clock, since it
depends less on what else runs.

What is compared is time alone. Vidur schedules as Sarathi-Serve did, over blocks that hold no
prefix; tokenroom schedules as vLLM does. Vidur's attention profiles are not part of what could be
had of the repository, so a made-up table stands in for them: its latencies mean nothing here, and
its predictors are cut down (20 trees, 2 folds; its own grid takes many minutes once), which does
not slow the runs that are timed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenroom.serving.workloads.trace import Trace

MODEL, MOST_TOKENS, BATCH, CHUNK, BLOCK = "meta-llama/Meta-Llama-3-8B", 4096, 128, 512, 16
HEADS, KV_HEADS, WIDTH = 32, 8, 4096
RUNS = 3
BYTES_PER_MS, FLOPS_PER_MS = 1.6e9, 2e11  # a made-up card


def attention_rows() -> Iterator[dict[str, object]]:
    """A made-up profile of attention in the columns that Vidur reads, times in milliseconds."""
    common = {
        "n_embd": WIDTH,
        "n_q_head": HEADS,
        "n_kv_head": KV_HEADS,
        "block_size": BLOCK,
        "num_tensor_parallel_workers": 1,
    }
    sizes = [2**power for power in range(5, 13)]
    cell_bytes, head = 2 * KV_HEADS * 128 * 2, 4 * HEADS * 128
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        for context in sizes:
            milliseconds = 0.005 + batch * context * cell_bytes / BYTES_PER_MS
            yield common | attention_row(0, batch, context, 0.0, milliseconds)
    for chunk in sizes:
        for context in (0, *sizes):
            milliseconds = 0.01 + head * chunk * (context + chunk / 2) / FLOPS_PER_MS
            yield common | attention_row(chunk, 1, context, milliseconds, 0.0)


def attention_row(
    chunk: int, batch: int, context: int, prefill: float, decode: float
) -> dict[str, object]:
    return {
        "prefill_chunk_size": chunk,
        "batch_size": batch,
        "kv_cache_size": context,
        "time_stats.attn_prefill.median": prefill,
        "time_stats.attn_decode.median": decode,
        "time_stats.attn_input_reshape.median": 0.002,
        "time_stats.attn_output_reshape.median": 0.002,
        "time_stats.attn_kv_cache_save.median": 0.003,
    }


def write_rows(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def requests_of(trace: Path, count: int) -> list[dict[str, object]]:
    """The first requests of a trace in Vidur's columns, each of 4,096 tokens at most."""
    rows: list[dict[str, object]] = []
    for request in islice(Trace(trace), count):
        output = min(request.output_tokens, MOST_TOKENS - 1)
        rows.append(
            {
                "arrived_at": request.arrival_seconds,
                "num_prefill_tokens": min(request.prompt_tokens, MOST_TOKENS - output),
                "num_decode_tokens": output,
            }
        )
    return rows


def vidur_words(python: str, trace: Path, attention: Path, folder: Path) -> list[str]:
    """The command that replays the trace in Vidur, without plots, traces or wandb."""
    predictor = "--random_forrest_execution_time_predictor_config_"
    words = [python, "-m", "vidur.main"]
    words += ["--replica_config_model_name", MODEL, "--replica_config_device", "a100"]
    words += ["--replica_config_network_device", "a100_pairwise_nvlink"]
    words += ["--request_generator_config_type", "trace_replay"]
    words += ["--trace_request_generator_config_trace_file", str(trace)]
    words += ["--trace_request_generator_config_max_tokens", str(MOST_TOKENS)]
    words += ["--replica_scheduler_config_type", "sarathi"]
    words += ["--sarathi_scheduler_config_batch_size_cap", str(BATCH)]
    words += ["--sarathi_scheduler_config_chunk_size", str(CHUNK)]
    words += ["--sarathi_scheduler_config_block_size", str(BLOCK)]
    words += [f"{predictor}attention_input_file", str(attention)]
    words += [f"{predictor}num_estimators", "20", f"{predictor}max_depth", "16"]
    words += [f"{predictor}min_samples_split", "2", f"{predictor}k_fold_cv_splits", "2"]
    words += [f"{predictor}prediction_max_batch_size", str(BATCH)]
    words += [f"{predictor}prediction_max_tokens_per_request", str(MOST_TOKENS)]
    words += ["--metrics_config_cache_dir", str(folder / "cache")]
    words += ["--metrics_config_output_dir", str(folder / "out")]
    words += ["--no-metrics_config_store_plots", "--no-metrics_config_enable_chrome_trace"]
    return words


def tokenroom_words(trace: Path) -> list[str]:
    """The command that serves the trace in tokenroom."""
    words = [sys.executable, "-m", "tokenroom", "simulate", MODEL, "--gpu", "a100", "--json"]
    words += ["--trace", str(trace), "--context", str(MOST_TOKENS)]
    words += ["--max-num-seqs", str(BATCH), "--max-num-batched-tokens", str(CHUNK)]
    return [*words, "--offline"]


def timed(words: Sequence[str], folder: Path) -> tuple[float, float]:
    """Seconds of a whole process by the clock, and of processor time.

    Raises:
        SystemExit: It failed.
    """
    start, used = time.perf_counter(), children_seconds()
    environment = os.environ | {"WANDB_MODE": "disabled", "PYTHONPATH": os.pathsep.join(sys.path)}
    if words[0] != sys.executable:
        environment["PYTHONPATH"] = str(folder)
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1 is tokenroom's word for a queue that grows
        raise SystemExit(done.stderr[-2000:])
    return time.perf_counter() - start, children_seconds() - used


def children_seconds() -> float:
    """Processor time of all processes that were started and have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def told(runs: Sequence[tuple[float, float]], requests: int) -> dict[str, object]:
    """Times of all runs, and requests a second of the fastest."""
    clock, processor = (min(times) for times in zip(*runs, strict=True))
    return {
        "seconds": [round(seconds, 2) for seconds, _ in runs],
        "processor_seconds": [round(seconds, 2) for _, seconds in runs],
        "requests_per_second": round(requests / clock),
        "requests_per_processor_second": round(requests / processor),
    }


def main() -> None:
    """Run both and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("python")
    parser.add_argument("trace", type=Path)
    parser.add_argument("--requests", type=int, default=2048)
    parser.add_argument("--folder", type=Path, help="kept, so that a later run finds its cache")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        trace, attention = folder / "trace.csv", folder / "attention.csv"
        rows = requests_of(asked.trace, asked.requests)
        write_rows(trace, rows)
        write_rows(attention, list(attention_rows()))
        vidur = vidur_words(asked.python, trace, attention, folder)
        cold = timed(vidur, asked.checkout.resolve())
        compiled = timed(tokenroom_words(trace), folder)
        own, theirs = [], []
        for _ in range(RUNS):
            theirs.append(timed(vidur, asked.checkout.resolve()))
            own.append(timed(tokenroom_words(trace), folder))
    print(
        json.dumps(
            {
                "requests": len(rows),
                "load_average": round(os.getloadavg()[0], 1),
                "vidur": told(theirs, len(rows)) | {"first_seconds": round(cold[0], 1)},
                "tokenroom": told(own, len(rows)) | {"first_seconds": round(compiled[0], 1)},
            }
        )
    )


if __name__ == "__main__":
    main()
