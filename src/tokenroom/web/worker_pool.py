"""Worker processes that outlive what goes wrong with a pool of them.

A pebble pool ends for good in cases that a server meets: a worker that is killed while it waits or
before it said which task it took, one killed while it held the channel's lock or had sent half of
a result, and a task given up in the moment its result comes (``future.set_result`` then raises in
the pool's own thread). A pool that ended, or in which nothing moves any more, is replaced here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

from pebble import ProcessExpired, ProcessPool

_LOOK_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 30.0  # beyond a task's own time, until a pool counts as stuck
_END_SECONDS: Final = 5.0  # a lost pool is not waited for longer
_TRIES: Final = 3

log = logging.getLogger(__name__)


class WorkerLostError(Exception):
    """The process that worked on a task was ended from outside; the task did not fail."""


class PoolLostError(Exception):
    """The pool ended with the task in it, perhaps through another task."""


class Workers:
    """Processes that run functions, each task bounded in time.

    Args:
        make: Makes a pool; called again when one is lost.
    """

    def __init__(self, make: Callable[[], ProcessPool]) -> None:
        self._make = make
        self._pool: ProcessPool | None = None
        self._open = 0
        self._moved = 0.0
        self._endings: list[threading.Thread] = []

    def start(self) -> None:
        """Begin the processes, so that the first task does not wait for them."""
        self._pool = self._make()
        try:
            started = self._pool.active
        except (BrokenProcessPool, OSError) as error:
            log.warning("workers could not be started: %s", error)
            started = False
        if not started:
            self._replace(self._pool)

    async def stop(self) -> None:
        """End every process, whatever it is at."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            self._end(pool)
        for ending in self._endings:
            await asyncio.to_thread(ending.join, _END_SECONDS)

    async def run(self, function: Callable[..., Any], *args: Any, timeout: float) -> Any:
        """What ``function(*args)`` returns in a worker; cancelling the call ends that worker.

        Args:
            function: Importable by name, as its arguments can be pickled.
            args: Its arguments.
            timeout: Seconds it may take once a worker has it.

        Raises:
            TimeoutError: It took longer.
            WorkerLostError: Its process was killed.
            PoolLostError: The pool was lost.
            Exception: Whatever the function raised.
        """
        pool, future = self._schedule(function, args, timeout)
        if self._open == 0:
            self._moved = time.monotonic()
        self._open += 1
        waited, running = asyncio.wrap_future(future), False
        try:
            while True:
                await asyncio.wait({waited}, timeout=_LOOK_SECONDS)
                if waited.cancelled():  # not by the caller: its pool was ended
                    raise PoolLostError("it was ended")
                if waited.done():
                    return waited.result()
                if future.running() and not running:
                    running, self._moved = True, time.monotonic()
                if not pool.active:
                    raise PoolLostError("it ended")
                if time.monotonic() - self._moved > timeout + _GRACE_SECONDS:
                    raise PoolLostError("nothing in it moves")
        except ProcessExpired as died:
            raise WorkerLostError(f"{died.exitcode}") from None
        except BrokenProcessPool as broken:
            self._replace(pool)
            raise PoolLostError(str(broken)) from None
        except PoolLostError:
            self._replace(pool)
            raise
        finally:
            self._open -= 1
            self._moved = time.monotonic()
            waited.cancel()

    def _schedule(
        self, function: Callable[..., Any], args: tuple[Any, ...], timeout: float
    ) -> tuple[ProcessPool, Any]:
        for _ in range(_TRIES):
            pool = self._pool
            if pool is None:
                raise PoolLostError("the server ends")
            try:
                return pool, pool.schedule(function, args=args, timeout=timeout)
            except (RuntimeError, BrokenProcessPool, OSError) as error:
                log.warning("the pool of workers is lost (%s); a new one begins", error)
                self._replace(pool)
        raise PoolLostError("no worker can be started")

    def _replace(self, lost: ProcessPool) -> None:
        """Put a new pool in the place of a lost one, once."""
        if self._pool is lost:
            self._pool = self._make()
            self._end(lost)

    def _end(self, pool: ProcessPool) -> None:
        """End a pool in a thread: a broken one may take seconds, or never end."""
        self._endings = [thread for thread in self._endings if thread.is_alive()]
        ending = threading.Thread(target=_ended, args=(pool,), daemon=True)
        self._endings.append(ending)
        ending.start()


def _ended(pool: ProcessPool) -> None:
    pool.stop()
    try:
        pool.join()
    except Exception as error:
        log.warning("a lost pool could not be ended: %s", error)
