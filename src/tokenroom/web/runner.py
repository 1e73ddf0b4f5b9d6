"""Takes queued jobs one by one to the workers, and keeps what they bring back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from tokenroom.web.jobs import Job, JobStore
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.worker_pool import PoolLostError, WorkerLostError
from tokenroom.web.workers import RefusedQuestionError, new_workers, run_job

_MAX_ATTEMPTS: Final = 2  # a job whose worker was killed is tried once more
_MAX_POOLS: Final = 5  # a pool is lost through other jobs as well
_IDLE_SECONDS: Final = 1.0  # how long a job of another process's server may go unseen
_KEEP_SECONDS: Final = 3.0
_FORGET_SECONDS: Final = 3600.0

log = logging.getLogger(__name__)


class JobRunner:
    """The jobs that one server works on."""

    def __init__(self, store: JobStore, settings: ServerSettings) -> None:
        self.store = store
        self.settings = settings
        self._workers = new_workers(
            settings.job_workers, memory_bytes=settings.worker_memory_bytes, nice=True
        )
        self._running: dict[str, asyncio.Task[None]] = {}
        self._wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to take jobs."""
        self._workers.start()
        self._keep(self._take_jobs())
        self._keep(self._repeat(self._stay, _KEEP_SECONDS))
        self._keep(self._repeat(self._forget, _FORGET_SECONDS))

    async def stop(self) -> None:
        """End workers; jobs that run are queued again, for the next start or another server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._workers.stop()
        with _noted("jobs that run could not be queued again"):
            await asyncio.to_thread(self.store.release)

    def wake(self) -> None:
        """Say that a job was queued."""
        self._wanted.set()

    async def cancel(self, job_id: str) -> bool:
        """End a job, and its worker with it; False when it had ended."""
        ended = await asyncio.to_thread(self.store.cancel, job_id)
        task = self._running.get(job_id)
        if task is not None:
            task.cancel()
        return ended

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _take_jobs(self) -> None:
        while True:
            with _noted("no job could be taken"):
                while len(self._running) < self.settings.job_workers:
                    taken = await asyncio.to_thread(self.store.take)
                    if taken is None:
                        break
                    self._begin(*taken)
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _IDLE_SECONDS)

    def _begin(self, job: Job, question: dict[str, Any]) -> None:
        self._running[job.id] = task = self._keep(self._work(job, question))
        task.add_done_callback(lambda _: self._ended(job.id))

    def _ended(self, job_id: str) -> None:
        self._running.pop(job_id, None)
        self.wake()

    async def _work(self, job: Job, question: dict[str, Any]) -> None:
        finished = False
        try:
            said = await self._workers.run(
                *(run_job, job.kind, question, self.settings.allow_hub, job.id, self.store.path),
                timeout=self.settings.job_seconds,
            )
            finished = True
        except RefusedQuestionError as refused:
            said = str(refused)
        except TimeoutError:
            limit = self.settings.job_seconds
            said = f"the job took longer than the {limit:g} s it may; ask for less"
        except (WorkerLostError, PoolLostError) as lost:
            most = _MAX_ATTEMPTS if isinstance(lost, WorkerLostError) else _MAX_POOLS
            if job.attempts < most:
                await asyncio.to_thread(self.store.requeue, job.id)
                return
            said = f"its process was ended {job.attempts} times ({lost}); ask for less"
        except Exception:
            log.exception("job %s failed", job.id)
            said = "the server could not answer; its log says why"
        await self._note(self.store.finish if finished else self.store.fail, job, said)

    async def _note(self, note: Callable[[str, str], None], job: Job, text: str) -> None:
        """Write what came of a job, again and again while a full disk or the like prevents it."""
        while True:
            try:
                await asyncio.to_thread(note, job.id, text)
            except sqlite3.Error as error:
                log.warning("what came of job %s cannot be kept yet: %s", job.id, error)
                await asyncio.sleep(_KEEP_SECONDS)
            else:
                return

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        while True:
            with _noted("the file of jobs cannot be used"):
                await work()
            await asyncio.sleep(seconds)

    async def _stay(self) -> None:
        """Say that this server lives; end what is no longer its own, take over what others left."""
        running = dict(self._running)
        mine = await asyncio.to_thread(self.store.keep)
        for job_id, task in running.items():
            if job_id not in mine:
                task.cancel()
        await asyncio.to_thread(self.store.release_silent)

    async def _forget(self) -> None:
        await asyncio.to_thread(self.store.forget, self.settings.keep_seconds)


@contextlib.contextmanager
def _noted(what: str) -> Iterator[None]:
    """Go on after an error of the database, which may pass, and write it to the log."""
    try:
        yield
    except sqlite3.Error as error:
        log.warning("%s: %s", what, error)
