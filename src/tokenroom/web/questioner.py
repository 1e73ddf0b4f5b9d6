"""Answers questions at once: cheap ones here, those that may take long in a worker."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from concurrent.futures import TimeoutError
from typing import Any, Final

from pebble import ProcessExpired, ProcessPool

from tokenroom.errors import TokenroomError
from tokenroom.web.answers import ModelFinder
from tokenroom.web.kinds import ANSWERS
from tokenroom.web.questions import DeploymentQuestion, FitQuestion, SpeedQuestion
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.workers import RefusedQuestionError, answer, new_pool

_REMEMBERED: Final = 2048
_MOST_WAITING: Final = 64
_WORKERS: Final = 1


class BusyError(Exception):
    """More questions wait for a worker than may."""


class Questioner:
    """What answers the questions of one server."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.find = ModelFinder(allow_hub=settings.allow_hub)
        self._pool: ProcessPool | None = None
        self._waiting = 0
        self._answers: OrderedDict[str, bytes] = OrderedDict()

    def start(self) -> None:
        """Get the worker ready, so that the first question does not wait for it."""
        self._pool = new_pool(_WORKERS, memory_bytes=self.settings.worker_memory_bytes)

    async def stop(self) -> None:
        """End the worker."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.stop()
            await asyncio.to_thread(pool.join)

    async def fit(self, question: FitQuestion) -> bytes:
        """The JSON text that answers a question, from memory when it was asked before.

        Raises:
            RefusedQuestionError: The library refuses the question.
            BusyError: Too many questions wait.
        """
        return await self._answer("fit", question, quick=not question.changes)

    async def speed(self, question: SpeedQuestion) -> bytes:
        """The same for speed."""
        return await self._answer("speed", question, quick=question.sweep is None)

    async def _answer(self, kind: str, question: DeploymentQuestion, *, quick: bool) -> bytes:
        """What is ``quick`` and reads nothing pasted takes a millisecond or two, here."""
        key = kind + question.model_dump_json()
        known = self._answers.get(key)
        if known is not None:
            self._answers.move_to_end(key)
            return known
        if quick and question.config is None and question.command is None:
            try:
                found = json.dumps(ANSWERS[kind](question, self.find)).encode()
            except TokenroomError as error:
                raise RefusedQuestionError(str(error)) from None
        else:
            found = await self.ask(kind, question.model_dump())
        self._answers[key] = found
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return found

    async def ask(self, kind: str, question: dict[str, Any]) -> bytes:
        """The same from a worker, for a question of any kind.

        Raises:
            RefusedQuestionError: The library refuses the question, or it takes too long.
            BusyError: Too many questions wait.
        """
        assert self._pool is not None
        if self._waiting >= _MOST_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            future = self._pool.schedule(
                answer,
                args=(kind, question, self.settings.allow_hub),
                timeout=self.settings.question_seconds,
            )
            return (await asyncio.wrap_future(future)).encode()
        except TimeoutError:
            limit = self.settings.question_seconds
            raise RefusedQuestionError(
                f"the question took longer than the {limit:g} s it may; ask for less, or as a job"
            ) from None
        except ProcessExpired:
            raise RefusedQuestionError(
                "the question ended the process that worked on it; ask for less"
            ) from None
        finally:
            self._waiting -= 1
