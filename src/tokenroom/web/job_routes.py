"""Long work: asked for, watched, cancelled and fetched."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ValidationError

from tokenroom.web.jobs import ENDED, Job
from tokenroom.web.messages import invalid_sentence
from tokenroom.web.questions import FORMS, JobQuestion
from tokenroom.web.server import Server, server_of
from tokenroom.web.workers import RefusedQuestionError

_POLL_SECONDS: Final = 0.2
_PING_SECONDS: Final = 15.0  # proxies close what is silent for long
_RETRY_SECONDS: Final = "5"

_EVENT: Final = {
    "description": "One event; data is the job as JSON.",
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
    "required": ["event", "data"],
}

router = APIRouter(prefix="/v1/jobs")
OfServer = Annotated[Server, Depends(server_of)]


@router.post("", summary="Begin long work", status_code=202, responses={202: {"model": Job}})
async def begin(asked: JobQuestion, server: OfServer) -> Response:
    """Queue a job; 429 when as many wait as may."""
    try:
        question = FORMS[asked.kind].model_validate({"language": asked.language, **asked.question})
    except ValidationError as error:
        said = "question: " + invalid_sentence(error.errors())
        raise RefusedQuestionError(said) from None
    return await begun(server, asked.kind, question)


async def begun(server: Server, kind: str, question: BaseModel) -> Response:
    """The answer with a job that was queued just now.

    Raises:
        HTTPException: As many wait as may.
        RefusedQuestionError: It can be refused before any work.
    """
    await server.questioner.check(kind, question.model_dump())
    most = server.settings.max_queued_jobs
    job = await asyncio.to_thread(server.store.add, kind, question.model_dump(), most=most)
    if job is None:
        raise HTTPException(
            429,
            f"{most} jobs wait already, as many as this server lets; ask again later",
            headers={"retry-after": _RETRY_SECONDS},
        )
    server.runner.wake()
    return JSONResponse(_seen(job), 202, headers={"location": f"/v1/jobs/{job.id}"})


@router.get("/{job_id}", summary="Where a job stands", responses={200: {"model": Job}})
async def stand(job_id: str, server: OfServer) -> Response:
    """Its state, and how many of its parts are done."""
    return JSONResponse(_seen(await _job(server, job_id)))


@router.get("/{job_id}/result", summary="The result of a finished job")
async def result(job_id: str, server: OfServer) -> Response:
    """What the endpoint of its kind answers; 409 while there is none."""
    job = await _job(server, job_id)
    if job.state != "done":
        raise HTTPException(409, job.error or f"the job is {job.state} and has no result")
    text = await asyncio.to_thread(server.store.result, job_id)
    return Response(text, media_type="application/json")


@router.get("/{job_id}/partial", summary="What a job has found so far")
async def partial(job_id: str, server: OfServer) -> Response:
    """Its result as far as it is known, also of a job that was ended early; 409 while it is not.

    ``partials`` of the job counts up whenever there is a new one. Only searches (``plan``) have
    them.
    """
    job = await _job(server, job_id)
    text = await asyncio.to_thread(server.store.partial, job_id)
    if text is None:
        raise HTTPException(409, f"the job is {job.state} and has found nothing yet")
    return Response(text, media_type="application/json")


@router.delete("/{job_id}", summary="End a job", responses={200: {"model": Job}})
async def cancel(job_id: str, server: OfServer) -> Response:
    """End it and the process that works on it; a job that has ended stays as it is."""
    await _job(server, job_id)
    await server.runner.cancel(job_id)
    return JSONResponse(_seen(await _job(server, job_id)))


@router.get(
    "/{job_id}/events",
    summary="Watch a job",
    responses={
        200: {"content": {"text/event-stream": {"schema": _EVENT}}},
        204: {"description": "The end of the job is known already."},
    },
    response_class=StreamingResponse,
)
async def events(job_id: str, server: OfServer, request: Request) -> Response:
    """Server-sent events: ``progress`` with the job each time it moves, then its end state.

    Who comes back with the ``Last-Event-ID`` of the end gets 204, which browsers do not ask again
    after; who comes back with another is told where the job stands now.
    """
    job = await _job(server, job_id)
    if job.state in ENDED and request.headers.get("last-event-id") == _event_id(job):
        return Response(status_code=204)
    return StreamingResponse(
        _events(server, job_id),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},  # or nginx hands on events when there are many
    )


async def _events(server: Server, job_id: str) -> AsyncIterator[str]:
    """Ends with the job, with the server, or when the client goes away."""
    before: Job | None = None
    told = time.monotonic()
    while not server.ending:
        job = await asyncio.to_thread(server.store.get, job_id)
        if job is None:
            return
        now = time.monotonic()
        if job != before:
            event = job.state if job.state in ENDED else "progress"
            yield f"id: {_event_id(job)}\nevent: {event}\ndata: {json.dumps(_seen(job))}\n\n"
            before, told = job, now
        elif now - told > _PING_SECONDS:
            yield ": still there\n\n"
            told = now
        if job.state in ENDED:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _event_id(job: Job) -> str:
    return f"{job.state}-{job.attempts}-{job.done}"


async def _job(server: Server, job_id: str) -> Job:
    job = await asyncio.to_thread(server.store.get, job_id)
    if job is None:
        raise HTTPException(404, "there is no such job; it may have been kept long enough")
    return job


def _seen(job: Job) -> dict[str, Any]:
    return asdict(job)
