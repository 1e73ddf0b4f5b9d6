"""Functions that the tests of executors have called elsewhere."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from tokenroom.errors import WorkloadError


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
