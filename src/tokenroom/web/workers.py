"""Processes that answer what may take long, each bounded in time and memory."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pebble import ProcessPool
from pydantic import ValidationError

from tokenroom.errors import TokenroomError
from tokenroom.web.answers import ModelFinder
from tokenroom.web.jobs import JobStore
from tokenroom.web.kinds import ANSWERS, CHECKS
from tokenroom.web.messages import invalid_sentence, told
from tokenroom.web.questions import FORMS
from tokenroom.web.worker_pool import Workers

_NICE = 10  # questions answered at once come first
_MAX_TASKS = 500  # a worker is replaced after that many, so that nothing it kept adds up
_REPORTS = 100  # how often at most a job tells how far it is


class RefusedQuestionError(Exception):
    """A question that cannot be answered, for the reason its message gives."""


def new_workers(number: int, *, memory_bytes: int, nice: bool = False) -> Workers:
    """Fresh processes; one that outlives its time or memory is replaced."""
    return Workers(
        lambda: ProcessPool(
            max_workers=number,
            max_tasks=_MAX_TASKS,
            initializer=_limit,
            initargs=(memory_bytes, nice),
            context=get_context("spawn"),
        )
    )


def answer(kind: str, question: dict[str, Any], allow_hub: bool) -> bytes:
    """The JSON text that answers a question of that kind.

    Raises:
        RefusedQuestionError: The library refuses it; plain, so that it crosses processes.
    """
    return _answer(kind, question, allow_hub)


def check(kind: str, question: dict[str, Any], allow_hub: bool) -> None:
    """Refuse a question of a job that can be refused before any work.

    Raises:
        RefusedQuestionError: The library refuses it.
    """
    try:
        CHECKS[kind](FORMS[kind].model_validate(question), _finder(allow_hub))
    except TokenroomError as error:
        raise RefusedQuestionError(told(question, error)) from None


def run_job(kind: str, question: dict[str, Any], allow_hub: bool, job: str, database: Path) -> str:
    """The same for a job as text, whose progress goes to its row of the database.

    Raises:
        RefusedQuestionError: The library refuses it.
    """
    store = JobStore(database)
    told = 0

    def on_progress(
        done: int,
        total: int,
        figures: Mapping[str, float] | None = None,
        partial: Mapping[str, Any] | None = None,
        /,
    ) -> None:
        nonlocal told
        if figures is None:
            if done != total and done * _REPORTS < (told + 1) * total:
                return
            told = done * _REPORTS // total
        with suppress(sqlite3.Error):  # how far it is can be told the next time
            text = None if partial is None else json.dumps(partial)
            store.progress(job, done, total, figures, text)

    return _answer(kind, question, allow_hub, on_progress=on_progress).decode()


def _answer(kind: str, question: dict[str, Any], allow_hub: bool, **options: Any) -> bytes:
    try:
        asked = FORMS[kind].model_validate(question)
        # not pydantic's writer: what is pasted may hold text that is no Unicode
        return json.dumps(ANSWERS[kind](asked, _finder(allow_hub), **options)).encode()
    except ValidationError as error:
        raise RefusedQuestionError(told(question, invalid_sentence(error.errors()))) from None
    except TokenroomError as error:
        raise RefusedQuestionError(told(question, error)) from None
    except MemoryError:
        raise RefusedQuestionError(
            "the question needs more memory than this server gives one"
        ) from None


@lru_cache(maxsize=2)
def _finder(allow_hub: bool) -> ModelFinder:
    return ModelFinder(allow_hub=allow_hub)


def _limit(memory_bytes: int, nice: bool) -> None:
    """Bound this process, where the system can."""
    if nice:
        os.nice(_NICE)
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
