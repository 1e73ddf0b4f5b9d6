"""Workers that are killed, or whose pool ends, are replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from pebble import ProcessPool

from tokenroom.web.worker_pool import PoolLostError, WorkerLostError, Workers
from tokenroom.web.workers import RefusedQuestionError, answer, new_workers

SWEEP = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100", "sweep": "concurrency=1,2"}


def in_own_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine apart from this thread, whose loop a browser's tests may have running."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def workers() -> Workers:
    return Workers(lambda: ProcessPool(max_workers=1, context=get_context("spawn")))


def with_workers(work: Callable[[Workers], Awaitable[None]]) -> None:
    async def whole() -> None:
        made = workers()
        made.start()
        try:
            await work(made)
        finally:
            await made.stop()

    in_own_thread(whole())


def test_a_worker_killed_at_work_is_told_and_replaced() -> None:
    async def work(made: Workers) -> None:
        process = await made.run(os.getpid, timeout=60)
        sleeping = asyncio.ensure_future(made.run(time.sleep, 60, timeout=90))
        await asyncio.sleep(0.5)
        os.kill(process, signal.SIGKILL)
        with pytest.raises((WorkerLostError, PoolLostError)):
            await sleeping
        assert await made.run(os.getpid, timeout=60) != process

    with_workers(work)


def test_a_worker_killed_while_it_waits_ends_no_later_task() -> None:
    async def work(made: Workers) -> None:
        process = await made.run(os.getpid, timeout=60)
        os.kill(process, signal.SIGKILL)
        await asyncio.sleep(1)  # the pool finds out and ends
        assert await made.run(os.getpid, timeout=60) != process

    with_workers(work)


def test_a_pool_whose_thread_died_is_replaced_and_what_was_in_it_told() -> None:
    async def work(made: Workers) -> None:
        sleeping = asyncio.ensure_future(made.run(time.sleep, 60, timeout=90))
        await asyncio.sleep(0.5)
        pool = made._pool
        assert pool is not None
        pool._pool_manager.task_manager.tasks.clear()  # as after a result that came while given up
        pool._context._status = type(pool._context.status).ERROR
        with pytest.raises(PoolLostError):
            await sleeping
        assert made._pool is not pool
        assert await made.run(abs, -3, timeout=60) == 3

    with_workers(work)


def test_a_task_given_up_ends_its_worker_and_a_slow_one_its_time() -> None:
    async def work(made: Workers) -> None:
        process = await made.run(os.getpid, timeout=60)
        sleeping = asyncio.ensure_future(made.run(time.sleep, 60, timeout=90))
        await asyncio.sleep(0.5)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert await made.run(os.getpid, timeout=60) != process
        with pytest.raises(TimeoutError):
            await made.run(time.sleep, 60, timeout=0.2)
        assert await made.run(abs, -3, timeout=60) == 3

    with_workers(work)


def test_a_question_cannot_exceed_its_memory() -> None:
    async def work() -> None:
        made = new_workers(1, memory_bytes=400 * 2**20)
        made.start()
        try:
            with pytest.raises((RefusedQuestionError, MemoryError)):
                await made.run(bytearray, 2**30, timeout=60)
            found = await made.run(
                answer, "sweep", SWEEP | {"sweep": "concurrency=1,2"}, False, timeout=60
            )
            assert b'"points"' in found
        finally:
            await made.stop()

    in_own_thread(work())
