"""Long work: asked for, watched, cancelled and fetched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from sse_starlette import EventSourceResponse

from tokenroom.web.jobs import ENDED, Job
from tokenroom.web.messages import invalid_sentence
from tokenroom.web.questions import FORMS, JobQuestion
from tokenroom.web.server import Server, server_of
from tokenroom.web.workers import RefusedQuestionError

_POLL_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = "5"

router = APIRouter(prefix="/v1/jobs")
OfServer = Annotated[Server, Depends(server_of)]


@router.post("", summary="Begin long work", status_code=202)
async def begin(asked: JobQuestion, server: OfServer) -> Response:
    """Queue a job; 429 when as many wait as may."""
    try:
        question = FORMS[asked.kind].model_validate({"language": asked.language, **asked.question})
    except ValidationError as error:
        raise RefusedQuestionError("question: " + invalid_sentence(error.errors())) from None
    most = server.settings.max_queued_jobs
    job = await asyncio.to_thread(server.store.add, asked.kind, question.model_dump(), most=most)
    if job is None:
        raise HTTPException(
            429,
            f"{most} jobs wait already, as many as this server lets; ask again later",
            headers={"retry-after": _RETRY_SECONDS},
        )
    server.runner.wake()
    return JSONResponse(_seen(job), 202, headers={"location": f"/v1/jobs/{job.id}"})


@router.get("/{job_id}", summary="Where a job stands")
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


@router.delete("/{job_id}", summary="End a job")
async def cancel(job_id: str, server: OfServer) -> Response:
    """End it and the process that works on it; a job that has ended stays as it is."""
    await _job(server, job_id)
    await server.runner.cancel(job_id)
    return JSONResponse(_seen(await _job(server, job_id)))


@router.get("/{job_id}/events", summary="Watch a job")
async def events(job_id: str, server: OfServer, request: Request) -> EventSourceResponse:
    """Server-sent events: ``progress`` with the job each time it moves, then its end state."""
    await _job(server, job_id)
    return EventSourceResponse(_events(server, job_id, request))


async def _events(server: Server, job_id: str, request: Request) -> AsyncIterator[dict[str, Any]]:
    before: Job | None = None
    while not await request.is_disconnected():
        job = await asyncio.to_thread(server.store.get, job_id)
        if job is None:
            return
        if job != before:
            event = job.state if job.state in ENDED else "progress"
            yield {"event": event, "data": json.dumps(_seen(job))}
            before = job
        if job.state in ENDED:
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _job(server: Server, job_id: str) -> Job:
    job = await asyncio.to_thread(server.store.get, job_id)
    if job is None:
        raise HTTPException(404, "there is no such job; it may have been kept long enough")
    return job


def _seen(job: Job) -> dict[str, Any]:
    return asdict(job)
