"""Processes of this machine that work on tasks, of which the death of one harms no other."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from tokenroom.execution.lost import WorkerLostError

_Answer = TypeVar("_Answer")
_Waiting = tuple[Future[Any], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]

_STOP: Final = None
_SPAWN: Final = multiprocessing.get_context("spawn")


class Processes(Executor):
    """Worker processes that are started afresh (``spawn``) and told one task at a time.

    When one is killed, the future of the task that it was at raises :class:`WorkerLostError`, and
    a new process takes its place. Ctrl-C reaches this process only, which then decides.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._tasks: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closed = False
        self._workers = [_Worker(self._tasks) for _ in range(count)]

    def submit(self, fn: Callable[..., _Answer], /, *args: Any, **kwargs: Any) -> Future[_Answer]:
        """Have ``fn`` called in a worker; it has to be importable, and its arguments picklable.

        Raises:
            RuntimeError: The workers were shut down.
        """
        if self._closed:
            raise RuntimeError("the workers were shut down")
        future: Future[_Answer] = Future()
        self._tasks.put((future, (fn, args, kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks.

        Args:
            wait: Until those that were taken are done; otherwise processes are ended at once.
            cancel_futures: Drop the tasks that no worker has begun.
        """
        if self._closed:
            return
        self._closed = True
        if cancel_futures or not wait:
            with suppress(Empty):
                while (dropped := self._tasks.get_nowait()) is not _STOP:
                    dropped[0].cancel()
        for _ in self._workers:
            self._tasks.put(_STOP)
        for worker in self._workers:
            if not wait:
                worker.kill()
            worker.thread.join()


class _Worker:
    """A process, and the thread that tells it what to do and waits for its answers."""

    def __init__(self, tasks: SimpleQueue[_Waiting | None]) -> None:
        self._tasks = tasks
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._killed = False
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def kill(self) -> None:
        """End the process, whatever it is at."""
        self._killed = True
        if (process := self._process) is not None:
            process.kill()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not _STOP:
            future, call = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                done, answer = self._answer(call)
            except (EOFError, OSError):
                self._end()
                future.set_exception(WorkerLostError())
            except Exception as error:
                future.set_exception(error)
            else:
                if done:
                    future.set_result(answer)
                else:
                    future.set_exception(answer)
        self._end()

    def _answer(self, call: tuple[Any, ...]) -> tuple[bool, Any]:
        if self._connection is None:
            self._begin()
        assert self._connection is not None
        self._connection.send(call)
        answer: tuple[bool, Any] = self._connection.recv()
        return answer

    def _begin(self) -> None:
        _block_interrupts()
        self._connection, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        self._process = process  # not before: who ends it from elsewhere finds it running
        theirs.close()  # so that the end of the process is the end of the stream
        if self._killed:
            process.kill()

    def _end(self) -> None:
        if self._connection is not None and self._process is not None:
            self._connection.close()
            self._process.join()
        self._connection = self._process = None


def _block_interrupts() -> None:
    """Let no interrupt reach this thread, nor a process that it starts, which inherits that."""
    if hasattr(signal, "pthread_sigmask"):
        from multiprocessing.resource_tracker import ensure_running

        ensure_running()  # which lets interrupts through again when it begins
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _serve(connection: Connection) -> None:
    """Call what comes through the connection until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it was not blocked from the beginning
    while True:
        try:
            function, args, kwargs = connection.recv()
        except (EOFError, OSError):
            return
        except Exception as error:
            connection.send((False, error))
            continue
        try:
            answer = True, function(*args, **kwargs)
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = False, error
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:
            connection.send((False, TypeError(f"{type(answer[1]).__name__}: {error}")))
