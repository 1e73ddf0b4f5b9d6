"""Predicted against measured throughput tables: TensorRT-LLM offline, llama-bench.

Rows are those of perf.jsonl of the validation data, which none of the coefficients was fitted on.
Left out are rows that its README marks as unfit (prefill of F16 on A100 SXM and L40S in llb) and
those of more than one GPU under llama.cpp.

    python scripts/compare_tables.py FOLDER [--rows] [--host]
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from tokenroom import ModelSpec, TokenroomError, find_accelerator, load_model
from tokenroom.memory.kv_cache import request_bytes
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.performance.host import COSTS
from tokenroom.performance.llama_cpp import Build, engine_of
from tokenroom.performance.load import Load, speed, tpot, ttft
from tokenroom.performance.step_time import step_time
from tokenroom.performance.work import Layout, StepWork

OFFLINE = ("trt017", "trt12")
BENCH = ("llb", "lcpr")
GPUS = {
    "B200-180GB": "b200-sxm-180gb",
    "GB200-192GB": "gb200-186gb",
    "GH200-480GB": "gh200-96gb",
    "H100-SXM-80GB": "h100-sxm-80gb",
    "H200-SXM-141GB": "h200-sxm-141gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "L40S": "l40s",
    "RTX-PRO-6000-Blackwell-SE": "rtx-pro-6000-blackwell-server",
    "Apple-M1-Max-32c": "m1-max-64gb",
    "Apple-M2-Ultra-76c": "m2-ultra-192gb",
    "Apple-M3-Max-40c": "m3-max-64gb",
    "RTX-PRO-6000-Blackwell-MaxQ": "rtx-pro-6000-blackwell-max-q",
    "RTX-4000-Ada": "rtx-4000-ada",
    "RTX-5000-Ada": "rtx-5000-ada",
    "DGX-Spark-GB10": "gb10",
}
MODELS = {
    "Llama-3.1-405B": "meta-llama/Llama-3.1-405B",
    "Llama-3.1-70B": "meta-llama/Llama-3.1-70B",
    "Llama-3.3-70B": "meta-llama/Llama-3.1-70B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "Llama-8B": "meta-llama/Llama-3.1-8B",
    "Llama-3-70B": "meta-llama/Meta-Llama-3-70B",
    "Llama-7B": "meta-llama/Llama-2-7b-hf",
    "Mistral-7B": "mistralai/Mistral-7B-v0.1",
    "Mixtral-8x7B": "mistralai/Mixtral-8x7B-v0.1",
    "Mixtral-8x22B": "mistralai/Mixtral-8x22B-v0.1",
    "DeepSeek-R1-0528": "deepseek-ai/DeepSeek-R1",
    "Llama-4-Maverick-17B-128E": "meta-llama/Llama-4-Maverick-17B-128E",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "Qwen3-4B": "Qwen/Qwen3-4B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
}
ROOM = 0.9  # trtllm-bench's default share of what the weights leave
KEPT_BYTES = 3 * 2**30
LARGEST_BATCH = 2048  # trtllm-bench's default max_batch_size
UNFIT = (("A100-SXM4-80GB", "F16"), ("L40S", "F16"))  # prefill of llb, by perf_README.md


@dataclass(frozen=True)
class Outcome:
    """Predicted over measured of one row."""

    group: str
    detail: str
    ratio: float


@lru_cache(maxsize=64)
def model_of(name: str, precision: str) -> ModelSpec:
    """The model in the type the table names."""
    spec = load_model(MODELS[name])
    native = ("gpt-oss" in name, "DeepSeek" in name and precision == "fp8")
    if any(native) or precision in ("fp16", "bf16"):
        return spec
    return what_if(spec, {"fp4": "nvfp4"}.get(precision, precision.lower()))


def offline(row: Mapping[str, Any]) -> Outcome:
    """All requests queued: as many run as the cache holds."""
    spec = model_of(row["model"], row["precision"])
    accelerator = find_accelerator(GPUS[row["gpu"]])
    copies = row["dp"] or 1
    layout = Layout(
        tensor_parallel_size=1 if copies > 1 else row["tp"] or 1,
        pipeline_parallel_size=row["pp"] or 1,
        data_parallel_size=copies,
        expert_parallel_size=row["ep"] or 1,
    )
    short = row["precision"] in ("fp8", "fp4")
    kv_dtype = row["kv_dtype"] or ("fp8" if short else None)
    tokens = row["isl"] + row["osl"]
    one = request_bytes(spec, tokens, kv_dtype, tensor_parallel_size=layout.tensor_parallel_size)
    weights_bytes = checkpoint_weights(spec).total_bytes / layout.accelerators
    room = ROOM * (accelerator.memory_bytes - weights_bytes - KEPT_BYTES)
    running = min(LARGEST_BATCH, max(1, int(room * layout.pipeline_parallel_size / one)))
    found = speed(
        spec,
        layout,
        accelerator,
        Load(input_tokens=row["isl"], output_tokens=row["osl"], concurrency=running * copies),
        engine="tensorrt_llm",
        kv_dtype=kv_dtype,
    )
    predicted = found.output_tokens_per_second
    if row["stat"] == "per_gpu":
        predicted = found.tokens_per_second_per_accelerator
    return Outcome(
        group=f"{row['id'].split('-')[0]} {row['gpu']} {row['precision']}",
        detail=f"{row['model']} tp{row['tp']} {row['isl']}/{row['osl']}",
        ratio=predicted / row["value"],
    )


def build_of(row: Mapping[str, Any]) -> Build:
    """What the build did: llb is of May 2024, pulls 4766 and 4812 of January, all without flash
    attention; the build of issue 12 (3622) has int8 products; the other rows are of 2026."""
    if row["id"].startswith("llb") or row["source"].endswith(("/4766", "/4812")):
        return Build(flash_attention=False, int8_products=False)
    return Build(flash_attention=not row["source"].endswith("/issues/12"), int8_products=True)


def bench(row: Mapping[str, Any]) -> Outcome:
    """One prompt, or one request's tokens one by one."""
    spec = model_of(row["model"], row["precision"])
    accelerator = find_accelerator(GPUS.get(row["gpu"], row["gpu"].replace("-", " ")))
    engine = engine_of(build_of(row))
    if row["metric"] == "tg_tokens_per_s":
        step = tpot(
            spec, Layout(), accelerator, row["osl"] / 2, 1, engine=engine, kv_dtype="float16"
        )
        predicted, kind = 1 / step, "decode"
    else:
        seconds = ttft(
            spec,
            Layout(),
            accelerator,
            row["isl"],
            engine=engine,
            max_num_batched_tokens=512,
            kv_dtype="float16",
        )
        predicted, kind = row["isl"] / seconds, "prefill"
    return Outcome(
        group=f"{row['id'].split('-')[0]} {kind} {row['gpu']} {row['precision']}",
        detail=f"{row['model']} {row['isl']}/{row['osl']}",
        ratio=predicted / row["value"],
    )


