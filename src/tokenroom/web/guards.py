"""What every request passes: a bound on its body, headers that keep pages harmless, figures."""

from __future__ import annotations

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
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenroom.web.jobs import State

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
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

    def __init__(self, app: ASGIApp, *, figures: Figures, max_body_bytes: int) -> None:
        self.app = app
        self.figures = figures
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, _Bounded(receive, self.max_body_bytes), sending)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", None) or "other"
            method = scope["method"] if route is not None else "other"
            self.figures.requests.labels(method, path, str(status)).inc()
            self.figures.seconds.labels(method, path).observe(time.perf_counter() - started)


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most // 2**20} MiB; send less")


class _Bounded:
    """Receives a body that may not grow beyond a bound, whatever its headers say."""

    def __init__(self, receive: Receive, most: int) -> None:
        self.receive = receive
        self.most = most
        self.got = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.got += len(message.get("body", b""))
        if self.got > self.most:
            raise _too_large(self.most)
        return message
