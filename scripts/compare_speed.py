"""Predicted against measured speed, by engine, GPU, model, precision and metric.

Rows are those of perf_aic_silicon.jsonl.gz and perf.jsonl of the validation data. Serving rows are
split by the file they were collected in: those of 2026-04-06.csv were used to set the host's part
of a step (src/tokenroom/performance/host.py), all other files are kept for checking, less the
measurements that the first repeats. Rows no deployment without speculation or cached prompts can
produce (faster than the memory or the arithmetic of the GPUs allows) are counted and left out.

    python scripts/compare_speed.py FOLDER [--part check|fit|all] [--rows] [--host]
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from unittest.mock import patch

from tokenroom import Accelerator, ModelSpec, TokenroomError, find_accelerator, load_model
from tokenroom.memory.kv_cache import request_bytes
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.performance.efficiency import bandwidth_of, peak_flops
from tokenroom.performance.host import COSTS
from tokenroom.performance.load import Load, speed
from tokenroom.performance.operators import step_operators
from tokenroom.performance.work import Kind, Layout, StepWork

FITTED_FILE = "2026-04-06.csv"
ENGINES = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "tensorrt_llm"}
GPUS = {
    "B200-180GB": "b200-sxm-180gb",
    "H200-SXM-141GB": "h200-sxm-141gb",
    "H100-SXM-80GB": "h100-sxm-80gb",
    "GB200-192GB": "gb200-186gb",
}
ALIASES = {"nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B-Instruct"}
NATIVE = {"fp8": ("deepseek", "MiniMax", "FP8"), "fp4": ("gpt-oss",), "int4": ("Kimi",)}
BLOCK_FP8 = ("Qwen3-32B", "Qwen3.5")  # published FP8 checkpoints have 128x128 scales
ROOM = 0.9  # share of memory that vLLM and SGLang use, and of what weights leave TensorRT-LLM's
RECIPE_ROOM = 0.8  # free_gpu_memory_fraction of InferenceX's recipes for TensorRT-LLM
KEPT_BYTES = 3 * 2**30  # beside weights and cache


@dataclass(frozen=True)
class Row:
    """One measured point of a serving benchmark."""

    source: str
    engine: str
    version: str
    model: str
    precision: str
    gpu: str
    layout: Layout
    input_tokens: int
    output_tokens: int
    concurrency: int
    ttft_seconds: float
    tpot_seconds: float

    @property
    def measured(self) -> tuple[object, ...]:
        """What tells a repeated measurement."""
        return (self.engine, self.model, self.gpu, self.precision, self.ttft_seconds)

    @property
    def recipe(self) -> bool:
        """Collected by InferenceX, whose recipes are public (SemiAnalysisAI/InferenceX)."""
        return self.source.startswith(("20", "qwen3.5"))


@dataclass(frozen=True)
class Outcome:
    """A row, predicted over measured of both metrics, and output tokens a second and GPU.

    ``low`` and ``high`` are the ends of the predicted range of TPOT over the measured.
    """

    row: Row
    part: str
    tpot: float
    ttft: float
    predicted_rate: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the measured TPOT lies in the predicted range."""
        return self.low <= 1 <= self.high

    @property
    def measured_rate(self) -> float:
        """Output tokens a second and accelerator that the measured times amount to."""
        row = self.row
        cycle = row.ttft_seconds + (row.output_tokens - 1) * row.tpot_seconds
        return row.concurrency * row.output_tokens / cycle / row.layout.accelerators


