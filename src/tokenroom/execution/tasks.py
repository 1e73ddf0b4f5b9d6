"""Answers many questions with the workers of an executor, keeping each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tokenroom.errors import TokenroomError
from tokenroom.execution.canonical import digest, program_version
from tokenroom.execution.lost import WorkerLostError
from tokenroom.execution.store import Store

_TRIES: Final = 2
_AHEAD: Final = 2  # tasks given out for each worker, so that none waits for the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question and what answers it.

    Attributes:
        name: What it is called, for people.
        function: Importable by its name, with no other input than the question: the same question
            has the same answer anywhere. The answer is what JSON can hold.
        question: Its only argument; picklable.
        identity: Gives all that the answer depends on, as
            :func:`tokenroom.execution.canonical.digest` takes it; None for the question itself.
    """

    name: str
    function: Callable[[Any], Any]
    question: Any
    identity: Callable[[], Any] | None = None

    @property
    def key(self) -> str:
        """Name of the full question: the function, the identity, and the program's version."""
        asked = self.question if self.identity is None else self.identity()
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        return digest([program_version(), function, asked])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a task.

    Attributes:
        index: Which task it was, counted from 0.
        task: The task.
        answer: The answer; None where there is none.
        problem: Why there is none, in a sentence.
        kept: The answer was there from an earlier run.
        lost: How often its worker ended with it.
    """

    index: int
    task: Task
    answer: Any = None
    problem: str | None = None
    kept: bool = False
    lost: int = 0


def run_tasks(
    tasks: Iterable[Task],
    executor: Executor,
    *,
    workers: int,
    store: Store | None = None,
) -> Iterator[Outcome]:
    """The outcome of each task, as it comes.

    Answers that are in the store are taken from it; others go into it at once. A task whose worker
    is lost is given out once more. Tasks are read as they are needed, so there may be many.

    Args:
        tasks: The tasks.
        executor: What calls functions elsewhere; a lost worker is a :class:`WorkerLostError`.
        workers: How many tasks it works on at once.
        store: Where answers are kept.

    Raises:
        StoreError: The store cannot be written.
    """
    unread = enumerate(tasks)
    under_way: dict[Future[_Said], _Given] = {}
    try:
        while True:
            while len(under_way) < workers * _AHEAD and (entry := next(unread, None)) is not None:
                index, task = entry
                key = None if store is None else task.key
                held = None if store is None or key is None else store.get(key)
                if held is not None:
                    yield Outcome(index=index, task=task, answer=held, kept=True)
                else:
                    future = executor.submit(_said, task.function, task.question)
                    under_way[future] = _Given(index, task, key)
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                given = under_way.pop(future)
                if isinstance(future.exception(), WorkerLostError) and given.lost + 1 < _TRIES:
                    again = executor.submit(_said, given.task.function, given.task.question)
                    under_way[again] = given._replace(lost=given.lost + 1)
                else:
                    yield _outcome(future, given, store)
    finally:  # ended early: what is done by now is kept
        for future, given in under_way.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                _outcome(future, given, store)


class _Given(NamedTuple):
    number: int
    task: Task
    key: str | None
    lost: int = 0


class _Said(NamedTuple):
    answer: Any
    problem: str | None


def _said(function: Callable[[Any], Any], question: Any) -> _Said:
    """The answer, or why the library refuses the question."""
    try:
        return _Said(function(question), None)
    except TokenroomError as error:  # as text, since not all of them can be sent
        return _Said(None, str(error))


def _outcome(future: Future[_Said], given: _Given, store: Store | None) -> Outcome:
    lost = given.lost
    try:
        answer, problem = future.result()
    except WorkerLostError:
        lost += 1
        answer, problem = None, f"its worker ended {lost} times, killed or out of memory"
    if store is not None and given.key is not None and problem is None:
        store.put(given.key, given.task.name, answer)
    return Outcome(index=given.number, task=given.task, answer=answer, problem=problem, lost=lost)
