"""The same answers from every executor, whatever becomes of its workers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tried
from tried import outcomes, tasks, values

from tokenroom.errors import ExecutionError
from tokenroom.execution.store import Store
from tokenroom.execution.tasks import Task, run_tasks
from tokenroom.execution.workers import usable_cpus, workers


def test_processes_answer_what_one_process_answers() -> None:
    alone = outcomes(tasks(tried.squared, *values(7)), 1)
    assert [outcome.answer["value"] for outcome in alone] == [0, 1, 4, 9, 16, 25, 36]
    assert outcomes(tasks(tried.squared, *values(7)), 2) == alone


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_refusal_is_an_outcome_and_a_bug_is_raised(jobs: int) -> None:
    (outcome,) = outcomes(tasks(tried.refused, {"value": 3}), jobs)
    assert (outcome.answer, outcome.problem) == (None, "value is 3; give another")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        outcomes(tasks(tried.broken, {"value": 3}), jobs)


def test_an_answer_that_cannot_be_sent_is_a_bug_of_its_function() -> None:
    with pytest.raises(TypeError, match="unsendable"):
        outcomes(tasks(tried.unsendable, {}), 2)


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    questions = [
        {"value": value, "times": int(value == 2), "file": str(tmp_path / str(value))}
        for value in range(6)
    ]
    found = outcomes(tasks(tried.killed, *questions), 2)
    assert [outcome.answer for outcome in found] == [{"value": value} for value in range(6)]
    assert [outcome.lost for outcome in found] == [0, 0, 1, 0, 0, 0]


def test_a_task_that_kills_its_workers_is_named_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    questions = [
        {"value": value, "times": 9 * (value == 1), "file": str(tmp_path / str(value))}
        for value in range(4)
    ]
    found = outcomes(tasks(tried.killed, *questions), 2)
    assert [outcome.answer is None for outcome in found] == [False, True, False, False]
    assert found[1].task.name == "task 1"
    assert found[1].problem == "its worker ended 2 times, killed or out of memory"
    assert (tmp_path / "1").read_text() == "xx"


def test_what_is_kept_is_not_asked_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = outcomes(tasks(tried.squared, *values(3)), 1, store)
    again = outcomes(tasks(tried.squared, *values(5)), 2, store)
    assert [outcome.kept for outcome in again] == [True, True, True, False, False]
    assert [outcome.answer for outcome in again[:3]] == [outcome.answer for outcome in first]
    assert [outcome.kept for outcome in outcomes(tasks(tried.broken), 1, store)] == []
    store.close()
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 5


def test_another_function_is_another_question() -> None:
    one, other = (next(tasks(function, {"value": 1})) for function in (tried.squared, tried.broken))
    assert one.key != other.key
    assert one.key == next(tasks(tried.squared, {"value": 1})).key


def test_many_tasks_are_read_as_they_are_needed() -> None:
    read = 0

    def counted() -> Iterator[Task]:
        nonlocal read
        for task in tasks(tried.squared, *values(1000)):
            read += 1
            yield task

    with workers(1) as (executor, count):
        found = run_tasks(counted(), executor, workers=count)
        next(found)
        assert read <= 4
        found.close()


def test_the_tasks_under_way_end_with_their_run(tmp_path: Path) -> None:
    file = tmp_path / "begun"
    began = time.monotonic()
    with workers(2) as (executor, _):
        executor.submit(tried.waits, {"file": str(file)})
        while not file.exists():
            time.sleep(0.02)
    assert time.monotonic() - began < 50  # it sleeps for 60


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import tried
from tried import outcomes, tasks, values
from tokenroom.execution.store import Store
from tokenroom.execution.tasks import Task, run_tasks
from tokenroom.execution.workers import workers

def main():
    questions = [{{"value": value}} for value in range(3)]
    asked = [Task(name=str(q), function=tried.squared, question=q) for q in questions]
    asked.append(Task(name="long", function=tried.waits, question={{"file": {file!r}}}))
    store = Store(Path({store!r}))
    with workers(2) as (executor, count):
        for outcome in run_tasks(asked, executor, workers=count, store=store):
            print(outcome.index, outcome.kept, flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_ended_goes_on_where_it_was(tmp_path: Path, how: signal.Signals) -> None:
    begun, store, script = tmp_path / "begun", tmp_path / "store", tmp_path / "script.py"
    here = str(Path(__file__).parent)
    script.write_text(RUN.format(folder=here, file=str(begun), store=str(store)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert sorted(lines) == ["0 False\n", "1 False\n", "2 False\n"]
    while not begun.exists():
        time.sleep(0.02)
    os.killpg(process.pid, how)  # a terminal's Ctrl-C reaches the workers too
    _, err = process.communicate(timeout=30)
    assert err.count("Traceback") == (1 if how is signal.SIGINT else 0), err  # only the run's own
    kept = [json.loads(line) for line in (store / "answers.jsonl").read_text().splitlines()]
    assert sorted(entry["answer"]["value"] for entry in kept) == [0, 1, 4]
    held = Store(store)
    again = outcomes(tasks(tried.squared, *values(3)), 1, held)
    held.close()
    assert all(outcome.kept for outcome in again)


def test_who_works_is_chosen_once() -> None:
    with pytest.raises(ExecutionError, match="give one"), workers(2, "auto"):
        pass
    with workers() as (_, count):
        assert count == usable_cpus()
