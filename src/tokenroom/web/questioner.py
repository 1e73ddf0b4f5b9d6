"""Answers questions at once: cheap ones here, those that may take long in a worker."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from pydantic_core import to_json

from tokenroom.errors import TokenroomError
from tokenroom.reports.messages import Language
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.web.answers import ModelFinder
from tokenroom.web.kinds import ANSWERS, CHECKS
from tokenroom.web.questions import (
    ClaimsQuestion,
    DeploymentQuestion,
    FitQuestion,
    SpeedQuestion,
)
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.worker_pool import PoolLostError, WorkerLostError
from tokenroom.web.workers import RefusedQuestionError, answer, check, new_workers

_REMEMBERED_BYTES: Final = 32 * 2**20
_MOST_WAITING: Final = 64
_WORKERS: Final = 1
_TRIES: Final = 2  # a pool may be lost through another question


class BusyError(Exception):
    """More questions wait for a worker than may."""


class Questioner:
    """What answers the questions of one server."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.find = ModelFinder(allow_hub=settings.allow_hub)
        self._workers = new_workers(_WORKERS, memory_bytes=settings.worker_memory_bytes)
        self._waiting = 0
        self._answers: OrderedDict[str, bytes] = OrderedDict()
        self._answers_bytes = 0

    def start(self) -> None:
        """Get the worker ready, so that the first question does not wait for it."""
        self._workers.start()

    async def stop(self) -> None:
        """End the worker."""
        await self._workers.stop()

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

    async def claims(self, question: ClaimsQuestion) -> bytes:
        """The same for published claims."""
        return await self._answer("claims", question, quick=False)

    async def _answer(
        self, kind: str, question: DeploymentQuestion | ClaimsQuestion, *, quick: bool
    ) -> bytes:
        """What is ``quick`` and reads nothing pasted takes a millisecond or two, here."""
        key = kind + question.model_dump_json()
        known = self._answers.get(key)
        if known is not None:
            self._answers.move_to_end(key)
            return known
        plain = isinstance(question, DeploymentQuestion) and not (
            question.config or question.command
        )
        if quick and plain:
            try:
                found = to_json(ANSWERS[kind](question, self.find))
            except TokenroomError as error:
                raise RefusedQuestionError(
                    refusal_in(Language(question.language), str(error))
                ) from None
        else:
            found = await self.ask(kind, question.model_dump())
        self._remember(key, found)
        return found

    def _remember(self, key: str, found: bytes) -> None:
        """Keep an answer; those not asked for longest make room for it."""
        if key in self._answers:  # asked twice at once
            return
        self._answers[key] = found
        self._answers_bytes += len(key) + len(found)
        while self._answers_bytes > _REMEMBERED_BYTES:
            old, dropped = self._answers.popitem(last=False)
            self._answers_bytes -= len(old) + len(dropped)

    async def ask(self, kind: str, question: dict[str, Any]) -> bytes:
        """The same from a worker, for a question of any kind.

        Raises:
            RefusedQuestionError: The library refuses the question, or it takes too long.
            BusyError: Too many questions wait.
        """
        found: bytes = await self._work(answer, kind, question)
        return found

    async def check(self, kind: str, question: dict[str, Any]) -> None:
        """Refuse a question of a job that can be refused before any work.

        Raises:
            RefusedQuestionError: The library refuses it, or looking it up takes too long.
            BusyError: Too many questions wait.
        """
        if kind in CHECKS:
            await self._work(check, kind, question)

    async def _work(self, function: Callable[..., Any], kind: str, question: dict[str, Any]) -> Any:
        if self._waiting >= _MOST_WAITING:
            raise BusyError
        self._waiting += 1
        limit = self.settings.question_seconds
        try:
            for _ in range(_TRIES):
                with suppress(PoolLostError):
                    return await self._workers.run(
                        function, kind, question, self.settings.allow_hub, timeout=limit
                    )
            raise BusyError
        except TimeoutError:
            raise RefusedQuestionError(
                f"the question took longer than the {limit:g} s it may; ask for less, or as a job"
            ) from None
        except WorkerLostError:
            raise RefusedQuestionError(
                "the question ended the process that worked on it; ask for less"
            ) from None
        finally:
            self._waiting -= 1
