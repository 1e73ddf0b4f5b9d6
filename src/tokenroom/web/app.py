"""The application: the API, the page, and what every request passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from tokenroom.web import job_routes, routes
from tokenroom.web.guards import Guard
from tokenroom.web.messages import invalid_sentence
from tokenroom.web.openapi import document
from tokenroom.web.questioner import BusyError
from tokenroom.web.server import Server
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.workers import RefusedQuestionError

PAGE: Final = Path(__file__).with_name("page")
"""The built page; missing where the package was built without a JavaScript builder."""

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
    app.add_middleware(Guard, figures=server.figures, max_body_bytes=settings.max_body_bytes)
    _answer_errors(app)
    _observe(app, server)
    app.include_router(routes.router)
    app.include_router(job_routes.router)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    if (PAGE / "index.html").is_file():
        app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    return app


def _observe(app: FastAPI, server: Server) -> None:
    @app.get("/health", summary="Whether the server works")
    async def health() -> Response:
        await asyncio.to_thread(server.store.counts)
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", summary="Figures of the server for Prometheus")
    async def metrics() -> Response:
        counts = await asyncio.to_thread(server.store.counts)
        return Response(server.figures.text(counts), media_type=server.figures.media_type)


def _answer_errors(app: FastAPI) -> None:
    def refusal(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"error": {"message": message}}, status, headers=headers)

    @app.exception_handler(RefusedQuestionError)
    async def refused(_: Request, error: RefusedQuestionError) -> Response:
        return refusal(str(error), 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return refusal(invalid_sentence(error.errors()), 422)

    @app.exception_handler(BusyError)
    async def busy(_: Request, __: BusyError) -> Response:
        return refusal(
            "more questions wait than this server lets; ask again", 503, {"retry-after": "1"}
        )

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        return refusal(str(error.detail), error.status_code, dict(error.headers or {}))
