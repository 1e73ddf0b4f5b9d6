"""What every request passes: a bound on its body, headers that keep pages harmless, figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final, get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenroom.errors import shown
from tokenroom.web.hosts import host_of, is_own, own_names
from tokenroom.web.jobs import State
from tokenroom.web.messages import refusal
from tokenroom.web.server_settings import ServerSettings

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Figures:
    """The server's own metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tokenroom_http_requests",
            "Requests answered.",
            ("method", "path", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "tokenroom_http_request_seconds",
            "Time until the answer was sent.",
            ("method", "path"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.jobs = Gauge("tokenroom_jobs", "Jobs by state.", ("state",), registry=self.registry)

    media_type = CONTENT_TYPE_LATEST

    def text(self, jobs: Mapping[str, int]) -> bytes:
        """All figures in Prometheus's text form, with the jobs there are by state."""
        for state in get_args(State):
            self.jobs.labels(state).set(jobs.get(state, 0))
        return generate_latest(self.registry)


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, figures: Figures, settings: ServerSettings) -> None:
        self.app = app
        self.figures = figures
        self.settings = settings
        self.names = own_names(settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status, method = 500, scope["method"]
        bodiless = method == "HEAD" and not scope["path"].endswith("/events")
        if bodiless:
            scope = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            elif bodiless:
                message = {**message, "body": b""}
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is not None:
                await refusal(scope, receive, sending)
            else:
                await self.app(scope, _Bounded(receive, self.settings), sending)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", None) or "other"
            method = method if route is not None else "other"
            self.figures.requests.labels(method, path, str(status)).inc()
            self.figures.seconds.labels(method, path).observe(time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> Response | None:
        """What a request gets that is addressed to another host, or packed."""
        headers = Headers(scope=scope)
        name = host_of(headers.get("host", ""))
        if name is not None and not is_own(name, self.names):
            return refusal(
                f"the request is addressed to {shown(name)}, which is no name of this server; "
                f"where it is one, start the server with --allowed-host {name[:80]}",
                400,
            )
        packing = headers.get("content-encoding", "identity")
        if packing != "identity":
            return refusal(f"content-encoding is {shown(packing)}; send the body unpacked", 415)
        return None


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most // 2**20} MiB; send less")


class _Bounded:
    """Receives a body, bounded in size and time whatever its headers say."""

    def __init__(self, receive: Receive, settings: ServerSettings) -> None:
        self.receive = receive
        self.most = settings.max_body_bytes
        self.until = asyncio.get_running_loop().time() + settings.body_seconds
        self.got = 0
        self.whole = False

    async def __call__(self) -> Message:
        if self.whole:  # only the client's going away is left to wait for
            return await self.receive()
        try:
            async with asyncio.timeout_at(self.until):
                message = await self.receive()
        except TimeoutError:
            raise HTTPException(408, "the body took too long to come; send it again") from None
        self.whole = not message.get("more_body", False)
        self.got += len(message.get("body", b""))
        if self.got > self.most:
            raise _too_large(self.most)
        return message
