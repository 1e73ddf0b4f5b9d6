"""Functions that the tests of executors have called elsewhere, and how they have it done."""

import os
import signal
import time
from collections.abc import Callable, Iterator
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
