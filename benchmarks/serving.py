"""Serves on loopback and has wrk drag sliders: latencies, errors, memory and processor time.

    python benchmarks/serving.py [--seconds 60] [--rate 300] [--users 200]

wrk (https://github.com/wg/wrk, 4.1 or later) asks by ``benchmarks/sliders.lua``. The load average
is printed before and after, since whatever else runs delays the answers; the server's own
processor time for a request does not depend on it as much. Reads /proc, so Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("sliders.lua")
SAMPLE_SECONDS = 5.0


def main() -> None:
    """Run it once and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=300, help="questions a second in all")
    parser.add_argument("--users", type=int, default=200, help="connections that are kept open")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "tokenroom", "serve", "--port", "0"]
        words += ["--database", f"{folder}/jobs.sqlite3"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            found = re.search(r"http://\S+/", server.stderr.readline())
            assert found is not None
            try:
                print(json.dumps(measured(server.pid, found[0], wanted)))
            finally:
                server.terminate()


def measured(server: int, address: str, wanted: argparse.Namespace) -> dict[str, object]:
    """What came out of one run of wrk."""
    time.sleep(5)  # lists are made and workers begin meanwhile
    asking = ["wrk", "-t2", f"-c{wanted.users}", f"-d{wanted.seconds}", "-s", str(SCRIPT)]
    asking += [address, "--", str(wanted.rate), str(wanted.users)]
    load, used = os.getloadavg()[0], processor_seconds(server)
    memory = []
    with subprocess.Popen(asking, stdout=subprocess.PIPE, text=True) as wrk:
        while wrk.poll() is None:
            memory.append(resident_mib(server))
            time.sleep(min(SAMPLE_SECONDS, wanted.seconds / 4))
        assert wrk.stdout is not None
        told = json.loads(wrk.stdout.read().splitlines()[-1])
    spent = processor_seconds(server) - used
    return told | {
        "requests_per_second": round(told["requests"] / told["seconds"], 1),
        "processor_ms_a_request": round(1e3 * spent / max(1, told["requests"]), 2),
        "resident_mib": {
            "first": memory[0],
            "quarters": [memory[len(memory) * part // 4] for part in (1, 2, 3)],
            "last": memory[-1],
        },
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
    }


def processor_seconds(process: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(process: int) -> float:
    """Memory that a process holds."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return round(int(found[1]) / 1024, 1) if found else 0.0


if __name__ == "__main__":
    main()
