"""Fit llama.cpp's kernels to whole steps: performance/data/llama_cpp.json.

Reads ``scripts/data/llama_bench.csv``: tokens a second that llama-bench printed, each with the
address it was read at. A row is one micro-batch of a prompt or one generated token. ``dequantizes``
says that the build expanded weights to 16 bits (before pull 8075), ``flash`` that flash attention
was on. Pulls 7676, 7860, 8062 and 8416 do not say the latter; their rows agree with each other and
with the rest only with it, since scores of long micro-batches would take longer than was measured.

One set of coefficients is fitted to all NVIDIA rows, then one to each family near it, so that few
rows move few coefficients. Residuals leave each source out in turn. Rows of the validation data
(docs/speed.md) come from other sources and are not looked at. Needs numpy, scipy.

    python scripts/fit_llama_cpp.py
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from tokenroom import Accelerator, ModelSpec, find_accelerator, load_model
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.performance.efficiency import (
    Shares,
    bandwidth_of,
    joined,
    kernel_parts,
    peak_flops,
)
from tokenroom.performance.host import host_cost
from tokenroom.performance.llama_cpp import (
    ENGINE,
    PLAIN_KERNELS,
    Build,
    engine_of,
    family_of,
    llama_cpp_operators,
)
from tokenroom.performance.operators import step_operators
from tokenroom.performance.work import Chunk, Kind, Layout, Operator, StepWork

FACTS = Path(__file__).parent / "data/llama_bench.csv"
TARGET = Path(__file__).parents[1] / "src/tokenroom/performance/data/llama_cpp.json"
SOURCE = "tokens a second printed by llama-bench, scripts/data/llama_bench.csv"
SHORT = ("f16", "bf16")  # weights that are not quantised
LOG_ERROR = 0.1  # what a row is expected to miss by
NEAR = 0.4  # how far, in logarithms, a family's coefficients are expected from all rows'
FEW = 8  # rows of a family that give no range of their own; that of all rows serves
FAR = 1.0  # the same of all rows' from where they start

PLAIN_MEMORY = 0.55
"""Share of bandwidth at which scores cross memory without flash attention, by the attention times
of pull 6374 (1.1 ms for 32 heads, 512 queries and keys on a 336 GB/s card); rows of short prompts
do not tell it from the products' share."""


@dataclass(frozen=True)
class Coefficients:
    """What is fitted; memory and products as shares of peak, ``launch`` in seconds."""

    f16: float = 0.5
    f16_memory: float = 0.85
    mmq: float = 0.3
    mmq_rows: float = 8.0
    mmq_memory: float = 0.7
    mmvq: float = 0.1
    mmvq_memory: float = 0.8
    flash: float = 0.3
    flash_memory: float = 0.5
    plain: float = 0.25
    decode_memory: float = 0.6
    memory: float = 0.8
    sharpness: float = 1.5
    launch: float = 4e-6

    def kernels(self) -> dict[tuple[Kind, str], Shares]:
        """Coefficients of each kind and type in the form of the model."""

        def shares(compute: float, memory: float, rows: float = 0.0, kernels: int = 1) -> Shares:
            launch = self.launch * kernels
            return Shares(compute, rows, 0.0, 0.0, memory, 0.0, self.sharpness, launch)

        found = {}
        for kind in (Kind.GEMM, Kind.GROUPED_GEMM):
            found[kind, "f16"] = shares(self.f16, self.f16_memory)
            found[kind, "mmq"] = shares(self.mmq, self.mmq_memory, self.mmq_rows)
            found[kind, "mmvq"] = shares(self.mmvq, self.mmvq_memory)
        found[Kind.ATTENTION_PREFILL, "f16"] = shares(self.flash, self.flash_memory)
        found[Kind.ATTENTION_PREFILL, "plain"] = shares(
            self.plain, PLAIN_MEMORY, kernels=PLAIN_KERNELS
        )
        found[Kind.ATTENTION_DECODE, "f16"] = shares(1.0, self.decode_memory)
        found[Kind.ATTENTION_DECODE, "plain"] = shares(
            1.0, self.decode_memory, kernels=PLAIN_KERNELS
        )
        found[Kind.MEMORY, "bf16"] = shares(1.0, self.memory)
        return found


LOWEST = {"mmq_rows": 1.0, "sharpness": 1.0, "launch": 5e-7}
HIGHEST = {"mmq_rows": 300.0, "sharpness": 4.0, "launch": 1e-4}
NAMES = tuple(Coefficients.__dataclass_fields__)


@dataclass(frozen=True)
class Row:
    """One measured step."""

    source: str
    accelerator: Accelerator
    operators: tuple[Operator, ...]
    seconds: float


@lru_cache(maxsize=64)
def model_of(name: str, weights: str) -> ModelSpec:
    """The model in the type of its file."""
    spec = load_model(name)
    return spec if weights in SHORT else what_if(spec, weights)