def spare_seconds(folder: Path) -> tuple[float, float]:
    """What llama.cpp's hosts spare and add to the shortest fifth of decode steps (llama-bench).

    As ``scripts/host_range.py`` does for every engine.
    """
    steps = []
    plain = COSTS["llama_cpp"]._replace(spare_seconds=(0.0, 0.0))
    with patch.dict(COSTS, {"llama_cpp": plain}):
        for row in rows(folder):
            if row["metric"] != "tg_tokens_per_s" or row["model"] not in MODELS:
                continue
            work = StepWork(decode_sequences=1, decode_context_tokens=row["osl"] / 2)
            try:
                step = step_time(
                    model_of(row["model"], row["precision"]),
                    Layout(),
                    find_accelerator(GPUS.get(row["gpu"], row["gpu"].replace("-", " "))),
                    work,
                    engine=engine_of(build_of(row)),
                    kv_dtype="float16",
                )
            except TokenroomError:
                continue
            steps.append((step, 1 / row["value"]))
    steps.sort(key=lambda pair: pair[0].seconds)
    less, more = [], []
    for step, seconds in steps[: len(steps) // 5]:
        error = seconds - step.seconds
        below, above = step.seconds - step.low_seconds, step.high_seconds - step.seconds
        less.append(max(0.0, error**2 - below**2) ** 0.5 if error < 0 else 0.0)
        more.append(max(0.0, error**2 - above**2) ** 0.5 if error > 0 else 0.0)
    return quantile(less, 0.9), quantile(more, 0.9)


def outcomes(folder: Path) -> tuple[list[Outcome], dict[str, int]]:
    """Outcomes, and how many rows were left out for which reason."""
    found: list[Outcome] = []
    missing: dict[str, int] = defaultdict(int)
    for row in rows(folder):
        if row["model"] not in MODELS:
            missing[f"{row['model']} is not named in full"] += 1
            continue
        try:
            outcome = offline if row["id"].startswith(OFFLINE) else bench
            found.append(outcome(row))
        except TokenroomError as error:
            missing[str(error)[:90]] += 1
    return found, missing


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of the tables that can be compared."""
    with (folder / "truth/perf.jsonl").open(encoding="utf-8") as file:
        for text in file:
            row = json.loads(text)
            if row["id"].startswith(OFFLINE) and row["metric"] == "output_tokens_per_s":
                yield row
            elif row["id"].startswith(BENCH) and row["gpus"] == 1 and row["isl"] is not None:
                prefill = row["metric"] == "pp_tokens_per_s"
                if prefill and (row["gpu"], row["precision"]) in UNFIT:
                    continue
                yield row


def quantile(values: list[float], share: float) -> float:
    """The value below which ``share`` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--host", action="store_true", help="print what hosts spare and add")
    arguments = parser.parse_args()
    if arguments.host:
        less, more = spare_seconds(arguments.folder)
        print(f"llama.cpp {less * 1e3:.2f} ms less, {more * 1e3:.2f} ms more")
        return
    found, missing = outcomes(arguments.folder)
    for reason, count in missing.items():
        print(f"left out {count:4}: {reason}")
    groups: dict[str, list[float]] = defaultdict(list)
    for item in found:
        words = item.group.split()
        for length in range(1, len(words) + 1):
            groups[" ".join(words[:length])].append(item.ratio)
    print(f"{'':46} {'rows':>5} {'error':>7} {'p90':>7} {'bias':>6}")
    for name in sorted(groups):
        ratios = groups[name]
        errors = [abs(ratio - 1) for ratio in ratios]
        print(
            f"{name:46} {len(ratios):5} {median(errors):7.1%} {quantile(errors, 0.9):7.1%} "
            f"{median(ratios):6.2f}"
        )
    if arguments.rows:
        for item in found:
            print(f"{item.ratio:6.2f} {item.group} {item.detail}")


if __name__ == "__main__":
    main()
