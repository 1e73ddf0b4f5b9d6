"""The application on an address, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn

from tokenroom.errors import CommandLineError
from tokenroom.web.app import create_app
from tokenroom.web.jobs import JobStore
from tokenroom.web.server import Server
from tokenroom.web.server_settings import ServerSettings

_SHUTDOWN_SECONDS: Final = 5  # answers being sent may take so long once told to stop
_CONNECTIONS: Final = 1000  # beyond them clients are told to come back
_KEEP_ALIVE_SECONDS: Final = 5
_HEADER_BYTES: Final = 65_536
_SILENT_SECONDS: Final = 20.0  # a connection may take so long over the head of a request
_LOOK_TICKS: Final = 20  # of uvicorn's, ten a second


def serve(
    settings: ServerSettings,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    open_page: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; what is being answered is finished first.

    Args:
        settings: Limits and permissions.
        host: Address to listen on.
        port: Port; 0 for any that is free.
        on_ready: Called with the page's address once it listens.
        open_page: Open the page in the browser then.

    Raises:
        CommandLineError: The address cannot be listened on.
        DatabaseError: The file of jobs cannot be used.
    """
    JobStore(settings.database).open()
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        limit_concurrency=_CONNECTIONS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        ws="none",
    )
    listening = _listen(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{listening.getsockname()[1]}/"

    class Announced(_Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            self.loop = asyncio.get_running_loop()
            if self.started:
                on_ready(address)
                if open_page:
                    threading.Thread(target=_open, args=(address,), daemon=True).start()

    Announced(config, app.state.server).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn, which by itself waits for the head of a request for ever.

    Told to end twice it drops what it is answering, and ends its workers in good order still.
    """

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self.server = server
        self.loop: asyncio.AbstractEventLoop | None = None
        self._silent: dict[Any, tuple[Any, float]] = {}

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called at SIGINT and SIGTERM."""
        if self.should_exit and self.loop is not None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # as it was told to
            self.loop.call_soon_threadsafe(self._drop)
        self.should_exit = self.server.ending = True

    def _drop(self) -> None:
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.close()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; True ends the server."""
        if counter % _LOOK_TICKS == 0:
            self._close_silent(time.monotonic())
        return await super().on_tick(counter)

    def _close_silent(self, now: float) -> None:
        """Close connections on which no request has been under way for long.

        A request that came and went between two looks shows in the connection's cycle, which is
        another one then.
        """
        silent: dict[Any, tuple[Any, float]] = {}
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and not cycle.response_complete:
                continue
            before, since = self._silent.get(connection, (cycle, now))
            silent[connection] = (cycle, since if before is cycle else now)
            transport = getattr(connection, "transport", None)
            if now - silent[connection][1] > _SILENT_SECONDS and transport is not None:
                transport.close()
        self._silent = silent


def _open(address: str) -> None:
    """Open the page in a browser; in a thread, since some browsers run until they are closed."""
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(address)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family=family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise CommandLineError(
            f"{host} port {port} cannot be listened on: {error.strerror or error}; give another "
            f"--host or --port"
        ) from error
    return listening
