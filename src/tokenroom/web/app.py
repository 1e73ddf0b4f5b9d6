"""The application: the API, the page, and what every request passes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import Scope

from tokenroom.web import job_routes, routes
from tokenroom.web.answer_forms import Health
from tokenroom.web.guards import Guard
from tokenroom.web.messages import invalid_sentence, refusal, told
from tokenroom.web.openapi import document
from tokenroom.web.questioner import BusyError
from tokenroom.web.server import Server
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.workers import RefusedQuestionError

PAGE: Final = Path(__file__).with_name("page")
"""The built page; missing where the package was built without a JavaScript builder."""

_ASKED_BY_POST: Final = frozenset(
    route.path
    for route in (*routes.router.routes, *job_routes.router.routes)
    if isinstance(route, APIRoute) and "POST" in (route.methods or ())
)

log = logging.getLogger(__name__)

_COMPRESS_FROM: Final = 2048
_COMPRESSION: Final = 4


def create_app(settings: ServerSettings | None = None) -> FastAPI:
    """The application, with its limits and permissions."""
    settings = settings if settings is not None else ServerSettings()
    server = Server(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        server.start()
        try:
            yield
        finally:
            await server.stop()

    app = FastAPI(title="tokenroom", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.server = server
    app.add_middleware(GZipMiddleware, minimum_size=_COMPRESS_FROM, compresslevel=_COMPRESSION)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["content-type"],
        )
    app.add_middleware(Guard, figures=server.figures, settings=settings)
    _answer_errors(app)
    _observe(app, server)
    app.include_router(routes.router)
    app.include_router(job_routes.router)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    if (PAGE / "index.html").is_file():
        app.mount("/", _Page(directory=PAGE, html=True), name="page")
    return app


def _observe(app: FastAPI, server: Server) -> None:
    @app.get("/health", summary="Whether the server works", responses={200: {"model": Health}})
    async def health() -> Response:
        await asyncio.to_thread(server.store.counts)
        return JSONResponse({"status": "ok"})

    @app.get(
        "/metrics",
        summary="Figures of the server for Prometheus",
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        counts = await asyncio.to_thread(server.store.counts)
        return Response(server.figures.text(counts), media_type=server.figures.media_type)


class _Page(StaticFiles):
    """The page's files, which browsers keep and ask about again."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if f"/{path}" in _ASKED_BY_POST:
            raise HTTPException(405, headers={"allow": "POST"})
        return await super().get_response(path, scope)

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["cache-control"] = "no-cache"
        return response


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(RefusedQuestionError)
    async def refused(_: Request, error: RefusedQuestionError) -> Response:
        return refusal(str(error), 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return refusal(told(error.body, invalid_sentence(error.errors())), 422)

    @app.exception_handler(BusyError)
    async def busy(_: Request, __: BusyError) -> Response:
        return refusal(
            "more questions wait than this server lets; ask again", 503, {"retry-after": "1"}
        )

    @app.exception_handler(sqlite3.Error)
    async def unkept(_: Request, error: sqlite3.Error) -> Response:
        log.warning("the file of jobs cannot be used: %s", error)
        return refusal(f"the server cannot use its file of jobs ({error}); ask again later", 503)

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return refusal("the server could not answer; its log says why", 500)

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        return refusal(str(error.detail), error.status_code, dict(error.headers or {}))
