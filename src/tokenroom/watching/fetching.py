"""One page of a watched server: asked for once, with an end in sight, and never followed away.

A server under load answers late, so every request ends at a deadline, what it may send is bounded,
and nobody is asked through a proxy or sent on to another address.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tokenroom.errors import WatchError
from tokenroom.watching.addresses import Address

MAX_PAGE_BYTES: Final = 16 * 2**20
_CHUNK_BYTES: Final = 65_536
_SHOWN: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a server answered.

    Attributes:
        status: Status code.
        body: The body.
        content_type: Its type, without parameters.
        start_mark: What a header tells of when the process began, in a unit of its own; another
            one is another process.
    """

    status: int
    body: str
    content_type: str = ""
    start_mark: float | None = None

    @property
    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Fetcher:
    """Asks one server, a page at a time.

    Args:
        address: The server.
        timeout_seconds: Longest that a page may take, from connecting to its last byte.
        api_key: Sent as a bearer token; None for none.
    """

    def __init__(
        self, address: Address, *, timeout_seconds: float, api_key: str | None = None
    ) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._headers = {"accept": "*/*", "user-agent": "tokenroom-watch", "connection": "close"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"

    def get(self, path: str) -> Page:
        """The page at ``path``.

        Raises:
            WatchError: It cannot be had: nobody listens, it takes too long, it is too large.
        """
        address = self._address
        end = time.monotonic() + self._timeout_seconds
        make: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if address.secure:
            make = http.client.HTTPSConnection
        connection = make(address.host, address.port, timeout=self._timeout_seconds)
        # A head that trickles in resets the socket's own time limit with every byte.
        watchdog = threading.Timer(self._timeout_seconds, _hang_up, (connection,))
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.request("GET", address.path + path, headers=self._headers)
            answer = connection.getresponse()
            body = self._body(connection, answer, end)
            return Page(
                status=answer.status,
                body=body.decode("utf-8", "replace"),
                content_type=answer.headers.get_content_type(),
                start_mark=_number(answer.headers.get("Process-Start-Time-Unix")),
            )
        except TimeoutError as error:
            raise self._late(path) from error
        except ssl.SSLError as error:
            raise WatchError(f"{address.url} and TLS: {error.reason or error}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() >= end:
                raise self._late(path) from error
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise WatchError(f"{address.url}{path}: {said.strip()[:_SHOWN]}") from error
        finally:
            watchdog.cancel()
            connection.close()

    def _body(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, end: float
    ) -> bytes:
        """The body, whose parts may each come in time and all of them too late."""
        parts: list[bytes] = []
        size = 0
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if connection.sock is not None:
                connection.sock.settimeout(left)
            part = answer.read1(_CHUNK_BYTES)
            if not part:
                if answer.length or time.monotonic() >= end:  # cut off, or hung up on by us
                    raise http.client.IncompleteRead(b"", answer.length)
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > MAX_PAGE_BYTES:
                raise ValueError(f"a page of more than {MAX_PAGE_BYTES // 2**20} MiB")

    def _late(self, path: str) -> WatchError:
        return WatchError(
            f"{self._address.url}{path}: no answer within {self._timeout_seconds:g} s"
        )


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """End what a connection waits for."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _number(text: str | None) -> float | None:
    """A number of a header."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None
