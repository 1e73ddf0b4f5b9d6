"""The application on an address, until it is told to stop."""

from __future__ import annotations

import signal
import socket
import webbrowser
from collections.abc import Callable

import uvicorn

from tokenroom.errors import CommandLineError
from tokenroom.web.app import create_app
from tokenroom.web.server_settings import ServerSettings

_SHUTDOWN_SECONDS = 5  # answers being sent may take so long once told to stop


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
    """
    config = uvicorn.Config(
        create_app(settings),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    listening = _listen(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{listening.getsockname()[1]}/"

    class Announced(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                on_ready(address)
                if open_page:
                    webbrowser.open(address)

    for ending in (signal.SIGINT, signal.SIGTERM):
        # uvicorn sends itself again what it was told to end by; here that is a good end
        signal.signal(ending, lambda *_: None)
    Announced(config).run(sockets=[listening])


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
