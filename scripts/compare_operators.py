"""Predicted against measured operator times of vidur: projections, norms and all-reduce.

The profiles (microsoft/vidur, MIT, ``data/profiling``) are of 2024: float16 products, norms,
activations and rotary positions of six to eight models at every token count that its simulator
asks for, on A100, A40 and H100, and NCCL's all-reduce over NVLink. No coefficient was fitted to
them. Times are those of kernels from PyTorch's profiler, without what starts them.

    python scripts/compare_operators.py FOLDER
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tokenroom import Accelerator, find_accelerator
from tokenroom.performance.efficiency import efficiency_of, operator_duration
from tokenroom.performance.work import Kind, Operator

GPUS = {"a100": "a100-sxm-80gb", "a40": "a40", "h100": "h100-sxm-80gb"}
PRODUCTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
BYTES = 2
HOST = 8


class Measured(NamedTuple):
    """One measured time.

    Attributes:
        gpu: Its key in :data:`GPUS`.
        name: Which operator.
        tokens: Rows, or bytes of a message.
        operator: The work, as the step-time model describes it.
        seconds: Median of the runs.
    """

    gpu: str
    name: str
    tokens: int
    operator: Operator
    seconds: float


def product(rows: int, outputs: int, inputs: int) -> Operator:
    """A product in 16 bits."""
    return Operator(
        name="product",
        kind=Kind.GEMM,
        arithmetic="bf16",
        times=1,
        flops=2 * rows * outputs * inputs,
        num_bytes=BYTES * (outputs * inputs + rows * (outputs + inputs)),
        shape=(rows, outputs, inputs, outputs),
    )


def moved(num_bytes: float) -> Operator:
    """A kernel that only moves memory."""
    return Operator(
        name="memory", kind=Kind.MEMORY, arithmetic="bf16", times=1, flops=0, num_bytes=num_bytes
    )


def operators(row: Mapping[str, str]) -> Iterator[tuple[str, Operator]]:
    """What a row of a model's profile measured, by name."""
    rows, hidden = int(row["num_tokens"]), int(row["n_embd"])
    ranks = int(row["num_tensor_parallel_workers"])
    heads, groups, inner = (int(row[name]) for name in ("n_head", "n_kv_head", "n_expanded_embd"))
    width = hidden // heads
    gated = row["use_gated_mlp"] == "True"
    query, cached = heads * width // ranks, 2 * max(1, groups // ranks) * width
    inner = inner * (2 if gated else 1) // ranks
    yield "attn_pre_proj", product(rows, query + cached, hidden)
    yield "attn_post_proj", product(rows, hidden, query)
    yield "mlp_up_proj", product(rows, inner, hidden)
    yield "mlp_down_proj", product(rows, hidden, inner // (2 if gated else 1))
    yield "input_layernorm", moved(2 * BYTES * rows * hidden)
    yield "mlp_act", moved(BYTES * rows * inner * (1.5 if gated else 2))
    yield "attn_rope", moved(2 * BYTES * rows * (query + cached // 2))


def profiles(folder: Path) -> Iterator[Measured]:
    """Every time in the models' profiles."""
    for path in sorted(folder.glob("compute_*_mlp.csv.gz")):
        gpu = path.name.split("_")[1]
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                for name, operator in operators(row):
                    text = row.get(f"time_stats.{name}.median")
                    if text:
                        tokens = int(row["num_tokens"])
                        yield Measured(gpu, name, tokens, operator, float(text) / 1e3)


def messages(folder: Path) -> Iterator[Measured]:
    """All-reduce inside a host whose GPUs are all joined by NVSwitch."""
    for path in sorted(folder.glob("network_*_dgx_all_reduce.csv.gz")):
        gpu = re.findall(r"network_([a-z0-9]+)_", path.name)[0]
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                ranks = int(row["num_workers"])
                if int(row["devices_per_node"]) != ranks:
                    continue
                operator = Operator(
                    name="all_reduce",
                    kind=Kind.ALL_REDUCE,
                    arithmetic="bf16",
                    times=1,
                    flops=0,
                    num_bytes=0,
                    message_bytes=float(row["size"]),
                    ranks=ranks,
                )
                seconds = float(row["time_stats.all_reduce.median"]) / 1e3
                yield Measured(gpu, "all_reduce", int(row["size"]), operator, seconds)


def ratio(row: Measured, accelerators: Mapping[str, Accelerator]) -> float:
    """Predicted over measured."""
    accelerator = accelerators[row.gpu]
    efficiency = efficiency_of(accelerator, "vllm")
    return operator_duration(efficiency, row.operator, accelerator, HOST).seconds / row.seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder / "truth/vidur_profiling"
    accelerators = {gpu: find_accelerator(key) for gpu, key in GPUS.items()}
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in (*profiles(folder), *messages(folder)):
        value = ratio(row, accelerators)
        kind = "products" if row.name in PRODUCTS else row.name
        size = "to 256" if row.tokens <= 256 else "to 2048" if row.tokens <= 2048 else "more"
        for part in (size, "all") if row.name in PRODUCTS else ("all",):
            groups[row.gpu, kind, part].append(value)
    print(f"{'GPU':6} {'operator':16} {'tokens':8} {'rows':>6} {'error':>7} {'p90':>7} {'bias':>6}")
    for (gpu, kind, part), ratios in sorted(groups.items()):
        errors = sorted(abs(value - 1) for value in ratios)
        print(
            f"{gpu:6} {kind:16} {part:8} {len(ratios):6} {median(errors):7.1%} "
            f"{errors[int(0.9 * (len(errors) - 1))]:7.1%} {median(ratios):6.2f}"
        )


if __name__ == "__main__":
    main()
