"""What tests of executors have called elsewhere, and a Ray cluster for them."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenroom.errors import WorkloadError
from tokenroom.execution.store import Store
from tokenroom.execution.tasks import Outcome, Task, run_tasks
from tokenroom.execution.workers import workers


def squared(question: dict[str, Any]) -> dict[str, Any]:
    return {"value": question["value"] ** 2, "third": question["value"] / 3}


def refused(question: dict[str, Any]) -> dict[str, Any]:
    raise WorkloadError(f"value is {question['value']}; give another")


def broken(question: dict[str, Any]) -> dict[str, Any]:
    raise ZeroDivisionError("a bug")


def unsendable(question: dict[str, Any]) -> Any:
    return lambda: question


def killed(question: dict[str, Any]) -> dict[str, Any]:
    """Ends its own process, as often as the question says, as its file counts."""
    count = Path(question["file"])
    tried = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (tried + 1))
    if tried < question["times"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": question["value"]}


def waits(question: dict[str, Any]) -> dict[str, Any]:
    """Writes that it began, then takes long."""
    Path(question["file"]).write_text("begun")
    time.sleep(60)
    return {}


Question = dict[str, Any]


def tasks(function: Callable[[Question], Any], *questions: Question) -> Iterator[Task]:
    for number, question in enumerate(questions):
        yield Task(name=f"task {number}", function=function, question=question)


def outcomes(given: Iterator[Task], jobs: int, store: Store | None = None) -> list[Outcome]:
    with workers(jobs) as (executor, count):
        found = list(run_tasks(given, executor, workers=count, store=store))
    return sorted(found, key=lambda outcome: outcome.index)


def values(number: int) -> list[Question]:
    return [{"value": value} for value in range(number)]


HEAD = """
import sys
import ray

context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[1])
print(context.address_info["address"], flush=True)
sys.stdin.read()
"""


def ray_environment() -> dict[str, str]:
    """Variables of processes that take part in the cluster, which find what this one finds."""
    found = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return {**os.environ, "PYTHONPATH": found, "RAY_AUTH_MODE": "disabled"}


@contextmanager
def ray_head() -> Iterator[str]:
    """The address of a Ray cluster of this machine, which ends with a process of its own."""
    folder = tempfile.mkdtemp(prefix="ray")  # pytest's own are too long for the names of sockets
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ray_environment(),
    )
    assert head.stdout is not None
    try:
        yield head.stdout.readline().strip()
    finally:
        head.communicate(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)
