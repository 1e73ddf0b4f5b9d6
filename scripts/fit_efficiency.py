"""Fit the achieved share of peak of operators: performance/data/efficiency.json.

Reads the measured operator tables that the Apache-2.0 package aiconfigurator 0.12 carries (its
folder ``aiconfigurator_core/systems/data``), which stay outside the project; what is kept is a
handful of coefficients for each GPU, kind of operator and type, with residuals. Tables are split
by source: those of vLLM and TensorRT-LLM are fitted, those of SGLang only checked against ("any"
engine). Where kernels differ by engine, each engine's table is fitted too, less the layers that
are held out for its check. Beside each fit stand the extents of its rows, and for each kind how
fast fits go wrong beyond them. Needs numpy, scipy, pandas and pyarrow.

    python scripts/fit_efficiency.py FOLDER
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from tokenroom import Accelerator, find_accelerator
from tokenroom.performance.attention_work import SCAN_CHUNK
from tokenroom.performance.efficiency import (
    KIN,
    Link,
    Shares,
    joined,
    kernel_parts,
    link_bandwidth,
    link_seconds,
    peak_flops,
    sent_bytes,
    supported_arithmetic,
)
from tokenroom.performance.work import Kind

TARGET = Path(__file__).parents[1] / "src/tokenroom/performance/data/efficiency.json"
SOURCE = (
    "measured operator tables of aiconfigurator 0.12.0 (PyPI wheel aiconfigurator-core, "
    "Apache-2.0), folder systems/data"
)
GPUS = {
    "a100_sxm": "a100-sxm-80gb",
    "l40s": "l40s",
    "h100_sxm": "h100-sxm-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-sxm-180gb",
    "b300_sxm": "b300-sxm-288gb",
    "gb200": "gb200-186gb",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}
TYPES = {
    "bfloat16": "bf16",
    "float16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4_wo": "w4a16",
    "int8_wo": "w8a16",
    "sq": "int8",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8",
}
WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "nvfp4": 0.5625,
    "w4a16": 0.515625,
    "w8a16": 1.0,
    "int8": 1.0,
    "mxfp4": 0.53125,
    "mxfp4_mxfp8": 0.53125,
}
INPUT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "nvfp4": 0.5625}
OTHER_EXPERTS = "nongated|situ|deepgemm"
"""Experts without a gate or with another activation; and a back end that recipes choose for 256
clients and more only (InferenceX benchmarks/dsr1_fp8_b200_trt.sh: TRTLLM below)."""

EXPERT_COLUMNS = (
    "moe_dtype",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
)
CHECKED_ENGINE = "sglang"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
EXCLUDED = {
    # Small products take 60 to 260 microseconds, whatever their size: the time of the Python call,
    # which CUDA graphs hide, not of the kernel.
    ("vllm", Kind.GEMM, "fp8_block"),
    # The layer was measured with the quantising of its inputs, which is counted apart.
    ("trtllm", Kind.GEMM, "fp8"),
    ("trtllm", Kind.GEMM, "nvfp4"),
    # Quantised by PyTorch operators one after another, ten times slower than the engine's kernel.
    ("sglang", Kind.MEMORY, "bf16"),
}
HELD_SHAPE = {
    # Kinds whose kernels differ by engine, and the two extents that tell layers apart.
    Kind.GROUPED_GEMM: (1, 2),
    Kind.ATTENTION_PREFILL: (1, 3),
    Kind.ATTENTION_DECODE: (0, 3),
    Kind.LATENT_PREFILL: (1, 2),
    Kind.LATENT_DECODE: (0, 3),
    Kind.SCAN_PREFILL: (1, 2),
    Kind.SCAN_DECODE: (1, 3),
}
ROWS_A_TABLE = 2500
LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128  # DeepSeek V3, which the MLA tables were taken of


@dataclass(frozen=True)
class Table:
    """Rows of one measured table, in the words of the model."""

    source: str
    kind: Kind
    arithmetic: str
    flops: Any
    num_bytes: Any
    shape: tuple[Any, Any, Any, Any]
    seconds: Any

    @property
    def engine(self) -> str:
        """Engine whose kernels were measured, as the package's folders name it."""
        return self.source.split("/")[1]

    @property
    def extents(self) -> tuple[Any, ...]:
        """What :attr:`Shares` scale with: the shape, or the bytes of what only moves memory."""
        return (self.num_bytes,) if self.kind is Kind.MEMORY else self.shape

    def sampled(self, generator: np.random.Generator) -> Table:
        """At most ``ROWS_A_TABLE`` rows of it."""
        count = len(self.seconds)
        if count <= ROWS_A_TABLE:
            return self
        return self.rows(generator.choice(count, ROWS_A_TABLE, replace=False))

    def rows(self, rows: Any) -> Table:
        """Some of its rows."""
        return Table(
            self.source,
            self.kind,
            self.arithmetic,
            self.flops[rows],
            self.num_bytes[rows],
            tuple(part[rows] for part in self.shape),  # type: ignore[arg-type]
            self.seconds[rows],
        )


