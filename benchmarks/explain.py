"""How fast ``tokenroom explain`` reads logs, and how much memory that takes.

``python benchmarks/explain.py [--megabytes N] [--kinds KIND,...]`` writes a log of each kind to a
temporary file (the same each time), reads it in a process of its own, and prints MB a second of
wall and of processor time, and the most memory that was resident.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_START = (
    "INFO 11-30 08:00:00 [api_server.py:1351] vLLM API server version 0.19.0",
    "INFO 11-30 08:00:00 [utils.py:233] non-default args: {'model': 'meta-llama/Llama-3.1-8B'}",
    "INFO 11-30 08:00:20 [gpu_model_runner.py:2007] Model loading took 14.99 GiB and 12.1 seconds",
    "INFO 11-30 08:00:41 [gpu_worker.py:276] Available KV cache memory: 54.20 GiB",
    "INFO 11-30 08:00:41 [kv_cache_utils.py:1319] GPU KV cache size: 443,968 tokens",
    "INFO:     Application startup complete.",
)
_COMMON_WORDS = (
    "the of and to a in is it you that he was for on are with as his they be at one have this from "
    "or had by hot but some what there we can out other were all your when up use word how said an "
    "each she which do their time if will way about many then them would write like so these her "
    "long make thing see him two has look more day could go come did my sound no most number who"
)
_RARER_WORDS = "memory model error weights cache token server load system failed process"


def _text(rng: random.Random, length: int) -> str:
    """Words as people write them: one in a hundred is one that engines' errors have, too."""
    words = rng.choices(_COMMON_WORDS.split(), k=length)
    rarer = _RARER_WORDS.split()
    return " ".join(rng.choice(rarer) if rng.random() < 0.01 else word for word in words)


def _serving(rng: random.Random) -> Iterator[str]:
    """What vLLM prints while it serves: access lines, and figures every ten seconds."""
    yield from _START
    second = 0
    while True:
        second += 10
        clock = f"11-30 {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        yield (
            f"INFO {clock} [loggers.py:127] Engine 000: Avg prompt throughput: "
            f"{rng.uniform(0, 9000):.1f} tokens/s, Avg generation throughput: "
            f"{rng.uniform(0, 3000):.1f} tokens/s, Running: {rng.randrange(90)} reqs, Waiting: 0 "
            f"reqs, GPU KV cache usage: {rng.uniform(1, 80):.1f}%, Prefix cache hit rate: "
            f"{rng.uniform(1, 60):.1f}%"
        )
        for _ in range(100):
            yield (
                f"INFO:     10.0.{rng.randrange(256)}.{rng.randrange(256)}:"
                f'{rng.randrange(1024, 65536)} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
            )


def _prompts(rng: random.Random) -> Iterator[str]:
    """The same with ``--enable-log-requests``: two thirds of it are what clients wrote."""
    for line in _serving(rng):
        yield line
        if "POST" in line and rng.random() < 0.3:
            name = f"chatcmpl-{rng.getrandbits(128):032x}"
            said = _text(rng, rng.randrange(20, 300))
            yield (
                f"INFO 11-30 08:10:00 [logger.py:40] Received request {name}: prompt: '{said}', "
                f"params: SamplingParams(n=1, temperature=0.7, max_tokens=512), prompt_token_ids: "
                f"None, lora_request: None."
            )
            yield f"INFO 11-30 08:10:00 [async_llm.py:270] Added request {name}."


def _raw(rng: random.Random) -> Iterator[str]:
    """Prompts printed as they are, in lines that nothing marks as an engine's."""
    for line in _serving(rng):
        yield line
        if "POST" in line and rng.random() < 0.3:
            yield f"request {rng.getrandbits(64):016x} asks:"
            for _ in range(rng.randrange(1, 6)):
                yield _text(rng, rng.randrange(5, 70))


def _docker(rng: random.Random) -> Iterator[str]:
    """Docker's envelope: a JSON object a line."""
    for line in _serving(rng):
        nanos = rng.randrange(10**9)
        yield json.dumps(
            {"log": line + "\n", "stream": "stderr", "time": f"2026-11-30T08:00:00.{nanos:09}Z"}
        )


def _coloured(rng: random.Random) -> Iterator[str]:
    """What uvicorn and vLLM print on a terminal, saved with its colours, by two ranks."""
    for line in _serving(rng):
        level, _, rest = line.partition(" ")
        process = f"\x1b[1;36m(APIServer pid={rng.choice((17, 18))})\x1b[0;0m"
        yield f"{process} \x1b[32m{level}\x1b[0m {rest}\r"


KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "serving": _serving,
    "prompts": _prompts,
    "raw": _raw,
    "docker": _docker,
    "coloured": _coloured,
}


def _write(kind: str, size_bytes: int, path: Path) -> None:
    """Lines of a kind up to a size; a part of 32 MB is repeated, as drawing takes longer."""
    part, length = [], 0
    for line in KINDS[kind](random.Random(0)):
        part.append(line)
        length += len(line) + 1
        if length >= min(size_bytes, 32_000_000):
            break
    data = ("\n".join(part) + "\n").encode()
    with path.open("wb") as file:
        for _ in range(max(1, size_bytes // len(data))):
            file.write(data)


def _read(path: Path) -> None:
    """Read one log, and print what that took as JSON."""
    from tokenroom.diagnosis.explain import explain

    began, used = time.perf_counter(), time.process_time()
    with path.open("rb") as file:
        found = explain(file)
    print(
        json.dumps(
            {
                "wall_seconds": time.perf_counter() - began,
                "processor_seconds": time.process_time() - used,
                "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "healthy": found.healthy,
            }
        )
    )


def main() -> None:
    """Write and read a log of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.read is not None:
        _read(asked.read)
        return
    for kind in asked.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind}.log"
            _write(kind, asked.megabytes * 10**6, path)
            size = path.stat().st_size / 10**6
            ran = subprocess.run(
                [sys.executable, __file__, "--read", str(path)],
                check=True,
                capture_output=True,
                text=True,
            )
        told = json.loads(ran.stdout)
        print(
            f"{kind}: {size:,.0f} MB, {size / told['wall_seconds']:.0f} MB/s "
            f"({size / told['processor_seconds']:.0f} of processor time), at most "
            f"{told['peak_kib'] / 1024:.0f} MiB, healthy: {told['healthy']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
