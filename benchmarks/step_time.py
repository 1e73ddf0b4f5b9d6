"""Times the operators of a small and a middle model on this machine beside their predictions.

Random weights, torch only: dense products, attention over prompts and of single tokens, and whole
decode and prefill steps as the sum of their operators. On a GPU it takes a few minutes; without
one it runs two tiny shapes on the CPU, to show that it works. Prints one JSON document.

    python benchmarks/step_time.py [--accelerator KEY] [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional

from tokenroom import Accelerator, find_accelerator, load_model
from tokenroom.performance.efficiency import efficiency_of, operator_duration
from tokenroom.performance.operators import step_operators
from tokenroom.performance.work import Chunk, Kind, Layout, Operator, StepWork

MODELS = ("llama-3.1-8b", "Qwen/Qwen3-32B")
STEPS = (
    StepWork.decoding([1024]),
    StepWork.decoding([1024] * 16),
    StepWork.decoding([4096] * 64),
    StepWork.decoding([1024] * 256),
    StepWork(prefill=(Chunk(512),)),
    StepWork(prefill=(Chunk(4096),)),
)
TINY = (StepWork.decoding([16]), StepWork(prefill=(Chunk(32),)))
MOST_BYTES = 30 * 2**30
TIMED_KINDS = (Kind.GEMM, Kind.ATTENTION_PREFILL, Kind.ATTENTION_DECODE)


def seconds_of(run: Callable[[], Any], device: str) -> float:
    """Median time of a call, its start hidden by a graph on a GPU."""
    for _ in range(3):
        run()
    if device == "cpu":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    repeats = 10
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    times = []
    for _ in range(5):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / repeats)
    return sorted(times)[2]


def runner(operator: Operator, work: StepWork, device: str, scale: int) -> Callable[[], Any]:
    """The operator in torch; ``scale`` shrinks its width on a CPU."""
    dtype = torch.bfloat16
    if operator.kind is Kind.GEMM:
        m, n, k = (max(1, int(part)) for part in operator.shape[:3])
        n, k = n // scale, k // scale
        inputs = torch.randn(m, k, device=device, dtype=dtype)
        weights = torch.randn(n, k, device=device, dtype=dtype)
        return lambda: functional.linear(inputs, weights)
    prefill = operator.kind is Kind.ATTENTION_PREFILL
    if prefill:
        (chunk,) = work.prefill
        _, width, keys, heads = (int(part) for part in operator.shape)
        sequences, queries, shared = 1, chunk.tokens, 1
    else:
        group, keys, _, pieces = (int(part) for part in operator.shape)
        sequences, queries, width = work.decode_sequences, 1, 128
        heads, shared = pieces // sequences * group, group
    heads = max(shared, heads // scale)
    query = torch.randn(sequences, heads, queries, width, device=device, dtype=dtype)
    key = torch.randn(sequences, heads // shared, keys, width, device=device, dtype=dtype)
    value = torch.randn_like(key)
    return lambda: functional.scaled_dot_product_attention(
        query, key, value, is_causal=prefill, enable_gqa=shared > 1
    )


def measure(accelerator: Accelerator, device: str, quick: bool) -> list[dict[str, Any]]:
    """Measured and predicted seconds of each operator and of their sums."""
    efficiency = efficiency_of(accelerator, "vllm")
    rows = []
    for name in MODELS[: 1 if quick else 2]:
        spec = load_model(name)
        for work in TINY if quick else STEPS:
            measured = predicted = 0.0
            for operator in step_operators(spec, Layout(), work):
                if operator.kind not in TIMED_KINDS or operator.num_bytes > MOST_BYTES:
                    continue
                one = operator._replace(times=1)
                took = seconds_of(runner(one, work, device, 16 if device == "cpu" else 1), device)
                expected = operator_duration(efficiency, one, accelerator, 8).seconds
                measured += operator.times * took
                predicted += operator.times * expected
                rows.append(
                    {
                        "model": name,
                        "operator": operator.name,
                        "shape": operator.shape,
                        "measured_seconds": took,
                        "predicted_seconds": expected,
                    }
                )
            rows.append(
                {
                    "model": name,
                    "step": {
                        "prefill_tokens": work.prefill_tokens,
                        "decode_sequences": work.decode_sequences,
                        "decode_context_tokens": work.decode_context_tokens,
                    },
                    "measured_seconds": measured,
                    "predicted_seconds": predicted,
                }
            )
    return rows


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", help="catalogue key, when the name is not recognised")
    parser.add_argument("--quick", action="store_true", help="two tiny steps of one model")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "none: CPU, scaled down"
    accelerator = find_accelerator(
        arguments.accelerator or (name if device == "cuda" else "h100-sxm-80gb")
    )
    rows = measure(accelerator, device, arguments.quick or device == "cpu")
    document = {
        "device": name,
        "accelerator": accelerator.key,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
