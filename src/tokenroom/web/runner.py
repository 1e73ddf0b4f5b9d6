"""Takes queued jobs one by one to the workers, and keeps what they bring back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import CancelledError, TimeoutError
from typing import Any, Final

from pebble import ProcessExpired, ProcessPool

from tokenroom.web.jobs import Job, JobStore
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.workers import RefusedQuestionError, new_pool, run_job

_MAX_ATTEMPTS: Final = 2  # a job whose worker was killed is tried once more
_IDLE_SECONDS: Final = 1.0  # how long a job of another process's server may go unseen
_FORGET_SECONDS: Final = 3600.0

log = logging.getLogger(__name__)


class JobRunner:
    """The jobs of one server."""

    def __init__(self, store: JobStore, settings: ServerSettings) -> None:
        self.store = store
        self.settings = settings
        self._pool: ProcessPool | None = None
        self._running: dict[str, Any] = {}
        self._wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to take jobs."""
        self._pool = new_pool(
            self.settings.job_workers,
            memory_bytes=self.settings.worker_memory_bytes,
            nice=True,
        )
        self._keep(self._take_jobs())
        self._keep(self._forget())

    async def stop(self) -> None:
        """End workers; jobs that run are left to the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.stop()
            await asyncio.to_thread(pool.join)

    def wake(self) -> None:
        """Say that a job was queued."""
        self._wanted.set()

    async def cancel(self, job_id: str) -> bool:
        """End a job, and its worker with it; False when it had ended."""
        ended = await asyncio.to_thread(self.store.cancel, job_id)
        future = self._running.get(job_id)
        if future is not None:
            future.cancel()
        return ended

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_jobs(self) -> None:
        while True:
            while len(self._running) < self.settings.job_workers:
                taken = await asyncio.to_thread(self.store.take)
                if taken is None:
                    break
                self._begin(*taken)
            self._wanted.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _IDLE_SECONDS)

    def _begin(self, job: Job, question: dict[str, Any]) -> None:
        assert self._pool is not None
        self._running[job.id] = future = self._pool.schedule(
            run_job,
            args=(job.kind, question, self.settings.allow_hub, job.id, self.store.path),
            timeout=self.settings.job_seconds,
        )
        self._keep(self._finish(job, future))

    async def _finish(self, job: Job, future: Any) -> None:
        try:
            result = await asyncio.wrap_future(future)
            await asyncio.to_thread(self.store.finish, job.id, result)
        except RefusedQuestionError as refused:
            await asyncio.to_thread(self.store.fail, job.id, str(refused))
        except TimeoutError:
            limit = self.settings.job_seconds
            text = f"the job took longer than the {limit:g} s it may; ask for less"
            await asyncio.to_thread(self.store.fail, job.id, text)
        except ProcessExpired as died:
            await asyncio.to_thread(self._died, job, str(died))
        except (CancelledError, asyncio.CancelledError):
            if self._pool is None or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
        except Exception:
            log.exception("job %s failed", job.id)
            text = "the server could not answer; its log says why"
            await asyncio.to_thread(self.store.fail, job.id, text)
        finally:
            self._running.pop(job.id, None)
            self.wake()

    def _died(self, job: Job, reason: str) -> None:
        """A worker that was killed: once more, then no more."""
        if job.attempts < _MAX_ATTEMPTS:
            self.store.requeue(job.id)
        else:
            self.store.fail(job.id, f"its process was ended twice ({reason}); ask for less")

    async def _forget(self) -> None:
        while True:
            await asyncio.to_thread(self.store.forget, self.settings.keep_seconds)
            await asyncio.sleep(_FORGET_SECONDS)