def newest(folder: Path, operator: str, file: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The newest table of each engine that is not a fragment of an earlier one."""
    for engine in sorted((folder / operator).glob("*")):
        paths = list(engine.glob(f"*/{file}.parquet"))
        largest = max((path.stat().st_size for path in paths), default=0)
        found = sorted(
            (path for path in paths if path.stat().st_size > largest / 2),
            key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)],
        )
        if found:
            frame = pd.read_parquet(found[-1])
            frame = frame[frame.latency > 0]
            yield f"{operator}/{engine.name}/{found[-1].parent.name}/{file}", frame


def columns(frame: pd.DataFrame, *names: str) -> list[Any]:
    """Columns as floats; one that older tables lack is zero (no window)."""
    return [
        frame[name].to_numpy(float) if name in frame else np.zeros(len(frame)) for name in names
    ]


def gemms(folder: Path) -> Iterator[Table]:
    """Dense products."""
    for source, frame in newest(folder, "gemm", "gemm_perf"):
        for stored, group in frame.groupby("gemm_dtype"):
            if stored not in TYPES:
                continue
            kind = TYPES[str(stored)]
            group = group[(group.m <= 16384) & (group.n <= 65536) & (group.k <= 65536)]
            group = group[(group.n >= 128) & (group.k >= 128)]
            m, n, k, latency = columns(group, "m", "n", "k", "latency")
            moved = n * k * WEIGHT_BYTES[kind] + m * (k * INPUT_BYTES.get(kind, 2.0) + 2 * n)
            yield Table(source, Kind.GEMM, kind, 2 * m * n * k, moved, (m, n, k, n), latency / 1e3)


def experts(folder: Path) -> Iterator[Table]:
    """Routed experts under balanced routing."""
    for source, frame in newest(folder, "moe", "moe_perf"):
        balanced = frame.distribution == "balanced"
        if not balanced.any():  # A100's: nearest to it are a rank's own experts, all of them
            balanced = (frame.distribution == "power_law_1.01") & (frame.moe_ep_size == 1)
        frame = frame[balanced & (frame.moe_ep_size <= 8)]
        frame = frame[~frame.kernel_source.str.contains(OTHER_EXPERTS)]
        layer = [name for name in EXPERT_COLUMNS if name in frame]
        frame = frame.groupby(layer, as_index=False).latency.min()  # engines take the best kernel
        for stored, group in frame.groupby("moe_dtype"):
            if stored not in TYPES:
                continue
            kind = TYPES[str(stored)]
            tokens, hidden, inter, top_k, count, tp, ep, latency = columns(
                group,
                "num_tokens",
                "hidden_size",
                "inter_size",
                "topk",
                "num_experts",
                "moe_tp_size",
                "moe_ep_size",
                "latency",
            )
            width = inter / tp
            pairs = np.maximum(1, tokens * top_k / ep)
            touched = np.minimum(count / ep, pairs)
            elements = 3 * hidden * width
            moved = touched * elements * WEIGHT_BYTES[kind] + 2 * pairs * (2 * hidden + 3 * width)
            yield Table(
                source,
                Kind.GROUPED_GEMM,
                kind,
                2 * pairs * elements,
                moved,
                (pairs / touched, width, hidden, width * touched),
                latency / 1e3,
            )


def by_cache(table: Table, frame: pd.DataFrame) -> Iterator[Table]:
    """Rows of a 16-bit cache, and those of an FP8 one, which other kernels read."""
    short = frame.kv_cache_dtype.str.contains("fp8").to_numpy(bool)
    yield table.rows(~short)
    yield replace(table.rows(short), arithmetic="fp8")


def attention(folder: Path) -> Iterator[Table]:
    """Attention over prompts and of single tokens."""
    for source, frame in newest(folder, "attention", "context_attention_perf"):
        frame = frame[(frame.attn_dtype == "bfloat16") & (frame.step == 0) & (frame.isl >= 16)]
        frame = frame[frame.head_dim <= 256]
        b, n, h, kv, d, window, latency = columns(
            frame,
            "batch_size",
            "isl",
            "num_heads",
            "num_key_value_heads",
            "head_dim",
            "window_size",
            "latency",
        )
        kv = np.where(kv == 0, h, kv)
        cell = 2 * d * np.where(frame.kv_cache_dtype.str.contains("fp8"), 1, 2)
        seen = np.where((window > 0) & (window < n), window, n)
        pairs = seen * (seen + 1) / 2 + (n - seen) * seen
        yield Table(
            source,
            Kind.ATTENTION_PREFILL,
            "bf16",
            4 * b * h * d * pairs,
            b * n * (kv * cell + 4 * h * d),
            (n, d, seen, b * h),
            latency / 1e3,
        )
    for source, frame in newest(folder, "attention", "generation_attention_perf"):
        frame = frame[(frame.attn_dtype == "bfloat16") & (frame.head_dim <= 256)]
        b, step, h, kv, d, window, latency = columns(
            frame,
            "batch_size",
            "step",
            "num_heads",
            "num_key_value_heads",
            "head_dim",
            "window_size",
            "latency",
        )
        kv = np.where(kv == 0, h, kv)
        cell = 2 * d * np.where(frame.kv_cache_dtype.str.contains("fp8"), 1, 2)
        seen = np.where(window > 0, np.minimum(step + 1, window), step + 1)
        whole = Table(
            source,
            Kind.ATTENTION_DECODE,
            "bf16",
            4 * b * h * d * seen,
            b * (seen * kv * cell + 4 * h * d),
            (h / kv, seen, 1 + 0 * b, b * kv),
            latency / 1e3,
        )
        yield from by_cache(whole, frame)


def latent(folder: Path) -> Iterator[Table]:
    """MLA kernels, and the products they absorb."""
    for source, frame in newest(folder, "mla", "context_mla_perf"):
        frame = frame[(frame.mla_dtype == "bfloat16") & (frame.isl >= 16)]
        b, n, h, step, latency = columns(frame, "batch_size", "isl", "num_heads", "step", "latency")
        pairs = n * step + n * (n + 1) / 2
        width = NOPE + ROPE + VALUE
        yield Table(
            source,
            Kind.LATENT_PREFILL,
            "bf16",
            2 * b * h * width * pairs,
            2 * b * h * width * (2 * n + step),
            (n, NOPE + ROPE + 0 * n, n + step, b * h),
            latency / 1e3,
        )
    for source, frame in newest(folder, "mla", "generation_mla_perf"):
        frame = frame[frame.mla_dtype == "bfloat16"]
        b, h, step, latency = columns(frame, "batch_size", "num_heads", "step", "latency")
        cell = (LATENT + ROPE) * np.where(frame.kv_cache_dtype.str.contains("fp8"), 1, 2)
        seen = step + 1
        whole = Table(
            source,
            Kind.LATENT_DECODE,
            "bf16",
            2 * b * h * (2 * LATENT + ROPE) * seen,
            b * (seen * cell + 2 * h * (2 * LATENT + ROPE)),
            (h, seen, 1 + 0 * b, b),
            latency / 1e3,
        )
        yield from by_cache(whole, frame)
    for source, frame in newest(folder, "mla_bmm", "mla_bmm_perf"):
        frame = frame[frame.bmm_dtype == "bfloat16"]
        m, h, latency = columns(frame, "num_tokens", "num_heads", "latency")
        yield Table(
            source,
            Kind.BATCHED_GEMM,
            "bf16",
            2 * m * h * NOPE * LATENT,
            2 * h * (NOPE * LATENT + m * (NOPE + LATENT)),
            (m, LATENT + 0 * m, NOPE + 0 * m, h),
            latency / 1e3,
        )


def scans(folder: Path) -> Iterator[Table]:
    """Gated delta rules: convolution and state, kernels of one shape summed."""
    keys = ["phase", "batch_size", "seq_len", "num_k_heads", "num_v_heads"]
    for source, frame in newest(folder, "linear_attention", "gdn_perf"):
        frame = frame[(frame.head_k_dim == 128) & (frame.head_v_dim == 128)]
        parts = frame.groupby([*keys, "kernel_source"], as_index=False).latency.mean()
        whole = parts.groupby(keys, as_index=False).latency.agg(["sum", "count"])
        whole = whole[whole["count"] == whole["count"].max()]
        for phase, group in whole.groupby("phase"):
            b, n, kh, h, latency = columns(
                group, "batch_size", "seq_len", "num_k_heads", "num_v_heads", "sum"
            )
            channels = (2 * kh + h) * 128
            state = h * 128 * 128
            rows = channels + h * 128
            if phase == "context":
                chunks = b * np.ceil(n / SCAN_CHUNK)
                flops = b * n * (4 * state + 2 * SCAN_CHUNK * h * 256 + 8 * channels)
                moved = chunks * 2 * (4 * state + 6 * channels) + 8 * b * n * rows
                shape = (n, 128 + 0 * n, n, b * h)
                kind = Kind.SCAN_PREFILL
            else:
                flops = b * (7 * state + 8 * channels)
                moved = b * (2 * (4 * state + 6 * channels) + 8 * rows)
                shape = (1 + 0 * b, 128 + 0 * b, 1 + 0 * b, b * h)
                kind = Kind.SCAN_DECODE
            yield Table(source, kind, "bf16", flops, moved, shape, latency / 1e3)


def copies(folder: Path) -> Iterator[Table]:
    """Kernels that only move memory: static quantising of activations."""
    for source, frame in newest(folder, "quantize", "scale_matrix_perf"):
        m, k, latency = columns(frame, "m", "k", "latency")
        one = 1 + 0 * m
        yield Table(
            source, Kind.MEMORY, "bf16", 0 * m, 3 * m * k, (one, one, one, one), latency / 1e3
        )


def kernel_seconds(values: Any, table: Table, accelerator: Accelerator) -> Any:
    """What the model says of each row."""
    shares = Shares(*values)
    peak = peak_flops(table.arithmetic, accelerator)
    bandwidth = accelerator.bandwidth_bytes_per_second
    assert bandwidth is not None
    latency, work, moved = kernel_parts(
        shares, table.flops, table.num_bytes, table.shape, peak, bandwidth
    )
    return latency + (moved if table.kind is Kind.MEMORY else joined(work, moved, shares.sharpness))


# Rows lost are a tile's at most: 16 of the tensor-core kernels that few rows get.
START = Shares(0.7, 4, 100, 3e-10, 0.8, 50, 2.0, 4e-6)
LOWEST = Shares(0.02, 0.01, 0.01, 1e-14, 0.05, 0.01, 0.8, 5e-7)
HIGHEST = Shares(1.0, 16, 5000, 2e-8, 1.0, 30000, 8.0, 2e-4)


def fitted(tables: list[Table], accelerator: Accelerator) -> Shares:
    """Coefficients that make log errors of all tables small, outliers counting less."""

    def errors(logs: Any) -> Any:
        values = np.exp(logs)
        return np.concatenate(
            [
                np.log(kernel_seconds(values, table, accelerator) / table.seconds)
                / np.sqrt(len(table.seconds))
                * 60
                for table in tables
                if len(table.seconds)
            ]
        )

    best = least_squares(
        errors,
        np.log(START),
        bounds=(np.log(LOWEST), np.log(HIGHEST)),
        loss="soft_l1",
        f_scale=0.2,
        max_nfev=200,
    )
    return Shares(*(float(f"{value:.4g}") for value in np.exp(best.x)))


def residuals(shares: Shares, tables: list[Table], accelerator: Accelerator) -> dict[str, Any]:
    """Median and 90% error of predictions, and the 10 to 90% range of measured over predicted."""
    ratio = np.concatenate(
        [table.seconds / kernel_seconds(shares, table, accelerator) for table in tables]
    )
    error = np.abs(1 / ratio - 1)
    return {
        "rows": len(ratio),
        "median_error": round(float(np.median(error)), 3),
        "p90_error": round(float(np.quantile(error, 0.9)), 3),
        "range": [round(float(np.quantile(ratio, q)), 3) for q in (0.1, 0.9)],
    }


def split(tables: list[Table]) -> tuple[list[Table], list[Table]]:
    """Tables to fit and tables to check, by engine."""
    fit = [table for table in tables if table.engine != CHECKED_ENGINE]
    check = [table for table in tables if table.engine == CHECKED_ENGINE]
    if not check and len(fit) > 1:
        check = [fit.pop()]
    return (fit, check) if fit else (check, [])


def split_shapes(table: Table) -> tuple[list[Table], list[Table]]:
    """One engine's table: every fourth of its distinct layers (all their batches) is checked."""
    first, second = HELD_SHAPE[table.kind]
    layers = np.stack([table.shape[first], table.shape[second]], axis=1)
    _, number = np.unique(layers, axis=0, return_inverse=True)
    held = number.ravel() % 4 == 3
    if held.sum() < 20:
        return [table], []
    return [table.rows(~held)], [table.rows(held)]


def one_fit(fit: list[Table], check: list[Table], accelerator: Accelerator) -> dict[str, Any]:
    """Coefficients with their sources and residuals."""
    shares = fitted(fit, accelerator)
    return {
        "coefficients": list(shares),
        "extents": spans([table.extents for table in fit]),
        "fitted_on": [table.source for table in fit],
        "fit": residuals(shares, fit, accelerator),
        "checked_on": [table.source for table in check],
        "check": residuals(shares, check or fit, accelerator),
    }


def spans(tables: list[tuple[Any, ...]]) -> list[list[float]]:
    """Least and largest of each extent over all tables."""
    return [
        [float(f"{end([end(part) for part in parts]):.6g}") for end in (np.min, np.max)]
        for parts in zip(*tables, strict=True)
    ]


def kernels(folder: Path, accelerator: Accelerator) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Fits of every engine, kind and type that a GPU has tables of, and the tables themselves."""
    generator = np.random.default_rng(0)
    groups: dict[tuple[Kind, str], list[Table]] = {}
    for read in (gemms, experts, attention, latent, scans, copies):
        for table in read(folder):
            matrix = table.kind in (Kind.GEMM, Kind.GROUPED_GEMM)
            if matrix and supported_arithmetic(table.arithmetic, accelerator) != table.arithmetic:
                continue
            if (table.engine, table.kind, table.arithmetic) in EXCLUDED:
                continue
            if len(table.seconds) >= 50:
                groups.setdefault((table.kind, table.arithmetic), []).append(
                    table.sampled(generator)
                )
    found: dict[str, Any] = {"any": {}}
    for (kind, arithmetic), tables in sorted(groups.items()):
        name = f"{kind}:{arithmetic}"
        found["any"][name] = one_fit(*split(tables), accelerator)
        if kind in HELD_SHAPE:
            for table in tables:
                own = one_fit(*split_shapes(table), accelerator)
                found.setdefault(ENGINES[table.engine], {})[name] = own
    for engine, rows in found.items():
        for name, row in rows.items():
            print(
                f"  {engine:13} {name:24} fit {row['fit']['median_error']:.3f} "
                f"{row['fit']['p90_error']:.3f}  check {row['check']['median_error']:.3f} "
                f"{row['check']['p90_error']:.3f}",
                flush=True,
            )
    return found, groups


COLLECTIVES = {
    Kind.ALL_GATHER: "all_gather",
    Kind.REDUCE_SCATTER: "reduce_scatter",
    Kind.ALL_TO_ALL: "alltoall",
}


def messages(folder: Path) -> Iterator[tuple[Kind, str, Any, Any, Any]]:
    """Collectives: kind, source, whole message, ranks, seconds."""
    for source, frame in newest(folder, "comm", "custom_allreduce_perf"):
        if "backend" in frame:
            frame = frame[frame.backend.str.contains("graph")]
        size, ranks, latency = columns(frame, "message_size", "num_gpus", "latency")
        yield Kind.ALL_REDUCE, source, size, ranks, latency / 1e3
    for source, frame in newest(folder, "comm", "nccl_perf"):
        frame = frame[frame.nccl_dtype == "half"]
        for kind, name in COLLECTIVES.items():
            rows = frame[(frame.op_name == name) & (frame.num_gpus <= 8)]
            size, ranks, latency = columns(rows, "message_size", "num_gpus", "latency")
            yield kind, source, size, ranks, latency / 1e3


@dataclass(frozen=True)
class Messages:
    """Rows of one measured table of a collective: bytes of the whole message, ranks, seconds."""

    source: str
    size: Any
    ranks: Any
    seconds: Any

    @property
    def extents(self) -> tuple[Any, Any]:
        """What :attr:`Link` scales with."""
        return self.size, self.ranks

    def rows(self, rows: Any) -> Messages:
        """Some of its rows."""
        return Messages(self.source, self.size[rows], self.ranks[rows], self.seconds[rows])


def links(
    folder: Path, accelerator: Accelerator
) -> tuple[dict[str, Any], dict[Kind, list[Messages]]]:
    """Fits of collectives inside a host, by engine where it has its own, and their tables."""
    groups: dict[Kind, list[Messages]] = {}
    for kind, source, size, ranks, seconds in messages(folder):
        keep = (size >= 1024) & (size <= 2**28) & (ranks > 1)
        if keep.sum() > 5:
            groups.setdefault(kind, []).append(Messages(source, size, ranks, seconds).rows(keep))
    if any(is_cut_off(kind, table) for kind, tables in groups.items() for table in tables):
        print("  collectives left out: GPUs of that host do not reach each other", flush=True)
        return {}, {}
    found: dict[str, Any] = {"any": {}}
    for kind, tables in groups.items():
        found["any"][str(kind)] = one_link(kind, tables, accelerator)
        if kind is Kind.ALL_REDUCE:
            for table in tables:
                own = one_link(kind, [table], accelerator)
                found.setdefault(ENGINES[table.source.split("/")[1]], {})[str(kind)] = own
    return found, groups


def is_cut_off(kind: Kind, table: Messages) -> bool:
    """Whether a rank sends large messages less than a fifth as fast among eight as among two.

    Rings send as fast among eight where GPUs reach each other, and half to two thirds as fast over
    PCIe (the RTX PRO 6000's). On the L40S's host it is a tenth: what crosses its processors
    there says nothing of the card.
    """
    rates = {
        count: np.max(sent_bytes(kind, table.size[rows], count) / table.seconds[rows])
        for count in (2, 8)
        if (rows := (table.ranks == count) & (table.size >= 2**26)).any()
    }
    return len(rates) > 1 and rates[8] < rates[2] / 5


def link_ratios(link: Any, kind: Kind, tables: list[Messages], accelerator: Accelerator) -> Any:
    """Measured over predicted of each row."""
    bandwidth = link_bandwidth(accelerator)
    return np.concatenate(
        [
            table.seconds
            / link_seconds(link, sent_bytes(kind, table.size, table.ranks), table.ranks, bandwidth)
            for table in tables
        ]
    )


def fitted_link(kind: Kind, tables: list[Messages], accelerator: Accelerator) -> Link:
    """Coefficients of a collective that make log errors of all tables small."""
    best = least_squares(
        lambda logs: -np.log(link_ratios(np.exp(logs), kind, tables, accelerator)),
        np.log([6e-6, 5e-7, 0.6, 1.0]),
        bounds=(np.log([5e-7, 1e-9, 0.02, 0.3]), np.log([2e-4, 5e-5, 1.0, 4.0])),
        max_nfev=200,
    )
    return Link(*(float(f"{value:.4g}") for value in np.exp(best.x)))


def one_link(kind: Kind, tables: list[Messages], accelerator: Accelerator) -> dict[str, Any]:
    """Coefficients of a collective; every third message size is held out for the check."""
    held = [np.round(np.log2(table.size)).astype(int) % 3 == 0 for table in tables]
    fit = [table.rows(~rows) for table, rows in zip(tables, held, strict=True)]
    link = fitted_link(kind, fit, accelerator)
    kept = [table.rows(rows) for table, rows in zip(tables, held, strict=True)]
    ratio = link_ratios(link, kind, kept, accelerator)
    check = {
        "rows": len(ratio),
        "median_error": round(float(np.median(np.abs(1 / ratio - 1))), 3),
        "range": [round(float(np.quantile(ratio, q)), 3) for q in (0.1, 0.9)],
    }
    print(f"  {kind}", link, check, flush=True)
    return {
        "coefficients": list(link),
        "extents": spans([table.extents for table in fit]),
        "fitted_on": [table.source for table in tables],
        "check": check,
    }


REACHES = (4.0, 16.0, 64.0)
"""How far beyond the rest of a table rows lie that tell what fits are worth out there: the first
that leaves enough of them."""


def beyond(
    kernel_tables: dict[str, Any], link_tables: dict[str, Any]
) -> dict[str, list[list[float] | None]]:
    """For each kind and extent, how ranges grow below and above what was fitted.

    The rows within a reach of the least or largest of an extent are held out and the rest is
    fitted. Each held row asks for an exponent e such that the rest's 10 to 90% range, widened by
    (distance)^e at both ends, holds it; 80% of the rows ask for no more than what is kept, the
    median over GPUs and types. None stands for an extent that no table varies.
    """
    asked: dict[Kind, dict[int, tuple[list[float], list[float]]]] = {}
    for key, groups in kernel_tables.items():
        accelerator = find_accelerator(key)
        for (kind, _), tables in groups.items():
            found = asked.setdefault(kind, {})
            fit, _ = split(tables)
            for extent, side, near, far, distance in held_out(fit):
                shares = fitted(near, accelerator)
                inner, outer = (
                    np.concatenate(
                        [
                            table.seconds / kernel_seconds(shares, table, accelerator)
                            for table in chosen
                        ]
                    )
                    for chosen in (near, far)
                )
                found.setdefault(extent, ([], []))[side].append(growth(inner, outer, distance))
    for key, groups in link_tables.items():
        accelerator = find_accelerator(key)
        for kind, tables in groups.items():
            found = asked.setdefault(kind, {})
            for extent, side, near, far, distance in held_out(tables):
                link = fitted_link(kind, near, accelerator)
                inner, outer = (
                    link_ratios(link, kind, chosen, accelerator) for chosen in (near, far)
                )
                found.setdefault(extent, ([], []))[side].append(growth(inner, outer, distance))
    extents = {kind: 1 if kind is Kind.MEMORY else 4 for kind in asked}
    extents |= dict.fromkeys((Kind.ALL_REDUCE, *COLLECTIVES), 2)
    return {
        str(kind): [
            [round(float(np.median(side or other)), 2) for side, other in (ends, ends[::-1])]
            if (ends := found.get(extent))
            else None
            for extent in range(extents[kind])
        ]
        for kind, found in sorted(asked.items())
    }


def held_out(tables: list[Any]) -> Iterator[tuple[int, int, list[Any], list[Any], Any]]:
    """Extent, side (0 below, 1 above), rows to fit, rows held out and how far out those lie."""
    for extent, (least, largest) in enumerate(spans([table.extents for table in tables])):
        for side in (0, 1):
            for widest in REACHES:
                reach = min(widest, (largest / least) ** 0.5)
                edge = largest / reach if side else least * reach
                near, far, distance = [], [], []
                for table in tables:
                    value = table.extents[extent]
                    out = value / edge if side else edge / value
                    near.append(table.rows(out <= 1))
                    far.append(table.rows(out > 1.4))
                    distance.append(out[out > 1.4])
                if min(sum(len(table.seconds) for table in rows) for rows in (near, far)) >= 12:
                    yield extent, side, near, far, np.concatenate(distance)
                    break


def growth(inner: Any, outer: Any, distance: Any) -> float:
    """The exponent that 80% of the rows outside ask for, at least 0."""
    low, high = np.quantile(inner, 0.1), np.quantile(inner, 0.9)
    asked = np.maximum(np.log(outer / high), np.log(low / outer)) / np.log(distance)
    return max(0.0, float(np.quantile(asked, 0.8)))


def main() -> None:
    """Fit every GPU with tables and write the data file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    document: dict[str, Any] = {"source": SOURCE, "accelerators": {}}
    tables: dict[str, Any] = {}
    collectives: dict[str, Any] = {}
    for name, key in GPUS.items():
        print(name, flush=True)
        accelerator = find_accelerator(key)
        found, tables[accelerator.key] = kernels(arguments.folder / name, accelerator)
        of_links, collectives[accelerator.key] = links(arguments.folder / name, accelerator)
        document["accelerators"][accelerator.key] = {"kernels": found, "links": of_links}
    document["borrowed_spread"] = borrowed_spread(document, tables)
    document["kin_spread"] = kin_spread(document, tables)
    document["beyond"] = beyond(tables, collectives)
    TARGET.write_text(compact(document) + "\n", encoding="utf-8")


def compact(document: dict[str, Any]) -> str:
    """JSON with a line for each fit."""
    text = json.dumps(document, indent=1)
    text = re.sub(r"\n {3,}(?=[-\d\[\]n])", " ", text)
    return re.sub(r"\n {5,}(?=\S)", " ", text).replace("[ ", "[").replace("\n    }", " }")


def borrowed_spread(document: dict[str, Any], tables: dict[str, Any]) -> float:
    """Median factor by which another GPU of the same architecture's coefficients miss a table."""
    factors = []
    for key, groups in tables.items():
        accelerator = find_accelerator(key)
        for other in tables:
            if other == key or find_accelerator(other).architecture != accelerator.architecture:
                continue
            for (kind, arithmetic), group in groups.items():
                rows = document["accelerators"][other]["kernels"]["any"]
                row = rows.get(f"{kind}:{arithmetic}")
                if row:
                    factors.append(missed(Shares(*row["coefficients"]), group, accelerator))
    return round(float(np.median(factors)), 3)


def kin_spread(document: dict[str, Any], tables: dict[str, Any]) -> float:
    """Median factor by which the coefficients of the nearest other type miss a type's tables."""
    factors = []
    for key, groups in tables.items():
        rows = document["accelerators"][key]["kernels"]["any"]
        for (kind, arithmetic), group in groups.items():
            others = (f"{kind}:{name}" for name in KIN.get(arithmetic, ()))
            row = next((rows[name] for name in others if name in rows), None)
            if row:
                shares = Shares(*row["coefficients"])
                factors.append(missed(shares, group, find_accelerator(key)))
    return round(float(np.median(factors)), 3)


def missed(shares: Shares, tables: list[Table], accelerator: Accelerator) -> float:
    """Median factor between measured and predicted."""
    ratio = [table.seconds / kernel_seconds(shares, table, accelerator) for table in tables]
    return float(np.exp(np.median(np.abs(np.log(np.concatenate(ratio))))))


if __name__ == "__main__":
    main()
