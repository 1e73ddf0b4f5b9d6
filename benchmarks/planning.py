"""How fast ``tokenroom plan`` judges deployments, and how long whole questions take.

    python benchmarks/planning.py judge [--judge 100000] [--model NAME]
    python benchmarks/planning.py question [--rounds 5] [--aiconfigurator PATH]
    python benchmarks/planning.py default [--model NAME]

``judge`` finds memory and speed of so many deployments in one process, of the whole catalogue of
GPUs and every setting that is tried, no bound at work. ``question`` asks what aiconfigurator is
asked as well (Llama-3.1-70B FP8, 8 H200, vLLM, 4,000 tokens in and 1,000 out, TTFT 1 s and TPOT
30 ms on average), each in a process of its own, in turns; times are of processors, start-up and
simulations included. ``default`` plans for 1,000 users over all GPUs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

QUESTION = (
    *("plan", "llama-3.1-70b@fp8", "--have", "8xh200", "--kv", "auto,fp8", "--keep", "mean"),
    *("--input", "4000", "--output", "1000", "--ttft", "1s", "--tpot", "30ms", "--jobs", "1"),
)
AICONFIGURATOR = (
    *("cli", "default", "--model-path", "nvidia/Llama-3.1-70B-Instruct-FP8", "--total-gpus", "8"),
    *("--system", "h200_sxm", "--backend", "vllm", "--isl", "4000", "--osl", "1000"),
    *("--ttft", "1000", "--tpot", "30"),
)


def judge(count: int, model: str) -> None:
    """Judge deployments until there are so many, and say how long it took."""
    from tokenroom import load_model
    from tokenroom.hardware.catalogue import load_catalogue
    from tokenroom.objectives import Objectives
    from tokenroom.planning.candidates import candidates
    from tokenroom.planning.demand import Demand
    from tokenroom.planning.lengths import USUAL_TOKENS, of_means
    from tokenroom.planning.tuned import Counts, LayoutJudge
    from tokenroom.planning.tuning import space_of

    lengths = of_means(*USUAL_TOKENS)
    demand = Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=lengths.longest_tokens,
        lengths=lengths.pairs,
        objectives=Objectives(ttft_seconds=2.0, tpot_seconds=0.05),
        users=1000,
        think_seconds=10.0,
    )
    layouts = list(candidates([load_model(model)], list(load_catalogue())))
    space = space_of("vllm")
    counts, proposable, started = Counts(), 0, time.process_time()
    for number, layout in enumerate(layouts, start=1):  # noqa: B007
        verdict = LayoutJudge(layout, demand, space, bounds=False).verdict()
        counts += verdict.counts
        proposable += bool(verdict.tuned)
        if counts.judged >= count:
            break
    seconds = time.process_time() - started
    print(
        f"{counts.judged:,} deployments of {number} layouts in {seconds:.2f} s of one core "
        f"({counts.judged / seconds:,.0f} a second); {proposable} layouts keep the promises"
    )


def question(rounds: int, aiconfigurator: Path | None) -> None:
    """Ask the same of both, in turns."""
    ours = [sys.executable, "-m", "tokenroom", *QUESTION]
    tools = {"tokenroom": [*ours, "--no-disaggregate"], "tokenroom, servers apart too": ours}
    if aiconfigurator is not None:
        tools["aiconfigurator"] = [str(aiconfigurator), *AICONFIGURATOR]
    times: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(rounds):
        for name, command in tools.items():
            times[name].append(processor_seconds(command))
    for name, seconds in times.items():
        print(f"{name}: least {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s")
    if aiconfigurator is not None:
        ratio = statistics.median(times["aiconfigurator"]) / statistics.median(times["tokenroom"])
        print(f"{ratio:.1f} times as long")


def processor_seconds(command: Sequence[str]) -> float:
    """Processor time of a command, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def default(model: str) -> None:
    """A plan over the whole catalogue, its simulations in as many processes as there are CPUs."""
    command = [sys.executable, "-m", "tokenroom", "plan", model]
    command += ["--users", "1000", "--think-time", "10s", "--ttft", "2s", "--tpot", "50ms"]
    started = time.perf_counter()
    used = processor_seconds(command)
    passed = time.perf_counter() - started
    print(f"{passed:.1f} s, {used:.1f} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["judge", "question", "default"])
    parser.add_argument("--judge", type=int, default=100_000, dest="count")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--aiconfigurator", type=Path)
    asked = parser.parse_args()
    match asked.what:
        case "judge":
            judge(asked.count, asked.model)
        case "question":
            question(asked.rounds, asked.aiconfigurator)
        case _:
            default(asked.model)


if __name__ == "__main__":
    main()