def serving_rows(folder: Path) -> Iterator[Row]:
    """Pairs of TTFT and TPOT; rows whose sizes contradict each other are left out."""
    with gzip.open(folder / "truth/perf_aic_silicon.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for first, second in pairwise(lines):
        note = str(first["note"])
        if first["metric"] != "ttft_ms" or "same csv row" not in second["note"]:
            continue
        source = re.search(r"source_file=([^;]*)|db-dump/([\d-]+)", note)
        tp, dp, ep = first["tp"] or 1, first["dp"] or 1, first["ep"] or 1
        expert_tp = re.search(r"moe_tp=([1-9]\d*)", note)
        if expert_tp and first["dp"] is None and int(expert_tp[1]) * ep > tp:
            dp = int(expert_tp[1]) * ep // tp  # a blank beside experts over more ranks than tp
        elif expert_tp and "epnone" in note and tp * dp % int(expert_tp[1]) == 0:
            ep = tp * dp // int(expert_tp[1])
        if tp * dp > 8 or tp * dp % ep or first["gpu"] not in GPUS or source is None:
            continue
        yield Row(
            source=source[1] or f"{source[2]} dump",
            engine=first["engine"],
            version=str(first["engine_version"]),
            model=first["model"],
            precision=str(first["precision"]),
            gpu=first["gpu"],
            layout=Layout(tensor_parallel_size=tp, data_parallel_size=dp, expert_parallel_size=ep),
            input_tokens=first["isl"],
            output_tokens=first["osl"],
            concurrency=first["batch_or_concurrency"],
            ttft_seconds=first["value"] / 1e3,
            tpot_seconds=second["value"] / 1e3,
        )


@lru_cache(maxsize=64)
def model_of(name: str, precision: str) -> ModelSpec | None:
    """The model as it was loaded, None when the catalogue does not have it."""
    try:
        spec = load_model(ALIASES.get(name, name))
    except TokenroomError:
        return None
    if precision in ("None", "bf16") or any(part in name for part in NATIVE.get(precision, ())):
        return spec if not (precision == "fp8" and name in ALIASES) else what_if(spec, "fp8")
    if precision == "fp8":
        return what_if(spec, "fp8_block" if any(p in name for p in BLOCK_FP8) else "fp8")
    return what_if(spec, {"fp4": "nvfp4", "int4": "int4"}[precision])


def kv_dtype_of(row: Row) -> str | None:
    """Type of the cache: FP8 where the recipes or NVIDIA's checkpoints ask for it."""
    quantised = row.precision in ("fp8", "fp4")
    if row.engine == "TensorRT-LLM" and row.recipe and quantised:
        return "fp8"
    if row.engine == "SGLang" and row.gpu != "B200-180GB":  # benchmarks/dsr1_fp8_h200.sh
        return None
    return "fp8" if quantised and row.model.startswith(("meta-llama", "deepseek")) else None


def admission_steps(row: Row) -> float:
    """Steps that new requests wait by the recipes' settings.

    SGLang on B200 looks for requests each 10 steps, 30 from 16 clients on
    (benchmarks/dsr1_fp8_b200.sh, qwen3.5 likewise): half of it on average. TensorRT-LLM waits 20
    or 40 iterations for prompts to gather (benchmarks/70b_fp8_h200_trt_slurm.sh,
    dsr1_fp8_b200_trt.sh: batch_wait_timeout_iters).
    """
    if not row.recipe:
        return 0.0
    tp = row.layout.tensor_parallel_size
    short = row.input_tokens == row.output_tokens == 1024
    if row.engine == "SGLang" and row.gpu == "B200-180GB":
        often = row.concurrency < 16 or (tp < 8 and "deepseek" in row.model)
        return 5.0 if often else 15.0
    if row.engine == "TensorRT-LLM" and "Llama-3.1-70B" in row.model and short and tp < 8:
        return 20.0
    if row.engine == "TensorRT-LLM" and "deepseek" in row.model and row.gpu == "B200-180GB":
        delayed = row.precision == "fp8" and short and 64 <= row.concurrency < 256
        return 40.0 if delayed else 0.0
    return 0.0


def cache_room_bytes(row: Row, spec: ModelSpec, memory_bytes: int) -> float:
    """Memory of one GPU that the cache gets: a share of all, or of what the weights leave."""
    weights_bytes = checkpoint_weights(spec).total_bytes / row.layout.expert_ranks
    if row.engine == "TensorRT-LLM":
        share = RECIPE_ROOM if row.recipe else ROOM
        return share * (memory_bytes - weights_bytes - KEPT_BYTES)
    return ROOM * memory_bytes - weights_bytes - KEPT_BYTES


def beats_hardware(row: Row, spec: ModelSpec, accelerator: Accelerator) -> bool:
    """Whether the row was faster than memory or arithmetic allows one token a step."""
    copies = row.layout.data_parallel_size
    sequences = max(1, row.concurrency // copies)
    work = StepWork(
        decode_sequences=sequences,
        decode_context_tokens=row.input_tokens * 0.9,
        other_tokens=sequences * (copies - 1),
    )
    operators = step_operators(spec, row.layout, work, kv_dtype=kv_dtype_of(row))
    moved = sum(operator.times * operator.num_bytes for operator in operators)
    cycle = row.ttft_seconds + row.output_tokens * row.tpot_seconds
    tokens = row.concurrency * row.input_tokens * 0.9 / cycle
    flops = sum(
        operator.times * operator.flops / work.tokens
        for operator in operators
        if operator.kind in (Kind.GEMM, Kind.GROUPED_GEMM) and operator.name != "lm_head"
    )
    busy = tokens * flops / copies / (0.7 * peak_flops(arithmetic(spec), accelerator))
    return row.tpot_seconds < moved / bandwidth_of(accelerator) or busy > 1


def arithmetic(spec: ModelSpec) -> str:
    """The fastest type the model's matrices run in."""
    method = spec.quantization or ""
    if "fp4" in method:
        return "nvfp4"
    return "fp8" if "fp8" in method else "bf16"


def outcome(row: Row, part: str) -> Outcome | str:
    """Predicted over measured, or why there is no prediction."""
    spec = model_of(row.model, row.precision)
    if spec is None:
        return f"{row.model} is not in the catalogue"
    accelerator = find_accelerator(GPUS[row.gpu])
    if beats_hardware(row, spec, accelerator):
        return "faster than the hardware allows: speculation or cached prompts"
    varied = 0.9 if row.recipe else 1.0  # assumed: lengths from 80 to 100% of nominal
    isl, osl = round(row.input_tokens * varied), round(row.output_tokens * varied)
    kv_dtype = kv_dtype_of(row)
    room = cache_room_bytes(row, spec, accelerator.memory_bytes)
    one = request_bytes(
        spec, isl + osl, kv_dtype, tensor_parallel_size=row.layout.tensor_parallel_size
    )
    found = speed(
        spec,
        row.layout,
        accelerator,
        Load(
            input_tokens=isl,
            output_tokens=osl,
            concurrency=row.concurrency,
            waves=10,
            lengths_vary=row.recipe,
        ),
        engine=ENGINES[row.engine],
        max_num_batched_tokens=32768 if row.recipe and row.engine == "SGLang" else 8192,
        max_num_seqs=max(1, int(room / one)),
        admission_steps=admission_steps(row),
        kv_dtype=kv_dtype,
    )
    return Outcome(
        row=row,
        part=part,
        tpot=found.tpot_seconds / row.tpot_seconds,
        ttft=found.ttft_seconds / row.ttft_seconds,
        predicted_rate=found.tokens_per_second_per_accelerator,
        low=found.tpot_low_seconds / row.tpot_seconds,
        high=found.tpot_high_seconds / row.tpot_seconds,
    )


def outcomes(rows: Iterable[Row]) -> tuple[list[Outcome], dict[str, int]]:
    """Outcomes of distinct rows, and how many were left out for which reason."""
    everything = list(rows)
    used = {row.measured for row in everything if row.source == FITTED_FILE}
    seen: set[tuple[object, ...]] = set()
    found: list[Outcome] = []
    missing: dict[str, int] = defaultdict(int)
    for row in everything:
        if row.measured in seen:
            continue
        seen.add(row.measured)
        result = outcome(row, "fit" if row.measured in used else "check")
        if isinstance(result, str):
            missing[result] += 1
        else:
            found.append(result)
    return found, missing


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which ``share`` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def shortest_fifth(rows: Iterable[Outcome]) -> list[Outcome]:
    """Of each engine the rows with the shortest predicted TPOT."""
    found = []
    by_engine: dict[str, list[Outcome]] = defaultdict(list)
    for item in rows:
        by_engine[item.row.engine].append(item)
    for group in by_engine.values():
        group.sort(key=lambda item: item.tpot * item.row.tpot_seconds)
        found += group[: len(group) // 5]
    return found


def spare_seconds(rows: Iterable[Outcome]) -> dict[str, tuple[float, float]]:
    """By engine, what hosts spare and add to the shortest steps beyond the ranges of operators.

    Errors of both parts join by the root of their squares, so each row asks for the root of what
    its error's square is beyond that of the range; nine of ten rows ask for no more on their side.
    Ask it of outcomes predicted with hosts that spare and add nothing.
    """
    asked: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for item in shortest_fifth(rows):
        for side, end in enumerate((item.low, item.high)):
            wrong = (item.tpot > 1) == (side == 0)
            beyond = (item.tpot - 1) ** 2 - (item.tpot - end) ** 2
            seconds = max(0.0, beyond) ** 0.5 * item.row.tpot_seconds if wrong else 0.0
            asked[item.row.engine][side].append(seconds)
    return {
        engine: (quantile(less, 0.9), quantile(more, 0.9))
        for engine, (less, more) in sorted(asked.items())
    }


def kendall_tau(rows: Iterable[Outcome]) -> float:
    """How often two deployments of a model on a kind of GPU are ordered alike, by speed per GPU.

    Compared are engines, precisions, layouts and loads: output tokens a second and accelerator of
    the same model, GPU and lengths.
    """
    groups: dict[tuple[object, ...], list[Outcome]] = defaultdict(list)
    for item in rows:
        row = item.row
        groups[row.model, row.gpu, row.input_tokens, row.output_tokens].append(item)
    agreeing = total = 0
    for group in groups.values():
        for number, first in enumerate(group):
            for second in group[:number]:
                total += 1
                measured = first.measured_rate - second.measured_rate
                agreeing += (first.predicted_rate - second.predicted_rate) * measured > 0
    return 2 * agreeing / total - 1 if total else 1.0


def line(name: str, group: list[Outcome]) -> str:
    """Errors of one group of rows."""
    tpot = [abs(item.tpot - 1) for item in group]
    ttft = [abs(item.ttft - 1) for item in group]
    return (
        f"{name:66} {len(group):5} {median(tpot):6.1%} {quantile(tpot, 0.9):6.1%} "
        f"{median(item.tpot for item in group):6.2f} {median(ttft):7.1%} "
        f"{median(item.ttft for item in group):6.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=("check", "fit", "all"), default="check")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--host", action="store_true", help="print what hosts spare and add")
    arguments = parser.parse_args()
    if arguments.host:
        plain = {name: cost._replace(spare_seconds=(0.0, 0.0)) for name, cost in COSTS.items()}
        with patch.dict(COSTS, plain):
            found, _ = outcomes(serving_rows(arguments.folder))
        spare = spare_seconds(item for item in found if item.part == "check")
        for engine, (less, more) in spare.items():
            print(f"{engine:14} {less * 1e3:.2f} ms less, {more * 1e3:.2f} ms more")
        return
    started = time.perf_counter()
    found, missing = outcomes(serving_rows(arguments.folder))
    took = time.perf_counter() - started
    print(f"{len(found)} rows in {took:.1f} s; left out:")
    for reason, count in missing.items():
        print(f"  {count:4} {reason}")
    chosen = [item for item in found if arguments.part in (item.part, "all")]
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for item in chosen:
        row = item.row
        groups[f"all {item.part}"].append(item)
        groups[f"{item.part} {row.engine}"].append(item)
        name = row.model.split("/")[-1]
        groups[f"{item.part} {row.engine} {row.gpu} {name} {row.precision}"].append(item)
    print(f"{'':66} {'rows':>5} {'TPOT':>6} {'p90':>6} {'bias':>6} {'TTFT':>7} {'bias':>6}")
    for name in sorted(groups):
        print(line(name, groups[name]))
    shortest = shortest_fifth(chosen)
    rest = [item for item in chosen if item not in shortest]
    for name, group in (("", chosen), (", shortest fifth", shortest), (", the others", rest)):
        inside, below = (
            sum(test(item) for item in group) / len(group)
            for test in (lambda item: item.inside, lambda item: item.low > 1)
        )
        print(
            f"measured TPOT inside the predicted range{name}: {inside:.0%}, below {below:.0%}, "
            f"above {1 - inside - below:.0%}"
        )
    print(f"order of deployments, Kendall's tau: {kendall_tau(chosen):.2f}")
    if arguments.rows:
        for item in chosen:
            print(f"{item.tpot:6.2f} {item.ttft:6.2f} {item.row}")


if __name__ == "__main__":
    main()
