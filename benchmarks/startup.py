"""Time of whole commands as a user waits for them: a new process each time.

Run by hand, on an idle machine, with the environment that has tokenroom installed:

    python benchmarks/startup.py [--runs 20] [-- tokenroom gpus h100]

Prints minimum and median of the wall time of each command; the first run is not counted.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = (
    "tokenroom --help",
    "tokenroom gpus h100",
    "tokenroom fit Llama-3.1-8B-Instruct --gpu h100 --offline",
    "tokenroom fit Llama-3.1-8B-Instruct --gpu h100 --offline --json",
    "tokenroom speed Llama-3.1-8B-Instruct --gpu h100",
    "tokenroom fit DeepSeek-V3 --gpu h200 --gpus 8 --tp 8 --offline",
)


def wall_seconds(command: list[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - start
    if done.returncode > 1:  # 1 is an answer: it does not fit
        sys.exit(f"{shlex.join(command)} failed: {done.stderr.decode(errors='replace')}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Time whole tokenroom commands.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("command", nargs="*", help="a command to time instead of the usual ones")
    options = parser.parse_args()
    commands = [options.command] if options.command else [shlex.split(text) for text in COMMANDS]
    print(f"{'minimum':>9} {'median':>9}  command")
    for command in commands:
        program = Path(sys.executable).parent / command[0]
        timed = [str(program) if program.exists() else command[0], *command[1:]]
        wall_seconds(timed)
        runs = [wall_seconds(timed) for _ in range(options.runs)]
        low, middle = min(runs) * 1e3, statistics.median(runs) * 1e3
        print(f"{low:6.0f} ms {middle:6.0f} ms  {shlex.join(command)}")


if __name__ == "__main__":
    main()
