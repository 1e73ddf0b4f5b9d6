"""A real Ray cluster of this machine, started for the test in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tried import outcomes, ray_environment, ray_head, squared, tasks, values

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed"),
]

CLIENT = """
import json, sys
import tried
from pathlib import Path
from tokenroom.execution.tasks import Task, run_tasks
from tokenroom.execution.workers import workers

address, folder = sys.argv[1:]
asked = [Task(name=str(v), function=tried.squared, question={"value": v}) for v in range(5)]
for number, (function, question) in enumerate((
    (tried.killed, {"value": 5, "times": 1, "file": folder + "/once"}),
    (tried.killed, {"value": 6, "times": 9, "file": folder + "/always"}),
    (tried.refused, {"value": 7}),
)):
    asked.append(Task(name=f"other {number}", function=function, question=question))
with workers(None, address) as (executor, count):
    found = list(run_tasks(asked, executor, workers=count))
found.sort(key=lambda outcome: outcome.index)
print(json.dumps([[o.answer, o.problem, o.lost] for o in found]))
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ray_head() as found:
        yield found


def test_a_cluster_answers_what_processes_answer(tmp_path: Path, address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, address, str(tmp_path)],
        capture_output=True,
        text=True,
        env=ray_environment(),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [answer for answer, _, _ in found[:5]] == [
        outcome.answer for outcome in outcomes(tasks(squared, *values(5)), 1)
    ]
    assert found[5] == [{"value": 5}, None, 1]
    assert found[6] == [None, "its worker ended 2 times, killed or out of memory", 2]
    assert found[7] == [None, "value is 7; give another", 0]


def test_an_address_without_a_cluster_is_refused() -> None:
    code = (
        "from tokenroom.execution.ray_cluster import RayCluster\n"
        "from tokenroom.errors import ExecutionError\n"
        "try: RayCluster('127.0.0.1:9')\n"
        "except ExecutionError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=ray_environment(),
        timeout=120,
    )
    assert done.stdout.startswith("--ray 127.0.0.1:9: no cluster answers there"), done.stderr