def row_of(fact: Mapping[str, str]) -> Row:
    """A line of the facts as a step."""
    accelerator = find_accelerator(fact["gpu"])
    ubatch, prompt = int(fact["ubatch"]), int(fact["prompt"])
    generated, depth = int(fact["generated"]), int(fact["depth"])
    rows = 1 if generated else min(prompt, ubatch)
    if rows == 1:
        work = StepWork(decode_sequences=1, decode_context_tokens=depth + (prompt or generated) / 2)
    else:
        work = StepWork(prefill=(Chunk(rows, depth + (prompt - rows) // 2),))
    operators = step_operators(
        model_of(fact["model"], fact["weights"]), Layout(), work, kv_dtype="float16"
    )
    build = Build(fact["flash"] == "1", fact["dequantizes"] == "0")
    return Row(
        source=fact["source"],
        accelerator=accelerator,
        operators=llama_cpp_operators(operators, engine_of(build), accelerator),
        seconds=rows / float(fact["tokens_per_second"]),
    )


def step_seconds(coefficients: Coefficients, row: Row) -> float:
    """What the model says of a row."""
    kernels = coefficients.kernels()
    bandwidth = bandwidth_of(row.accelerator)
    total = host_cost(ENGINE).step_seconds + host_cost(ENGINE).sequence_seconds
    for operator in row.operators:
        shares = kernels[operator.kind, operator.arithmetic]
        if operator.kind is Kind.MEMORY:
            busy = operator.num_bytes / (bandwidth * shares.memory)
            latency = shares.launch_seconds
        else:
            peak = peak_flops(operator.arithmetic, row.accelerator)
            latency, work, moved = kernel_parts(
                shares, operator.flops, operator.num_bytes, operator.shape, peak, bandwidth
            )
            busy = joined(work, moved, shares.sharpness)
        total += operator.times * (latency + busy)
    return float(total)


def fitted(rows: list[Row], near: Coefficients, width: float) -> Coefficients:
    """Coefficients that make log errors small and stay near others."""
    start = np.log([getattr(near, name) for name in NAMES])
    lowest = np.log([LOWEST.get(name, 0.02) for name in NAMES])
    highest = np.log([HIGHEST.get(name, 0.97) for name in NAMES])

    def errors(logs: Any) -> Any:
        values = Coefficients(*np.exp(logs))
        missed = [np.log(step_seconds(values, row) / row.seconds) / LOG_ERROR for row in rows]
        return np.concatenate([missed, (logs - start) / width])

    best = least_squares(
        errors,
        np.clip(start, lowest + 1e-6, highest - 1e-6),
        bounds=(lowest, highest),
        loss="soft_l1",
    )
    return Coefficients(*(float(f"{value:.4g}") for value in np.exp(best.x)))


def extents(rows: list[Row]) -> dict[str, list[list[float]]]:
    """Least and largest of each extent; experts that are not quantised take the others'."""
    found: dict[tuple[Kind, str], list[tuple[float, ...]]] = {}
    for row in rows:
        for operator in row.operators:
            shape = operator.shape or (operator.num_bytes,)
            found.setdefault((operator.kind, operator.arithmetic), []).append(shape)
    found.setdefault((Kind.GROUPED_GEMM, "f16"), found[Kind.GROUPED_GEMM, "mmq"])
    return {
        f"{kind}:{arithmetic}": [[min(values), max(values)] for values in zip(*shapes, strict=True)]
        for (kind, arithmetic), shapes in sorted(found.items())
    }


def by_family(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows of each family."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(family_of(row.accelerator), []).append(row)
    return found


def shared_fit(rows: list[Row]) -> Coefficients:
    """One set for all NVIDIA rows."""
    return fitted([r for r in rows if r.accelerator.vendor == "nvidia"], Coefficients(), FAR)


def ratios(coefficients: Coefficients, rows: list[Row]) -> list[float]:
    """Measured over predicted."""
    return [row.seconds / step_seconds(coefficients, row) for row in rows]


def errors_of(values: list[float]) -> dict[str, Any]:
    """Median and 90% error of predictions, and the 10 to 90% range of measured over predicted."""
    missed = np.abs(1 / np.array(values) - 1)
    return {
        "rows": len(values),
        "median_error": round(float(np.median(missed)), 3),
        "p90_error": round(float(np.quantile(missed, 0.9)), 3),
        "range": [round(float(np.quantile(values, q)), 3) for q in (0.1, 0.9)],
    }


def main() -> None:
    """Fit every family and write the data file."""
    with FACTS.open(encoding="utf-8") as file:
        rows = [row_of(fact) for fact in csv.DictReader(file)]
    everyone = shared_fit(rows)
    left_out: dict[str, list[float]] = {}
    for source in sorted({row.source for row in rows}):
        rest = [row for row in rows if row.source != source]
        common = shared_fit(rest)
        families = by_family(rest)
        for name, held in by_family([row for row in rows if row.source == source]).items():
            own = fitted(families.get(name, []), common, NEAR)
            left_out.setdefault(name, []).extend(ratios(own, held))
    document: dict[str, Any] = {"source": SOURCE, "families": {}, "extents": extents(rows)}
    borrowed = []
    pooled = [value for values in left_out.values() for value in values]
    for name, group in sorted(by_family(rows).items()):
        check = errors_of(left_out[name])
        if len(group) < FEW:
            check["range"] = errors_of(pooled)["range"]
        own = fitted(group, everyone, NEAR)
        others = shared_fit([row for row in rows if family_of(row.accelerator) != name])
        borrowed += ratios(others, group)
        document["families"][name] = {
            "architectures": sorted({row.accelerator.architecture for row in group}),
            "gpus": sorted({row.accelerator.key for row in group}),
            "kernels": {
                f"{kind}:{arithmetic}": list(shares)
                for (kind, arithmetic), shares in own.kernels().items()
            },
            "fitted_on": sorted({row.source for row in group}),
            "fit": errors_of(ratios(own, group)),
            "check": check,
        }
        print(name, document["families"][name]["fit"], document["families"][name]["check"], own)
    factor = np.exp(np.median(np.abs(np.log(borrowed))))
    document["borrowed_spread"] = round(float(factor), 3)
    print("borrowed", document["borrowed_spread"])
    TARGET.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
